/* bench ledger: kernels whose bound is no question, run as batches through the ledger and the
 * sources of the memory split, and an allreduce that one rank comes late to: does each land where
 * it must? */
#include "cli/bench/bench.h"

#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_exchange.h"
#include "counters/counters.h"
#include "machine/ceilings.h"
#include "machine/kernels.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/clock.h"
#include "prof/waits.h"
#include "run/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SKEW_WARMUP = 10, SKEW_SPAN = 1 << 14 };
#define RUN_S 2e-3 /* of a batch or a twin's run: short, so that many meet no other process */

static const gw_opt opts[] = {
    {"bytes", GW_OPT_BYTES, "1G", 1 << 20, 1e12, NULL, "BYTES", "memory of stream and chase"},
    {"edge", GW_OPT_INT, "1024", 64, 16384, NULL, "N", "of the matrices of the product"},
    {"batches", GW_OPT_INT, "25", 3, 10000, NULL, "N", "of each kernel; the quickest counts"},
    {"skew", GW_OPT_REAL, "0.001", 1e-4, 1, NULL, "SECONDS", "that the last rank comes late by"},
    {"exchanges", GW_OPT_INT, "100", 20, 4000, NULL, "N",
     "that it comes late to; the median counts"},
    {"json", GW_OPT_TEXT, NULL, 0, 0, NULL, "FILE", "write all figures to FILE"},
    {0}};

static const char notes[] =
    "Rank 0 runs the kernels, on one thread, while the others wait; the exchange needs two ranks.\n"
    "Exit status 1: a kernel landed elsewhere. docs/measurement.md defines the figures.";

/* A share of the time that a source allows for: a point, or what bounds leave. NaN: absent. */
typedef struct range {
    double lo, hi;
} range;

static const range absent = {NAN, NAN};

typedef enum source { CTR, TWIN, MODEL, SOURCES } source;

static const char *const source_names[SOURCES] = {"ctr", "twin", "model"};

typedef struct result {
    const char *name;
    double wall_s;
    range memory[SOURCES], expected; /* shares of computation */
    double waiting_s, transfer_s, injected_s, error_s;
    bool known, ok; /* known: there was a figure to judge */
} result;

enum { STREAM, FMA, CHASE, PRODUCT, SKEW, RESULTS };

static struct {
    const gw_args *args;
    size_t bytes;
    int edge, batches, exchanges;
    double skew_s;
    gw_bench_place place;
    gw_ceilings ceilings;
    gw_group_choice *choice;
    gw_counters *counters;
    gw_counters_report report;
    gw_kernel *kernel;
    uint64_t sweeps;
    float *matrix[3];
    result results[RESULTS];
} b;

static gw_err prepare(const gw_args *args, int *level) {
    (void)level;
    b.args = args;
    b.bytes = gw_args_bytes(args, "bytes");
    b.edge = (int)gw_args_int(args, "edge");
    b.batches = (int)gw_args_int(args, "batches");
    b.exchanges = (int)gw_args_int(args, "exchanges");
    b.skew_s = gw_args_real(args, "skew");
    return gw_group_choose(&b.choice, "auto", NULL);
}

/* ---- kernels; rank 0 ---- */

static void run_kernel(void) {
    gw_kernel_run(b.kernel, b.sweeps);
}

static void run_product(void) {
    int n = b.edge;
    gw_gemm(false, false, n, n, n, b.matrix[0], n, b.matrix[1], n, 0, b.matrix[2], n);
}

static void one_batch(void (*work)(void), gw_batch_row *row) {
    *row = gw_batch_row_blank();
    if (b.counters)
        gw_counters_begin(b.counters);
    gw_ledger_begin();
    gw_phase_enter(GW_PHASE_FORWARD);
    work();
    gw_phase_leave();
    gw_ledger_end(&row->cost);
    if (b.counters)
        gw_counters_end(b.counters, row);
}

/* What disturbs a batch only makes it slower, so the quickest tells the kernel's own time: *took_s.
 * The counters' share is the median over the batches that have one. *hot_s: the same work outside
 * of batches, in turns with them. */
