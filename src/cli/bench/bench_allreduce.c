/* bench allreduce: every algorithm over every codec against MPI's own collective, in turns. */
#include "cli/bench/bench_grid.h"

#include <math.h>
#include <string.h>

enum { MOST_ROUNDS = 1000000 };

/* When a cell of the grid has been run often enough. */
typedef struct progress {
    gw_stats stats;
    double spent_s; /* in timed exchanges of the slowest rank */
    int next_look;  /* samples at which the interval is looked at again */
    bool limited;
} progress;

typedef struct state {
    gw_grid grid;
    progress of[GW_GRID_CELLS];
    gw_timing timing;
    json_t *results;
    const char *verb; /* grid.verb's name */
    bool nonblocking, polls, verify;
    size_t n;    /* floats of the present size */
    int repeats; /* 0: auto */
    double percent, limit_s;
} state;

static state b;

static const gw_opt opts[] = {
    {"sizes", GW_OPT_TEXT, "4K..16M", 0, 0, NULL, "LIST",
     "bytes of the float spans, e.g. 1000,64K..16M (a range doubles)"},
    {"algos", GW_OPT_COMMAS, NULL, 0, 0, NULL, "SPEC,SPEC..",
     "algorithms, e.g. 'sra,(ring:chunk=64K,window=4)' [all]"},
    {"verb", GW_OPT_CHOICE, "allreduce", 0, 0, "allreduce|reduce|bcast|reduce-scatter|allgather",
     NULL, "the collective", INTO(grid.verb)},
    {"blocking", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "run each exchange to its end (default)"},
    {"nonblocking", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "start, then poll until it is complete",
     INTO(nonblocking)},
    {"repeats", GW_OPT_INT, "auto", 1, MOST_ROUNDS, "auto", "N|auto",
     "timings per cell; auto: as many as --precision needs", INTO(repeats)},
    {"precision", GW_OPT_REAL, "5", 0.1, 100, NULL, "PERCENT",
     "auto: half the 95% interval of the median, relative to the median", INTO(percent)},
    {"time-limit", GW_OPT_TIME, "0.5", 0.001, 3600, NULL, NULL,
     "auto: give a cell up after this time in exchanges", INTO(limit_s)},
    {"verify", GW_OPT_CHOICE, "on", 0, 0, "off|on", NULL, "check every result", INTO(verify)},
#include "cli/bench/grid_opts.def"
    GW_BENCH_JSON,
    {0}};

static const gw_rule rules[] = {
    {"blocking", NULL, false, "nonblocking", NULL, "an exchange is one or the other"}, {0}};

static const char notes[] =
    "One line a size, algorithm and codec: times of the slowest rank, algbw = bytes of the floats\n"
    "/ median, whatever the codec sends,\n"
    "busbw = algbw * 2(P-1)/P for an allreduce, 'x native' = median of MPI's own blocking call\n"
    "over fp32 (the row native, always measured) divided by this one's, wrong = elements off the\n"
    "reference in any repetition, +-% = half the 95% confidence interval of the median. Cells of\n"
    "a size take turns in an order that is drawn anew each round. docs/benchmarks.md has it all.";

/* ---- the command line ---- */

static gw_err allreduce_prepare(gw_bench_run *run) {
    GW_TRY(gw_grid_read(&b.grid, run->args));
    b.verb = gw_args_text(run->args, "verb");
    /* MPI's own call first; it goes over fp32, like the codec none. */
    gw_grid *g = &b.grid;
    GW_TRY(gw_grid_add(g, GW_SPEC_NAMED("native"), &gw_codec_exact, true));
    for (const gw_spec *c = g->codecs; c; c = c->next) {
        for (const gw_spec *a = g->algos; a; a = a->next)
            GW_TRY(gw_grid_add(g, *a, c, false));
        for (const gw_entry *const *a = gw_algos.entries; *a && !g->algos; a++)
            GW_TRY(gw_grid_add(g, GW_SPEC_NAMED((*a)->name), c, false));
    }
    return GW_OK;
}

/* ---- measuring one size ---- */

/* native through the engine: polled, and then another thing than MPI's blocking call. */
static bool allreduce_is_native(const gw_grid_cell *c) {
    return !c->mpi && c->algo.ops && strcmp(c->algo.ops->head.name, "native") == 0;
}

/* Blocking, native is that very call: its row is there already. */
static bool allreduce_skips(const gw_grid_cell *c) {
    return allreduce_is_native(c) && !b.polls && c->wire == b.grid.wire;
}

static gw_err allreduce_run_cell(gw_grid_cell *c, double *s) {
    GW_TRY(gw_grid_run(&b.grid, c, b.nonblocking, b.n, s));
    if (b.verify)
        gw_grid_check(&b.grid, c, b.n);
    return GW_OK;
}

/* An exchange that is not timed goes before, since the cells share their buffers and caches. */
static gw_err allreduce_run_twice(void *ctx, int i, double *s) {
    (void)ctx;
    GW_TRY(allreduce_run_cell(&b.grid.cell[i], s));
    return allreduce_run_cell(&b.grid.cell[i], s);
}

/* The same on all ranks, since the times are. The interval is looked at seldom: each look is one
 * more chance to stop on luck. */
