#include "api/words.h"

#include "base/mem.h"
#include "base/text.h"
#include "comm/strategy/plain.h"
#include "config/opts.h"
#include "record/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define TO(member) GW_OPT_INTO(gw_words, member)

static const gw_opt opts[] = {
    GW_RUN_OPT_SEED,
    GW_RUN_OPT_THREADS,
    GW_RUN_OPT_OPTIMIZER(NULL),
    GW_RUN_OPT_MOMENTUM,
    GW_RUN_OPT_WEIGHT_DECAY,
#include "config/comm_opts.def"
    {"gradient", GW_OPT_CHOICE, "mean", 0, 0, "mean|scaled", NULL,
     "a rank's gradient is the mean over its samples, or their sum divided by the global batch",
     TO(scaled)},
    {"parameters", GW_OPT_CHOICE, "whole", 0, 0, "whole|parts", NULL,
     "after a batch a rank reads all parameters, or only those that it updates: none are gathered",
     TO(parts)},
    {"on-nan", GW_OPT_CHOICE, "skip", 0, 0, "stop|skip|keep", NULL,
     "if a gradient is not finite: end the exchange, leave the batch out on all ranks, or do not "
     "look",
     TO(run.on_nan)},
    GW_RUN_OPT_OUT,
    GW_RUN_OPT_OVERWRITE,
    GW_RUN_OPT_VERIFY,
    GW_RUN_OPT_TRACE,
    GW_RUN_OPT_LOG,
    GW_RUN_OPT_LOG_EVERY,
    GW_RUN_OPT_COLLECTIVES,
    GW_RUN_OPT_STATS,
    GW_RUN_OPT_PROFILE,
    GW_RUN_OPT_HANG,
    {0}};

static const gw_rule rules[] = {
    {"error-feedback", "momentum|dgc", true, "momentum", "!0", "it is about momentum"},
    {"weight-decay", NULL, true, "optimizer", NULL, "it is an option of the rule"},
    {"optimizer", NULL, false, "parameters", "parts", "it moves parameters that a rank has whole"},
    {"verify-every", "!0", false, "parameters", "parts", "there are no replicas to compare"},
    {"overwrite", NULL, true, "out", NULL, "it is about what --out holds"},
    {"log-every", NULL, true, "log", NULL, "it is about what --log writes"},
    {"trace", NULL, true, "out", NULL, "it writes DIR/trace.json"},
    {"trace", NULL, false, "profile", "off", "a trace shows what --profile timers measures"},
    {"collectives", NULL, true, "out", NULL, "it writes DIR/collectives.csv"},
    {"collectives", NULL, false, "profile", "off", "they are what --profile timers measures"},
    {"compress-stats", "!0", false, "update", "lazy",
     "a step's gradients are compared when it ends, and lazy ones are not exchanged then"},
    {0}};

/* Options of `gradwire train` that are not among these words, each between two blanks: a program's
 * own loop decides the first, and only the trainer can do the others. */
static const char of_loop[] =
    " data limit limit-test replicate image-scale image-size validation data-layout partition "
    "model layers activation output init lr lr-scaling lr-schedule lr-warmup batch local-batch "
    "epochs steps time-limit eval-every save-model resume resume-strict checkpoint-every "
    "checkpoint-keep ";
static const char of_trainer[] =
    " mesh microbatches timetable tensor-chunks tensor-algo stages recompute tensor-split "
    "compress-activations compress-deltas gemm inject-skew bound overhead "
    "papi-group papi-events ceilings check forecast quiet ";

static bool words_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Cut the next word off *at, in place, without its quotes; NULL: there is none. */
static gw_err words_next(char **at, char **word) {
    char *in = *at, *out;
    while (words_blank(*in))
        in++;
    *word = *in ? in : NULL;
    for (out = in; *in && !words_blank(*in); in++) {
        char quote = *in == '\'' || *in == '"' ? *in : '\0';
        if (!quote) {
            *out++ = *in;
            continue;
        }
        while (*++in && *in != quote)
            *out++ = *in;
        if (!*in)
            return gw_fail(GW_ERR_USAGE, "gradwire: words end within a quotation: add a %c", quote);
    }
    *at = *in ? in + 1 : in;
    *out = '\0';
    return GW_OK;
}

