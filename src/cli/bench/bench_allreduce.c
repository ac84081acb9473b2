/* bench allreduce: every algorithm over every codec against MPI's own collective, in turns. */
#include "cli/bench/bench.h"

#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_exchange.h"
#include "mpi/wait.h"
#include "prof/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CELLS = GW_BENCH_ITEMS * 4, MOST_ROUNDS = 1000000 };

static const gw_opt opts[] = {
    {"sizes", GW_OPT_TEXT, "4K..16M", 0, 0, NULL, "LIST",
     "bytes of the float spans, e.g. 1000,64K..16M (a range doubles)"},
    {"algos", GW_OPT_TEXT, NULL, 0, 0, NULL, "SPEC,SPEC..",
     "algorithms, e.g. 'sra,(ring:chunk=64K,window=4)' [all]"},
    {"compress", GW_OPT_TEXT, "none", 0, 0, NULL, "SPEC,SPEC..", "codecs"},
    {"verb", GW_OPT_CHOICE, "allreduce", 0, 0, "allreduce|reduce|bcast|reduce-scatter|allgather",
     NULL, "the collective"},
    {"blocking", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "run each to its end (default)"},
    {"nonblocking", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "start, then poll until it is complete"},
    {"repeats", GW_OPT_TEXT, "auto", 0, 0, NULL, "N",
     "timings of a cell; auto: as many as --precision needs"},
    {"precision", GW_OPT_REAL, "5", 0.1, 100, NULL, "PERCENT",
     "auto: half the 95% interval of the median, by the median"},
    {"time-limit", GW_OPT_REAL, "0.5", 0.001, 3600, NULL, "SECONDS",
     "auto: time in exchanges after which a cell is given up"},
    {"verify", GW_OPT_CHOICE, "on", 0, 0, "on|off", NULL, "check every result"},
    {"threads", GW_OPT_INT, "1", 1, 4096, NULL, "N", "OpenMP threads per rank (codecs use them)"},
    {"seed", GW_OPT_INT, "1", 0, 0x1p52, NULL, "N", "of the data, the order and the codecs"},
    {"json", GW_OPT_TEXT, NULL, 0, 0, NULL, "FILE", "write all figures to FILE"},
    {0}};

static const char notes[] =
    "One line a size, algorithm and codec: times of the slowest rank, algbw = bytes / median,\n"
    "busbw = algbw * 2(P-1)/P for an allreduce, 'x native' = median of MPI's own blocking call\n"
    "over fp32 (the row native, always measured) divided by this one's, wrong = elements off the\n"
    "reference in any repetition, +-% = half the 95% confidence interval of the median. Cells of\n"
    "a size take turns in an order that is drawn anew each round. docs/benchmarks.md has it all.";

/* One algorithm over one codec; figures are of the present size. */
typedef struct cell {
    gw_bench_exchange x;
    char name[64]; /* in the table */
    gw_samples times;
    gw_stats stats;
    double spent_s, last_s; /* in exchanges; of this round, on this rank, then on the slowest */
    int next_look;          /* samples at which the interval is looked at again */
    bool done, limited;
    uint64_t wrong; /* on this rank, then over all */
} cell;

static struct {
    const gw_args *args;
    gw_bench_sizes sizes;
    gw_list algos, codecs;
    gw_verb verb;
    gw_bench_how how;
    int repeats; /* 0: auto */
    double precision, limit_s;
    bool verify;
    uint64_t seed, drawn; /* rounds so far, over all sizes */
    gw_bench_wire wire[GW_BENCH_ITEMS + 1];
    int wires;
    cell cells[MOST_CELLS];
    int n_cells;
    gw_bench_place place;
    gw_bench_data data;
    double *round_s; /* one a cell */
    uint64_t all_wrong;
} b;

/* ---- the command line ---- */

