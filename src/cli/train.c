/* gradwire train: options in, one training run, a few lines out. */
#include "base/text.h"
#include "cli/checkpoint_opts.h"
#include "cli/cli.h"
#include "cli/last_words.h"
#include "cli/parallel.h"
#include "cli/step_opts.h"
#include "nn/gemm.h"
#include "train/auto.h"
#include "train/checks.h"
#include "train/codec_stats.h"
#include "train/gauge.h"
#include "train/signals.h"
#include "train/trainer.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const gw_opt opts[] = {
    {"data", GW_OPT_TEXT, "fashion-mnist", 0, 0, NULL, "SET",
     "fashion-mnist, a folder of four IDX files, or synthetic[:samples=..,features=..,...]"},
    {"image-scale", GW_OPT_INT, "1", 1, 16, NULL, "K", "enlarge images K times each way"},
    {"validation", GW_OPT_REAL, "0", 0, 0.9, NULL, "FRACTION", "training samples kept apart"},
    {"data-layout", GW_OPT_CHOICE, "replicated", 0, 0, "replicated|sharded", NULL,
     "one copy a node, or each rank its shard"},
#include "cli/step_opts.def"
    {"lr-scaling", GW_OPT_CHOICE, "none", 0, 0, "none|linear", NULL, "linear: times the ranks"},
    {"lr-warmup", GW_OPT_INT, "0", 0, 1e12, NULL, "STEPS", "climb to the rate over these steps"},
    {"epochs", GW_OPT_INT, "5", 1, 1e6, NULL, "N", "passes over the training set"},
    {"steps", GW_OPT_INT, NULL, 1, 1e12, NULL, "N", "stop after so many steps"},
    {"time-limit", GW_OPT_REAL, NULL, 0.001, 1e9, NULL, "SECONDS", "stop after so long"},
    {"compress-stats", GW_OPT_INT, "0", 0, 1e9, NULL, "STEPS",
     "compare each so many-th step's gradient with the exact one: DIR/codec.csv (0: never)"},
    {"out", GW_OPT_TEXT, NULL, 0, 0, NULL, "DIR", "write the run's folder here"},
    {"overwrite", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "replace a run that DIR holds"},
    {"save-model", GW_OPT_CHOICE, "on", 0, 0, "on|off", NULL, "write DIR/model.gw"},
    {"checkpoint-every", GW_OPT_TEXT, NULL, 0, 0, NULL, "STEPS|TIME",
     "keep what the run could go on from in DIR/model.ckpt.d: every 500 (steps) or 30s, and at the "
     "end"},
    {"checkpoint-keep", GW_OPT_INT, "2", 1, 1e6, NULL, "N", "keep so many checkpoints"},
    {"resume", GW_OPT_TEXT, NULL, 0, 0, NULL, "auto|PATH",
     "go on from the newest checkpoint of DIR, if there is one, or from PATH: a checkpoint, a "
     "model.ckpt.d or a run's folder"},
    {"resume-strict", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "refuse a restart that has to drop something"},
    {"hang-timeout", GW_OPT_REAL, "600", 0, 1e9, NULL, "SECONDS",
     "without progress for so long every rank says where it is stuck, and the job ends (0: never)"},
    {"verify-every", GW_OPT_INT, "0", 0, 1e12, NULL, "STEPS",
     "compare the ranks' parameters after so many steps, too, not only after each epoch (0)"},
    {"on-nan", GW_OPT_CHOICE, "stop", 0, 0, "stop|skip", NULL,
     "where loss or gradient are not finite: end the run, or leave that step out and count it"},
    {"trace", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "write DIR/trace.json (Chrome trace events)"},
    {"collectives", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "write DIR/collectives.csv: one row a rank and exchange"},
    {"inject-skew", GW_OPT_TEXT, NULL, 0, 0, NULL, "RANK:SECONDS",
     "delay a rank in every step (1:0.001, 1:1ms, 1:200us), to study stragglers"},
    {"profile", GW_OPT_CHOICE, "full", 0, 0, "off|timers|full", NULL,
     "measure wall times alone; phases, MPI and exchanges; counters and memory, too"},
    {"paired", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "take every step with a blocking exchange, too, from the same state: what overlap saves"},
    {"overhead", GW_OPT_INT, NULL, 0, GW_OVERHEAD_MOST, NULL, "PAIRS",
     "steps with and without probes before the run, to measure what these cost; 0: none (default: "
     "0.1 s of them with --out)"},
    {"papi-group", GW_OPT_TEXT, "auto", 0, 0, NULL, "GROUP",
     "event group to count: auto (this CPU's for memory), none, NAME, NAME/GROUP or a file"},
    {"papi-events", GW_OPT_TEXT, NULL, 0, 0, NULL, "A,B,..",
     "count these events of PAPI's, a column each (alone, or in turn with --papi-group)"},
    {"ceilings", GW_OPT_TEXT, "auto", 0, 0, NULL, "auto|FILE|off",
     "what the machine can do at most, measured before the run where --out keeps it (auto: "
     "cached), "
     "or read from FILE"},
    {"check", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "see whether a run could start with these options on these ranks, and end: nothing is "
     "written"},
    {"forecast", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "predict the step before the run, too, as --compress auto does"},
    {"quiet", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "print errors only"},
    {0}};

