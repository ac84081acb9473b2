/* bench overlap: how much of a nonblocking exchange disappears under computation, by who moves it
 * on: nobody (none), the computing thread between its kernels (poll), a thread of its own (thread).
 * Communication alone, computation alone and both together take turns in one run. */
#include "cli/bench/bench.h"

#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_overlap_parts.h"
#include "comm/lane_parts.h"
#include "machine/transport.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_CELLS = GW_BENCH_ITEMS * 4,
    MOST_EDGE = 256, /* of the matrices that a kernel multiplies */
    MOST_KERNELS = 1000000
};

static const gw_opt opts[] = {
    {"sizes", GW_OPT_TEXT, "64K,1M,16M", 0, 0, NULL, "LIST",
     "bytes of the float spans, e.g. 1000,64K..16M (a range doubles)"},
    {"algos", GW_OPT_TEXT, "native,sra", 0, 0, NULL, "SPEC,SPEC..",
     "algorithms, e.g. 'sra,(ring:chunk=64K,window=4)'"},
    {"compress", GW_OPT_TEXT, "none", 0, 0, NULL, "SPEC,SPEC..", "codecs"},
    {"progress", GW_OPT_TEXT, "none,poll,thread", 0, 0, NULL, "MODE,MODE..",
     "who moves the exchange on: none, poll, thread"},
    {"compute-ratio", GW_OPT_REAL, "1.5", 0.01, 1000, NULL, "X",
     "computation alone, by communication alone"},
    {"kernel-us", GW_OPT_REAL, "50", 1, 10000, NULL, "US",
     "longest a compute kernel may take: the time between two polls"},
    {"repeats", GW_OPT_INT, "15", 1, 100000, NULL, NULL, "rounds"},
    {"threads", GW_OPT_INT, "1", 1, 4096, NULL, "N", "OpenMP threads per rank"},
    {"seed", GW_OPT_INT, "1", 0, 0x1p52, NULL, "N", "of the data, the order and the codecs"},
    {"json", GW_OPT_TEXT, NULL, 0, 0, NULL, "FILE", "write all figures to FILE"},
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

static struct {
    const gw_args *args;
    gw_bench_sizes sizes;
    gw_list algos, codecs;
    gw_progress modes[3];
    int n_modes;
    double compute_ratio, kernel_limit_s;
    int repeats;
    uint64_t seed, drawn;
    gw_bench_wire wire[GW_BENCH_ITEMS];
    cell cells[MOST_CELLS];
    int n_cells;
    gw_bench_place place;
    gw_bench_data data;
    int edge;        /* a kernel multiplies two square matrices with this edge */
    double kernel_s; /* and takes so long on the slowest rank */
    float *matrix[3];
    uint64_t all_wrong;
} b;

/* ---- the command line ---- */

static gw_err add_mode(const char *name) {
    enum { MODES = GW_PROGRESS_NONE + 1 };
    for (int m = 0; m < MODES; m++) {
        if (strcmp(name, gw_bench_progress_names[m]) != 0)
            continue;
        for (int i = 0; i < b.n_modes; i++)
            if (b.modes[i] == (gw_progress)m)
                return gw_fail(GW_ERR_USAGE, "bench: progress: '%s' is named twice", name);
        b.modes[b.n_modes++] = (gw_progress)m;
        return GW_OK;
    }
    return gw_fail(GW_ERR_USAGE, "bench: progress=%s: must be none, poll or thread", name);
}

static gw_err read_modes(const char *text, int *level) {
    gw_list list;
    gw_err e = gw_list_read(&list, "bench", "progress", text, true);
    for (int i = 0; i < list.n && e == GW_OK; i++)
        e = add_mode(list.item[i]);
    gw_list_free(&list);
    for (int i = 0; i < b.n_modes; i++)
        if (b.modes[i] == GW_PROGRESS_THREAD)
            *level = MPI_THREAD_SERIALIZED;
    return e;
}

static gw_err open_cells(void) {
    for (int c = 0; c < b.codecs.n; c++) {
        b.wire[c].spec = b.codecs.item[c];
        GW_TRY(gw_codec_open(&b.wire[c].codec, b.wire[c].spec));
        for (int a = 0; a < b.algos.n; a++)
            for (int m = 0; m < b.n_modes; m++) {
                if (b.n_cells == MOST_CELLS)
                    return gw_fail(GW_ERR_USAGE,
                                   "bench: more than %d of algorithms x codecs x modes",
                                   MOST_CELLS);
                cell *one = &b.cells[b.n_cells++];
                one->mode = b.modes[m];
                one->x = (gw_bench_exchange){.spec = b.algos.item[a], .wire = &b.wire[c]};
                GW_TRY(gw_bench_exchange_open(&one->x, GW_ALLREDUCE));
            }
    }
    return GW_OK;
}

static gw_err prepare(const gw_args *args, int *level) {
    b.args = args;
    b.compute_ratio = gw_args_real(args, "compute-ratio");
    b.kernel_limit_s = gw_args_real(args, "kernel-us") * 1e-6;
    b.repeats = (int)gw_args_int(args, "repeats");
    b.seed = (uint64_t)gw_args_int(args, "seed");
    GW_TRY(gw_bench_sizes_read(&b.sizes, gw_args_text(args, "sizes")));
    GW_TRY(gw_list_read(&b.algos, "bench", "algos", gw_args_text(args, "algos"), true));
    GW_TRY(gw_list_read(&b.codecs, "bench", "compress", gw_args_text(args, "compress"), true));
    GW_TRY(read_modes(gw_args_text(args, "progress"), level));
    return open_cells();
}

/* ---- computation ---- */

static double since(uint64_t start) {
    return gw_clock_seconds(gw_clock_ticks() - start);
}

/* One kernel; its time. */
static double kernel(void) {
    uint64_t start = gw_clock_ticks();
    gw_gemm(false, false, b.edge, b.edge, b.edge, b.matrix[0], b.edge, b.matrix[1], b.edge, 0,
            b.matrix[2], b.edge);
    return since(start);
}

static gw_err slowest(double *x, int n) {
    GW_TRY(gw_allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_MAX, b.place.comm));
    return GW_OK;
}

