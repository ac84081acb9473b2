/* bench ledger: kernels whose bound is no question, run as batches through the ledger and the
 * sources of the memory split, and an allreduce that one rank comes late to: does each land where
 * it must? */
#include "cli/bench/bench.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/bench_grid.h"
#include "counters/counters.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/clock.h"
#include "prof/waits.h"
#include "roofline/ceilings.h"
#include "roofline/kernels.h"
#include "step/split.h"

#include <math.h>
#include <stdlib.h>

enum { SKEW_WARMUP = 10, SKEW_SPAN = 1 << 14 };
#define RUN_S 2e-3 /* of a batch or a twin's run: short, so that many meet no other process */

/* A share of the time that a source allows for: a point, or what bounds leave. NaN: absent. */
typedef struct range {
    double lo, hi;
} range;

typedef enum source { CTR, TWIN, MODEL, SOURCES } source;

static const char *const source_names[SOURCES] = {"ctr", "twin", "model"};

typedef struct result {
    const char *name;
    double wall_s;
    range memory[SOURCES], expected; /* shares of computation */
    double waiting_s, transfer_s, injected_s, error_s;
    bool known, ok; /* known: there was a figure to judge */
} result;

#define RESULT(NAME, LOW, HIGH)                                                                    \
    {                                                                                              \
        .name = NAME, .memory = {{NAN, NAN}, {NAN, NAN}, {NAN, NAN}}, .expected = {LOW, HIGH},     \
        .waiting_s = NAN, .transfer_s = NAN, .injected_s = NAN, .error_s = NAN                     \
    }

enum { STREAM, FMA, CHASE, PRODUCT, SKEW, RESULTS };

typedef struct state {
    size_t bytes;
    int edge, batches, exchanges;
    double skew_s;
    const gw_bench_place *place;
    gw_grid grid; /* of one exchange */
    gw_ceilings ceilings;
    gw_group_choice *choice;
    gw_counters *counters;
    gw_counters_report report;
    gw_kernel *kernel;
    uint64_t sweeps;
    float *matrix[3];
    result results[RESULTS];
} state;

static state b = {.results = {[STREAM] = RESULT("stream", 0.8, 1),
                              [FMA] = RESULT("fma", 0, 0.05),
                              [CHASE] = RESULT("chase", 0.8, 1),
                              [PRODUCT] = RESULT("product", 0, 0.2),
                              [SKEW] = RESULT("skew", NAN, NAN)}};

static const gw_opt opts[] = {{"bytes", GW_OPT_BYTES, "1G", 1 << 20, 1e12, NULL, "BYTES",
                               "memory of stream and chase", INTO(bytes)},
                              {"edge", GW_OPT_INT, "1024", 64, 16384, NULL, "N",
                               "of the matrices of the product", INTO(edge)},
                              {"batches", GW_OPT_INT, "25", 3, 10000, NULL, "N",
                               "of each kernel; the quickest counts", INTO(batches)},
                              {"skew", GW_OPT_TIME, "0.001", 1e-4, 1, NULL, NULL,
                               "that the last rank comes late by", INTO(skew_s)},
                              {"exchanges", GW_OPT_INT, "100", 20, 4000, NULL, "N",
                               "that it comes late to; the median counts", INTO(exchanges)},
                              GW_BENCH_JSON,
                              {0}};

static const char notes[] =
    "Rank 0 runs the kernels, on one thread, while the others wait; the exchange needs two ranks.\n"
    "Exit status 1: a kernel landed elsewhere. docs/measurement.md defines the figures.";

static gw_err ledger_prepare(gw_bench_run *run) {
    (void)run;
    return gw_group_choose(&b.choice, "auto", NULL);
}

/* ---- kernels; rank 0 ---- */

static void ledger_run_kernel(void) {
    gw_kernel_run(b.kernel, b.sweeps);
}