static gw_err batches(void (*work)(void), result *r, double *took_s, double *hot_s) {
    double *shares = NULL;
    int counted = 0;
    GW_TRY(gw_alloc(&shares, (size_t)b.batches, sizeof *shares));
    r->wall_s = *hot_s = INFINITY;
    for (int i = 0; i < b.batches; i++) {
        gw_batch_row row;
        uint64_t start = gw_clock_ticks();
        work();
        *hot_s = fmin(*hot_s, gw_clock_seconds(gw_clock_ticks() - start));
        one_batch(work, &row);
        double compute = row.cost.phase_s[GW_PHASE_FORWARD];
        if (!isnan(row.split.memory_ctr_s))
            shares[counted++] = row.split.memory_ctr_s / compute;
        if (row.cost.wall_s < r->wall_s) {
            r->wall_s = row.cost.wall_s;
            *took_s = compute;
        }
    }
    if (counted > 0) {
        double share = gw_stats_median(shares, counted);
        r->memory[CTR] = (range){b.report.bound == GW_BOUND_UPPER ? 0 : share,
                                 b.report.bound == GW_BOUND_LOWER ? 1 : share};
    }
    free(shares);
    return GW_OK;
}

/* [lo, hi] of products, as batches.csv has it: see train/memory.h. */
static void model(result *r, double took_s, double flop_s, double traffic, double working_set) {
    int level = gw_ceilings_level(&b.ceilings, working_set, 1);
    double lo, hi;
    gw_split_interval(took_s, flop_s, traffic / gw_ceilings_bandwidth(&b.ceilings, level, 1), &lo,
                      &hi);
    r->memory[MODEL] = (range){lo / took_s, hi / took_s};
}

/* A batch walks the stream once, and runs others for RUN_S. The twin runs the same loops over half
 * of the first-level cache; FMA needs none. */
static gw_err kernel(int which, gw_kernel_kind kind, size_t bytes) {
    enum { TRIES = 9 };
    result *r = &b.results[which];
    gw_kernel *twin = NULL;
    double took_s = NAN, hot_s;
    GW_TRY(gw_kernel_open(&twin, kind, b.ceilings.caches[0].bytes / 2));
    double rate = gw_kernel_rate(twin, TRIES, RUN_S);
    gw_kernel_close(twin);
    GW_TRY(gw_kernel_open(&b.kernel, kind, bytes));
    double walk = 1.5 * (double)bytes / gw_kernel_work(b.kernel);
    b.sweeps = kind == GW_KERNEL_UPDATE ? (uint64_t)ceil(walk) : gw_kernel_sweeps(b.kernel, RUN_S);
    double work = (double)b.sweeps * gw_kernel_work(b.kernel);
    gw_err e = batches(run_kernel, r, &took_s, &hot_s);
    gw_kernel_close(b.kernel);
    b.kernel = NULL;
    GW_TRY(e);
    double twin_s = work / rate, share = fmax(0, 1 - twin_s / took_s);
    double line = 64, traffic = kind == GW_KERNEL_FMA     ? 0
                                : kind == GW_KERNEL_CHASE ? work * line
                                                          : work;
    r->memory[TWIN] = (range){share, share};
    model(r, took_s, twin_s, traffic, (double)bytes);
    return GW_OK;
}

/* A product has no twin; the model holds it against itself on hot operands. */
static gw_err product(void) {
    size_t n = (size_t)b.edge * (size_t)b.edge;
    double took_s = NAN, hot_s;
    for (int i = 0; i < 3; i++) {
        GW_TRY(gw_alloc(&b.matrix[i], n, sizeof(float)));
        for (size_t k = 0; k < n; k++)
            b.matrix[i][k] = (float)gw_rng_unit((uint64_t)i, k);
    }
    GW_TRY(batches(run_product, &b.results[PRODUCT], &took_s, &hot_s));
    gw_product shape = {.m = b.edge, .n = b.edge, .k = b.edge};
    model(&b.results[PRODUCT], took_s, hot_s, gw_split_bytes(&shape),
          3.0 * (double)n * sizeof(float));
    return gw_gemm_check();
}