/* The largest matrices whose product stays within the limit on all ranks. */
static gw_err choose_kernel(void) {
    enum { TRIES = 21, STEP = 16, WARM = 3 };
    for (int i = 0; i < 3; i++) {
        GW_TRY(
            gw_agree(b.place.comm, gw_alloc(&b.matrix[i], MOST_EDGE * MOST_EDGE, sizeof(float))));
        for (int k = 0; k < MOST_EDGE * MOST_EDGE; k++)
            b.matrix[i][k] = (float)gw_rng_unit(b.seed, (uint64_t)k);
    }
    for (int edge = STEP; edge <= MOST_EDGE; edge += STEP) {
        int before = b.edge;
        double times[TRIES];
        b.edge = edge;
        for (int i = 0; i < WARM; i++)
            kernel();
        for (int i = 0; i < TRIES; i++)
            times[i] = kernel();
        double s = gw_stats_median(times, TRIES);
        GW_TRY(slowest(&s, 1));
        if (before > 0 && s > b.kernel_limit_s) {
            b.edge = before;
            return GW_OK;
        }
        b.kernel_s = s;
    }
    return GW_OK;
}

/* ---- the three measurements; times are this rank's ---- */

static gw_err communicate(cell *c, size_t n) {
    gw_bench_data_fill(&b.data, c->x.wire->base, n);
    c->x.wire->lane->ticket++;
    GW_TRY(gw_bench_sync(&b.place));
    uint64_t start = gw_clock_ticks();
    GW_TRY(gw_queue_start(c->queue, c->x.schedule));
    GW_TRY(gw_queue_wait(c->queue, c->x.schedule));
    c->now_s[COMM] = since(start);
    c->wrong += gw_bench_data_wrong(&b.data, c->x.wire->base, n, c->x.wire->bound);
    return GW_OK;
}

static gw_err compute(cell *c) {
    double in_kernels = 0;
    GW_TRY(gw_bench_sync(&b.place));
    uint64_t start = gw_clock_ticks();
    for (int k = 0; k < c->kernels; k++)
        in_kernels += kernel();
    c->now_s[COMP] = since(start);
    c->alone_s = in_kernels;
    return GW_OK;
}

static gw_err overlap(cell *c, size_t n) {
    double in_kernels = 0, in_polls = 0;
    gw_bench_data_fill(&b.data, c->x.wire->base, n);
    c->x.wire->lane->ticket++;
    GW_TRY(gw_bench_sync(&b.place));
    uint64_t start = gw_clock_ticks();
    GW_TRY(gw_queue_start(c->queue, c->x.schedule));
    c->now_s[POST] = since(start);
    for (int k = 0; k < c->kernels; k++) {
        in_kernels += kernel();
        uint64_t poll = gw_clock_ticks();
        GW_TRY(gw_queue_poll(c->queue));
        in_polls += since(poll);
    }
    uint64_t wait = gw_clock_ticks();
    GW_TRY(gw_queue_wait(c->queue, c->x.schedule));
    c->now_s[EXPOSED] = since(wait);
    c->now_s[BOTH] = since(start);
    c->now_s[POLL] = in_polls;
    c->now_s[INTERFERENCE] = in_kernels;
    c->wrong += gw_bench_data_wrong(&b.data, c->x.wire->base, n, c->x.wire->bound);
    return GW_OK;
}

