/* bench overhead: what measuring a training step costs. The trainer's own steps, with and without
 * probes in random order, as at the beginning of a run with --out, but long enough for an interval
 * of tenths of a percent. */
#include "cli/bench/bench.h"

#include "cli/train/step_opts.h"
#include "counters/group.h"
#include "run/session.h"
#include "train/trainer.h"

#include <stdlib.h>

static const gw_opt opts[] = {
#include "cli/train/step_opts.def"
    {"data", GW_OPT_TEXT, "synthetic:samples=6400,features=784,classes=10", 0, 0, NULL, "SET",
     "as in train; its first batches are the steps", .group = "Benchmark"},
    {"papi-group", GW_OPT_FILE, "auto", 0, 0, NULL, "GROUP", "as in train"},
    {"pairs", GW_OPT_INT, "4000", 6, GW_OVERHEAD_MOST, NULL, "N",
     "rounds: a step with each of off, timers and full"},
    GW_BENCH_JSON,
    {0}};

static const char notes[] = "Each round takes one step with --profile off, timers and full, on the "
                            "same batch, in an order\n"
                            "drawn from the seed; the ranks begin a step together, and its wall is "
                            "the slowest's. Overhead is\n"
                            "the median over the rounds of wall / wall with off, less 1, with its "
                            "95% interval. Whatever else\n"
                            "runs on the machine widens it.\n"
                            "docs/measurement.md defines every figure.";

static struct {
    gw_train_config c;
    gw_group_choice *counters;
    gradwire *g;
    gw_chooser *choice;
    gw_train_result result;
} b;

static gw_err overhead_prepare(gw_bench_run *run) {
    const gw_args *args = run->args;
    GW_TRY(gw_step_opts_read(&b.c, args, "bench"));
    b.c.data = (gw_data_spec){
        .source = gw_args_text(args, "data"), .image_scale = 1, .seed = b.c.run.seed};
    b.c.until.epochs = 1;
    b.c.run.profile = GW_PROFILE_FULL;
    b.c.overhead = (int)gw_args_int(args, "pairs");
    b.c.overhead_only = true;
    GW_TRY(gw_group_choose(&b.counters, gw_args_text(args, "papi-group"), NULL));
    b.c.counters = b.counters;
    gw_mix mix;
    GW_TRY(gw_mix_open(&mix, b.c.run.compress, b.c.run.wire_check));
    gw_session *session = NULL;
    GW_TRY(gw_session_new(&session, b.c.run.comm, &mix, b.c.run.feedback));
    GW_TRY(gw_inside_new(&b.g, session));
    GW_TRY(gw_chooser_open(&b.choice, session, &b.c, NULL, false));
    run->level = gw_strategy_thread_level(&session->strategy);
    return GW_OK;
}

static gw_err overhead_measure(gw_bench_run *run, bool *own) {
    gw_train_setup s = {.config = &b.c, .g = b.g, .choice = b.choice};
    b.g = NULL;
    return gw_train(&s, run->place.comm, &b.result, own);
}

static void overhead_report(gw_bench_run *run) {
    gw_bench_place_say(&run->place, "what measuring a training step costs");
    printf("%zu parameters, global batch %d, %s with %s\n", b.result.parameters, b.c.batch,
           b.c.run.comm->text, b.c.run.compress->text);
    printf("\n%-8s %7s %10s %10s %12s %20s %8s %12s\n", "profile", "pairs", "off us", "on us",
           "overhead %", "95% interval", "regions", "estimate %");
    for (int i = 0; i < GW_OVERHEAD_LEVELS; i++) {
        const gw_overhead *o = &b.result.overhead[i];
        const char *profile = gw_overhead_profile_name(o->profile);
        if (o->pairs == 0)
            printf("%-8s not measured: %s\n", profile, o->why);
        else
            printf("%-8s %7d %10.1f %10.1f %+12.3f %+9.3f .. %+7.3f %8.0f %12.3f\n", profile,
                   o->pairs, o->off_s * 1e6, o->on_s * 1e6, 100 * (o->ratio.median - 1),
                   100 * (o->ratio.ci_low - 1), 100 * (o->ratio.ci_high - 1), o->regions,
                   100 * o->regions * o->region_s / o->off_s);
        json_array_append_new(run->results, gw_overhead_json(o));
    }
}

static void overhead_release(void) {
    gw_chooser_free(b.choice);
    gradwire_close(b.g);
    free(b.counters);
}

const gw_benchmark gw_bench_overhead = {
    .name = "overhead",
    .summary = "what measuring a training step costs, by --profile",
    .opts = opts,
    .notes = notes,
    .prepare = overhead_prepare,
    .measure = overhead_measure,
    .report = overhead_report,
    .release = overhead_release,
};
