/* bench overlap: how much of a nonblocking exchange disappears under computation, by who moves it
 * on: nobody (none), the computing thread between its kernels (poll), a thread of its own (thread).
 * Communication alone, computation alone and both together take turns in one run. */
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_grid.h"
#include "comm/channel.h"
#include "comm/schedule/queue.h"
#include "links/transport.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EDGE = 256 /* of the matrices that a kernel multiplies */, MOST_KERNELS = 1000000 };

/* What a round measures, and what its figures make. */
enum { COMM, COMP, BOTH, EXPOSED, POST, POLL, SLOWEST, INTERFERENCE = SLOWEST, MEASURED };
enum { HIDDEN = MEASURED, SAVED, FIGURES };

static const char *const figure_names[FIGURES] = {
    [COMM] = "comm",   [COMP] = "comp", [BOTH] = "both",     [EXPOSED] = "exposed",
    [POST] = "post",   [POLL] = "poll", [HIDDEN] = "hidden", [INTERFERENCE] = "interference",
    [SAVED] = "saved",
};

static const char *const mode_names[] = {
    [GW_PROGRESS_POLL] = "poll", [GW_PROGRESS_THREAD] = "thread", [GW_PROGRESS_NONE] = "none"};
enum { MODES = sizeof mode_names / sizeof *mode_names };

/* What a cell of the grid has beside; kernels: of the present size. */
typedef struct lap {
    gw_progress mode;
    gw_queue *queue;
    int kernels;
    double now_s[MEASURED];
    double alone_s; /* in kernels alone, in this round */
    gw_samples samples[FIGURES];
    double transport_s; /* of the core, for one exchange; NaN: not measured */
} lap;

typedef struct state {
    gw_grid grid;
    lap lap[GW_GRID_CELLS];
    gw_progress modes[MODES];
    int n_modes;
    double compute_ratio, kernel_limit_us;
    int repeats;
    const gw_bench_place *place;
    json_t *results;
    gw_rounds rounds, turns; /* of the cells; of a cell's three measurements */
    int edge;                /* a kernel multiplies two square matrices with this edge */
    double kernel_s;         /* and takes so long on the slowest rank */
    float *matrix[3];
    size_t n; /* floats of the present size */
    int at;   /* the cell whose turn it is */
} state;

static state b;

static const gw_opt opts[] = {
    {"sizes", GW_OPT_TEXT, "64K,1M,16M", 0, 0, NULL, "LIST",
     "bytes of the float spans, e.g. 1000,64K..16M (a range doubles)"},
    {"algos", GW_OPT_COMMAS, "native,sra", 0, 0, NULL, "SPEC,SPEC..",
     "algorithms, e.g. 'sra,(ring:chunk=64K,window=4)'"},
    {"progress", GW_OPT_COMMAS, "none,poll,thread", 0, 0, NULL, "MODE,MODE..",
     "who advances the exchange: none, poll, thread"},
    {"compute-ratio", GW_OPT_REAL, "1.5", 0.01, 1000, NULL, "X",
     "ratio of computation alone to communication alone", INTO(compute_ratio)},
    {"kernel-us", GW_OPT_REAL, "50", 1, 10000, NULL, "US",
     "longest time of a compute kernel, and so between two polls", INTO(kernel_limit_us)},
    {"repeats", GW_OPT_INT, "15", 1, 100000, NULL, NULL, "rounds", INTO(repeats)},
#include "cli/bench/grid_opts.def"
    GW_BENCH_JSON,
    {0}};

static const char notes[] =
    "hidden = 1 - (both - comp) / comm, saved = comm + comp - both, interf. = time in the compute\n"
    "kernels under communication minus alone, exposed = the wait that is left at the end: medians\n"
    "over the rounds, never clamped (an overlap can cost more than it hides). transp. = what the\n"
    "exchange takes of a busy core, bound = max(comp + transp., comm), x bound = both over it. "
    "Times\n"
    "are those of the slowest rank. Between ranks of one node a transfer is the ranks' own "
    "copying, so there\n"
    "is nothing to hide: measure over a link. docs/benchmarks.md defines every figure.";

