/* gradwire train: options in, one training run, a few lines out. */
#include "base/text.h"
#include "cli/cli.h"
#include "cli/last_words.h"
#include "cli/parallel.h"
#include "cli/train/checkpoint_opts.h"
#include "cli/train/step_opts.h"
#include "cli/train/train_tell.h"
#include "run/checks.h"
#include "run/codec_stats.h"
#include "run/signals.h"
#include "select/bound_measure.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const gw_opt opts[] = {
    {"data", GW_OPT_TEXT, "fashion-mnist", 0, 0, NULL, "SET",
     "fashion-mnist, a folder of four IDX files, or synthetic[:samples=..,features=..,...]"},
    {"image-scale", GW_OPT_INT, "1", 1, 16, NULL, "K", "enlarge images K times in each direction"},
    {"validation", GW_OPT_REAL, "0", 0, 0.9, NULL, "FRACTION",
     "of the training samples, kept for validation"},
    {"data-layout", GW_OPT_CHOICE, "replicated", 0, 0, "replicated|sharded", NULL,
     "one copy of the data per node, or one shard per rank"},
#include "cli/train/step_opts.def"
    {"lr-scaling", GW_OPT_CHOICE, "none", 0, 0, "none|linear", NULL,
     "linear: multiply --lr by the number of ranks"},
    {"lr-warmup", GW_OPT_INT, "0", 0, 1e12, NULL, "STEPS",
     "raise the rate linearly to --lr over these steps"},
    {"epochs", GW_OPT_INT, "5", 1, 1e6, NULL, "N", "passes over the training set"},
    {"steps", GW_OPT_INT, NULL, 1, 1e12, NULL, "N", "stop after N steps"},
    {"time-limit", GW_OPT_REAL, NULL, 0.001, 1e9, NULL, "SECONDS", "stop after this time"},
    {"compress-stats", GW_OPT_INT, "0", 0, 1e9, NULL, "STEPS",
     "every STEPS steps, compare the gradient with the exact one: DIR/codec.csv (0: never)"},
    {"out", GW_OPT_TEXT, NULL, 0, 0, NULL, "DIR", "write the run folder here"},
    {"overwrite", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "replace the run in DIR"},
    {"save-model", GW_OPT_CHOICE, "on", 0, 0, "on|off", NULL, "write DIR/model.gw"},
    {"checkpoint-every", GW_OPT_TEXT, NULL, 0, 0, NULL, "STEPS|TIME",
     "write a checkpoint to DIR/model.ckpt.d every 500 (steps) or 30s, and at the end"},
    {"checkpoint-keep", GW_OPT_INT, "2", 1, 1e6, NULL, "N", "keep the newest N checkpoints"},
    {"resume", GW_OPT_TEXT, NULL, 0, 0, NULL, "auto|PATH",
     "resume from the newest checkpoint in DIR, if there is one, or from PATH: a checkpoint, a "
     "model.ckpt.d or a run folder"},
    {"resume-strict", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "refuse a resume that would drop state"},
    {"hang-timeout", GW_OPT_REAL, "600", 0, 1e9, NULL, "SECONDS",
     "without progress for this time, every rank reports where it is stuck and the job ends (0: "
     "never)"},
    {"verify-every", GW_OPT_INT, "0", 0, 1e12, NULL, "STEPS",
     "also compare the ranks' parameters every STEPS steps, not only after each epoch (0: no)"},
    {"on-nan", GW_OPT_CHOICE, "stop", 0, 0, "stop|skip", NULL,
     "if a loss or gradient is not finite: end the run, or skip the step and count it"},
    {"trace", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "write DIR/trace.json (Chrome trace events)"},
    {"collectives", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "write DIR/collectives.csv: one row per rank and exchange"},
    {"inject-skew", GW_OPT_TEXT, NULL, 0, 0, NULL, "RANK:SECONDS",
     "delay one rank in every step (1:0.001, 1:1ms, 1:200us), to study stragglers"},
    {"profile", GW_OPT_CHOICE, "full", 0, 0, "off|timers|full", NULL,
     "measure wall times only; also phases, MPI and exchanges; also counters and memory"},
    {"paired", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "repeat steps with a blocking exchange from the same state, to measure what overlap saves"},
    {"bound", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "measure computation and exchange separately before the run: the shortest possible step"},
    {"overhead", GW_OPT_INT, NULL, 0, GW_OVERHEAD_MOST, NULL, "PAIRS",
     "pairs of steps with and without probes before the run, to measure what probes cost (0: none; "
     "default: about 0.1 s of them with --out)"},
    {"papi-group", GW_OPT_TEXT, "auto", 0, 0, NULL, "GROUP",
     "event group to count: auto (the memory group of this CPU), none, NAME, NAME/GROUP or a file"},
    {"papi-events", GW_OPT_TEXT, NULL, 0, 0, NULL, "A,B,..",
     "count these PAPI events, one column each (alone, or in turn with --papi-group)"},
    {"ceilings", GW_OPT_TEXT, "auto", 0, 0, NULL, "auto|FILE|off",
     "limits of the machine: measured before a run with --out (auto: cached), or read from FILE"},
    {"check", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "check whether these options can run on these ranks, and exit; write nothing"},
    {"forecast", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "predict the step time before the run, as --compress auto does"},
    {"quiet", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "print errors only"},
    {0}};