/* Only a progress thread that is awake needs a core. */
static bool must_yield(const cell *c) {
    return c->mode == GW_PROGRESS_THREAD ? b.place.crowded : b.place.oversubscribed;
}

/* All three, in an order that all ranks draw alike; then what the ranks measured is put together:
 * the slowest's times, and the mean of the interference. */
static gw_err one_turn(cell *c, size_t n) {
    uint32_t order[] = {COMM, COMP, BOTH};
    gw_rng_shuffle(gw_rng_key(b.seed, b.drawn++), order, 3);
    c->x.wire->lane->yield = must_yield(c);
    for (int i = 0; i < 3; i++)
        GW_TRY(order[i] == COMM   ? communicate(c, n)
               : order[i] == COMP ? compute(c)
                                  : overlap(c, n));
    double *s = c->now_s;
    s[INTERFERENCE] -= c->alone_s;
    GW_TRY(slowest(s, SLOWEST));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &s[INTERFERENCE], 1, MPI_DOUBLE, MPI_SUM, b.place.comm));
    s[INTERFERENCE] /= b.place.ranks;
    for (int f = 0; f < MEASURED; f++)
        GW_TRY(gw_samples_add(&c->samples[f], s[f]));
    GW_TRY(gw_samples_add(&c->samples[HIDDEN], 1 - (s[BOTH] - s[COMP]) / s[COMM]));
    return gw_samples_add(&c->samples[SAVED], s[COMM] + s[COMP] - s[BOTH]);
}

/* As many kernels as make computation alone the wanted multiple of communication alone. */
static gw_err calibrate(cell *c, size_t n) {
    enum { WARM = 2, TRIES = 9 };
    double times[TRIES];
    for (int i = 0; i < WARM; i++)
        GW_TRY(communicate(c, n));
    for (int i = 0; i < TRIES; i++) {
        GW_TRY(communicate(c, n));
        times[i] = c->now_s[COMM];
    }
    GW_TRY(slowest(times, TRIES));
    double wanted = ceil(b.compute_ratio * gw_stats_median(times, TRIES) / b.kernel_s);
    c->kernels = (int)fmin(fmax(wanted, 1), MOST_KERNELS);
    return GW_OK;
}

/* ---- the exchange on a busy core ---- */

typedef struct exchange {
    cell *c;
    size_t n;
} exchange;

static void exchange_prepare(void *ctx) {
    exchange *x = ctx;
    gw_bench_data_fill(&b.data, x->c->x.wire->base, x->n);
    x->c->x.wire->lane->ticket++;
}

static gw_err exchange_start(void *ctx) {
    return gw_schedule_start(((exchange *)ctx)->c->x.schedule);
}

static gw_err exchange_test(void *ctx, bool *done) {
    return gw_schedule_test(((exchange *)ctx)->c->x.schedule, done);
}

static gw_err measure_transport(cell *c, size_t n) {
    gw_transport_job job = {exchange_prepare, exchange_start, exchange_test, &(exchange){c, n}};
    return gw_transport_measure(&job, must_yield(c), b.place.comm, &c->transport_s);
}

static gw_err measure(size_t n) {
    for (int i = 0; i < b.n_cells; i++) {
        cell *c = &b.cells[i];
        c->wrong = 0;
        for (int f = 0; f < FIGURES; f++)
            c->samples[f].n = 0;
        if (!gw_bench_exchange_ready(&c->x))
            continue;
        GW_TRY(calibrate(c, n));
        GW_TRY(measure_transport(c, n));
    }
    for (int r = 0; r < b.repeats; r++) {
        uint32_t order[MOST_CELLS];
        for (int i = 0; i < b.n_cells; i++)
            order[i] = (uint32_t)i;
        gw_rng_shuffle(gw_rng_key(b.seed, b.drawn++), order, (uint32_t)b.n_cells);
        for (int i = 0; i < b.n_cells; i++)
            if (gw_bench_exchange_ready(&b.cells[order[i]].x))
                GW_TRY(one_turn(&b.cells[order[i]], n));
    }
    for (int i = 0; i < b.n_cells; i++) {
        cell *c = &b.cells[i];
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &c->wrong, 1, MPI_UINT64_T, MPI_SUM, b.place.comm));
        b.all_wrong += c->wrong;
    }
    return GW_OK;
}

/* ---- the whole ---- */

