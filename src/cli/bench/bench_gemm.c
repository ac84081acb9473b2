/* bench gemm: each matrix product of a net as the trainer computes it, whole and between polls,
 * against the libraries' own call. One process. */
#include "cli/bench/bench.h"

#include "cli/bench/step_rig.h"
#include "cli/train/step_opts.h"
#include "machine/operands.h"
#include "mpi/rounds.h"
#include "nn/gemm.h"
#include "nn/gemm_backend.h"
#include "prof/clock.h"

#include <math.h>

enum { OURS, POLLED, DNNL, CBLAS, SIDES };
#define RUN_S 0.5e-3 /* calls in a row, at least */

static const gw_opt opts[] = {
#include "cli/train/step_opts.def"
    {"inputs", GW_OPT_INT, "784", 1, 1 << 24, NULL, "N", "features per sample",
     .group = "Benchmark"},
    {"classes", GW_OPT_INT, "10", 2, GW_MAX_CLASSES, NULL, "N", "classes of the labels"},
    {"rounds", GW_OPT_INT, "15", 3, 10000, NULL, "N", "timed runs per product, in turns"},
    GW_BENCH_JSON,
    {0}};

static const char notes[] =
    "'ours' computes as the trainer does where nobody polls, 'polled' in the pieces of a run that\n"
    "does; 'dnnl' and 'cblas' are one bare call of the library with all threads ('-': it has no\n"
    "threads of its own here). 'x best' = ours by the faster bare call, 'x ours' = polled by "
    "ours.\n"
    "docs/benchmarks.md defines every figure.";

static struct {
    gw_train_config c;
    gw_products products;
    int rounds;
    double sum[SIDES], best_sum; /* of medians; of each product's faster library */
} b;

static gw_err gemm_prepare(gw_bench_run *run) {
    b.rounds = (int)gw_args_int(run->args, "rounds");
    return gw_step_opts_read(&b.c, run->args, "bench");
}

/* ---- measuring ---- */

static void gemm_nobody(void *ctx) {
    (void)ctx;
}

/* NULL: it is no bare call, or this program has no such library. */
static const gw_gemm_backend *gemm_library(int side) {
#ifdef GW_HAVE_DNNL
    if (side == DNNL)
        return &gw_gemm_dnnl;
#endif
#ifdef GW_HAVE_CBLAS
    if (side == CBLAS)
        return &gw_gemm_cblas;
#endif
    (void)side;
    return NULL;
}

static void gemm_call(int side, const gw_operands *o) {
    const gw_gemm_backend *library = gemm_library(side);
    const gw_product *p = &o->of;
    if (library) {
        library->product(p->ta, p->tb, p->m, p->n, p->k, o->a, o->lda, o->b, o->ldb, o->beta, o->c,
                         p->n);
        return;
    }
    gw_gemm_between(side == POLLED ? gemm_nobody : NULL, NULL);
    gw_operands_multiply(o);
    gw_gemm_between(NULL, NULL);
}

/* Whether there is such a call: a library that keeps to one thread is no measure for several. */
static bool gemm_exists(int side) {
    const gw_gemm_backend *library = gemm_library(side);
    return library ? b.c.run.threads == 1 || library->threads : side == OURS || side == POLLED;
}

static double gemm_run_calls(int side, const gw_operands *o, int calls) {
    uint64_t start = gw_clock_ticks();
    for (int i = 0; i < calls; i++)
        gemm_call(side, o);
    return gw_clock_since(start) / calls;
}

/* A product whose calls take turns. */
typedef struct turns {
    const gw_operands *o;
    int calls; /* in a row */
    gw_samples times[SIDES];
} turns;

static gw_err gemm_one_turn(void *ctx, int side, double *unused) {
    turns *t = ctx;
    (void)unused;
    return gw_samples_add(&t->times[side], gemm_run_calls(side, t->o, t->calls));
}

