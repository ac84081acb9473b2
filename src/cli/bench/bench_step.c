/* bench step: a training step without data loading, on a fixed batch in memory; several ways of
 * communication in one process, in turns. */
#include "cli/bench/bench.h"

#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_kit.h"
#include "cli/bench/step_rig.h"
#include "cli/train/step_opts.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CONFIGS = 16, MOST_BLOCK = 1000 };

static const gw_opt opts[] = {
#include "cli/train/step_opts.def"
    {"inputs", GW_OPT_INT, "784", 1, 1 << 24, NULL, "N", "features of a sample"},
    {"classes", GW_OPT_INT, "10", 2, 256, NULL, "N", "classes of the labels"},
    {"configs", GW_OPT_TEXT, NULL, 0, 0, NULL, "CONFIG;CONFIG..",
     "instead of --comm and --compress: several, each COMM|CODEC|UPDATE (the last two may be left "
     "out)"},
    {"steps", GW_OPT_INT, "200", 1, 1e7, NULL, "N", "timed steps of each"},
    {"block", GW_OPT_INT, "10", 1, MOST_BLOCK, NULL, "N", "timed steps of a turn"},
    {"warmup", GW_OPT_INT, "10", 0, 1e6, NULL, "N", "steps of each before the first turn"},
    {"bound", GW_OPT_CHOICE, "on", 0, 0, "on|off", NULL,
     "measure computation and exchange apart: the least time a step can take"},
    {"json", GW_OPT_TEXT, NULL, 0, 0, NULL, "FILE", "write all figures to FILE"},
    {0}};

static const char notes[] =
    "e.g. --configs 'allreduce;iallreduce:bucket=256K|none|lazy;iallreduce:algo=sra|qsgd:bits=8'\n"
    "Step times are the slowest rank's; their parts are the ledger's, means over the ranks, and\n"
    "medians over the steps. 'x first' = median of the first configuration divided by this one's.\n"
    "'bound' = the least that the mode allows with computation, wire and the transport's own time\n"
    "measured apart, 'x bound' = the median over it ('-': none is known, or it was not measured).\n"
    "Each turn begins with a step that is not timed, and ends with nothing in flight.\n"
    "docs/benchmarks.md defines every figure.";

/* What the ledger tells of a step, put together. */
enum { COMPUTATION, EXPOSED, CODEC, OTHER, INFLIGHT, WIRE, PARTS };

static const char *const part_names[PARTS] = {
    [COMPUTATION] = "computation_s",
    [EXPOSED] = "exposed_s",
    [CODEC] = "codec_s",
    [OTHER] = "other_s",
    [INFLIGHT] = "inflight_s",
    [WIRE] = "wire_bytes",
};

typedef struct config {
    const char *comm, *codec;
    gw_rig rig;
    gw_samples wall, part[PARTS];
    gw_bound_run bound;
} config;

static struct {
    const gw_args *args;
    gw_train_config c;
    gw_list list;
    config configs[MOST_CONFIGS];
    int n, steps, block, warmup;
    gw_bench_place place;
    gw_rig_setup setup;
    gw_products products;
    double block_wall[MOST_BLOCK], block_part[MOST_BLOCK][PARTS];
} b;

/* ---- the command line ---- */

/* "COMM|CODEC|UPDATE"; `text` is the list's own, to be cut. */
static gw_err read_one(config *one, char *text) {
    const char *update = one->rig.lazy ? "lazy" : "eager";
    const char **const fields[] = {&one->comm, &one->codec, &update};
    int n = 0;
    for (char *item; (item = strsep(&text, "|")) != NULL; n++) {
        if (n == 3)
            return gw_fail(GW_ERR_USAGE, "bench: configs: '%s': more than COMM|CODEC|UPDATE", item);
        if (!*item)
            return gw_fail(GW_ERR_USAGE,
                           "bench: configs: number %d has nothing in its field %d of "
                           "COMM|CODEC|UPDATE",
                           b.n, n + 1);
        *fields[n] = item;
    }
    if (strcmp(update, "lazy") != 0 && strcmp(update, "eager") != 0)
        return gw_fail(GW_ERR_USAGE, "bench: configs: update '%s': must be eager or lazy", update);
    one->rig.lazy = strcmp(update, "lazy") == 0;
    return GW_OK;
}