typedef struct job {
    gw_args *args;
    gw_train_config config;
    gw_session *session;
    gw_auto *choice;
    gw_group_choice *counters; /* NULL: none */
    char *command;
    gw_train_teller teller;
    int signal; /* that ended the run; 0: none */
} job;

/* ---- reading the command line ---- */

static bool is(const gw_args *a, const char *option, const char *word) {
    return strcmp(gw_args_text(a, option), word) == 0;
}

/* run.json holds the command and every option, and JSON is UTF-8: better said now than when the run
 * is over. */
static gw_err check_text(const gw_args *a, int argc, char **argv) {
    for (int i = 1; i < argc && gw_args_given(a, "out"); i++)
        if (!gw_text_utf8(argv[i]))
            return gw_fail(GW_ERR_USAGE,
                           "train: '%s' is not UTF-8, as all text in the run.json of --out has to "
                           "be: write it so, rename the file, or remove --out",
                           argv[i]);
    return GW_OK;
}

static gw_err check_together(const gw_args *a) {
    if (gw_args_flag(a, "trace") && !gw_args_given(a, "out"))
        return gw_fail(GW_ERR_USAGE, "train: --trace needs --out DIR to write trace.json to");
    if (gw_args_flag(a, "trace") && is(a, "profile", "off"))
        return gw_fail(GW_ERR_USAGE, "train: --trace draws what --profile off does not measure: "
                                     "use --profile timers");
    if (gw_args_flag(a, "collectives") && !gw_args_given(a, "out"))
        return gw_fail(GW_ERR_USAGE,
                       "train: --collectives needs --out DIR to write collectives.csv to");
    if (gw_args_flag(a, "collectives") && is(a, "profile", "off"))
        return gw_fail(GW_ERR_USAGE, "train: --collectives lists what --profile off does not "
                                     "measure: use --profile timers");
    if (is(a, "profile", "off") && gw_args_given(a, "overhead") && gw_args_int(a, "overhead") > 0)
        return gw_fail(GW_ERR_USAGE,
                       "train: --overhead measures what a profile costs, and --profile "
                       "off has none: remove one of them");
    const char *ceilings = gw_args_text(a, "ceilings");
    if (!*ceilings)
        return gw_fail(GW_ERR_USAGE, "train: --ceilings is empty: auto, off or a file");
    if (!is(a, "ceilings", "auto") && !is(a, "ceilings", "off") && !gw_args_given(a, "out"))
        return gw_fail(GW_ERR_USAGE,
                       "train: --ceilings %s needs --out DIR to write what follows from them",
                       ceilings);
    if (gw_args_given(a, "out") && !*gw_args_text(a, "out"))
        return gw_fail(GW_ERR_USAGE, "train: --out is empty: name a folder");
    return GW_OK;
}