static gw_err kernels(void) {
    b.ceilings.threads = b.ceilings.all_threads = 1;
    snprintf(b.ceilings.kernels, sizeof b.ceilings.kernels, "%s", gw_gemm_library());
    GW_TRY(gw_ceilings_measure(&b.ceilings));
    GW_TRY(gw_counters_open(&b.counters, &b.report, &gw_counters_papi, b.choice, 1));
    GW_TRY(kernel(STREAM, GW_KERNEL_UPDATE, b.bytes));
    GW_TRY(kernel(FMA, GW_KERNEL_FMA, 0));
    GW_TRY(kernel(CHASE, GW_KERNEL_CHASE, b.bytes));
    return product();
}

/* ---- an exchange that the last rank comes late to ---- */

static double late_s(uint64_t start) {
    gw_phase_enter(GW_PHASE_FORWARD);
    while (gw_clock_seconds(gw_clock_ticks() - start) < b.skew_s)
        ;
    gw_phase_leave();
    return gw_clock_seconds(gw_clock_ticks() - start);
}

/* Each batch begins together, as far as a barrier can do; *injected_s: what the last rank was late
 * by, on all ranks. */
static gw_err late_exchange(const gw_bench_exchange *x, gw_waits *w, int step, gw_batch_row *row,
                            double *injected_s) {
    int last = b.place.ranks - 1;
    *row = gw_batch_row_blank();
    *injected_s = 0;
    GW_TRY(gw_bench_sync(&b.place));
    gw_waits_begin(w, step);
    gw_ledger_begin();
    if (b.place.rank == last)
        *injected_s = late_s(gw_clock_ticks());
    gw_err e = gw_bench_exchange_run(x, GW_ALLREDUCE, GW_BENCH_BLOCKING, SKEW_SPAN);
    gw_ledger_end(&row->cost);
    gw_waits_end(w);
    GW_TRY(e);
    return gw_bcast(injected_s, 1, MPI_DOUBLE, last, b.place.comm);
}

/* Medians over the exchanges of this rank; the error is that of the rank with the largest. */
static gw_err judge_skew(const gw_batch_row *rows, const double *injected, int n) {
    result *r = &b.results[SKEW];
    bool last = b.place.rank == b.place.ranks - 1;
    double *x = NULL;
    GW_TRY(gw_agree(b.place.comm, gw_alloc(&x, (size_t)n * 5, sizeof *x)));
    double *column[5];
    for (int c = 0; c < 5; c++)
        column[c] = x + c * n;
    for (int i = 0; i < n; i++) {
        column[0][i] = rows[i].cost.wall_s;
        column[1][i] = rows[i].wait_skew_s;
        column[2][i] = rows[i].transfer_s;
        column[3][i] = injected[i];
        column[4][i] = rows[i].wait_skew_s - injected[i];
    }
    r->wall_s = gw_stats_median(column[0], n);
    r->waiting_s = gw_stats_median(column[1], n);
    r->transfer_s = gw_stats_median(column[2], n);
    r->injected_s = gw_stats_median(column[3], n);
    r->error_s = last ? 0 : fabs(gw_stats_median(column[4], n));
    free(x);
    return gw_allreduce(MPI_IN_PLACE, &r->error_s, 1, MPI_DOUBLE, MPI_MAX, b.place.comm);
}

static gw_err run_skew(const gw_bench_exchange *x, gw_waits *w) {
    int n = b.exchanges, done = 0, room = 1;
    gw_batch_row *rows = NULL;
    double *injected = NULL;
    gw_err e = gw_alloc(&rows, (size_t)n, sizeof *rows);
    if (e == GW_OK)
        e = gw_alloc(&injected, (size_t)n, sizeof *injected);
    e = gw_agree(b.place.comm, e);
    for (int flushed = 0; e == GW_OK && done < n;) {
        e = late_exchange(x, w, done + 1, &rows[done], &injected[done]);
        done++;
        if (e == GW_OK && (done - flushed == room || done == n)) {
            e = gw_waits_flush(w, rows + flushed, done - flushed, &room);
            flushed = done;
        }
    }
    if (e == GW_OK)
        e = judge_skew(rows + SKEW_WARMUP, injected + SKEW_WARMUP, n - SKEW_WARMUP);
    free(rows);
    free(injected);
    return e;
}