typedef struct job {
    gw_args *args;
    gw_train_config config;
    gw_session *session;
    gw_group_choice *counters; /* NULL: none */
    char *command;
    bool quiet, terminal;
    int signal;    /* that ended the run; 0: none */
    double last_s; /* when progress was last shown */
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
                           "be: write it so, rename the file, or leave --out away",
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
                       "off has none: leave one of them away");
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
                           "which --paired compares them with: leave one of them away",
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
    GW_TRY(gw_checkpoint_opts_read(c, a));
    c->verify_every = gw_args_int(a, "verify-every");
    c->nan_skip = is(a, "on-nan", "skip");
    GW_TRY(read_counters(j));
    c->args = a;
    c->opts = opts;
    c->command = j->command;
    j->quiet = gw_args_flag(a, "quiet");
    j->terminal = isatty(STDOUT_FILENO);
    GW_TRY(gw_session_new(&j->session, c->comm, c->compress, c->feedback, c->wire_check));
    if (gw_args_flag(a, "forecast"))
        GW_TRY(gw_session_foresee(j->session, c->compress, c->feedback));
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

/* ---- saying how it goes; rank 0 only ---- */

static const char *feedback_text(const job *j) {
    if (!gw_session_feedback(j->session))
        return "";
    return is(j->config.args, "error-feedback", "dgc") ? " with error feedback (DGC)"
           : gw_session_corrects(j->session)           ? " with error feedback, momentum first"
                                                       : " with error feedback";
}

static void say_start(const job *j, const gw_train_status *s) {
    const gw_train_config *c = &j->config;
    const gw_data *d = s->data;
    printf("%s: %u training, %u validation, %u test samples of %d inputs, %d classes\n", d->name,
           d->train.n_global, d->validation.n_global, d->test.n_global,
           gw_dataset_features(&d->train), d->classes);
    printf("%zu parameters; %d rank%s x %d thread%s; %s over %s, %s%s; GEMM by %s\n", s->parameters,
           s->ranks, s->ranks == 1 ? "" : "s", c->threads, c->threads == 1 ? "" : "s",
           gw_session_strategy(j->session)->head.name,
           gw_session_algorithm(j->session)->ops->head.name,
           gw_session_auto(j->session) ? gw_session_codec(j->session)->spec : c->compress,
           feedback_text(j), gw_gemm_library());
    if (gw_gemm_warning())
        printf("note: %s\n", gw_gemm_warning());
    printf("%s%s", gw_session_notes(j->session), s->notes ? s->notes : "");
    if (s->oversubscribed)
        printf("note: oversubscribed: more threads than cores, waits give the core away and times "
               "say little\n");
}

static void say_epoch(const job *j, const gw_train_status *s) {
    if (j->terminal)
        printf("\r\033[K");
    printf("epoch %d/%d: step %lld, loss %.4f", s->epoch, s->epochs, (long long)s->step, s->loss);
    if (!isnan(s->test_accuracy)) /* NaN: a signal left no time for it */
        printf(", test loss %.4f, test accuracy %.4f", s->test_loss, s->test_accuracy);
    if (!isnan(s->validation_accuracy))
        printf(", validation accuracy %.4f", s->validation_accuracy);
    printf(", %.0f samples/s, %.1f s\n", s->samples_per_s, s->elapsed_s);
}

