/* What --compress auto may choose among, read and checked before MPI starts. */
#include "select/auto_parts.h"

#include "base/mem.h"
#include "mpi/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gw_opt opts[] = {
    {"codecs", GW_OPT_TEXT, GW_AUTO_CODECS, 0, 0, NULL, "(A;B;..)", "codecs to choose among"},
    {"algos", GW_OPT_TEXT, "", 0, 0, NULL, "(A;B;..)",
     "algorithms to choose among, where the strategy names none"},
    {"budget", GW_OPT_REAL, "3", 1e-3, 3600, NULL, "SECONDS", "time to measure algorithms in"},
    {"margin", GW_OPT_REAL, "0.05", 0, 1, NULL, "X", "compress for a larger gain only"},
    {0}};

/* ---- strategies that the model knows ---- */

static const gw_auto_known known[] = {{"allreduce", GW_AUTO_WHOLE, false},
                                      {"iallreduce", GW_AUTO_BUCKETS, true},
                                      {"sparse", GW_AUTO_LAYERS, true}};
enum { KNOWN = sizeof known / sizeof *known };

const gw_auto_known *gw_auto_known_of(const gw_strategy *s) {
    for (int i = 0; i < KNOWN; i++)
        if (strcmp(s->ops->head.name, known[i].name) == 0)
            return &known[i];
    return NULL;
}

static gw_err check_strategy(const gw_auto *a) {
    if (gw_auto_known_of(a->strategy))
        return GW_OK;
    return gw_fail(
        GW_ERR_UNSUPPORTED, "%s: the cost model knows the strategies %s, %s and %s, not %s: %s",
        a->named ? "--forecast" : "--compress auto", known[0].name, known[1].name, known[2].name,
        a->strategy->ops->head.name, a->named ? "remove --forecast" : "name a codec");
}

/* ---- reading ---- */

static bool wanted(const char *compress) {
    return strcmp(compress, "auto") == 0 || strncmp(compress, "auto:", 5) == 0;
}

static const char *named_algo(const gw_auto *a) {
    return gw_args_text(a->strategy->args, "algo");
}

bool gw_auto_algo_named(const gw_auto *a) {
    return *named_algo(a);
}

static gw_err read_lists(gw_auto *a, const char *compress) {
    const char *colon = strchr(compress, ':');
    GW_TRY(gw_args_new(&a->args, opts));
    GW_TRY(gw_args_spec(a->args, "auto", colon ? colon + 1 : NULL));
    a->budget_s = gw_args_real(a->args, "budget");
    a->margin = gw_args_real(a->args, "margin");
    a->default_codecs = !gw_args_given(a->args, "codecs");
    GW_TRY(gw_list_read(&a->codecs, "auto", "codecs", gw_args_text(a->args, "codecs"), false));
    const char *algos = gw_args_text(a->args, "algos");
    if (*algos && gw_auto_algo_named(a))
        return gw_fail(GW_ERR_USAGE,
                       "auto: algos=%s: the strategy names its algorithm already (%s): give one "
                       "of the two",
                       algos, named_algo(a));
    return *algos ? gw_list_read(&a->algos, "auto", "algos", algos, false) : GW_OK;
}

static gw_err name_algo(gw_auto *a, const char *spec) {
    if (strlen(spec) >= GW_AUTO_SPEC)
        return gw_fail(GW_ERR_USAGE, "auto: '%.40s...': longer than %d characters", spec,
                       GW_AUTO_SPEC - 1);
    snprintf(a->algo[a->n_algos].spec, GW_AUTO_SPEC, "%s", spec);
    a->n_algos++;
    return GW_OK;
}

/* The strategy's own, or those listed, or all that are no choice themselves. */
static gw_err name_algos(gw_auto *a) {
    int most = 0;
    while (gw_algos.entries[most])
        most++;
    most = most > a->algos.n ? most : a->algos.n;
    GW_TRY(gw_alloc(&a->algo, (size_t)most + 1, sizeof *a->algo));
    if (gw_auto_algo_named(a))
        return name_algo(a, named_algo(a));
    for (int i = 0; i < a->algos.n; i++)
        GW_TRY(name_algo(a, a->algos.item[i]));
    for (const gw_entry *const *e = gw_algos.entries; *e && a->algos.n == 0; e++)
        if (strcmp((*e)->name, "auto") != 0)
            GW_TRY(name_algo(a, (*e)->name));
    return GW_OK;
}

/* Encodings that drop most values are gathered, unless somebody asked for another way: summed on
 * the way they would be thinned out again at every hop. */
static bool fits(const gw_auto *a, const gw_codec *codec, const gw_algo *algo) {
    bool free_choice = !gw_auto_algo_named(a) && a->algos.n == 0;
    return !(codec->caps & GW_CODEC_SPARSE) || !free_choice || algo->ops->caps & GW_ALGO_ONCE;
}

gw_err gw_auto_open_codec(const gw_auto *a, const char *spec, gw_codec *out, bool *plain) {
    GW_TRY(gw_codec_open(out, spec));
    *plain = out->caps & GW_CODEC_IDENTITY;
    if (a->wire_check)
        gw_codec_frame(out);
    return GW_OK;
}

gw_err gw_auto_combine(const gw_auto *a, const gw_codec *codec, const char *spec, bool *ok) {
    gw_algo algo;
    bool fit = false;
    gw_err e = gw_algo_open(&algo, spec, codec);
    if (e == GW_OK) {
        fit = fits(a, codec, &algo);
        e = gw_strategy_check(a->strategy, &algo, codec);
        gw_algo_close(&algo);
    }
    *ok = e == GW_OK && fit;
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e;
}