static const char *const verbs[] = {[GW_ALLREDUCE] = "allreduce",
                                    [GW_REDUCE] = "reduce",
                                    [GW_BCAST] = "bcast",
                                    [GW_REDUCE_SCATTER] = "reduce-scatter",
                                    [GW_ALLGATHER] = "allgather"};

static gw_err read_repeats(const char *text) {
    char *end;
    if (strcmp(text, "auto") == 0)
        return GW_OK;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > MOST_ROUNDS)
        return gw_fail(GW_ERR_USAGE, "bench: repeats=%s: must be auto or a number from 1 to %d",
                       text, MOST_ROUNDS);
    b.repeats = (int)n;
    return GW_OK;
}

static gw_err add_cell(const char *algo, gw_bench_wire *wire, bool mpi) {
    if (b.n_cells == MOST_CELLS)
        return gw_fail(GW_ERR_USAGE, "bench: more than %d pairs of algorithm and codec",
                       MOST_CELLS);
    cell *c = &b.cells[b.n_cells++];
    c->x = (gw_bench_exchange){.spec = algo, .wire = wire, .mpi = mpi};
    snprintf(c->name, sizeof c->name, "%s", algo);
    return gw_bench_exchange_open(&c->x, b.verb);
}

static gw_err add_algorithms(gw_bench_wire *wire) {
    for (int a = 0; a < b.algos.n; a++)
        GW_TRY(add_cell(b.algos.item[a], wire, false));
    if (b.algos.n > 0)
        return GW_OK;
    for (const gw_entry *const *a = gw_algos.entries; *a; a++)
        GW_TRY(add_cell((*a)->name, wire, false));
    return GW_OK;
}

/* The first wire carries fp32 for MPI's own call; the codec none shares it. */
static gw_err open_cells(void) {
    b.wire[b.wires++].spec = "none";
    GW_TRY(gw_codec_open(&b.wire[0].codec, "none"));
    GW_TRY(add_cell("native", &b.wire[0], true));
    for (int c = 0; c < b.codecs.n; c++) {
        gw_bench_wire *w = &b.wire[0];
        if (strcmp(b.codecs.item[c], w->spec) != 0) {
            w = &b.wire[b.wires++];
            w->spec = b.codecs.item[c];
            GW_TRY(gw_codec_open(&w->codec, w->spec));
        }
        GW_TRY(add_algorithms(w));
    }
    return GW_OK;
}

static gw_err prepare(const gw_args *args, int *level) {
    (void)level;
    b.args = args;
    const char *verb = gw_args_text(args, "verb"), *algos = gw_args_text(args, "algos");
    while (strcmp(verbs[b.verb], verb) != 0)
        b.verb++;
    if (gw_args_flag(args, "blocking") && gw_args_flag(args, "nonblocking"))
        return gw_fail(GW_ERR_USAGE, "bench: give --blocking or --nonblocking, not both");
    b.how = gw_args_flag(args, "nonblocking") ? GW_BENCH_POLLED : GW_BENCH_BLOCKING;
    b.precision = gw_args_real(args, "precision") / 100;
    b.limit_s = gw_args_real(args, "time-limit");
    b.verify = strcmp(gw_args_text(args, "verify"), "on") == 0;
    b.seed = (uint64_t)gw_args_int(args, "seed");
    GW_TRY(read_repeats(gw_args_text(args, "repeats")));
    GW_TRY(gw_bench_sizes_read(&b.sizes, gw_args_text(args, "sizes")));
    if (algos)
        GW_TRY(gw_list_read(&b.algos, "bench", "algos", algos, true));
    GW_TRY(gw_list_read(&b.codecs, "bench", "compress", gw_args_text(args, "compress"), true));
    return open_cells();
}

/* ---- measuring one size ---- */

/* native through the engine: polled, and then another thing than MPI's blocking call. */
static bool is_native(const cell *c) {
    return !c->x.mpi && c->x.algo.ops && strcmp(c->x.algo.ops->head.name, "native") == 0;
}