static gw_err add_config(char *text, int *level) {
    if (b.n == MOST_CONFIGS)
        return gw_fail(GW_ERR_USAGE, "bench: more than %d configurations", MOST_CONFIGS);
    config *one = &b.configs[b.n++];
    *one = (config){.comm = b.c.comm, .codec = b.c.compress, .rig.lazy = b.c.lazy};
    if (text)
        GW_TRY(read_one(one, text));
    GW_TRY(gw_auto_session(&one->rig.session, &one->rig.choice, one->comm, one->codec, b.c.feedback,
                           b.c.wire_check, false));
    int needs = gw_session_thread_level(one->rig.session);
    *level = needs > *level ? needs : *level;
    return GW_OK;
}

static gw_err prepare(const gw_args *args, int *level) {
    const char *list = gw_args_text(args, "configs");
    b.args = args;
    b.steps = (int)gw_args_int(args, "steps");
    b.block = (int)gw_args_int(args, "block");
    b.warmup = (int)gw_args_int(args, "warmup");
    GW_TRY(gw_step_opts_read(&b.c, args, "bench"));
    if (!list)
        return add_config(NULL, level);
    if (gw_args_given(args, "comm"))
        return gw_fail(GW_ERR_USAGE, "bench: give --comm or --configs, not both");
    GW_TRY(gw_list_read(&b.list, "bench", "configs", list, false));
    for (int i = 0; i < b.list.n; i++)
        GW_TRY(add_config((char *)b.list.item[i], level));
    return GW_OK;
}

/* ---- opening ---- */

static gw_err open_all(MPI_Comm comm, bool *own) {
    GW_TRY(gw_bench_place_open(&b.place, comm, b.c.threads));
    b.setup = (gw_rig_setup){.c = &b.c,
                             .place = &b.place,
                             .inputs = (int)gw_args_int(b.args, "inputs"),
                             .classes = (int)gw_args_int(b.args, "classes"),
                             .products = &b.products};
    for (int i = 0; i < b.n; i++) {
        b.setup.polls |= gw_session_progresses(b.configs[i].rig.session);
        b.setup.adds |= gw_session_adds(b.configs[i].rig.session);
    }
    for (int i = 0; i < b.n; i++) {
        GW_TRY(gw_rig_open(&b.configs[i].rig, &b.setup));
        GW_TRY(gw_rig_start(&b.configs[i].rig, &b.setup));
    }
    bool bounds = strcmp(gw_args_text(b.args, "bound"), "on") == 0, known;
    for (int i = 0; i < b.n && bounds; i++)
        GW_TRY(gw_rig_bound(&b.configs[i].rig, &b.setup, &b.configs[i].bound, &known, own));
    gw_ledger_start();
    return GW_OK;
}

/* ---- measuring ---- */

static void put_together(const gw_batch_cost *cost, double part[PARTS]) {
    const double *p = cost->phase_s;
    part[COMPUTATION] = p[GW_PHASE_FORWARD] + p[GW_PHASE_BACKWARD] + p[GW_PHASE_UPDATE];
    part[EXPOSED] = p[GW_PHASE_MPI_POST] + p[GW_PHASE_MPI_POLL] + p[GW_PHASE_MPI_WAIT];
    part[CODEC] = p[GW_PHASE_ENCODE] + p[GW_PHASE_DECODE];
    part[OTHER] = p[GW_PHASE_OTHER];
    part[INFLIGHT] = cost->inflight_s;
    part[WIRE] = (double)cost->wire_bytes;
}

/* `n` steps after one more that is not kept; afterwards nothing is in flight, since the next
 * configuration's turn comes. */
static gw_err steps(config *one, int n) {
    gw_batch_cost cost;
    gw_err e = gw_bench_sync(&b.place);
    for (int k = -1; k < n && e == GW_OK; k++) {
        gw_ledger_begin();
        e = gw_rig_step(&one->rig);
        gw_ledger_end(&cost);
        if (k >= 0) {
            b.block_wall[k] = cost.wall_s;
            put_together(&cost, b.block_part[k]);
        }
    }
    GW_TRY(e);
    gw_ledger_begin();
    e = gw_rig_settle(&one->rig);
    gw_ledger_end(&cost);
    return e;
}