static gw_err check_codec(const gw_auto *a, const char *spec, bool *any) {
    gw_codec codec;
    bool plain;
    if (strlen(spec) >= GW_AUTO_SPEC)
        return gw_fail(GW_ERR_USAGE, "auto: '%.40s...': longer than %d characters", spec,
                       GW_AUTO_SPEC - 1);
    GW_TRY(gw_auto_open_codec(a, spec, &codec, &plain));
    gw_err e = GW_OK;
    for (int i = 0; e == GW_OK && i < a->n_algos; i++) {
        bool ok;
        e = gw_auto_combine(a, &codec, a->algo[i].spec, &ok);
        *any |= ok;
    }
    gw_codec_close(&codec);
    return e;
}

static gw_err read_all(gw_auto *a, const char *compress) {
    GW_TRY(check_strategy(a));
    GW_TRY(read_lists(a, compress));
    GW_TRY(name_algos(a));
    bool any = false;
    for (int i = 0; i < a->codecs.n; i++)
        GW_TRY(check_codec(a, a->codecs.item[i], &any));
    if (any)
        return GW_OK;
    char last[512];
    snprintf(last, sizeof last, "%s", gw_err_text());
    return gw_fail(GW_ERR_UNSUPPORTED, "--compress %s: nothing of it can be combined; %s", compress,
                   last);
}

static gw_err check_feedback(const gw_auto *a) {
    if (strcmp(a->feedback, "momentum") != 0 && strcmp(a->feedback, "dgc") != 0)
        return GW_OK;
    if (a->named)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--forecast: the cost model does not know error-feedback=%s: leave "
                       "--forecast away",
                       a->feedback);
    return gw_fail(GW_ERR_USAGE,
                   "--compress auto: error-feedback=%s is for codecs that hold something back: "
                   "name one",
                   a->feedback);
}

/* One way is measured, so little time does. */
static gw_err read_named(gw_auto *a, const char *compress, const char *algo) {
    a->named = true;
    a->budget_s = 1;
    GW_TRY(check_strategy(a));
    GW_TRY(check_feedback(a));
    if (strlen(compress) >= GW_AUTO_SPEC)
        return gw_fail(GW_ERR_UNSUPPORTED, "--forecast: --compress is longer than %d characters",
                       GW_AUTO_SPEC - 1);
    GW_TRY(gw_list_read(&a->codecs, "--forecast", "compress", compress, false));
    if (!gw_auto_algo_named(a))
        GW_TRY(gw_list_read(&a->algos, "--forecast", "algo", algo, false));
    return name_algos(a);
}

static gw_err read_choice(gw_auto *a, const char *compress) {
    GW_TRY(check_feedback(a));
    return read_all(a, compress);
}

static gw_err read_forecast(gw_auto *a, const char *compress) {
    if (a->session->mix.n > 1)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--forecast: the cost model knows one codec for all tensors, not "
                       "--compress '%s': remove --forecast",
                       gw_session_compression(a->session));
    return read_named(a, compress, a->session->mix.algo->ops->head.name);
}

gw_err gw_auto_session(gw_session **session, gw_auto **out, const char *comm, const char *compress,
                       const char *feedback, bool wire_check, bool forecast) {
    bool chooses = wanted(compress);
    gw_auto *a = NULL;
    GW_TRY(gw_session_new(session, comm, chooses ? NULL : compress, feedback, wire_check));
    if (!chooses && !forecast)
        return GW_OK;
    GW_TRY(gw_alloc(&a, 1, sizeof *a));
    *out = a;
    a->session = *session;
    a->strategy = &(*session)->strategy;
    a->wire_check = wire_check;
    a->measured_s = NAN;
    a->chosen = a->plain = -1;
    snprintf(a->feedback, sizeof a->feedback, "%s", feedback);
    return chooses ? read_choice(a, compress) : read_forecast(a, compress);
}

static gw_err retake(gw_auto *a, const char *codec, const char *algo) {
    for (int i = 0; i < a->n; i++) {
        const gw_candidate *c = &a->candidate[i];
        if (strcmp(c->codec, codec) != 0 || strcmp(c->algo, algo) != 0)
            continue;
        a->chosen = i;
        snprintf(a->why, sizeof a->why,
                 "auto: %s over %s, as before the restart; predicted step %.3f ms", codec, algo,
                 c->forecast.step_s * 1e3);
        return GW_OK;
    }
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--compress auto: the checkpoint's run chose %.100s over %.100s, which is not "
                   "among the choices here: name a codec",
                   codec, algo);
}

gw_err gw_auto_settle(gw_auto *a, const gw_auto_job *job) {
    if (!a)
        return GW_OK;
    GW_TRY(gw_auto_run(a, job));
    if (a->named || job->check)
        return GW_OK;
    if (job->codec)
        GW_TRY(retake(a, job->codec, job->algo));
    const gw_candidate *c = &a->candidate[a->chosen];
    a->session->note = a->why;
    return gw_agree(job->rehearsal.comm,
                    gw_session_bind(a->session, c->codec, c->algo, a->feedback));
}

bool gw_auto_chooses(const gw_auto *a) {
    return a && !a->named;
}

const gw_candidate *gw_auto_choice(const gw_auto *a) {
    return gw_auto_chooses(a) && a->chosen >= 0 ? &a->candidate[a->chosen] : NULL;
}

double gw_auto_predicted(const gw_auto *a) {
    return a->candidate[a->chosen].forecast.step_s;
}

void gw_auto_free(gw_auto *a) {
    if (!a)
        return;
    gw_args_free(a->args);
    gw_list_free(&a->codecs);
    gw_list_free(&a->algos);
    free(a->algo);
    free(a->candidate);
    free(a->params);
    free(a->gradient);
    free(a);
}