static gw_err allreduce_decide(gw_timed *x, progress *p) {
    p->spent_s += x->times.x[x->times.n - 1];
    if (b.repeats > 0) {
        x->done = x->times.n >= b.repeats;
        return GW_OK;
    }
    p->limited = p->spent_s >= b.limit_s && x->times.n >= GW_STATS_LEAST;
    x->done = p->limited || x->times.n >= MOST_ROUNDS;
    if (x->times.n < p->next_look && !x->done)
        return GW_OK;
    GW_TRY(gw_samples_stats(&x->times, &p->stats));
    bool precise = gw_stats_precision(&p->stats) <= b.percent / 100;
    p->limited = p->limited && !precise;
    x->done = x->done || precise;
    p->next_look = x->times.n + x->times.n / 4;
    return GW_OK;
}

static gw_err allreduce_measure_size(size_t n) {
    enum { FIRST_LOOK = 12 };
    double s;
    bool left = true;
    b.n = n;
    for (int i = 0; i < b.grid.n; i++) {
        gw_grid_cell *c = &b.grid.cell[i];
        b.of[i] = (progress){.next_look = FIRST_LOOK};
        c->timed.times.n = 0;
        c->timed.done = !gw_grid_ready(c);
        if (!c->timed.done) { /* it warms up, too */
            GW_TRY(allreduce_run_cell(c, &s));
            GW_TRY(gw_grid_weigh(&b.grid, c, n));
        }
    }
    while (left) {
        GW_TRY(gw_timing_round(&b.timing));
        left = false;
        for (int i = 0; i < b.grid.n; i++) {
            gw_timed *x = &b.grid.cell[i].timed;
            if (!x->done)
                GW_TRY(allreduce_decide(x, &b.of[i]));
            left = left || !x->done;
        }
    }
    return GW_OK;
}

/* ---- results; rank 0 ---- */

static const gw_bench_table table = {
    .form = "%10d  %-16s %-12s %10.2u %10.2u %10.2u %8.3f %8.3f %8.2f %7d %6d %6.1p %s",
    .heads = "bytes|algorithm|codec|min us|median us|p95 us|algbw|busbw|x native|wrong|reps|+-%|",
    .kept = "sfffbf",
    .keys = "bytes|algorithm|codec|min_s|median_s|p95_s|algbw|busbw|ratio_native|wrong|repeats|||"
            "verb|ci_low_s|ci_high_s|bound|limited|wire_bytes"};

static gw_err allreduce_report_size(size_t bytes) {
    gw_verb verb = b.grid.verb;
    double p = b.grid.place->ranks;
    /* busbw / algbw: nccl-tests' convention, so that the figure compares with a link's rate. */
    double bus = verb == GW_ALLREDUCE                                ? 2 * (p - 1) / p
                 : verb == GW_REDUCE_SCATTER || verb == GW_ALLGATHER ? (p - 1) / p
                                                                     : p > 1;
    for (int i = 0; i < b.grid.n; i++) {
        const gw_grid_cell *c = &b.grid.cell[i];
        progress *of = &b.of[i];
        if (c->timed.times.n == 0)
            continue;
        char codec[GW_GRID_LABEL];
        GW_TRY(gw_samples_stats(&c->timed.times, &of->stats));
        const gw_stats *s = &of->stats;
        double algbw = 1e-9 * (double)bytes / s->median;
        gw_bench_row(&table, b.results,
                     GW_TEXTS(allreduce_is_native(c) && b.polls ? "native/poll" : c->spec.text,
                              gw_grid_codec(c, codec), of->limited ? "*" : "", b.verb),
                     GW_NUMBERS((double)bytes, s->min, s->median, s->p95, algbw, algbw * bus,
                                b.of[0].stats.median / s->median, b.verify ? (double)c->wrong : NAN,
                                s->n, gw_stats_precision(s), s->ci_low, s->ci_high, c->wire->bound,
                                of->limited, c->wire_bytes));
    }
    return GW_OK;
}

static void allreduce_report(gw_bench_run *run) {
    bool limited = false;
    for (int i = 0; i < b.grid.n; i++)
        limited = limited || b.of[i].limited;
    printf(
        "\nalgbw and busbw in GB/s (1e9 bytes) of the floats; over a codec fewer bytes are on the "
        "wire (wire_bytes of --json), and busbw may exceed the link's rate%s\n",
        limited ? "; * the time limit came before the precision" : "");
    gw_grid_tell(&b.grid, 1, run->facts);
    json_object_set_new(run->facts, "mode", json_string(b.polls ? "polled" : "blocking"));
}

/* ---- the whole ---- */

static gw_err allreduce_measure(gw_bench_run *run, bool *own) {
    char what[96];
    b.results = run->results;
    b.polls = b.nonblocking || run->place.oversubscribed;
    GW_TRY(gw_grid_open(&b.grid, &run->place));
    b.timing.rounds =
        (gw_rounds){.comm = run->place.comm, .seed = b.grid.seed, .once = allreduce_run_twice};
    for (int i = 0; i < b.grid.n; i++)
        b.timing.timed[b.timing.n++] = &b.grid.cell[i].timed;
    snprintf(what, sizeof what, "%s, %s", b.verb, b.nonblocking ? "nonblocking" : "blocking");
    gw_bench_place_say(&run->place, what);
    if (run->place.rank == 0)
        gw_bench_head(&table);
    return gw_grid_sizes(&b.grid, allreduce_skips, allreduce_measure_size, allreduce_report_size,
                         own);
}

const gw_benchmark gw_bench_allreduce = {
    .name = "allreduce",
    .summary = "every algorithm over every codec against MPI's own collective, verified",
    .opts = opts,
    .rules = rules,
    .config = &b,
    .notes = notes,
    .prepare = allreduce_prepare,
    .measure = allreduce_measure,
    .report = allreduce_report,
    .grid = &b.grid,
};