/* ---- the command line ---- */

static gw_err overlap_add_mode(const char *name) {
    for (int m = 0; m < MODES; m++) {
        if (strcmp(name, mode_names[m]) != 0)
            continue;
        for (int i = 0; i < b.n_modes; i++)
            if (b.modes[i] == (gw_progress)m)
                return gw_fail(GW_ERR_USAGE, "bench: progress: '%s' is named twice", name);
        b.modes[b.n_modes++] = (gw_progress)m;
        return GW_OK;
    }
    return gw_fail(GW_ERR_USAGE, "bench: progress=%s: must be none, poll or thread", name);
}

static gw_err overlap_prepare(gw_bench_run *run) {
    const gw_args *args = run->args;
    gw_grid *g = &b.grid;
    GW_TRY(gw_grid_read(g, args));
    for (const gw_spec *s = gw_args_spec(args, "progress")->parts; s; s = s->next)
        GW_TRY(overlap_add_mode(s->text));
    for (int i = 0; i < b.n_modes; i++)
        if (b.modes[i] == GW_PROGRESS_THREAD)
            run->level = MPI_THREAD_SERIALIZED;
    for (const gw_spec *c = g->codecs; c; c = c->next)
        for (const gw_spec *a = g->algos; a; a = a->next)
            for (int m = 0; m < b.n_modes; m++) {
                GW_TRY(gw_grid_add(g, *a, c, false));
                b.lap[g->n - 1].mode = b.modes[m];
            }
    return GW_OK;
}

/* ---- computation ---- */

/* One kernel; its time. */
static double overlap_kernel(void) {
    uint64_t start = gw_clock_ticks();
    gw_gemm(false, false, b.edge, b.edge, b.edge, b.matrix[0], b.edge, b.matrix[1], b.edge, 0,
            b.matrix[2], b.edge);
    return gw_clock_since(start);
}

static gw_err overlap_slowest(double *x, int n) {
    return gw_allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_MAX, b.place->comm);
}

/* The largest matrices whose product stays within the limit on all ranks. */
static gw_err overlap_choose_kernel(void) {
    enum { TRIES = 21, STEP = 16, WARM = 3 };
    for (int i = 0; i < 3; i++) {
        GW_TRY(
            gw_agree(b.place->comm, gw_alloc(&b.matrix[i], MOST_EDGE * MOST_EDGE, sizeof(float))));
        for (int k = 0; k < MOST_EDGE * MOST_EDGE; k++)
            b.matrix[i][k] = (float)gw_rng_unit(b.grid.seed, (uint64_t)k);
    }
    for (int edge = STEP; edge <= MOST_EDGE; edge += STEP) {
        int before = b.edge;
        double times[TRIES];
        b.edge = edge;
        for (int i = -WARM; i < TRIES; i++)
            times[i < 0 ? 0 : i] = overlap_kernel();
        double s = gw_stats_median(times, TRIES);
        GW_TRY(overlap_slowest(&s, 1));
        if (before > 0 && s > 1e-6 * b.kernel_limit_us) {
            b.edge = before;
            return GW_OK;
        }
        b.kernel_s = s;
    }
    return GW_OK;
}

/* ---- the three measurements; times are this rank's ---- */

static gw_err overlap_communicate(gw_grid_cell *c, lap *l) {
    gw_grid_fill(&b.grid, c, b.n);
    GW_TRY(gw_bench_sync(b.place));
    uint64_t start = gw_clock_ticks();
    GW_TRY(gw_queue_start(l->queue, c->timed.schedule));
    GW_TRY(gw_queue_wait(l->queue, c->timed.schedule));
    l->now_s[COMM] = gw_clock_since(start);
    gw_grid_check(&b.grid, c, b.n);
    return GW_OK;
}