/* RANK:SECONDS with an optional s, ms or us. */
static gw_err read_skew(gw_train_config *c, const gw_args *a) {
    static const struct {
        const char *unit;
        double s;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
    const double most_s = 60;
    const char *text = gw_args_text(a, "inject-skew");
    if (!text)
        return GW_OK;
    char *at = NULL;
    long rank = isdigit((unsigned char)*text) ? strtol(text, &at, 10) : -1;
    bool number = rank >= 0 && rank <= INT_MAX && *at == ':' && isdigit((unsigned char)at[1]);
    double value = number ? strtod(at + 1, &at) : NAN;
    for (size_t i = 0; number && i < sizeof units / sizeof *units; i++)
        if (strcmp(at, units[i].unit) == 0 && value > 0 && value * units[i].s <= most_s) {
            c->skew_rank = (int)rank;
            c->skew_s = value * units[i].s;
            return GW_OK;
        }
    return gw_fail(GW_ERR_USAGE,
                   "train: --inject-skew '%s': must be RANK:SECONDS, above 0 and at most %.0f s, "
                   "e.g. 1:0.001, 1:1ms or 1:200us",
                   text, most_s);
}

static gw_err read_counters(job *j) {
    const gw_args *a = j->args;
    bool full = j->config.profile == GW_PROFILE_FULL, paired = j->config.paired;
    for (int i = 0; i < 2 && (!full || paired); i++) {
        const char *option = i ? "papi-events" : "papi-group";
        if (gw_args_given(a, option) && full)
            return gw_fail(GW_ERR_USAGE,
                           "train: --%s counts in the steps of the run, and not in their twins, "
                           "which --paired compares them with: remove one of them",
                           option);
        if (gw_args_given(a, option))
            return gw_fail(GW_ERR_USAGE,
                           "train: --%s counts what --profile %s leaves out: use "
                           "--profile full",
                           option, gw_args_text(a, "profile"));
    }
    if (full && !paired)
        GW_TRY(gw_group_choose(&j->counters, gw_args_text(a, "papi-group"),
                               gw_args_text(a, "papi-events")));
    j->config.counters = j->counters;
    return GW_OK;
}

static gw_err read_config(job *j) {
    const gw_args *a = j->args;
    gw_train_config *c = &j->config;
    GW_TRY(check_together(a));
    GW_TRY(gw_step_opts_read(c, a, "train"));
    c->data = (gw_data_spec){.source = gw_args_text(a, "data"),
                             .image_scale = (int)gw_args_int(a, "image-scale"),
                             .validation = gw_args_real(a, "validation"),
                             .sharded = is(a, "data-layout", "sharded"),
                             .seed = c->seed};
    c->lr_linear = is(a, "lr-scaling", "linear");
    c->lr_warmup = gw_args_int(a, "lr-warmup");
    c->epochs = (int)gw_args_int(a, "epochs");
    c->steps = gw_args_int(a, "steps");
    c->time_limit_s = gw_args_real(a, "time-limit");
    c->hang_timeout_s = gw_args_real(a, "hang-timeout");
    c->voice = gw_cli_voice;
    c->compress_stats = (int)gw_args_int(a, "compress-stats");
    c->out = gw_args_text(a, "out");
    c->save = is(a, "save-model", "on");
    c->overwrite = gw_args_flag(a, "overwrite");
    c->trace = gw_args_flag(a, "trace");
    c->check = gw_args_flag(a, "check");
    c->profile = is(a, "profile", "off")      ? GW_PROFILE_OFF
                 : is(a, "profile", "timers") ? GW_PROFILE_TIMERS
                                              : GW_PROFILE_FULL;
    c->collectives = gw_args_flag(a, "collectives");
    GW_TRY(read_skew(c, a));
    c->ceilings = is(a, "ceilings", "off") ? NULL : gw_args_text(a, "ceilings");
    c->overhead = gw_args_given(a, "overhead") ? (int)gw_args_int(a, "overhead")
                  : c->out                     ? GW_OVERHEAD_AUTO
                                               : 0;
    c->paired = gw_args_flag(a, "paired");
    c->bound = gw_args_flag(a, "bound");
    GW_TRY(gw_checkpoint_opts_read(c, a));
    c->verify_every = gw_args_int(a, "verify-every");
    c->nan_skip = is(a, "on-nan", "skip");
    GW_TRY(read_counters(j));
    c->args = a;
    c->opts = opts;
    c->command = j->command;
    GW_TRY(gw_auto_session(&j->session, &j->choice, c->comm, c->compress, c->feedback,
                           c->wire_check, gw_args_flag(a, "forecast")));
    j->teller = (gw_train_teller){.config = c,
                                  .session = j->session,
                                  .choice = j->choice,
                                  .quiet = gw_args_flag(a, "quiet"),
                                  .terminal = isatty(STDOUT_FILENO)};
    gw_bound_mode mode;
    if (c->bound)
        GW_TRY(gw_bound_of_session(j->session, c->lazy, &mode));
    if (c->paired)
        GW_TRY(gw_paired_check(c, j->session));
    GW_TRY(gw_checks_refuse(c, j->session));
    return gw_codec_stats_check(j->session, c->compress_stats);
}

static char *join(int argc, char **argv) {
    size_t len = sizeof "gradwire";
    for (int i = 0; i < argc; i++)
        len += strlen(argv[i]) + 1;
    char *line = malloc(len);
    if (!line)
        return NULL;
    strcpy(line, "gradwire");
    for (int i = 0; i < argc; i++)
        strcat(strcat(line, " "), argv[i]);
    return line;
}

/* ---- running ---- */

static gw_err body(void *ctx, MPI_Comm comm, bool *own) {
    job *j = ctx;
    int rank;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    gw_train_result result;
    if (!j->config.check)
        GW_TRY(gw_agree(comm, gw_signals_watch()));
    GW_TRY(
        gw_train(&j->config, j->session, j->choice, comm, gw_train_tell, &j->teller, &result, own));
    if (rank == 0)
        gw_train_tell_end(&j->teller, &result);
    j->signal = result.signal;
    return GW_OK;
}

static int run(int argc, char **argv) {
    job j = {.command = join(argc, argv)};
    gw_err e = j.command ? gw_args_new(&j.args, opts) : gw_fail(GW_ERR_NOMEM, "out of memory");
    if (e == GW_OK)
        e = gw_args_argv(j.args, "train", argc, argv, NULL);
    if (e == GW_OK)
        e = check_text(j.args, argc, argv);
    if (e == GW_OK)
        e = read_config(&j);
    int level = e == GW_OK ? gw_session_thread_level(j.session) : MPI_THREAD_FUNNELED;
    int status = gw_cli_parallel(level, e, body, &j);
    if (j.signal)
        status = 128 + j.signal; /* as the shell says of whom a signal ended */
    gw_watchdog_close();
    gw_auto_free(j.choice);
    gw_session_free(j.session);
    free(j.counters);
    gw_args_free(j.args);
    free(j.command);
    return status;
}

const gw_command gw_command_train = {
    .name = "train",
    .summary = "train a multilayer perceptron, data-parallel over the ranks",
    .usage = "[options]        e.g. mpiexec -n 2 gradwire train --comm iallreduce --out runs/a",
    .notes = "Strategies, algorithms and codecs with their options: gradwire list",
    .opts = opts,
    .run = run,
};
