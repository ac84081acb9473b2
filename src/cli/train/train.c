/* gradwire train: options in, one training run, a few lines out. */
#include "cli/cli.h"
#include "cli/train/step_opts.h"
#include "cli/train/train_job.h"
#include "optim/lr.h"
#include "predict/bound.h"
#include "record/live.h"
#include "run/codec_stats.h"
#include "run/session.h"
#include "step/checks.h"
#include "watch/signals.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const gw_opt opts[] = {
#include "cli/train/train_opts.def"
    {0}};

const gw_rule gw_train_rules[] = {
    {"clip-norm", "!0", false, "update", "lazy",
     "a layer's update would come before the whole norm"},
    {"image-size", NULL, false, "image-scale", NULL, "each says how large images become"},
    {"partition", "!uniform", false, "replicate", "!1", "a sample would lie on several ranks"},
    {"eval-every", "!0", true, "out", NULL, "it writes DIR/evaluations.csv"},
    {"log-every", NULL, true, "log", NULL, "it is about what --log writes"},
    {"trace", NULL, true, "out", NULL, "it writes DIR/trace.json"},
    {"trace", NULL, false, "profile", "off", "a trace shows what --profile timers measures"},
    {"collectives", NULL, true, "out", NULL, "it writes DIR/collectives.csv"},
    {"collectives", NULL, false, "profile", "off", "they are what --profile timers measures"},
    {"overhead", "!0", false, "profile", "off", "it measures what a profile costs"},
    {"ceilings", "!auto|off", true, "out", NULL, "what follows from them goes into run.json"},
    {"papi-group", NULL, false, "profile", "off|timers", "only --profile full counts events"},
    {"papi-events", NULL, false, "profile", "off|timers", "only --profile full counts events"},
    {"save-model", "best", true, "validation", "!0", "the least validation loss tells which it is"},
    {"save-model", "best", true, "out", NULL, "it is DIR/model.gw"},
    {"checkpoint-every", NULL, true, "out", NULL, "it writes DIR/model.ckpt.d"},
    {"checkpoint-keep", NULL, true, "checkpoint-every", NULL, "it says how many of these to keep"},
    {"resume", "auto", true, "out", NULL, "it looks in DIR/model.ckpt.d; or name the checkpoint"},
    {"resume", "auto", false, "overwrite", NULL, "one resumes the run in --out, one replaces it"},
    {"resume-strict", NULL, true, "resume", NULL, "it is about what a resumed run loses"},
    {0}};

/* ---- reading the command line ---- */

gw_err gw_train_job_read(gw_train_job *j) {
    const gw_args *a = j->args;
    gw_train_config *c = &j->config;
    gw_bound_mode mode;
    GW_TRY(gw_step_opts_read(c, a, "train"));
    GW_TRY(gw_division_read(&c->data.partition, gw_args_text(a, "partition")));
    if (c->local_batch && c->data.partition.on && !c->data.partition.labels)
        return gw_fail(GW_ERR_USAGE,
                       "train: --partition %s excludes --local-batch: ranks take "
                       "unequal parts of a batch: give --batch",
                       gw_args_text(a, "partition"));
    GW_TRY(gw_live_check(c->run.log, "train"));
    GW_TRY(gw_delay_read(&c->skew, "train", gw_args_text(a, "inject-skew")));
    GW_TRY(gw_lr_open(&j->schedule, c->rate.how, a));
    c->rate.schedule = j->schedule;
    c->data.seed = c->run.seed;
    c->command = j->command;
    if (strcmp(c->ceilings, "off") == 0)
        c->ceilings = NULL;
    if (!gw_args_given(a, "overhead"))
        c->overhead = c->run.out ? GW_OVERHEAD_AUTO : 0;
    if (c->run.profile == GW_PROFILE_FULL)
        GW_TRY(gw_group_choose(&j->counters, gw_args_text(a, "papi-group"),
                               gw_args_text(a, "papi-events")));
    c->counters = j->counters;
    gw_mix mix;
    GW_TRY(gw_mix_open(&mix, c->run.compress, c->run.wire_check));
    gw_session *session = NULL;
    GW_TRY(gw_session_new(&session, c->run.comm, &mix, c->run.feedback));
    gw_train_setup *run = &j->setup;
    *run = (gw_train_setup){.config = c, .watch = gw_train_tell, .ctx = &j->teller};
    GW_TRY(gw_inside_new(&run->g, session));
    GW_TRY(gw_mesh_parse(&c->parallel.shape, c->parallel.mesh));
    GW_TRY(gw_pipeline_new(&run->pipeline, c, session));
    GW_TRY(gw_chooser_open(&run->choice, session, c, NULL, c->forecast));
    j->teller = (gw_train_teller){.config = c,
                                  .g = run->g,
                                  .helpers = gw_inside_know(run->g).plan.helpers,
                                  .choice = run->choice,
                                  .quiet = gw_args_flag(a, "quiet"),
                                  .terminal = isatty(STDOUT_FILENO)};
    gw_inside_facts is = gw_inside_know(run->g);
    if (c->bound)
        GW_TRY(gw_bound_of(&is, c->run.lazy, &mode));
    GW_TRY(gw_checks_refuse(c, run->g));
    return gw_codec_stats_check(session, c->run.compress_stats);
}

/* ---- running ---- */

void gw_train_job_free(gw_train_job *j) {
    gw_chooser_free(j->setup.choice);
    gw_pipeline_free(j->setup.pipeline);
    gradwire_close(j->setup.g);
    gw_lr_close(j->schedule);
    free(j->counters);
}

static int train_run(const gw_args *args, int argc, char **argv) {
    gw_train_job j = {.args = args, .command = gw_cli_line(argc, argv)};
    gw_err e = j.command ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
    if (gw_args_given(args, "out") || gw_args_given(args, "log"))
        GW_THEN(e, gw_cli_utf8("train", gw_args_given(args, "out") ? "out" : "log", argc, argv));
    GW_THEN(e, gw_train_job_read(&j));
    int level = e == GW_OK ? gw_inside_know(j.setup.g).level : MPI_THREAD_FUNNELED;
    gw_cli_told told = {.command = "train", .args = args};
    gw_train_result result = {0};
    bool own = false;
    e = gw_cli_begin(&told, level, e);
    if (e == GW_OK && !j.config.check)
        e = gw_agree(MPI_COMM_WORLD, gw_signals_watch());
    GW_THEN(e, gw_train(&j.setup, MPI_COMM_WORLD, &result, &own));
    int status = gw_cli_end(e, own);
    if (e == GW_OK && result.signal)
        status = 128 + result.signal; /* as the shell says of whom a signal ended */
    gw_watchdog_close();
    gw_train_job_free(&j);
    free(j.command);
    return status;
}

const gw_command gw_command_train = {
    .name = "train",
    .summary = "train a model over the ranks: data, pipe and tensor parallel",
    .usage = "[options]        e.g. mpiexec -n 2 gradwire train --comm iallreduce --out runs/a",
    .notes = "Strategies, algorithms, codecs and timetables with their options: gradwire list",
    .opts = opts,
    .rules = gw_train_rules,
    .run = train_run,
};
