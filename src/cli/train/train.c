/* gradwire train: options in, one training run, a few lines out. */
#include "cli/cli.h"
#include "cli/train/step_opts.h"
#include "cli/train/train_tell.h"
#include "optim/lr.h"
#include "record/live.h"
#include "run/codec_stats.h"
#include "run/session.h"
#include "select/bound_measure.h"
#include "step/checks.h"
#include "step/paced.h"
#include "watch/signals.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const gw_opt opts[] = {
    {"data", GW_OPT_TEXT, "fashion-mnist", 0, 0, NULL, "SET",
     "fashion-mnist, a folder of four IDX files or of CIFAR's, text:FILE, bytes:FILE, or "
     "synthetic[:samples=..,features=..,...]",
     TO(data.source), .group = "Data"},
    {"limit", GW_OPT_INT, NULL, 1, UINT32_MAX, NULL, "N",
     "the first N training samples only, out of which --validation takes its own", TO(data.limit)},
    {"limit-test", GW_OPT_INT, NULL, 1, UINT32_MAX, NULL, "N", "the first N test samples only",
     TO(data.limit_test)},
    {"replicate", GW_OPT_INT, "1", 1, UINT32_MAX, NULL, "N",
     "train on the training samples N times over in an epoch", TO(data.replicate)},
    {"image-scale", GW_OPT_INT, "1", 1, 16, NULL, "K", "enlarge images K times in each direction",
     TO(data.image_scale)},
    {"image-size", GW_OPT_TEXT, NULL, 0, 0, NULL, "ROWSxCOLS",
     "enlarge or reduce images to this size, by the nearest pixel", TO(data.image_size)},
    {"validation", GW_OPT_REAL, "0", 0, 0.9, NULL, "FRACTION",
     "of the training samples, kept for validation", TO(data.validation)},
    {"data-layout", GW_OPT_CHOICE, "replicated", 0, 0, "replicated|sharded", NULL,
     "one copy of the data per node, or one shard per rank", TO(data.sharded)},
    {"partition", GW_OPT_TEXT, "uniform", 0, 0, NULL, "PARTITION",
     "how ranks divide the training samples: uniform, each takes the next ones; "
     "labels:alpha=X, equal numbers, unequal labels; sizes:N,N,.. or sizes:alpha=X, "
     "unequal numbers"},