static bool polls(void) {
    return b.how == GW_BENCH_POLLED || b.place.oversubscribed;
}

static bool active(const cell *c) {
    return gw_bench_exchange_ready(&c->x) && !c->done;
}

static gw_err one_exchange(cell *c, size_t n) {
    float *base = c->x.wire->base;
    gw_bench_data_fill(&b.data, base, n);
    GW_TRY(gw_bench_sync(&b.place));
    uint64_t start = gw_clock_ticks();
    GW_TRY(gw_bench_exchange_run(&c->x, b.verb, b.how, n));
    c->last_s = gw_clock_seconds(gw_clock_ticks() - start);
    if (b.verify)
        c->wrong += gw_bench_data_wrong(&b.data, base, n, c->x.wire->bound);
    return GW_OK;
}

/* Each cell that is not done once, in an order that all ranks draw alike; an exchange that is not
 * timed goes before, since the cells share their buffers and caches. */
static gw_err one_round(size_t n) {
    uint32_t order[MOST_CELLS], count = 0;
    for (int i = 0; i < b.n_cells; i++)
        if (active(&b.cells[i]))
            order[count++] = (uint32_t)i;
    gw_rng_shuffle(gw_rng_key(b.seed, b.drawn++), order, count);
    for (uint32_t i = 0; i < count; i++) {
        GW_TRY(one_exchange(&b.cells[order[i]], n));
        GW_TRY(one_exchange(&b.cells[order[i]], n));
    }
    for (int i = 0; i < b.n_cells; i++)
        b.round_s[i] = b.cells[i].last_s;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, b.round_s, b.n_cells, MPI_DOUBLE, MPI_MAX, b.place.comm));
    for (uint32_t i = 0; i < count; i++) {
        cell *c = &b.cells[order[i]];
        GW_TRY(gw_samples_add(&c->times, b.round_s[order[i]]));
        c->spent_s += b.round_s[order[i]];
    }
    return GW_OK;
}

/* The same on all ranks, since the times are. The interval is looked at seldom: each look is one
 * more chance to stop on luck. */
static gw_err decide(cell *c) {
    if (b.repeats > 0) {
        c->done = c->times.n >= b.repeats;
        return GW_OK;
    }
    c->limited = c->spent_s >= b.limit_s && c->times.n >= GW_STATS_LEAST;
    c->done = c->limited || c->times.n >= MOST_ROUNDS;
    if (c->times.n < c->next_look && !c->done)
        return GW_OK;
    GW_TRY(gw_samples_stats(&c->times, &c->stats));
    bool precise = gw_stats_precision(&c->stats) <= b.precision;
    c->limited = c->limited && !precise;
    c->done = c->done || precise;
    c->next_look = c->times.n + c->times.n / 4;
    return GW_OK;
}

static gw_err measure(size_t n) {
    enum { FIRST_LOOK = 12 };
    for (int i = 0; i < b.n_cells; i++) {
        cell *c = &b.cells[i];
        c->times.n = 0;
        c->spent_s = 0;
        c->wrong = 0;
        c->done = c->limited = false;
        c->next_look = FIRST_LOOK;
        if (active(c))
            GW_TRY(one_exchange(c, n)); /* warm-up */
    }
    for (bool left = true; left;) {
        GW_TRY(one_round(n));
        left = false;
        for (int i = 0; i < b.n_cells; i++) {
            if (active(&b.cells[i]))
                GW_TRY(decide(&b.cells[i]));
            left = left || active(&b.cells[i]);
        }
    }
    for (int i = 0; i < b.n_cells; i++) {
        cell *c = &b.cells[i];
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &c->wrong, 1, MPI_UINT64_T, MPI_SUM, b.place.comm));
        if (c->times.n > 0)
            GW_TRY(gw_samples_stats(&c->times, &c->stats));
        b.all_wrong += c->wrong;
    }
    return GW_OK;
}