static gw_err open_all(MPI_Comm comm) {
    GW_TRY(gw_bench_place_open(&b.place, comm, (int)gw_args_int(b.args, "threads")));
    gw_clock_start();
    gw_err e = gw_bench_data_open(&b.data, GW_ALLREDUCE, b.place.rank, b.place.ranks, b.seed);
    for (int w = 0; w < b.codecs.n && e == GW_OK; w++)
        e = gw_bench_data_bound(&b.data, &b.wire[w].codec, &b.wire[w].bound);
    for (int i = 0; i < b.n_cells && e == GW_OK; i++)
        e = gw_queue_open(&b.cells[i].queue, b.cells[i].mode, 1, must_yield(&b.cells[i]));
    GW_TRY(gw_agree(comm, e));
    for (int w = 0; w < b.codecs.n; w++)
        GW_TRY(gw_bench_wire_open(&b.wire[w], &b.place, b.sizes.most / sizeof(float), b.seed));
    return choose_kernel();
}

static overlap_setting setting(void) {
    return (overlap_setting){&b.place, b.edge, b.kernel_s, b.compute_ratio, b.repeats};
}

static gw_err report(size_t bytes, json_t *rows) {
    overlap_setting o = setting();
    for (int i = 0; i < b.n_cells; i++)
        if (gw_bench_exchange_ready(&b.cells[i].x))
            GW_TRY(gw_bench_overlap_row(&o, &b.cells[i], bytes, rows));
    return GW_OK;
}

static gw_err all_sizes(json_t *rows, bool *own) {
    for (int s = 0; s < b.sizes.n; s++) {
        size_t n = b.sizes.bytes[s] / sizeof(float);
        for (int i = 0; i < b.n_cells; i++)
            GW_TRY(gw_bench_exchange_lay(&b.cells[i].x, &b.place, GW_ALLREDUCE, n));
        gw_err e = measure(n);
        if (e != GW_OK) {
            *own = true; /* the others wait in an exchange */
            return e;
        }
        GW_TRY(gw_agree(b.place.comm, b.place.rank == 0 ? report(b.sizes.bytes[s], rows) : GW_OK));
    }
    return GW_OK;
}

static gw_err finish(gw_file *file, json_t *rows) {
    if (b.place.rank != 0)
        return GW_OK;
    json_t *refused = json_array();
    for (int i = 0; i < b.n_cells; i += b.n_modes) /* whatever the mode */
        gw_bench_exchange_tell(&b.cells[i].x, refused);
    json_t *doc = gw_bench_document("overlap", &b.place, opts, b.args, json_incref(rows));
    json_object_set_new(doc, "kernel_s", json_real(b.kernel_s));
    json_object_set_new(doc, "kernel_edge", json_integer(b.edge));
    json_object_set_new(doc, "refused", refused);
    return gw_bench_json_close(file, doc);
}

static void close_all(void) {
    for (int i = 0; i < b.n_cells; i++) {
        gw_queue_close(b.cells[i].queue);
        gw_bench_exchange_close(&b.cells[i].x);
    }
    for (int w = b.codecs.n - 1; w >= 0; w--)
        gw_bench_wire_close(&b.wire[w]);
}

static gw_err measure_all(gw_file *file, bool *own) {
    json_t *rows = json_array();
    overlap_setting o = setting();
    if (b.place.rank == 0)
        gw_bench_overlap_head(&o);
    gw_err e = all_sizes(rows, own);
    if (e == GW_OK)
        e = gw_agree(b.place.comm, finish(file, rows));
    else
        gw_file_abandon(file);
    json_decref(rows);
    if (e == GW_OK && b.all_wrong > 0)
        return gw_fail(GW_ERR_INTERNAL,
                       "bench: %llu wrong elements: 'gradwire bench allreduce' "
                       "tells of which algorithm or codec",
                       (unsigned long long)b.all_wrong);
    return e;
}

static gw_err run(MPI_Comm comm, bool *own) {
    gw_file *file;
    GW_TRY(gw_bench_json_open(&file, gw_args_text(b.args, "json"), comm));
    gw_err e = open_all(comm);
    if (e == GW_OK)
        e = measure_all(file, own);
    else
        gw_file_abandon(file);
    if (!*own)
        close_all();
    return e;
}

static void release(void) {
    for (int i = 0; i < b.n_cells; i++)
        for (int f = 0; f < FIGURES; f++)
            gw_samples_free(&b.cells[i].samples[f]);
    for (int w = 0; w < b.codecs.n; w++)
        gw_codec_close(&b.wire[w].codec);
    for (int i = 0; i < 3; i++)
        free(b.matrix[i]);
    gw_list_free(&b.algos);
    gw_list_free(&b.codecs);
    gw_bench_data_close(&b.data);
}

const gw_benchmark gw_bench_overlap = {
    .name = "overlap",
    .summary = "what of an exchange hides under computation, by progress mode",
    .opts = opts,
    .notes = notes,
    .prepare = prepare,
    .run = run,
    .release = release,
};