#include "cli/train/mesh_opts.def"
#include "cli/train/step_opts.def"
    {"backend", GW_OPT_SPEC, "fast", 0, 0, NULL, "BACKEND",
     "fast: floats and the fastest products; naive[:option=value,..]: plain loops in doubles, and "
     "one blocking exchange",
     TO(backend), .group = "Backend"},
    {"lr-scaling", GW_OPT_CHOICE, "none", 0, 0, "none|linear", NULL,
     "linear: multiply --lr by the number of ranks", TO(rate.linear), .group = "Schedule"},
    {"lr-schedule", GW_OPT_SPEC, "constant", 0, 0, NULL, "SCHEDULE",
     "learning rate over the run: constant, linear, cosine, step, wsd, with options: cosine:to=0.1",
     TO(rate.how)},
    {"lr-warmup", GW_OPT_INT, "0", 0, 1e12, NULL, "STEPS",
     "before that, raise the rate linearly to --lr over these steps"},
    {"epochs", GW_OPT_INT, "5", 1, 1e6, NULL, "N", "passes over the training set",
     TO(until.epochs)},
    {"steps", GW_OPT_INT, NULL, 1, 1e12, NULL, "N", "stop after N steps", TO(until.steps)},
    {"time-limit", GW_OPT_TIME, NULL, 0.001, 1e9, NULL, NULL, "stop after this time",
     TO(until.time_s)},
    {"eval-every", GW_OPT_INT, "0", 0, 1e12, NULL, "STEPS",
     "also evaluate every STEPS steps, not only after each epoch: DIR/evaluations.csv (0: no)",
     TO(eval_every)},
    GW_RUN_OPT_OUT,
    GW_RUN_OPT_OVERWRITE,
    {"save-model", GW_OPT_CHOICE, "on", 0, 0, "off|on|best", NULL,
     "write DIR/model.gw: the last model, or the best, "
     "of the epoch with the least validation loss (the earliest of equals)",
     TO(keep.model)},
    {"checkpoint-every", GW_OPT_EVERY, NULL, 0.1, 1e12, NULL, NULL,
     "write a checkpoint to DIR/model.ckpt.d every 500 (steps) or 30s, and at the end",
     TO(keep.every)},
    {"checkpoint-keep", GW_OPT_INT, "2", 1, 1e6, NULL, "N", "keep the newest N checkpoints",
     TO(keep.most)},
    {"resume", GW_OPT_PATH, NULL, 0, 0, NULL, "auto|PATH",
     "resume from the newest checkpoint in DIR, if there is one, or from PATH: a checkpoint, a "
     "model.ckpt.d or a run folder",
     TO(keep.resume)},
    {"resume-strict", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "refuse a resume that would drop state",
     TO(keep.strict)},
    GW_RUN_OPT_HANG,
    GW_RUN_OPT_VERIFY,
    {"on-nan", GW_OPT_CHOICE, "stop", 0, 0, "stop|skip", NULL,
     "if a loss or gradient is not finite: end the run, or skip the step and count it",
     TO(run.on_nan)},
    GW_RUN_OPT_TRACE,
    GW_RUN_OPT_LOG,
    GW_RUN_OPT_LOG_EVERY,
    GW_RUN_OPT_COLLECTIVES,
    GW_RUN_OPT_STATS,
    {"inject-skew", GW_OPT_TEXT, NULL, 0, 0, NULL, "RANK:TIME|RANK:LAW",
     "delay one rank, or all, in every step, to study stragglers: 1:1ms, or by draws: "
     "all:pareto:alpha=1.5,scale=5ms"},
    {"pace", GW_OPT_REAL, NULL, 0.001, 1e6, NULL, "FACTOR",
     "more ranks than cores: each sleeps FACTOR times what its computation takes on a free core, "
     "and computes outside the clock; messages are real",
     TO(pace)},
    GW_RUN_OPT_PROFILE,
    {"paired", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "repeat steps with a blocking exchange from the same state, to measure what overlap saves",
     TO(paired)},
    {"bound", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "measure computation and exchange separately before the run: the shortest possible step",
     TO(bound)},
    {"overhead", GW_OPT_INT, NULL, 0, GW_OVERHEAD_MOST, NULL, "PAIRS",
     "pairs of steps with and without probes before the run, to measure what probes cost (0: none; "
     "default: about 0.1 s of them with --out)",
     TO(overhead)},
    {"papi-group", GW_OPT_FILE, "auto", 0, 0, NULL, "GROUP",
     "event group to count: auto (the memory group of this CPU), none, NAME, NAME/GROUP or a file"},
    {"papi-events", GW_OPT_TEXT, NULL, 0, 0, NULL, "A,B,..",
     "count these PAPI events, one column each (alone, or in turn with --papi-group)"},
    {"ceilings", GW_OPT_FILE, "auto", 0, 0, NULL, "auto|FILE|off",
     "limits of the machine: measured before a run with --out (auto: cached), or read from FILE",
     TO(ceilings)},
    {"check", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "check whether these options can run on these ranks, and exit; write nothing", TO(check),
     .group = "Other"},
    {"forecast", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "predict the step time before the run, as --compress auto does", TO(forecast)},
    {"quiet", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "print errors only"},
    {0}};

static const char no_paired[] = "it compares steps of one run, which this would cut in two";
static const char not_in_twins[] = "counters see the steps of the run, not their blocking twins";

static const gw_rule rules[] = {
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
    {"paired", NULL, false, "checkpoint-every", NULL, no_paired},
    {"paired", NULL, false, "resume", NULL, no_paired},
    {"paired", NULL, false, "profile", "off", "it compares what --profile timers measures"},
    {"paired", NULL, false, "trace", NULL, "a trace would show every step twice"},
#include "step/exec/cannot.def"
    {"papi-group", NULL, false, "paired", NULL, not_in_twins},
    {"papi-events", NULL, false, "paired", NULL, not_in_twins},
    {0}};

typedef struct job {
    const gw_args *args;
    gw_train_config config;
    gradwire *g;
    gw_pipeline *pipeline; /* NULL: none is needed */
    gw_chooser *choice;
    gw_group_choice *counters; /* NULL: none */
    char *command;
    gw_lr *schedule;
    gw_train_teller teller;
    int signal; /* that ended the run; 0: none */
} job;

/* ---- reading the command line ---- */