static gw_err overlap_compute(lap *l) {
    double in_kernels = 0;
    GW_TRY(gw_bench_sync(b.place));
    uint64_t start = gw_clock_ticks();
    for (int k = 0; k < l->kernels; k++)
        in_kernels += overlap_kernel();
    l->now_s[COMP] = gw_clock_since(start);
    l->alone_s = in_kernels;
    return GW_OK;
}

static gw_err overlap(gw_grid_cell *c, lap *l) {
    double in_kernels = 0, in_polls = 0;
    gw_grid_fill(&b.grid, c, b.n);
    GW_TRY(gw_bench_sync(b.place));
    uint64_t start = gw_clock_ticks();
    GW_TRY(gw_queue_start(l->queue, c->timed.schedule));
    l->now_s[POST] = gw_clock_since(start);
    for (int k = 0; k < l->kernels; k++) {
        in_kernels += overlap_kernel();
        uint64_t poll = gw_clock_ticks();
        GW_TRY(gw_queue_poll(l->queue));
        in_polls += gw_clock_since(poll);
    }
    uint64_t wait = gw_clock_ticks();
    GW_TRY(gw_queue_wait(l->queue, c->timed.schedule));
    l->now_s[EXPOSED] = gw_clock_since(wait);
    l->now_s[BOTH] = gw_clock_since(start);
    l->now_s[POLL] = in_polls;
    l->now_s[INTERFERENCE] = in_kernels;
    gw_grid_check(&b.grid, c, b.n);
    return GW_OK;
}

static gw_err overlap_one_of_three(void *ctx, int which, double *s) {
    gw_grid_cell *c = &b.grid.cell[b.at];
    lap *l = &b.lap[b.at];
    (void)ctx, (void)s;
    return which == COMM   ? overlap_communicate(c, l)
           : which == COMP ? overlap_compute(l)
                           : overlap(c, l);
}

/* Only a progress thread that is awake needs a core. */
static bool overlap_must_yield(const lap *l) {
    return l->mode == GW_PROGRESS_THREAD ? b.place->crowded : b.place->oversubscribed;
}

/* All three; then what the ranks measured is put together: the slowest's times, and the mean of the
 * interference. */
static gw_err overlap_one_turn(void *ctx, int i, double *unused) {
    lap *l = &b.lap[i];
    double *s = l->now_s;
    (void)ctx, (void)unused;
    b.at = i;
    gw_lane_channel(b.grid.cell[i].wire->lane)->yield = overlap_must_yield(l);
    GW_TRY(gw_rounds_next(&b.turns, BOTH + 1, NULL, NULL));
    s[INTERFERENCE] -= l->alone_s;
    GW_TRY(overlap_slowest(s, SLOWEST));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &s[INTERFERENCE], 1, MPI_DOUBLE, MPI_SUM, b.place->comm));
    s[INTERFERENCE] /= b.place->ranks;
    for (int f = 0; f < MEASURED; f++)
        GW_TRY(gw_samples_add(&l->samples[f], s[f]));
    GW_TRY(gw_samples_add(&l->samples[HIDDEN], 1 - (s[BOTH] - s[COMP]) / s[COMM]));
    return gw_samples_add(&l->samples[SAVED], s[COMM] + s[COMP] - s[BOTH]);
}

/* As many kernels as make computation alone the wanted multiple of communication alone. */
static gw_err overlap_calibrate(gw_grid_cell *c, lap *l) {
    enum { WARM = 2, TRIES = 9 };
    double times[TRIES];
    for (int i = -WARM; i < TRIES; i++) {
        GW_TRY(overlap_communicate(c, l));
        times[i < 0 ? 0 : i] = l->now_s[COMM];
    }
    GW_TRY(overlap_slowest(times, TRIES));
    double wanted = ceil(b.compute_ratio * gw_stats_median(times, TRIES) / b.kernel_s);
    l->kernels = (int)fmin(fmax(wanted, 1), MOST_KERNELS);
    return GW_OK;
}