/* ---- results; rank 0 ---- */

/* busbw / algbw: nccl-tests' convention, so that the figure compares with a link's rate. */
static double bus_factor(void) {
    double p = b.place.ranks;
    switch (b.verb) {
    case GW_ALLREDUCE: return 2 * (p - 1) / p;
    case GW_REDUCE_SCATTER:
    case GW_ALLGATHER: return (p - 1) / p;
    case GW_REDUCE:
    case GW_BCAST: return p > 1;
    }
    abort(); /* no such verb */
}

static void print_head(void) {
    char what[96];
    snprintf(what, sizeof what, "%s, %s", verbs[b.verb],
             b.how == GW_BENCH_POLLED ? "nonblocking" : "blocking");
    gw_bench_place_say(&b.place, what);
    printf("\n%10s  %-16s %-12s %10s %10s %10s %8s %8s %8s %7s %6s %6s\n", "bytes", "algorithm",
           "codec", "min us", "median us", "p95 us", "algbw", "busbw", "x native", "wrong", "reps",
           "+-%");
}

static void print_cell(const cell *c, size_t bytes, double ratio) {
    const gw_stats *s = &c->stats;
    char wrong[24] = "-", width[16] = "-";
    double half = gw_stats_precision(s), algbw = 1e-9 * (double)bytes / s->median;
    if (b.verify)
        snprintf(wrong, sizeof wrong, "%llu", (unsigned long long)c->wrong);
    if (isfinite(half))
        snprintf(width, sizeof width, "%.1f", 100 * half);
    printf("%10zu  %-16s %-12s %10.2f %10.2f %10.2f %8.3f %8.3f %8.2f %7s %6d %6s%s\n", bytes,
           c->name, c->x.wire->spec, s->min * 1e6, s->median * 1e6, s->p95 * 1e6, algbw,
           algbw * bus_factor(), ratio, wrong, s->n, width, c->limited ? " *" : "");
}

static json_t *cell_json(const cell *c, size_t bytes, double ratio) {
    const gw_stats *s = &c->stats;
    double algbw = 1e-9 * (double)bytes / s->median;
    return json_pack("{s:I, s:s, s:s, s:s, s:f, s:f, s:f, s:o, s:o, s:i, s:b, s:f, s:f, s:o, s:f, "
                     "s:f}",
                     "bytes", (json_int_t)bytes, "algorithm", c->name, "codec", c->x.wire->spec,
                     "verb", verbs[b.verb], "min_s", s->min, "median_s", s->median, "p95_s", s->p95,
                     "ci_low_s", gw_bench_number(s->ci_low), "ci_high_s",
                     gw_bench_number(s->ci_high), "repeats", s->n, "limited", c->limited, "algbw",
                     algbw, "busbw", algbw * bus_factor(), "wrong",
                     b.verify ? json_integer((json_int_t)c->wrong) : json_null(), "bound",
                     c->x.wire->bound, "ratio_native", ratio);
}

static void report(size_t bytes, json_t *rows) {
    for (int i = 0; i < b.n_cells; i++) {
        const cell *c = &b.cells[i];
        if (c->times.n == 0)
            continue;
        double ratio = b.cells[0].stats.median / c->stats.median;
        print_cell(c, bytes, ratio);
        json_array_append_new(rows, cell_json(c, bytes, ratio));
    }
    fflush(stdout);
}

static json_t *report_end(void) {
    json_t *refused = json_array();
    bool limited = false;
    for (int i = 0; i < b.n_cells; i++)
        limited = limited || b.cells[i].limited;
    printf("\nalgbw and busbw in GB/s (1e9 bytes)%s\n",
           limited ? "; * the time limit came before the precision" : "");
    for (int i = 0; i < b.n_cells; i++)
        gw_bench_exchange_tell(&b.cells[i].x, refused);
    return refused;
}

/* ---- the whole ---- */