static void say_step(const job *j, const gw_train_status *s) {
    double left = s->elapsed_s / (double)s->step * (double)(s->steps - s->step);
    printf("%sepoch %d/%d, step %lld/%lld, loss %.4f, %.0f samples/s, %.0f s left%s",
           j->terminal ? "\r\033[K" : "", s->epoch, s->epochs, (long long)s->step,
           (long long)s->steps, s->loss, s->samples_per_s, left, j->terminal ? "" : "\n");
}

static void say_warning(const job *j, const gw_train_status *s) {
    printf("%swarning: %s\n", j->terminal ? "\r\033[K" : "", s->warning);
    fflush(stdout);
}

static void watch(void *ctx, const gw_train_status *s) {
    job *j = ctx;
    double every_s = j->terminal ? 0.2 : 10; /* a log should not scroll away */
    if (j->quiet)
        return;
    if (s->warning)
        say_warning(j, s);
    if (s->begins)
        say_start(j, s);
    else if (s->epoch_end)
        say_epoch(j, s);
    else if (s->elapsed_s - j->last_s >= every_s)
        say_step(j, s);
    else
        return;
    j->last_s = s->elapsed_s;
    fflush(stdout);
}

static void say_step_time(const gw_batch_summary *b, gw_profile profile) {
    if (profile == GW_PROFILE_OFF) {
        printf("step %.1f us (median of %lld); its parts were not measured (--profile off)\n",
               b->wall_s * 1e6, (long long)b->batches);
        return;
    }
    const double *p = b->phase_s;
    double compute = p[GW_PHASE_FORWARD] + p[GW_PHASE_BACKWARD] + p[GW_PHASE_UPDATE];
    double exposed = p[GW_PHASE_MPI_POST] + p[GW_PHASE_MPI_POLL] + p[GW_PHASE_MPI_WAIT];
    double codec = p[GW_PHASE_ENCODE] + p[GW_PHASE_DECODE];
    char split[80] = ""; /* of what was blocked; the rest of it is posting and polling */
    if (!isnan(b->waiting_s))
        snprintf(split, sizeof split, " (waiting %.1f, transfer %.1f)", b->waiting_s * 1e6,
                 b->transfer_s * 1e6);
    printf(
        "step %.1f us (median of %lld): data %.1f, computation %.1f, exposed communication %.1f%s, "
        "codec %.1f, other %.1f; in flight under computation %.1f us; %.0f wire bytes a rank\n",
        b->wall_s * 1e6, (long long)b->batches, p[GW_PHASE_DATA] * 1e6, compute * 1e6,
        exposed * 1e6, split, codec * 1e6, p[GW_PHASE_OTHER] * 1e6, b->inflight_s * 1e6,
        b->wire_bytes);
}

static void say_straggler(const gw_straggler *s) {
    if (s->rank >= 0)
        printf("rank %d holds the others up: last at %.0f%% of the exchanges, each other rank "
               "waits %.1f us a step for it (%.0f%% of the step)\n",
               s->rank, 100 * s->last_share, s->waited_s * 1e6, 100 * s->of_step);
}

/* By the best source; twins and model add up to one interval. */
static void say_memory(const gw_train_result *r) {
    const gw_batch_summary *b = &r->summary;
    const gw_batch_split *s = &b->split;
    if (b->source == GW_SPLIT_CTR)
        printf("memory-bound %.1f us (ctr)\n", s->memory_ctr_s * 1e6);
    else if (b->source == GW_SPLIT_TWIN_MODEL && isfinite(s->memory_model_lo_s))
        printf("memory-bound %.1f..%.1f us (twin+model, consistent in %.0f%% of the batches)\n",
               (s->memory_twin_s + s->memory_model_lo_s) * 1e6,
               (s->memory_twin_s + s->memory_model_hi_s) * 1e6,
               100 * (1 - (double)r->flagged / (double)r->split));
    else if (b->source == GW_SPLIT_TWIN_MODEL)
        printf("memory-bound at least %.1f us (twin; the model has no interval for products)\n",
               s->memory_twin_s * 1e6);
}

static void say_drift(double drift) {
    if (fabs(drift) > GW_GAUGE_DRIFT)
        printf(
            "warning: the machine changed while this ran: a ceiling is %+.0f%% of what it was at "
            "the start; do not compare this run\n",
            100 * drift);
}