static gw_err keep(config *one, int n) {
    MPI_Comm comm = b.place.comm;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, b.block_wall, n, MPI_DOUBLE, MPI_MAX, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, b.block_part, n * PARTS, MPI_DOUBLE, MPI_SUM, comm));
    for (int k = 0; k < n; k++) {
        GW_TRY(gw_samples_add(&one->wall, b.block_wall[k]));
        for (int p = 0; p < PARTS; p++)
            GW_TRY(gw_samples_add(&one->part[p], b.block_part[k][p] / b.place.ranks));
    }
    return GW_OK;
}

static gw_err measure(void) {
    uint32_t order[MOST_CONFIGS];
    for (int i = 0; i < b.n; i++)
        for (int left = b.warmup; left > 0; left -= b.block)
            GW_TRY(steps(&b.configs[i], left < b.block ? left : b.block));
    for (int done = 0, turn = 0; done < b.steps; done += b.block, turn++) {
        int n = b.steps - done < b.block ? b.steps - done : b.block;
        for (int i = 0; i < b.n; i++)
            order[i] = (uint32_t)i;
        gw_rng_shuffle(gw_rng_key(b.c.seed, (uint64_t)turn), order, (uint32_t)b.n);
        for (int i = 0; i < b.n; i++) {
            GW_TRY(steps(&b.configs[order[i]], n));
            GW_TRY(keep(&b.configs[order[i]], n));
        }
    }
    return GW_OK;
}

/* A step that does not learn numbers is no training step. */
static gw_err check_losses(void) {
    for (int i = 0; i < b.n; i++) {
        double loss = b.configs[i].rig.loss;
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, b.place.comm));
        if (!isfinite(loss))
            return gw_fail(GW_ERR_DIVERGED,
                           "bench: %s with %s: the loss is no longer finite: try a smaller --lr",
                           b.configs[i].comm, b.configs[i].codec);
    }
    return GW_OK;
}

/* ---- results; rank 0 ---- */

static void print_head(void) {
    gw_bench_place_say(&b.place, "training step without data loading");
    printf("%zu parameters, global batch %d; GEMM by %s\n", gw_model_size(b.configs[0].rig.model),
           b.configs[0].rig.global, gw_gemm_library());
    if (gw_gemm_warning())
        printf("note: %s\n", gw_gemm_warning());
    gw_rig_say_products(&b.products);
    for (int i = 0; i < b.n; i++)
        if (b.configs[i].rig.choice)
            printf("%s\n", b.configs[i].rig.choice->why);
    printf("\n%-32s %-14s %-6s %10s %10s %6s %10s %10s %10s %10s %10s %11s %8s %10s %7s\n",
           "strategy", "codec", "update", "median us", "p95 us", "+-%", "comput.", "exposed",
           "codec", "other", "inflight", "wire bytes", "x first", "bound us", "x bound");
}

/* As it was given; or what `auto` chose. */
static const char *codec_of(const config *one) {
    return one->rig.choice ? gw_session_codec(one->rig.session)->spec : one->codec;
}

static json_t *one_json(const config *one, const gw_stats *s, const double part[PARTS],
                        double ratio) {
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:f, s:f, s:f, s:o, s:o, s:f}", "comm", one->comm,
                  "algorithm", gw_session_algorithm(one->rig.session)->ops->head.name, "compress",
                  codec_of(one), "update", one->rig.lazy ? "lazy" : "eager", "error_feedback",
                  gw_session_feedback(one->rig.session), "steps", s->n, "min_s", s->min, "median_s",
                  s->median, "p95_s", s->p95, "ci_low_s", gw_bench_number(s->ci_low), "ci_high_s",
                  gw_bench_number(s->ci_high), "ratio_first", ratio);
    for (int p = 0; p < PARTS; p++)
        json_object_set_new(row, part_names[p], gw_bench_number(part[p]));
    gw_auto *choice = one->rig.choice;
    if (choice)
        choice->measured_s = s->median;
    json_object_set_new(row, "bound", gw_bound_run_json(&one->bound));
    json_object_set_new(row, "forecast", choice ? gw_auto_json(choice) : json_null());
    return row;
}

