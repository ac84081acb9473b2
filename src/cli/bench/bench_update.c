/* bench update: how fast each rule moves parameters, by the memory's bandwidth measured in turns
 * with it. One process. */
#include "cli/bench/bench.h"

#include "base/mem.h"
#include "nn/gemm.h"
#include "optim/optimizer.h"
#include "prof/clock.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 512, COLS = 1024 }; /* of a tensor, unless it is multiplied */

typedef struct state {
    size_t bytes;
    int rounds, edge;
    gw_tensor *tensors, square;
    int matrices;
    float *param, *grad;
    gw_optimizer *stream;
} state;
static state b;

static const gw_opt opts[] = {
    {"optimizers", GW_OPT_COMMAS, "", 0, 0, NULL, "RULE,RULE...",
     "rules with their options [all, with default options]"},
    {"bytes", GW_OPT_BYTES, "64M", 1 << 22, 1e11, NULL, "BYTES", "bytes of each array",
     INTO(bytes)},
    {"edge", GW_OPT_INT, "1024", 2, 8192, NULL, "N",
     "rows and columns of the matrix, for rules that multiply", INTO(edge)},
    {"rounds", GW_OPT_INT, "15", 3, 10000, NULL, "N", "timed updates per rule", INTO(rounds)},
    {"threads", GW_OPT_INT, "1", 1, 1024, NULL, NULL, "OpenMP threads"},
    GW_BENCH_JSON,
    {0}};

static const char notes[] =
    "GB/s are the bytes that a rule must move: gradient read, parameter and vectors read and\n"
    "written. 'x stream' divides them by those of a += s b, the update of plain sgd, over such\n"
    "arrays on as many threads, run in turns with it: medians over the rounds. A rule that\n"
    "multiplies moves a single matrix, and GFLOP/s are those of its products.";

static const gw_bench_table table = {
    .form = "%-10s %-9s %12.1u %9.2f %9.2f %9.3f %9.1f",
    .heads = "rule|moves|update us|GB/s|stream|x stream|GFLOP/s",
    .kept = "dd",
    .keys = "rule|moves|update_s|gb_per_s|stream_gb_per_s|ratio_stream|gflop_per_s|parameters|"
            "vectors"};

static gw_err update_open_rule(gw_optimizer **o, const gw_spec *spec, bool square) {
    gw_optimizer_setup setup = {.spec = spec,
                                .n = square ? b.square.span.n : (size_t)b.matrices * ROWS * COLS,
                                .model = {.tensors = square ? &b.square : b.tensors,
                                          .n_tensors = square ? 1 : b.matrices,
                                          .head = b.matrices,
                                          .product = gw_gemm}};
    return gw_optimizer_open(o, &setup);
}

static gw_err update_open(void) {
    size_t edge = (size_t)b.edge, most = b.bytes / sizeof(float);
    b.matrices = (int)(most / (ROWS * COLS));
    b.square = (gw_tensor){{0, edge * edge}, 0, b.edge, b.edge};
    most = most > edge * edge ? most : edge * edge;
    GW_TRY(gw_alloc(&b.param, most, sizeof *b.param));
    GW_TRY(gw_alloc(&b.grad, most, sizeof *b.grad));
    GW_TRY(gw_alloc(&b.tensors, (size_t)b.matrices, sizeof *b.tensors));
    for (int i = 0; i < b.matrices; i++)
        b.tensors[i] = (gw_tensor){{(size_t)i * ROWS * COLS, ROWS * COLS}, 0, ROWS, COLS};
    for (size_t i = 0; i < most; i++) {
        b.param[i] = (float)(i % 61) / 61 - 0.5f;
        b.grad[i] = (float)(i % 53) / 53 - 0.5f;
    }
    return update_open_rule(&b.stream, NULL, false);
}

/* Seconds. */
static double update_once(gw_optimizer *o) {
    uint64_t start = gw_clock_ticks();
    gw_optimizer_begin(o);
    gw_optimizer_update(o, b.param, b.grad, (gw_span){0, o->n}, 1e-6f, 1);
    return gw_clock_since(start);
}

static double update_bytes(const gw_optimizer *o) {
    return sizeof(float) * (double)o->n * (3 + 2 * o->state.count);
}

static gw_err update_time(gw_optimizer *o, gw_samples s[4]) {
    for (int i = -1; i < b.rounds; i++) { /* the first warms up */
        double before = i % 2 ? update_once(b.stream) : 0, took = update_once(o);
        double rate = update_bytes(b.stream) / (i % 2 ? before : update_once(b.stream));
        const double figures[] = {took, update_bytes(o) / took, rate,
                                  update_bytes(o) / took / rate};
        for (int k = 0; k < 4 && i >= 0; k++)
            GW_TRY(gw_samples_add(&s[k], figures[k]));
    }
    return gw_gemm_check();
}

static gw_err update_measure_rule(const gw_spec *spec, json_t *rows) {
    gw_optimizer *o = NULL;
    gw_samples s[4] = {0};
    double m[4] = {NAN, NAN, NAN, NAN};
    GW_TRY(gw_optimizer_open(&o, &(gw_optimizer_setup){.spec = spec})); /* to see which it is */
    bool square = o->ops->traits & GW_OPTIMIZER_PRODUCTS;
    gw_optimizer_close(o);
    GW_TRY(update_open_rule(&o, spec, square));
    gw_err e = update_time(o, s);
    for (int k = 0; k < (square ? 1 : 4) && e == GW_OK; k++) /* products are not bound by memory */
        m[k] = gw_stats_median(s[k].x, s[k].n);
    double flops = square ? gw_optimizer_flops(o) / m[0] : NAN;
    if (e == GW_OK)
        gw_bench_row(&table, rows,
                     GW_TEXTS(spec->text, gw_optimizer_whole(o) ? "tensors" : "elements"),
                     GW_NUMBERS(m[0], m[1] / 1e9, m[2] / 1e9, m[3], flops / 1e9, (double)o->n,
                                o->state.count));
    for (int k = 0; k < 4; k++)
        gw_samples_free(&s[k]);
    gw_optimizer_close(o);
    return e;
}

static gw_err update_measure(gw_bench_run *run, bool *own) {
    const gw_spec *list = gw_args_spec(run->args, "optimizers");
    (void)own;
    GW_TRY(update_open());
    gw_bench_place_say(&run->place, "updates");
    gw_bench_head(&table);
    for (const gw_spec *s = list ? list->parts : NULL; s; s = s->next)
        GW_TRY(update_measure_rule(s, run->results));
    for (const gw_entry *const *e = gw_optimizers.entries; *e && !list; e++)
        GW_TRY(update_measure_rule(&GW_SPEC_NAMED((*e)->name), run->results));
    return GW_OK;
}

static void update_release(void) {
    gw_optimizer_close(b.stream);
    free(b.tensors);
    free(b.param);
    free(b.grad);
}

const gw_benchmark gw_bench_update = {
    .name = "update",
    .summary = "how fast each rule updates, by the memory's bandwidth",
    .opts = opts,
    .config = &b,
    .notes = notes,
    .measure = update_measure,
    .release = update_release,
    .alone = true,
};
