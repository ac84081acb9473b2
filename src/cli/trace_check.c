/* gradwire trace-check: is a trace.json what it should be, and does it agree with batches.csv? */
#include "prof/trace_check.h"
#include "cli/cli.h"
#include "cli/parallel.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const gw_opt opts[] = {
    {"batches", GW_OPT_TEXT, NULL, 0, 0, NULL, "FILE",
     "compare with this table [the batches.csv beside the trace, if there is one]"},
    {0}};

static const char notes[] =
    "Checks that the file is a valid trace, that slices nest, times ascend, exchanges have begin "
    "and\nend, and phases fill their batches; and that the sums are those of batches.csv. Exit "
    "status 0: no\nfault was found; 1: one was (the first are named); 2: a file is no trace or "
    "cannot be read.\nRun it on one rank.";

/* The batches.csv in the folder of `trace`; NULL: there is none. */
static const char *beside(const char *trace, char path[PATH_MAX]) {
    const char *slash = strrchr(trace, '/');
    int folder = slash ? (int)(slash - trace) + 1 : 0;
    int n = snprintf(path, PATH_MAX, "%.*sbatches.csv", folder, trace);
    return n < PATH_MAX && access(path, F_OK) == 0 ? path : NULL;
}

static void say(const char *trace, const gw_trace_report *r) {
    printf("%s: %s: %d rank%s, %" PRId64 " batches", trace, r->faults ? "FAULTY" : "valid",
           r->ranks, r->ranks == 1 ? "" : "s", r->batches);
    if (r->batches > 0)
        printf(" (steps %" PRId64 "-%" PRId64 ")", r->first_step, r->last_step);
    printf(", %" PRIu64 " slices, %" PRIu64 " exchanges, %" PRIu64 " counter values, %" PRIu64
           " events dropped; ",
           r->slices, r->exchanges, r->counters, r->dropped);
    if (r->rows < 0)
        printf("no batches.csv to compare with\n");
    else if (r->faults)
        printf("%" PRId64 " rows of batches.csv compared\n", r->rows);
    else
        printf("sums equal %" PRId64 " rows of batches.csv\n", r->rows);
    for (uint64_t i = 0; i < r->faults && i < GW_TRACE_FAULTS; i++)
        printf("  %s\n", r->fault[i]);
    if (r->faults > GW_TRACE_FAULTS)
        printf("  and %" PRIu64 " more\n", r->faults - GW_TRACE_FAULTS);
}

static gw_err check_one(const char *trace, const char *batches, bool *faulty) {
    char path[PATH_MAX];
    gw_trace_report report;
    GW_TRY(gw_trace_check(trace, batches ? batches : beside(trace, path), &report));
    say(trace, &report);
    *faulty |= report.faults > 0;
    return GW_OK;
}

static gw_err check(const gw_args *args, char **traces, int n, bool *faulty) {
    if (n == 0)
        return gw_fail(GW_ERR_USAGE, "trace-check: no file: gradwire trace-check RUN/trace.json");
    if (n > 1 && gw_args_given(args, "batches"))
        return gw_fail(GW_ERR_USAGE, "trace-check: --batches belongs to one trace, not to %d", n);
    for (int i = 0; i < n; i++)
        GW_TRY(check_one(traces[i], gw_args_text(args, "batches"), faulty));
    return GW_OK;
}

static int run(int argc, char **argv) {
    gw_args *args = NULL;
    int traces = 0;
    bool faulty = false;
    gw_err e = gw_args_new(&args, opts);
    if (e == GW_OK)
        e = gw_args_argv(args, "trace-check", argc, argv, &traces);
    if (e == GW_OK)
        e = check(args, argv + 1, traces, &faulty);
    gw_args_free(args);
    return e != GW_OK ? gw_cli_refuse(e) : faulty;
}

const gw_command gw_command_trace_check = {
    .name = "trace-check",
    .summary = "whether a trace.json is valid and its sums are those of batches.csv",
    .usage = "[--batches FILE] FILE...        e.g. gradwire trace-check runs/bf16/trace.json",
    .notes = notes,
    .opts = opts,
    .run = run,
};