static gw_err open_skew(gw_bench_wire *wire, gw_bench_exchange *x, gw_waits **w) {
    GW_TRY(gw_codec_open(&wire->codec, wire->spec));
    GW_TRY(gw_bench_exchange_open(x, GW_ALLREDUCE));
    GW_TRY(gw_bench_wire_open(wire, &b.place, SKEW_SPAN, 1));
    GW_TRY(gw_bench_exchange_lay(x, &b.place, GW_ALLREDUCE, SKEW_SPAN));
    return gw_waits_open(w, NULL, b.exchanges, b.place.comm);
}

/* *own: the others wait in an exchange, so nothing can be closed together with them. */
static gw_err skew(bool *own) {
    gw_bench_wire wire = {.spec = "none"};
    gw_bench_exchange x = {.spec = "sra", .wire = &wire};
    gw_waits *w = NULL;
    GW_TRY(open_skew(&wire, &x, &w));
    gw_err e = run_skew(&x, w);
    *own = e != GW_OK;
    if (e != GW_OK)
        return e;
    gw_bench_exchange_close(&x);
    gw_bench_wire_close(&wire);
    gw_codec_close(&wire.codec);
    return gw_waits_close(w);
}

/* ---- verdicts and the table; rank 0 ---- */

static void judge(result *r) {
    r->ok = true;
    for (int s = 0; s < SOURCES; s++) {
        range m = r->memory[s];
        if (isnan(m.lo))
            continue;
        r->known = true;
        r->ok = r->ok && m.lo <= r->expected.hi && m.hi >= r->expected.lo;
    }
    if (!isnan(r->error_s)) {
        r->known = true;
        r->ok = r->error_s <= fmax(20e-6, 0.05 * r->injected_s);
    }
}

static const char *text(char out[24], const char *form, double a, double z) {
    if (isnan(a))
        return "-";
    snprintf(out, 24, a == z ? form : "%.3f..%.3f", a, z);
    return out;
}

static void print_row(const result *r) {
    char cell[6][24], expected[40];
    double share = NAN; /* by the best source that knows a point */
    for (int s = SOURCES - 1; s >= 0; s--)
        if (r->memory[s].lo == r->memory[s].hi)
            share = r->memory[s].lo;
    double core_us = r->wall_s * (1 - share) * 1e6;
    double waiting_us = r->waiting_s * 1e6, transfer_us = r->transfer_s * 1e6;
    if (isnan(r->expected.lo))
        snprintf(expected, sizeof expected, "waiting %.1f us", r->injected_s * 1e6);
    else
        snprintf(expected, sizeof expected, "memory %s %.2f", r->expected.lo > 0 ? ">" : "<",
                 r->expected.lo > 0 ? r->expected.lo : r->expected.hi);
    printf("%-10s %10.1f %10s %13s %13s %13s %10s %10s  %-18s %s\n", r->name, r->wall_s * 1e6,
           text(cell[0], "%.1f", core_us, core_us),
           text(cell[1], "%.3f", r->memory[CTR].lo, r->memory[CTR].hi),
           text(cell[2], "%.3f", r->memory[TWIN].lo, r->memory[TWIN].hi),
           text(cell[3], "%.3f", r->memory[MODEL].lo, r->memory[MODEL].hi),
           text(cell[4], "%.1f", waiting_us, waiting_us),
           text(cell[5], "%.1f", transfer_us, transfer_us), expected,
           !r->known ? "not measured"
           : r->ok   ? "ok"
                     : "ELSEWHERE");
}

static json_t *row_json(const result *r) {
    json_t *memory = json_object();
    for (int s = 0; s < SOURCES; s++)
        json_object_set_new(memory, source_names[s],
                            json_pack("{s:o, s:o}", "low", gw_bench_number(r->memory[s].lo), "high",
                                      gw_bench_number(r->memory[s].hi)));
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kernel", r->name,
                     "wall_s", gw_bench_number(r->wall_s), "memory_share", memory, "expected_low",
                     gw_bench_number(r->expected.lo), "expected_high",
                     gw_bench_number(r->expected.hi), "waiting_s", gw_bench_number(r->waiting_s),
                     "transfer_s", gw_bench_number(r->transfer_s), "injected_s",
                     gw_bench_number(r->injected_s), "error_s", gw_bench_number(r->error_s), "ok",
                     r->known ? json_boolean(r->ok) : json_null());
}