static gw_err words_check_foreign(const char *word) {
    char name[64];
    int len = (int)strcspn(word, "=");
    if (len < 3 || len > 40 || strncmp(word, "--", 2) != 0)
        return GW_OK;
    snprintf(name, sizeof name, " %.*s ", len - 2, word + 2);
    if (strstr(of_loop, name))
        return gw_fail(GW_ERR_USAGE,
                       "gradwire: %.*s: an option of gradwire train: your loop has it", len, word);
    if (strstr(of_trainer, name))
        return gw_fail(GW_ERR_USAGE,
                       "gradwire: %.*s: an option of gradwire train, which the library cannot do",
                       len, word);
    return GW_OK;
}

static gw_err words_split(gw_words *w, char *text) {
    size_t room = strlen(text) / 2 + 3;
    char **argv = NULL, *at = text, *word;
    int argc = 1;
    gw_err e = gw_alloc(&argv, room, sizeof *argv);
    while (e == GW_OK && (e = words_next(&at, &word)) == GW_OK && word) {
        argv[argc++] = word;
        e = words_check_foreign(word);
    }
    if (e == GW_OK) {
        argv[0] = "gradwire";
        e = gw_args_argv(w->args, "gradwire", argc, argv, NULL);
    }
    free(argv);
    return e;
}

static gw_err words_check(const gw_words *w) {
    GW_TRY(gw_args_check(w->args, rules, "gradwire"));
    if (w->run.momentum != 0 && !w->optimizer && strcmp(w->run.feedback, "momentum") != 0 &&
        strcmp(w->run.feedback, "dgc") != 0)
        return gw_fail(GW_ERR_USAGE, "gradwire: --momentum needs --optimizer RULE, or "
                                     "--error-feedback momentum or dgc: it is an option of these");
    GW_TRY(gw_live_check(w->run.log, "gradwire"));
    const char *const paths[][2] = {{"out", w->run.out}, {"log", w->run.log}};
    for (int i = 0; i < 2; i++)
        if (paths[i][1] && !gw_text_utf8(paths[i][1]))
            return gw_fail(GW_ERR_USAGE,
                           "gradwire: --%s is not UTF-8, as JSON has to be: name "
                           "another place",
                           paths[i][0]);
    return GW_OK;
}

static gw_err words_read(gw_words *w, const char *text, const char *more) {
    char *copy = NULL;
    size_t len = strlen(text);
    GW_TRY(gw_args_new(&w->args, opts));
    GW_TRY(gw_alloc(&copy, len + strlen(more) + 2, 1));
    memcpy(copy, text, len);
    copy[len] = ' ';
    strcpy(copy + len + 1, more);
    gw_err e = words_split(w, copy);
    free(copy);
    GW_TRY(e);
    gw_args_fill(w->args, w);
    return words_check(w);
}

gw_err gw_words_read(gw_words *w, const char *text) {
    const char *more = getenv("GRADWIRE");
    memset(w, 0, sizeof *w);
    return words_read(w, text ? text : "", more ? more : "");
}

gw_err gw_words_beside(gw_words *w, const char *text) {
    static const char *const of_first[] = {
        "out",         "overwrite",      "trace",        "log",     "log-every",
        "collectives", "compress-stats", "verify-every", "profile", "hang-timeout"};
    memset(w, 0, sizeof *w);
    GW_TRY(words_read(w, text ? text : "", ""));
    for (size_t i = 0; i < sizeof of_first / sizeof *of_first; i++)
        if (gw_args_given(w->args, of_first[i]))
            return gw_fail(GW_ERR_USAGE,
                           "gradwire: --%s: the first handle of this process records and watches "
                           "for all: give it that word, or close it first",
                           of_first[i]);
    gw_words_free(w);
    GW_TRY(gw_words_read(w, text));
    w->run.out = NULL;
    w->run.overwrite = w->run.trace = w->run.collectives = false;
    w->run.compress_stats = 0;
    w->run.verify_every = 0;
    return GW_OK;
}

static uint32_t words_add(const gw_words *w, const char *name, uint32_t sum) {
    const char *text = gw_args_text(w->args, name);
    const char *known = text ? text : "-";
    return (uint32_t)crc32_z(sum, (const Bytef *)known, strlen(known) + 1);
}

uint32_t gw_words_exchange_sum(const gw_words *w) {
    static const char *const names[] = {"seed",           "momentum",   "comm",   "compress",
                                        "error-feedback", "wire-check", "update", "gradient"};
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        sum = words_add(w, names[i], sum);
    return w->optimizer ? words_add(w, "weight-decay", words_add(w, "optimizer", sum)) : sum;
}

void gw_words_free(gw_words *w) {
    gw_args_free(w->args);
    w->args = NULL;
}