/* Its bound, and the median over it. */
static void print_bound(const gw_bound_run *r, double median_s) {
    double s = r->measured ? gw_bound_step(&r->parts, r->mode) : 0;
    if (r->measured)
        printf(" %10.1f %7.2f\n", s * 1e6, median_s / s);
    else
        printf(" %10s %7s\n", "-", "-");
}

/* What the bounds are made of. */
static void print_parts(void) {
    printf("\nbounds:\n");
    for (int i = 0; i < b.n; i++) {
        const gw_bound_parts *p = &b.configs[i].bound.parts;
        if (!b.configs[i].bound.measured)
            continue;
        printf("%-32s computation %.1f us, codec %.1f, wire %.1f, transport ", b.configs[i].comm,
               gw_local_sum(&p->local) * 1e6, p->codec_s * 1e6, p->wire_s * 1e6);
        if (isnan(p->transport_s))
            printf("absent:");
        else
            printf("%.1f:", p->transport_s * 1e6);
        for (int m = 0; m < GW_BOUND_MODES; m++)
            printf(" %s%s %.1f", m == (int)b.configs[i].bound.mode ? "*" : "",
                   gw_bound_name((gw_bound_mode)m), gw_bound_step(p, (gw_bound_mode)m) * 1e6);
        printf("\n");
    }
}

static void report(json_t *rows) {
    double first = 0;
    print_head();
    for (int i = 0; i < b.n; i++) {
        config *one = &b.configs[i];
        gw_stats s = gw_stats_of(one->wall.x, one->wall.n);
        double part[PARTS], half = gw_stats_precision(&s);
        char width[16] = "-";
        for (int p = 0; p < PARTS; p++)
            part[p] = gw_stats_median(one->part[p].x, one->part[p].n);
        first = i == 0 ? s.median : first;
        if (isfinite(half))
            snprintf(width, sizeof width, "%.1f", 100 * half);
        printf("%-32s %-14s %-6s %10.1f %10.1f %6s %10.1f %10.1f %10.1f %10.1f %10.1f %11.0f "
               "%8.2f",
               one->comm, codec_of(one), one->rig.lazy ? "lazy" : "eager", s.median * 1e6,
               s.p95 * 1e6, width, part[COMPUTATION] * 1e6, part[EXPOSED] * 1e6, part[CODEC] * 1e6,
               part[OTHER] * 1e6, part[INFLIGHT] * 1e6, part[WIRE], first / s.median);
        print_bound(&one->bound, s.median);
        json_array_append_new(rows, one_json(one, &s, part, first / s.median));
    }
    if (strcmp(gw_args_text(b.args, "bound"), "on") == 0)
        print_parts();
}

/* ---- the whole ---- */

static gw_err finish(gw_file *file) {
    if (b.place.rank != 0)
        return GW_OK;
    json_t *rows = json_array();
    report(rows);
    return gw_bench_json_close(file, gw_bench_document("step", &b.place, opts, b.args, rows));
}

static gw_err measure_all(gw_file *file, bool *own) {
    gw_err e = measure();
    *own = e != GW_OK; /* the others wait in an exchange */
    if (e == GW_OK)
        e = check_losses();
    if (e == GW_OK)
        return gw_agree(b.place.comm, finish(file));
    gw_file_abandon(file);
    return e;
}

static gw_err run(MPI_Comm comm, bool *own) {
    gw_file *file;
    GW_TRY(gw_bench_json_open(&file, gw_args_text(b.args, "json"), comm));
    gw_err e = open_all(comm, own);
    if (e == GW_OK)
        e = measure_all(file, own);
    else
        gw_file_abandon(file);
    for (int i = b.n - 1; i >= 0 && !*own; i--)
        gw_session_close(b.configs[i].rig.session);
    return e;
}

static void release(void) {
    for (int i = 0; i < b.n; i++) {
        config *one = &b.configs[i];
        gw_rig_free(&one->rig);
        gw_samples_free(&one->wall);
        for (int p = 0; p < PARTS; p++)
            gw_samples_free(&one->part[p]);
    }
    gw_list_free(&b.list);
}

const gw_benchmark gw_bench_step = {
    .name = "step",
    .summary = "a training step without data loading, by communication and codec",
    .opts = opts,
    .notes = notes,
    .prepare = prepare,
    .run = run,
    .release = release,
};