static gw_err train_read_config(job *j) {
    const gw_args *a = j->args;
    gw_train_config *c = &j->config;
    gw_bound_mode mode;
    static const gw_spec ps = GW_SPEC_NAMED("ps");
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
    GW_TRY(gw_naive_read(&c->naive, c->backend));
    if (c->naive.on && c->naive.exchange == GW_NAIVE_ROOT)
        c->run.comm = &ps; /* what it does, for those who tell of the run */
    c->data.seed = c->run.seed;
    c->command = j->command;
    bool paced = c->pace > 0;
    if (strcmp(c->ceilings, "off") == 0 || paced)
        c->ceilings = NULL;
    if (!gw_args_given(a, "overhead"))
        c->overhead = c->run.out && !paced ? GW_OVERHEAD_AUTO : 0;
    if (c->run.profile == GW_PROFILE_FULL && !c->paired && !paced)
        GW_TRY(gw_group_choose(&j->counters, gw_args_text(a, "papi-group"),
                               gw_args_text(a, "papi-events")));
    c->counters = j->counters;
    gw_mix mix;
    GW_TRY(gw_mix_open(&mix, c->run.compress, c->run.wire_check));
    gw_session *session = NULL;
    GW_TRY(gw_session_new(&session, c->run.comm, &mix, c->run.feedback));
    GW_TRY(gw_inside_new(&j->g, session));
    GW_TRY(gw_mesh_parse(&c->parallel.shape, c->parallel.mesh));
    GW_TRY(gw_pipeline_new(&j->pipeline, c, session));
    GW_TRY(gw_paced_refuse(c, j->g));
    GW_TRY(gw_chooser_open(&j->choice, session, c, NULL, c->forecast));
    j->teller = (gw_train_teller){.config = c,
                                  .g = j->g,
                                  .helpers = gw_inside_know(j->g).helpers,
                                  .choice = j->choice,
                                  .quiet = gw_args_flag(a, "quiet"),
                                  .terminal = isatty(STDOUT_FILENO)};
    gw_inside_facts is = gw_inside_know(j->g);
    if (c->bound)
        GW_TRY(gw_bound_of(&is, c->run.lazy, &mode));
    if (c->paired)
        GW_TRY(gw_paired_check(j->g));
    GW_TRY(gw_checks_refuse(c, j->g));
    return gw_codec_stats_check(session, c->run.compress_stats);
}

/* ---- running ---- */

static gw_err train_body(void *ctx, MPI_Comm comm, bool *own) {
    job *j = ctx;
    int rank;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    gw_train_result result;
    if (!j->config.check)
        GW_TRY(gw_agree(comm, gw_signals_watch()));
    gradwire *g = j->g;
    j->g = NULL;
    GW_TRY(gw_train(&j->config, g, j->pipeline, j->choice, comm, gw_train_tell, &j->teller, &result,
                    own));
    if (rank == 0)
        gw_train_tell_end(&j->teller, &result);
    j->signal = result.signal;
    return GW_OK;
}

static int train_run(const gw_args *args, int argc, char **argv) {
    job j = {.args = args, .command = gw_cli_line(argc, argv)};
    gw_err e = j.command ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
    if (gw_args_given(args, "out") || gw_args_given(args, "log"))
        GW_THEN(e, gw_cli_utf8("train", gw_args_given(args, "out") ? "out" : "log", argc, argv));
    GW_THEN(e, train_read_config(&j));
    int level = e == GW_OK ? gw_inside_know(j.g).level : MPI_THREAD_FUNNELED;
    gw_cli_told told = {.command = "train", .args = args};
    int status = gw_cli_parallel(&told, level, e, train_body, &j);
    if (j.signal)
        status = 128 + j.signal; /* as the shell says of whom a signal ended */
    gw_watchdog_close();
    gw_chooser_free(j.choice);
    gw_pipeline_free(j.pipeline);
    gradwire_close(j.g);
    gw_lr_close(j.schedule);
    free(j.counters);
    free(j.command);
    return status;
}

const gw_command gw_command_train = {
    .name = "train",
    .summary = "train a model over the ranks: data, pipe and tensor parallel",
    .usage = "[options]        e.g. mpiexec -n 2 gradwire train --comm iallreduce --out runs/a",
    .notes = "Strategies, algorithms, codecs and timetables with their options: gradwire list",
    .opts = opts,
    .rules = rules,
    .run = train_run,
};