static void say_overhead(const gw_overhead *o) {
    if (o->pairs == 0)
        return;
    printf("own overhead: %+.2f%% of a step", 100 * (o->ratio.median - 1));
    if (isfinite(o->ratio.ci_low))
        printf(" (95%%: %+.2f to %+.2f)", 100 * (o->ratio.ci_low - 1),
               100 * (o->ratio.ci_high - 1));
    printf(", by %d pairs of steps with and without probes\n", o->pairs);
}

static void say_forecast(const gw_auto *a) {
    if (a)
        printf("predicted step %.1f us: %.2f of the measured\n", gw_auto_predicted(a) * 1e6,
               gw_auto_predicted(a) / a->measured_s);
}

static void say_interval(const char *what, const gw_stats *s) {
    printf("%s %.1f us", what, s->median * 1e6);
    if (isfinite(s->ci_low))
        printf(" (95%%: %.1f to %.1f)", s->ci_low * 1e6, s->ci_high * 1e6);
}

static void say_paired(const gw_paired_result *p) {
    if (p->pairs == 0)
        return;
    say_interval("paired: overlap saves", &p->saved);
    printf(" of a blocking step of %.1f us, median of %d pairs;", p->blocking.median * 1e6,
           p->pairs);
    say_interval(" computation longer by", &p->interference);
    printf(", of which %.1f us had a message in flight\n", p->inflight.median * 1e6);
}

static void say_accuracy(const gw_train_result *r) {
    if (isnan(r->test_accuracy))
        printf("not evaluated (the signal left no time for it)");
    else
        printf("test accuracy %.4f", r->test_accuracy);
    printf(" after %lld steps in %.1f s; replicas equal (crc32 %08x)\n", (long long)r->steps,
           r->elapsed_s, r->replica_hash);
}

static void say_checkpoints(const gw_checkpoint_counts *n) {
    if (n->written + n->failed == 0)
        return;
    printf("%lld checkpoint%s", (long long)n->written, n->written == 1 ? "" : "s");
    if (n->late > 0)
        printf(", %lld later than due, since the one before was still being written",
               (long long)n->late);
    if (n->failed > 0)
        printf("; %lld could not be written", (long long)n->failed);
    printf("\n");
}

static void say_left_out(const gw_train_result *r) {
    char first[200];
    if (r->left_out == 0)
        return;
    gw_fault_text(first, sizeof first, &r->first_fault);
    printf("left out %lld step%s of %lld; the first: %s\n", (long long)r->left_out,
           r->left_out == 1 ? "" : "s", (long long)r->steps, first);
}

static void say_end(const job *j, const gw_train_result *r) {
    say_step_time(&r->summary, j->config.profile);
    say_forecast(gw_session_forecast(j->session));
    say_memory(r);
    say_overhead(r->overhead);
    say_straggler(&r->straggler);
    say_paired(&r->paired);
    say_drift(r->ceilings_drift);
    say_checkpoints(&r->checkpoints);
    say_left_out(r);
    say_accuracy(r);
    if (j->config.out)
        printf("run folder: %s\n", j->config.out);
}

/* Whatever --quiet says: why the status is not 0. */
static void say_stopped(const gw_train_result *r) {
    if (r->steps > 0)
        fprintf(stderr, "gradwire: stopped by %s after step %lld\n", r->stopped_by,
                (long long)r->steps);
    else
        fprintf(stderr, "gradwire: stopped by %s before the first step: nothing was written\n",
                r->stopped_by);
}

static void say_check(const job *j, const gw_train_result *r) {
    const gw_train_config *c = &j->config;
    printf("a run could start: %zu parameters; %d rank%s x %d thread%s; --comm %s --compress %s\n",
           r->parameters, r->ranks, r->ranks == 1 ? "" : "s", c->threads,
           c->threads == 1 ? "" : "s", c->comm, c->compress);
}

/* ---- running ---- */

static gw_err body(void *ctx, MPI_Comm comm, bool *own) {
    job *j = ctx;
    int rank;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    gw_train_result result;
    if (!j->config.check)
        GW_TRY(gw_agree(comm, gw_signals_watch()));
    GW_TRY(gw_train(&j->config, j->session, comm, watch, j, &result, own));
    bool written = result.steps > 0 || !result.signal;
    if (rank == 0 && !j->quiet && written)
        (j->config.check ? say_check : say_end)(j, &result);
    if (rank == 0 && result.signal)
        say_stopped(&result);
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