static gw_err report(gw_file *file) {
    json_t *rows = json_array();
    gw_bench_place_say(&b.place, "validation of the ledger");
    printf(
        "counters: %s\nbandwidth of DRAM %.2f GB/s, multiply-adds %.1f GFLOP/s, one thread; GEMM "
        "by %s\n\n",
        b.counters ? b.choice->name : b.report.reason,
        gw_ceilings_bandwidth(&b.ceilings, GW_LEVELS - 1, 1) / 1e9, b.ceilings.fma.one / 1e9,
        gw_gemm_library());
    printf("%-10s %10s %10s %13s %13s %13s %10s %10s  %-18s %s\n", "kernel", "wall us", "core us",
           "mem. ctr", "mem. twin", "mem. model", "waiting us", "transf. us", "expected",
           "verdict");
    for (int i = 0; i < RESULTS; i++) {
        if (i == SKEW && b.place.ranks == 1)
            continue;
        judge(&b.results[i]);
        print_row(&b.results[i]);
        json_array_append_new(rows, row_json(&b.results[i]));
    }
    fflush(stdout);
    return gw_bench_json_close(file, gw_bench_document("ledger", &b.place, opts, b.args, rows));
}

/* ---- the whole ---- */

static void set_expectations(void) {
    static const struct {
        const char *name;
        range expected;
    } rows[RESULTS] = {[STREAM] = {"stream", {0.8, 1}},
                       [FMA] = {"fma", {0, 0.05}},
                       [CHASE] = {"chase", {0.8, 1}},
                       [PRODUCT] = {"product", {0, 0.2}},
                       [SKEW] = {"skew", {NAN, NAN}}};
    for (int i = 0; i < RESULTS; i++)
        b.results[i] = (result){.name = rows[i].name,
                                .memory = {absent, absent, absent},
                                .expected = rows[i].expected,
                                .waiting_s = NAN,
                                .transfer_s = NAN,
                                .injected_s = NAN,
                                .error_s = NAN};
}

static gw_err verdict(void) {
    int wrong = 0;
    for (int i = 0; i < RESULTS; i++)
        wrong += b.results[i].known && !b.results[i].ok;
    return wrong ? gw_fail(GW_ERR_INTERNAL,
                           "bench: %d of the kernels landed elsewhere: a figure of the ledger is "
                           "not to be trusted here, or the machine was busy",
                           wrong)
                 : GW_OK;
}

static gw_err run(MPI_Comm comm, bool *own) {
    gw_file *file;
    GW_TRY(gw_bench_json_open(&file, gw_args_text(b.args, "json"), comm));
    set_expectations();
    gw_err e = gw_bench_place_open(&b.place, comm, 1);
    if (e == GW_OK) {
        gw_clock_start();
        gw_ledger_start();
        e = gw_agree(comm, b.place.rank == 0 ? kernels() : GW_OK);
    }
    if (e == GW_OK && b.place.ranks > 1)
        e = skew(own);
    if (e != GW_OK) {
        gw_file_abandon(file);
        return e;
    }
    e = gw_agree(comm, b.place.rank == 0 ? report(file) : GW_OK);
    return e == GW_OK ? gw_agree(comm, b.place.rank == 0 ? verdict() : GW_OK) : e;
}

static void release(void) {
    gw_counters_close(b.counters);
    gw_kernel_close(b.kernel);
    for (int i = 0; i < 3; i++)
        free(b.matrix[i]);
    free(b.choice);
}

const gw_benchmark gw_bench_ledger = {
    .name = "ledger",
    .summary = "does the ledger tell memory, core and waiting apart? kernels of known kind",
    .opts = opts,
    .notes = notes,
    .prepare = prepare,
    .run = run,
    .release = release,
};