/* ---- the exchange on a busy core ---- */

static void overlap_exchange_prepare(void *cell) {
    gw_grid_fill(&b.grid, cell, b.n);
}

static gw_err overlap_exchange_start(void *cell) {
    return gw_schedule_start(((gw_grid_cell *)cell)->timed.schedule);
}

static gw_err overlap_exchange_test(void *cell, bool *done) {
    return gw_schedule_test(((gw_grid_cell *)cell)->timed.schedule, done);
}

static gw_err overlap_measure_size(size_t n) {
    bool in[GW_GRID_CELLS];
    b.n = n;
    for (int i = 0; i < b.grid.n; i++) {
        gw_grid_cell *c = &b.grid.cell[i];
        lap *l = &b.lap[i];
        for (int f = 0; f < FIGURES; f++)
            l->samples[f].n = 0;
        in[i] = gw_grid_ready(c);
        if (in[i]) {
            GW_TRY(gw_grid_weigh(&b.grid, c, n));
            GW_TRY(overlap_calibrate(c, l));
            gw_transport_job job = {overlap_exchange_prepare, overlap_exchange_start,
                                    overlap_exchange_test, c};
            GW_TRY(
                gw_transport_measure(&job, overlap_must_yield(l), b.place->comm, &l->transport_s));
        }
    }
    for (int r = 0; r < b.repeats; r++)
        GW_TRY(gw_rounds_next(&b.rounds, b.grid.n, in, NULL));
    return GW_OK;
}

/* ---- results; rank 0 ---- */

static const gw_bench_table table = {
    .form = "%10d  %-14s %-12s %-8s %10.1u %10.1u %10.1u %7.3f %15s %10.1u %10.1u %10.1u %10.1u "
            "%10.1u %7.2f",
    .heads = "bytes|algorithm|codec|progress|comm us|comp us|both us|hidden|95% interval|saved us|"
             "interf. us|exposed us|transp. us|bound us|x bound",
    .kept = "dddf",
    .keys = "bytes|algorithm|codec|progress|||||||||transport_s|bound_s|over_bound|kernels|repeats|"
            "wrong|wire_bytes"};

static gw_err overlap_report_size(size_t bytes) {
    for (int cell = 0; cell < b.grid.n; cell++) {
        const gw_grid_cell *c = &b.grid.cell[cell];
        const lap *l = &b.lap[cell];
        gw_stats s[FIGURES];
        char interval[32], codec[GW_GRID_LABEL];
        if (!gw_grid_ready(c))
            continue;
        for (int f = 0; f < FIGURES; f++)
            GW_TRY(gw_samples_stats(&l->samples[f], &s[f]));
        if (b.place->ranks == 1)
            s[HIDDEN].median = s[HIDDEN].ci_low = s[HIDDEN].ci_high = NAN;
        snprintf(interval, sizeof interval, "%.2f..%.2f", s[HIDDEN].ci_low, s[HIDDEN].ci_high);
        /* No exchange takes a core for longer than it lasts, but for noise: it was disturbed. */
        bool disturbed = l->transport_s > 1.5 * s[COMM].median;
        double transport_s = disturbed ? NAN : l->transport_s;
        /* All of computation and of what the exchange takes of the core, or the exchange alone. */
        double core_s = s[COMP].median + (isnan(transport_s) ? 0 : transport_s);
        double bound_s = disturbed ? NAN : fmax(core_s, s[COMM].median);
        json_t *row = gw_bench_row(
            &table, b.results,
            GW_TEXTS(c->spec.text, gw_grid_codec(c, codec), mode_names[l->mode],
                     isfinite(s[HIDDEN].ci_low) ? interval : NULL),
            GW_NUMBERS((double)bytes, s[COMM].median, s[COMP].median, s[BOTH].median,
                       s[HIDDEN].median, s[SAVED].median, s[INTERFERENCE].median, s[EXPOSED].median,
                       transport_s, bound_s, s[BOTH].median / bound_s, l->kernels, b.repeats,
                       (double)c->wrong, c->wire_bytes));
        /* Each figure with its interval and all rounds. */
        for (int f = 0; f < FIGURES; f++) {
            const char *unit = f == HIDDEN ? "" : "_s";
            char key[64];
            json_t *all = json_array();
            for (int i = 0; i < l->samples[f].n && !isnan(s[f].median); i++)
                json_array_append_new(all, gw_json_number(l->samples[f].x[i]));
            gw_json_stats(row, figure_names[f], unit, &s[f]);
            snprintf(key, sizeof key, "%s_rounds%s", figure_names[f], unit);
            json_object_set_new(row, key, all);
        }
        if (s[COMP].median < s[COMM].median && b.compute_ratio >= 1 && b.place->ranks > 1)
            printf("%10s  note: computation was shorter than communication: not all could hide\n",
                   "");
    }
    return GW_OK;
}