static void ledger_run_product(void) {
    int n = b.edge;
    gw_gemm(false, false, n, n, n, b.matrix[0], n, b.matrix[1], n, 0, b.matrix[2], n);
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
        gw_batch_cost cost;
        uint64_t start = gw_clock_ticks();
        work();
        *hot_s = fmin(*hot_s, gw_clock_since(start));
        gw_counters_begin(b.counters);
        gw_ledger_begin();
        gw_phase_enter(GW_PHASE_FORWARD);
        work();
        gw_phase_leave();
        gw_ledger_end(&cost);
        gw_batch_counts counts = gw_counters_end(b.counters, &cost);
        double compute = cost.phase_s[GW_PHASE_FORWARD];
        if (!isnan(counts.memory_s))
            shares[counted++] = counts.memory_s / compute;
        if (cost.wall_s < r->wall_s) {
            r->wall_s = cost.wall_s;
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

/* [lo, hi] of products, as batches.csv has it: see step/split.h. */
static void ledger_model(result *r, double took_s, double flop_s, double traffic,
                         double working_set) {
    int level = gw_ceilings_level(&b.ceilings, working_set, 1);
    double lo, hi;
    gw_split_interval(took_s, flop_s, traffic / gw_ceilings_bandwidth(&b.ceilings, level, 1), &lo,
                      &hi);
    r->memory[MODEL] = (range){lo / took_s, hi / took_s};
}

/* A batch walks the stream once, and runs others for RUN_S. The twin runs the same loops over half
 * of the first-level cache; FMA needs none. */
static gw_err ledger_kernel(int which, gw_kernel_kind kind, size_t bytes) {
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
    gw_err e = batches(ledger_run_kernel, r, &took_s, &hot_s);
    gw_kernel_close(b.kernel);
    b.kernel = NULL;
    GW_TRY(e);
    double twin_s = work / rate, share = fmax(0, 1 - twin_s / took_s);
    double line = 64, traffic = kind == GW_KERNEL_FMA     ? 0
                                : kind == GW_KERNEL_CHASE ? work * line
                                                          : work;
    r->memory[TWIN] = (range){share, share};
    ledger_model(r, took_s, twin_s, traffic, (double)bytes);
    return GW_OK;
}

static gw_err ledger_kernels(void) {
    b.ceilings.threads = b.ceilings.all_threads = 1;
    snprintf(b.ceilings.kernels, sizeof b.ceilings.kernels, "%s", gw_gemm_library());
    GW_TRY(gw_ceilings_measure(&b.ceilings));
    GW_TRY(gw_counters_open(&b.counters, &b.report, &gw_counters_papi, b.choice, 1));
    GW_TRY(ledger_kernel(STREAM, GW_KERNEL_UPDATE, b.bytes));
    GW_TRY(ledger_kernel(FMA, GW_KERNEL_FMA, 0));
    GW_TRY(ledger_kernel(CHASE, GW_KERNEL_CHASE, b.bytes));
    /* A product has no twin; the model holds it against itself on hot operands. */
    size_t n = (size_t)b.edge * (size_t)b.edge;
    double took_s = NAN, hot_s;
    for (int i = 0; i < 3; i++) {
        GW_TRY(gw_alloc(&b.matrix[i], n, sizeof(float)));
        for (size_t k = 0; k < n; k++)
            b.matrix[i][k] = (float)gw_rng_unit((uint64_t)i, k);
    }
    GW_TRY(batches(ledger_run_product, &b.results[PRODUCT], &took_s, &hot_s));
    gw_product shape = {.m = b.edge, .n = b.edge, .k = b.edge};
    ledger_model(&b.results[PRODUCT], took_s, hot_s, gw_split_bytes(&shape),
                 3.0 * (double)n * sizeof(float));
    return gw_gemm_check();
}

/* ---- an exchange that the last rank comes late to ---- */

/* Each batch begins together, as far as a barrier can do; *injected_s: what the last rank was late
 * by, on all ranks. */
static gw_err ledger_late_exchange(int step, gw_batch_row *row, double *injected_s) {
    int last = b.place->ranks - 1;
    gw_batch_parts batch = {.step = step};
    *injected_s = 0;
    GW_TRY(gw_bench_sync(b.place));
    gw_exchange_log_begin(step);
    gw_ledger_begin();
    if (b.place->rank == last) {
        uint64_t start = gw_clock_ticks();
        gw_phase_enter(GW_PHASE_FORWARD);
        while (gw_clock_since(start) < b.skew_s)
            ;
        gw_phase_leave();
        *injected_s = gw_clock_since(start);
    }
    gw_err e = gw_schedule_run(b.grid.cell[0].timed.schedule);
    gw_ledger_end(&batch.cost);
    gw_exchange_log_end();
    *row = gw_batch_row_of(&batch);
    GW_TRY(e);
    return gw_bcast(injected_s, 1, MPI_DOUBLE, last, b.place->comm);
}

/* Medians over the exchanges of this rank; the error is that of the rank with the largest. */
static gw_err ledger_judge_skew(const gw_batch_row *rows, const double *injected, int n) {
    result *r = &b.results[SKEW];
    bool last = b.place->rank == b.place->ranks - 1;
    double *x = NULL, median[5];
    GW_TRY(gw_agree(b.place->comm, gw_alloc(&x, (size_t)n, sizeof *x)));
    for (int c = 0; c < 5; c++) {
        for (int i = 0; i < n; i++) {
            const gw_batch_row *row = &rows[i];
            const double figures[] = {row->cost.wall_s, row->wait_skew_s, row->transfer_s,
                                      injected[i], row->wait_skew_s - injected[i]};
            x[i] = figures[c];
        }
        median[c] = gw_stats_median(x, n);
    }
    r->wall_s = median[0];
    r->waiting_s = median[1];
    r->transfer_s = median[2];
    r->injected_s = median[3];
    r->error_s = last ? 0 : fabs(median[4]);
    free(x);
    return gw_allreduce(MPI_IN_PLACE, &r->error_s, 1, MPI_DOUBLE, MPI_MAX, b.place->comm);
}

/* *own: the others wait in an exchange, so nothing can be closed together with them. */
static gw_err ledger_skew(bool *own) {
    gw_waits *w = NULL;
    gw_grid *g = &b.grid;
    int n = b.exchanges, done = 0, room = 1;
    gw_batch_row *rows = NULL;
    double *injected = NULL;
    g->seed = 1;
    g->sizes.most = SKEW_SPAN * sizeof(float);
    GW_TRY(gw_grid_add(g, GW_SPEC_NAMED("sra"), &gw_codec_exact, false));
    GW_TRY(gw_grid_open(g, b.place));
    GW_TRY(gw_grid_lay(g, &g->cell[0], SKEW_SPAN));
    GW_TRY(gw_waits_open(&w, NULL, n, NULL, b.place->comm));
    gw_err e = gw_alloc(&rows, (size_t)n, sizeof *rows);
    GW_THEN(e, gw_alloc(&injected, (size_t)n, sizeof *injected));
    e = gw_agree(b.place->comm, e);
    for (int flushed = 0; e == GW_OK && done < n;) {
        e = ledger_late_exchange(done + 1, &rows[done], &injected[done]);
        done++;
        if (e == GW_OK && (done - flushed == room || done == n)) {
            e = gw_waits_flush(w, rows + flushed, done - flushed, &room);
            flushed = done;
        }
    }
    GW_THEN(e, ledger_judge_skew(rows + SKEW_WARMUP, injected + SKEW_WARMUP, n - SKEW_WARMUP));
    free(rows);
    free(injected);
    *own = e != GW_OK;
    return e == GW_OK ? gw_waits_close(w) : e;
}

/* ---- verdicts and the table; rank 0 ---- */

static const gw_bench_table table = {
    .form = "%-10s %10.1u %10.1u %13s %13s %13s %10.1u %10.1u  %-18s %s",
    .heads = "kernel|wall us|core us|mem. ctr|mem. twin|mem. model|waiting us|transf. us|expected|"
             "verdict",
    .kept = "ffff",
    .keys = "kernel|wall_s|||||waiting_s|transfer_s|||expected_low|expected_high|injected_s|"
            "error_s"};

static const char *ledger_share_text(char out[24], range m) {
    if (isnan(m.lo))
        return NULL;
    snprintf(out, 24, m.lo == m.hi ? "%.3f" : "%.3f..%.3f", m.lo, m.hi);
    return out;
}

static void ledger_report(gw_bench_run *run) {
    gw_bench_place_say(&run->place, "validation of the ledger");
    printf(
        "counters: %s\nbandwidth of DRAM %.2f GB/s, multiply-adds %.1f GFLOP/s, one thread; GEMM "
        "by %s\n",
        b.counters ? b.choice->name : b.report.reason,
        gw_ceilings_bandwidth(&b.ceilings, GW_LEVELS - 1, 1) / 1e9, b.ceilings.fma.one / 1e9,
        gw_gemm_library());
    gw_bench_head(&table);
    for (int i = 0; i < (run->place.ranks > 1 ? RESULTS : SKEW); i++) {
        result *r = &b.results[i];
        const range *m = r->memory;
        r->ok = true;
        for (int s = 0; s < SOURCES; s++) {
            if (isnan(m[s].lo))
                continue;
            r->known = true;
            r->ok = r->ok && m[s].lo <= r->expected.hi && m[s].hi >= r->expected.lo;
        }
        if (!isnan(r->error_s)) {
            r->known = true;
            r->ok = r->error_s <= fmax(20e-6, 0.05 * r->injected_s);
        }
        char share[SOURCES][24], expected[40];
        double core_s = NAN; /* by the best source that knows a point */
        for (int s = SOURCES - 1; s >= 0; s--)
            if (m[s].lo == m[s].hi)
                core_s = r->wall_s * (1 - m[s].lo);
        if (isnan(r->expected.lo))
            snprintf(expected, sizeof expected, "waiting=%.1fus", r->injected_s * 1e6);
        else
            snprintf(expected, sizeof expected, "memory%s%.2f", r->expected.lo > 0 ? ">" : "<",
                     r->expected.lo > 0 ? r->expected.lo : r->expected.hi);
        const char *verdict = !r->known ? "not measured" : r->ok ? "ok" : "ELSEWHERE";
        json_t *memory = json_object();
        json_t *row =
            gw_bench_row(&table, run->results,
                         GW_TEXTS(r->name, ledger_share_text(share[CTR], m[CTR]),
                                  ledger_share_text(share[TWIN], m[TWIN]),
                                  ledger_share_text(share[MODEL], m[MODEL]), expected, verdict),
                         GW_NUMBERS(r->wall_s, core_s, r->waiting_s, r->transfer_s, r->expected.lo,
                                    r->expected.hi, r->injected_s, r->error_s));
        for (int s = 0; s < SOURCES; s++)
            json_object_set_new(memory, source_names[s],
                                gw_json_object("low:f high:f", m[s].lo, m[s].hi));
        gw_json_add(row, "memory_share:o ok:o", memory,
                    r->known ? json_boolean(r->ok) : json_null());
    }
}

/* ---- the whole ---- */

/* Rank 0 judged, and speaks for all. */
static gw_err ledger_verdict(gw_bench_run *run) {
    int wrong = 0;
    for (int i = 0; i < RESULTS; i++)
        wrong += b.results[i].known && !b.results[i].ok;
    return gw_agree(
        run->place.comm,
        wrong ? gw_fail(GW_ERR_INTERNAL,
                        "bench: %d of the kernels landed elsewhere: a figure of the ledger is "
                        "not to be trusted here, or the machine was busy",
                        wrong)
              : GW_OK);
}

static gw_err ledger_measure(gw_bench_run *run, bool *own) {
    b.place = &run->place;
    gw_ledger_start();
    GW_TRY(gw_agree(run->place.comm, run->place.rank == 0 ? ledger_kernels() : GW_OK));
    return run->place.ranks > 1 ? ledger_skew(own) : GW_OK;
}

static void ledger_release(void) {
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
    .config = &b,
    .notes = notes,
    .prepare = ledger_prepare,
    .measure = ledger_measure,
    .report = ledger_report,
    .verdict = ledger_verdict,
    .grid = &b.grid,
    .release = ledger_release,
};
