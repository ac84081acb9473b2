/* bench gemm: each matrix product of a net as the trainer computes it, whole and between polls,
 * against the libraries' own call. One process. */
#include "cli/bench/bench.h"

#include "cli/bench/bench_kit.h"
#include "cli/bench/step_rig.h"
#include "cli/train/step_opts.h"
#include "machine/operands.h"
#include "nn/gemm.h"
#include "nn/gemm_backend.h"
#include "prof/clock.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { OURS, POLLED, DNNL, CBLAS, SIDES };
#define RUN_S 0.5e-3 /* calls in a row, at least */

static const gw_opt opts[] = {
#include "cli/train/step_opts.def"
    {"inputs", GW_OPT_INT, "784", 1, 1 << 24, NULL, "N", "features of a sample"},
    {"classes", GW_OPT_INT, "10", 2, 256, NULL, "N", "classes of the labels"},
    {"rounds", GW_OPT_INT, "15", 3, 10000, NULL, "N", "timed runs of each, in turns"},
    {"json", GW_OPT_TEXT, NULL, 0, 0, NULL, "FILE", "write all figures to FILE"},
    {0}};

static const char notes[] =
    "'ours' computes as the trainer does where nobody polls, 'polled' in the pieces of a run that\n"
    "does; 'dnnl' and 'cblas' are one bare call of the library with all threads ('-': it has no\n"
    "threads of its own here). 'x best' = ours by the faster bare call, 'x ours' = polled by "
    "ours.\n"
    "docs/benchmarks.md defines every figure.";

static const char *const side_names[SIDES] = {"ours_s", "polled_s", "dnnl_s", "cblas_s"};

static struct {
    const gw_args *args;
    gw_train_config c;
    gw_bench_place place;
    gw_products products;
    int rounds;
    double sum[SIDES], best_sum; /* of medians; of each product's faster library */
} b;

static gw_err prepare(const gw_args *args, int *level) {
    (void)level;
    b.args = args;
    b.rounds = (int)gw_args_int(args, "rounds");
    return gw_step_opts_read(&b.c, args, "bench");
}

/* ---- measuring ---- */

static void nobody(void *ctx) {
    (void)ctx;
}

static void call_bare(const gw_gemm_backend *library, const gw_operands *o) {
    const gw_product *p = &o->of;
    library->product(p->ta, p->tb, p->m, p->n, p->k, o->a, gw_operands_lda(o), o->b,
                     gw_operands_ldb(o), gw_operands_beta(o), o->c, p->n);
}

static void call(int side, const gw_operands *o) {
#ifdef GW_HAVE_DNNL
    if (side == DNNL)
        call_bare(&gw_gemm_dnnl, o);
#endif
#ifdef GW_HAVE_CBLAS
    if (side == CBLAS)
        call_bare(&gw_gemm_cblas, o);
#endif
    if (side != OURS && side != POLLED)
        return;
    gw_gemm_between(side == POLLED ? nobody : NULL, NULL);
    gw_operands_multiply(o);
    gw_gemm_between(NULL, NULL);
}

/* Whether there is such a call: a library that keeps to one thread is no measure for several. */
static bool exists(int side) {
#ifdef GW_HAVE_DNNL
    if (side == DNNL)
        return b.c.threads == 1 || gw_gemm_dnnl.threads;
#endif
#ifdef GW_HAVE_CBLAS
    if (side == CBLAS)
        return b.c.threads == 1 || gw_gemm_cblas.threads;
#endif
    return side == OURS || side == POLLED;
}

static double run_calls(int side, const gw_operands *o, int calls) {
    uint64_t start = gw_clock_ticks();
    for (int i = 0; i < calls; i++)
        call(side, o);
    return gw_clock_seconds(gw_clock_ticks() - start) / calls;
}

static gw_err measure(const gw_operands *o, double median[SIDES]) {
    gw_samples s[SIDES] = {0};
    gw_err e = GW_OK;
    run_calls(OURS, o, 1);
    double one = run_calls(OURS, o, 1);
    int calls = one < RUN_S ? (int)(RUN_S / one) + 1 : 1;
    for (int round = -1; round < b.rounds && e == GW_OK; round++)
        for (int i = 0; i < SIDES && e == GW_OK; i++) {
            int side = (i + round + 1) % SIDES;
            double took = exists(side) ? run_calls(side, o, calls) : NAN;
            if (round >= 0 && exists(side))
                e = gw_samples_add(&s[side], took);
        }
    for (int i = 0; i < SIDES; i++) {
        median[i] = e == GW_OK && exists(i) ? gw_stats_median(s[i].x, s[i].n) : NAN;
        gw_samples_free(&s[i]);
    }
    return e == GW_OK ? gw_gemm_check() : e;
}

/* ---- results ---- */