static gw_err gemm_measure_product(const gw_operands *o, uint64_t seed, double median[SIDES]) {
    turns t = {.o = o};
    gw_rounds rounds = {.seed = seed, .once = gemm_one_turn, .ctx = &t};
    bool in[SIDES];
    gw_err e = GW_OK;
    for (int i = 0; i < SIDES; i++)
        in[i] = gemm_exists(i);
    gemm_run_calls(OURS, o, 1);
    double one = gemm_run_calls(OURS, o, 1);
    t.calls = one < RUN_S ? (int)(RUN_S / one) + 1 : 1;
    for (int round = 0; round <= b.rounds && e == GW_OK; round++) {
        e = gw_rounds_next(&rounds, SIDES, in, NULL);
        for (int i = 0; i < SIDES && round == 0; i++)
            t.times[i].n = 0; /* warm-up */
    }
    for (int i = 0; i < SIDES; i++) {
        median[i] = e == GW_OK && in[i] ? gw_stats_median(t.times[i].x, t.times[i].n) : NAN;
        gw_samples_free(&t.times[i]);
    }
    return e == GW_OK ? gw_gemm_check() : e;
}

/* ---- results ---- */

static const gw_bench_table table = {
    .form = "%-20s %-13s %10.1u %10.1u %10.1u %10.1u %7.3f %7.3f",
    .heads = "product|by|ours us|polled us|dnnl us|cblas us|x best|x ours",
    .kept = "ssddd",
    .keys = "|whole|ours_s|polled_s|dnnl_s|cblas_s|ratio_best|ratio_polled|pieced|operands|m|n|k"};

static void gemm_report_product(const gw_gemm_choice *c, const double s[SIDES], json_t *rows) {
    const gw_product *p = &c->of;
    double best = fmin(s[DNNL], s[CBLAS]); /* of a number and NaN it is the number */
    char name[64], how[3] = {p->ta ? 't' : 'n', p->tb ? 't' : 'n', 0};
    gw_gemm_cuts cuts = gw_gemm_pieces(p, b.products.plan.piece);
    snprintf(name, sizeof name, "%s %dx%dx%d", how, p->m, p->n, p->k);
    json_t *row = gw_bench_row(&table, rows,
                               GW_TEXTS(name, gw_gemm_way_name(c->whole, b.c.run.threads),
                                        gw_gemm_way_name(c->pieced, b.c.run.threads), how),
                               GW_NUMBERS(s[OURS], s[POLLED], s[DNNL], s[CBLAS], s[OURS] / best,
                                          s[POLLED] / s[OURS], p->m, p->n, p->k));
    json_object_set_new(row, "pieces", json_pack("[i,i,i]", cuts.rows, cuts.cols, cuts.depth));
    for (int i = 0; i < SIDES; i++)
        b.sum[i] += s[i];
    b.best_sum += best;
}

static gw_err gemm_measure(gw_bench_run *run, bool *own) {
    gw_model_spec spec = gw_rig_spec(&b.c);
    gw_share share = gw_share_whole(&spec);
    gw_shard whole;
    gw_products_setup setup = {.comm = run->place.comm,
                               .load = {.shard = &whole, .batch = b.c.batch},
                               .threads = b.c.run.threads,
                               .polls = true};
    (void)own;
    GW_TRY(gw_shard_of(&whole, &spec, &share));
    GW_TRY(gw_products_open(&b.products, &setup));
    gw_bench_place_say(&run->place, "matrix products of a step");
    printf("GEMM by %s\n", gw_gemm_library());
    gw_rig_say_products(&b.products);
    gw_bench_head(&table);
    for (int i = 0; i < b.products.plan.n; i++) {
        const gw_gemm_choice *c = &b.products.plan.choice[i];
        gw_operands o;
        double s[SIDES];
        gw_err e = gw_operands_open(&o, &c->of);
        GW_THEN(e, gemm_measure_product(&o, b.c.run.seed, s));
        gw_operands_close(&o);
        GW_TRY(e);
        gemm_report_product(c, s, run->results);
    }
    gw_bench_row(&table, NULL, GW_TEXTS("all", "", "", ""),
                 GW_NUMBERS(b.sum[OURS], b.sum[POLLED], b.sum[DNNL], b.sum[CBLAS],
                            b.sum[OURS] / b.best_sum, b.sum[POLLED] / b.sum[OURS], 0, 0, 0));
    return GW_OK;
}

const gw_benchmark gw_bench_gemm = {
    .name = "gemm",
    .summary = "each matrix product of a step, against the libraries' own call",
    .opts = opts,
    .notes = notes,
    .prepare = gemm_prepare,
    .measure = gemm_measure,
    .alone = true,
};