/* Lanes, buffers and the data; what is refused here or there is known to all ranks. */
static gw_err open_all(MPI_Comm comm) {
    GW_TRY(gw_bench_place_open(&b.place, comm, (int)gw_args_int(b.args, "threads")));
    gw_clock_start();
    gw_err e = gw_bench_data_open(&b.data, b.verb, b.place.rank, b.place.ranks, b.seed);
    if (e == GW_OK)
        e = gw_alloc(&b.round_s, (size_t)b.n_cells, sizeof *b.round_s);
    for (int w = 0; w < b.wires && e == GW_OK; w++)
        e = gw_bench_data_bound(&b.data, &b.wire[w].codec, &b.wire[w].bound);
    GW_TRY(gw_agree(comm, e));
    for (int w = 0; w < b.wires; w++)
        GW_TRY(gw_bench_wire_open(&b.wire[w], &b.place, b.sizes.most / sizeof(float), b.seed));
    for (int i = 0; i < b.n_cells; i++)
        if (is_native(&b.cells[i]) && polls())
            snprintf(b.cells[i].name, sizeof b.cells[i].name, "native/poll");
    return GW_OK;
}

static gw_err lay_down(size_t n) {
    for (int i = 0; i < b.n_cells; i++) {
        cell *c = &b.cells[i];
        /* Blocking, native is that very call: its row is there already. */
        if (is_native(c) && !polls() && c->x.wire == &b.wire[0])
            continue;
        GW_TRY(gw_bench_exchange_lay(&c->x, &b.place, b.verb, n));
    }
    return GW_OK;
}

static gw_err all_sizes(json_t *rows, bool *own) {
    for (int s = 0; s < b.sizes.n; s++) {
        size_t n = b.sizes.bytes[s] / sizeof(float);
        GW_TRY(lay_down(n));
        gw_err e = measure(n);
        if (e != GW_OK) {
            *own = true; /* the others wait in an exchange */
            return e;
        }
        if (b.place.rank == 0)
            report(b.sizes.bytes[s], rows);
    }
    return GW_OK;
}

static gw_err finish(gw_file *file, json_t *rows) {
    if (b.place.rank != 0)
        return GW_OK;
    json_t *refused = report_end();
    json_t *doc = gw_bench_document("allreduce", &b.place, opts, b.args, json_incref(rows));
    json_object_set_new(doc, "mode", json_string(polls() ? "polled" : "blocking"));
    json_object_set_new(doc, "refused", refused);
    return gw_bench_json_close(file, doc);
}

static void close_all(void) {
    for (int i = 0; i < b.n_cells; i++)
        gw_bench_exchange_close(&b.cells[i].x);
    for (int w = b.wires - 1; w >= 0; w--)
        gw_bench_wire_close(&b.wire[w]);
}

static gw_err measure_all(gw_file *file, bool *own) {
    json_t *rows = json_array();
    if (b.place.rank == 0)
        print_head();
    gw_err e = all_sizes(rows, own);
    if (e == GW_OK)
        e = gw_agree(b.place.comm, finish(file, rows));
    else
        gw_file_abandon(file);
    json_decref(rows);
    if (e == GW_OK && b.all_wrong > 0)
        return gw_fail(GW_ERR_INTERNAL,
                       "bench: %llu wrong elements: the column 'wrong' tells of which algorithm "
                       "and codec",
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
        gw_samples_free(&b.cells[i].times);
    for (int w = 0; w < b.wires; w++)
        gw_codec_close(&b.wire[w].codec);
    gw_list_free(&b.algos);
    gw_list_free(&b.codecs);
    gw_bench_data_close(&b.data);
    free(b.round_s);
}

const gw_benchmark gw_bench_allreduce = {
    .name = "allreduce",
    .summary = "every algorithm over every codec against MPI's own collective, verified",
    .opts = opts,
    .notes = notes,
    .prepare = prepare,
    .run = run,
    .release = release,
};