static void print_figure(double x, int width, int digits) {
    if (isfinite(x))
        printf(" %*.*f", width, digits, x);
    else
        printf(" %*s", width, "-");
}

static void print_row(const char *name, const char *by, const double s[SIDES], double best) {
    printf("%-20s %-13s", name, by);
    for (int i = 0; i < SIDES; i++)
        print_figure(s[i] * 1e6, 10, 1);
    print_figure(s[OURS] / best, 7, 3);
    print_figure(s[POLLED] / s[OURS], 7, 3);
    printf("\n");
}

static json_t *row_json(const gw_gemm_choice *c, const double s[SIDES], double best) {
    char how[3] = {c->of.ta ? 't' : 'n', c->of.tb ? 't' : 'n', 0};
    gw_gemm_cuts cuts = gw_gemm_pieces(&c->of, b.products.plan.piece);
    json_t *row = json_pack("{s:s, s:i, s:i, s:i, s:s, s:s, s:[i,i,i], s:o, s:o}", "operands", how,
                            "m", c->of.m, "n", c->of.n, "k", c->of.k, "whole",
                            gw_gemm_way_name(c->whole, b.c.threads), "pieced",
                            gw_gemm_way_name(c->pieced, b.c.threads), "pieces", cuts.rows,
                            cuts.cols, cuts.depth, "ratio_best", gw_bench_number(s[OURS] / best),
                            "ratio_polled", gw_bench_number(s[POLLED] / s[OURS]));
    for (int i = 0; i < SIDES; i++)
        json_object_set_new(row, side_names[i], gw_bench_number(s[i]));
    return row;
}

static gw_err measure_one(const gw_gemm_choice *c, json_t *rows) {
    gw_operands o;
    double s[SIDES];
    char name[64];
    gw_err e = gw_operands_open(&o, &c->of);
    if (e == GW_OK)
        e = measure(&o, s);
    gw_operands_close(&o);
    GW_TRY(e);
    double best = fmin(s[DNNL], s[CBLAS]); /* of a number and NaN it is the number */
    snprintf(name, sizeof name, "%c%c %dx%dx%d", c->of.ta ? 't' : 'n', c->of.tb ? 't' : 'n',
             c->of.m, c->of.n, c->of.k);
    print_row(name, gw_gemm_way_name(c->whole, b.c.threads), s, best);
    for (int i = 0; i < SIDES; i++)
        b.sum[i] += s[i];
    b.best_sum += best;
    json_array_append_new(rows, row_json(c, s, best));
    return GW_OK;
}

static gw_err measure_all(json_t *rows) {
    const gw_gemm_plan *plan = &b.products.plan;
    gw_bench_place_say(&b.place, "matrix products of a step");
    printf("GEMM by %s\n", gw_gemm_library());
    if (gw_gemm_warning())
        printf("note: %s\n", gw_gemm_warning());
    gw_rig_say_products(&b.products);
    printf("\n%-20s %-13s %10s %10s %10s %10s %7s %7s\n", "product", "by", "ours us", "polled us",
           "dnnl us", "cblas us", "x best", "x ours");
    for (int i = 0; i < plan->n; i++)
        GW_TRY(measure_one(&plan->choice[i], rows));
    print_row("all", "", b.sum, b.best_sum);
    return GW_OK;
}

static gw_err run(MPI_Comm comm, bool *own) {
    gw_file *file;
    gw_model_spec spec = {.inputs = (int)gw_args_int(b.args, "inputs"),
                          .classes = (int)gw_args_int(b.args, "classes"),
                          .n_hidden = b.c.n_hidden};
    memcpy(spec.hidden, b.c.hidden, sizeof spec.hidden);
    (void)own;
    GW_TRY(gw_bench_place_open(&b.place, comm, b.c.threads));
    if (b.place.ranks > 1)
        return gw_fail(GW_ERR_USAGE,
                       "bench: gemm runs on one rank, and here are %d: start it "
                       "without mpiexec",
                       b.place.ranks);
    gw_products_setup setup = {
        .comm = comm, .spec = &spec, .batch = b.c.batch, .threads = b.c.threads, .polls = true};
    GW_TRY(gw_bench_json_open(&file, gw_args_text(b.args, "json"), comm));
    json_t *rows = json_array();
    gw_err e = gw_products_open(&b.products, &setup);
    if (e == GW_OK)
        e = measure_all(rows);
    if (e == GW_OK)
        return gw_bench_json_close(file, gw_bench_document("gemm", &b.place, opts, b.args, rows));
    json_decref(rows);
    gw_file_abandon(file);
    return e;
}

static void release(void) {
}

const gw_benchmark gw_bench_gemm = {
    .name = "gemm",
    .summary = "each matrix product of a step, against the libraries' own call",
    .opts = opts,
    .notes = notes,
    .prepare = prepare,
    .run = run,
    .release = release,
};