static void overlap_report(gw_bench_run *run) {
    gw_grid_tell(&b.grid, b.n_modes, run->facts); /* a refusal is the same whatever the mode */
    gw_json_add(run->facts, "kernel_s:f kernel_edge:i", b.kernel_s, b.edge);
}

/* ---- the whole ---- */

static gw_err overlap_measure(gw_bench_run *run, bool *own) {
    gw_err e = GW_OK;
    b.place = &run->place;
    b.results = run->results;
    b.rounds = (gw_rounds){.seed = b.grid.seed, .once = overlap_one_turn};
    b.turns = (gw_rounds){.seed = gw_rng_key(b.grid.seed, BOTH), .once = overlap_one_of_three};
    for (int i = 0; i < b.grid.n && e == GW_OK; i++)
        e = gw_queue_open(&b.lap[i].queue, b.lap[i].mode, 1, overlap_must_yield(&b.lap[i]));
    GW_TRY(gw_agree(run->place.comm, e));
    GW_TRY(gw_grid_open(&b.grid, &run->place));
    GW_TRY(overlap_choose_kernel());
    gw_bench_place_say(b.place, "overlap of an allreduce with computation");
    if (b.place->rank == 0) {
        if (b.place->nodes == 1 && b.place->ranks > 1)
            printf("note: one node: a transfer is the ranks' own copying, which nothing can "
                   "hide\n");
        if (b.place->crowded && !b.place->oversubscribed)
            printf("note: with progress=thread there are more threads than cores: those times say "
                   "little\n");
        printf("compute kernel: product of %d x %d matrices, %.1f us, by %s\n", b.edge, b.edge,
               b.kernel_s * 1e6, gw_gemm_library());
        gw_bench_head(&table);
    }
    return gw_grid_sizes(&b.grid, NULL, overlap_measure_size, overlap_report_size, own);
}

static void overlap_close_queues(void) {
    for (int i = 0; i < b.grid.n; i++)
        gw_queue_close(b.lap[i].queue);
}

static void overlap_release(void) {
    for (int i = 0; i < b.grid.n; i++)
        for (int f = 0; f < FIGURES; f++)
            gw_samples_free(&b.lap[i].samples[f]);
    for (int i = 0; i < 3; i++)
        free(b.matrix[i]);
}

const gw_benchmark gw_bench_overlap = {
    .name = "overlap",
    .summary = "what of an exchange hides under computation, by progress mode",
    .opts = opts,
    .config = &b,
    .notes = notes,
    .prepare = overlap_prepare,
    .measure = overlap_measure,
    .report = overlap_report,
    .grid = &b.grid,
    .close = overlap_close_queues,
    .release = overlap_release,
};
