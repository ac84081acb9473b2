/* Choosing codec and algorithm: what --compress auto may choose among is read and checked before
 * MPI starts; then the parts of a step are measured, and each candidate is played with them. */
#include "predict/chooser.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/text.h"
#include "comm/buckets.h"
#include "mpi/wait.h"
#include "play/options.h"
#include "predict/codec.h"
#include "predict/exchange.h"
#include "predict/link.h"
#include "run/residuals.h"
#include "run/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gw_opt opts[] = {
    {"codecs", GW_OPT_SPECS, GW_CHOOSER_CODECS, 0, 0, NULL, "(A;B;..)", "codecs to choose among"},
    {"algos", GW_OPT_SPECS, "", 0, 0, NULL, "(A;B;..)",
     "algorithms to choose among, where the strategy names none"},
    {"budget", GW_OPT_TIME, "3", 1e-3, 3600, NULL, NULL, "time for measuring algorithms"},
    {"margin", GW_OPT_REAL, "0.05", 0, 1, NULL, "X", "compress for a larger gain only"},
    {0}};

/* ---- strategies that are known ---- */

/* Those that exchange gradients by a codec in every step, on ranks that all compute. */
static bool chooser_knows(const gw_strategy_ops *ops) {
    bool known = ops->shape != GW_SHAPE_OTHER || ops->gives == GW_GIVES_PARTS;
    return known && !(ops->traits & GW_STRATEGY_LOSSY);
}

/* ---- reading ---- */

const gw_spec *gw_chooser_named(const gw_chooser *a) {
    return gw_args_spec(a->strategy->args, "algo");
}

/* The strategy's own, or the session's, or those listed, or all that are no choice themselves. */
static void chooser_name_algos(gw_chooser *a) {
    if (gw_chooser_named(a))
        a->algo[a->n_algos++] = *gw_chooser_named(a);
    else if (a->named)
        a->algo[a->n_algos++] = GW_SPEC_NAMED(a->session->mix.algo->ops->head.name);
    for (const gw_spec *s = a->algos; s; s = s->next)
        a->algo[a->n_algos++] = *s;
    for (const gw_entry *const *e = a->n_algos ? NULL : gw_algos.entries; e && *e; e++)
        if (strcmp((*e)->name, "auto") != 0 && a->n_algos < GW_SPEC_ITEMS)
            a->algo[a->n_algos++] = GW_SPEC_NAMED((*e)->name);
}

/* *ok: that codec can be had by this algorithm under the strategy; if not, the last message tells
 * why. Encodings that drop most values are gathered, unless somebody asked for another way: summed
 * on the way they would be thinned out again at every hop. */
static gw_err chooser_combine(const gw_chooser *a, const gw_codec *codec, const gw_spec *spec,
                              bool *ok) {
    bool gathers = codec->caps & GW_CODEC_SPARSE && !gw_chooser_named(a) && !a->algos, fits = true;
    gw_algo algo;
    gw_err e = gw_algo_open(&algo, spec, codec);
    if (e == GW_OK) {
        fits = !gathers || algo.ops->caps & GW_ALGO_ONCE;
        e = gw_strategy_check(a->strategy, &algo, codec);
        gw_algo_close(&algo);
    }
    *ok = e == GW_OK && fits;
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e;
}

static gw_err chooser_read_all(gw_chooser *a, const gw_args *args) {
    const gw_spec *algos = gw_args_spec(args, "algos");
    bool any = false;
    a->budget_s = gw_args_real(args, "budget");
    a->margin = gw_args_real(args, "margin");
    a->default_codecs = !gw_args_given(args, "codecs");
    for (const gw_spec *s = gw_args_spec(args, "codecs")->parts; s; s = s->next)
        a->codec[a->n_codecs++] = *s;
    if (algos && gw_chooser_named(a))
        return gw_fail(GW_ERR_USAGE,
                       "auto: algos=%s: the strategy names its algorithm already (%s): give one "
                       "of the two",
                       algos->text, gw_chooser_named(a)->text);
    a->algos = algos ? algos->parts : NULL;
    chooser_name_algos(a);
    for (int i = 0; i < a->n_codecs; i++) {
        gw_mix mix;
        GW_TRY(gw_mix_single(&mix, &a->codec[i], a->config->run.wire_check));
        gw_err e = GW_OK;
        for (int k = 0; e == GW_OK && k < a->n_algos; k++) {
            bool ok;
            e = chooser_combine(a, mix.codec, &a->algo[k], &ok);
            any |= ok;
        }
        gw_mix_close(&mix);
        GW_TRY(e);
    }
    if (any)
        return GW_OK;
    char last[512];
    snprintf(last, sizeof last, "%s", gw_err_text());
    return gw_fail(GW_ERR_UNSUPPORTED, "auto: codecs=%s: nothing of it can be combined; %s",
                   gw_args_text(args, "codecs"), last);
}

gw_err gw_chooser_open(gw_chooser **out, gw_session *session, const gw_train_config *c,
                       const gw_args *args, bool forecast) {
    int codecs = session->mix.n;
    if (codecs > 0 && !forecast)
        return GW_OK;
    if (codecs > 1)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--forecast: steps are predicted with one codec for all tensors, not with "
                       "--compress '%s': remove --forecast",
                       c->run.compress->text);
    gw_chooser *a = NULL;
    GW_TRY(gw_alloc(&a, 1, sizeof *a));
    *out = a;
    a->session = session;
    a->strategy = &session->strategy;
    a->config = c;
    a->named = codecs > 0;
    a->measured_s = NAN;
    a->chosen = a->plain = -1;
    const char *feedback = a->config->run.feedback,
               *who = a->named ? "--forecast" : "--compress auto";
    const char *instead = a->named ? "remove --forecast" : "name a codec";
    char names[GW_STRATEGY_NAMES];
    if (!chooser_knows(a->strategy->ops))
        return gw_fail(
            GW_ERR_UNSUPPORTED, "%s: steps are predicted with the strategies %s, not with %s: %s",
            who, gw_strategy_names(chooser_knows, names), a->strategy->ops->head.name, instead);
    if (gw_residuals_ruled(feedback))
        return gw_fail(GW_ERR_UNSUPPORTED, "%s: steps with error-feedback=%s are not predicted: %s",
                       who, feedback, instead);
    if (!a->named && !args)
        GW_TRY(gw_args_of(&a->args, opts, "auto", c->run.compress->parts));
    if (!a->named)
        return chooser_read_all(a, args ? args : a->args);
    a->budget_s = 1; /* one way is measured, so little time does */
    a->codec[a->n_codecs++] = *c->run.compress->parts;
    chooser_name_algos(a);
    return GW_OK;
}

bool gw_chooser_chooses(const gw_chooser *a) {
    return a && !a->named;
}

void gw_chooser_free(gw_chooser *a) {
    if (!a)
        return;
    gw_args_free(a->args);
    free(a->candidate);
    json_decref(a->link);
    json_decref(a->memory);
    free(a);
}

enum {
    PLAYED_STEPS = 4,   /* three count, so that ranks which are not alike fall into step */
    MOST_BUCKETS = 1024 /* plays of more would take longer than a run's start may */
};

typedef struct run {
    gw_chooser *a;
    const gw_chooser_job *job;
    MPI_Comm comm;
    gw_sim_play play; /* what all candidates have in common */
    gw_step_profile profile;
    double exchange_s;    /* the budget of an exchange that is measured whole */
    gw_codec_price exact; /* of `none` */
} run;

/* ---- parts that all candidates have in common ---- */

static gw_err chooser_take_profile(run *r) {
    const gw_train_config *c = r->a->config;
    gw_model *model = r->job->steps.model;
    gw_layers_about about = {.spec = gw_model_get_spec(model),
                             .grads = gw_model_grads(model),
                             .name = "the run's",
                             .threads = c->run.threads,
                             .batch = r->job->steps.pass.local > 0 ? r->job->steps.pass.local : 1};
    r->play = (gw_sim_play){.script = {.profile = &r->profile, .lazy = c->run.lazy, .speed = 1},
                            .steps = PLAYED_STEPS,
                            .seed = c->run.seed};
    gw_layer_times times = r->a->times;
    times.data_s += times.other_s; /* before the first layer, too */
    GW_TRY(gw_layers_profile(&about, &times, &r->profile));
    GW_TRY(gw_codec_open(&r->play.exact, &gw_codec_exact));
    /* Simulated ranks have no threads: over links, polls between kernels do what one would. */
    const gw_strategy *of = r->a->strategy;
    gw_spec_arg arg[GW_SPEC_ITEMS];
    gw_spec polls = *c->run.comm;
    bool threads = of->plan.helpers > 0;
    polls.arg = arg;
    polls.n_args = 0;
    for (const gw_spec_arg *x = c->run.comm->arg; x < c->run.comm->arg + c->run.comm->n_args; x++)
        if (strcmp(x->name, "progress") != 0 && strcmp(x->name, "team") != 0)
            arg[polls.n_args++] = *x;
    return gw_strategy_find(&r->play.strategy, threads ? &polls : c->run.comm);
}

static gw_err chooser_measure(run *r) {
    gw_chooser *a = r->a;
    gw_layer_job steps = r->job->steps;
    gw_sim_setup *w = &r->play.world;
    steps.warmup = 2;
    steps.least = 5;
    steps.most = 99;
    steps.enough_s = 0.5;
    GW_TRY(gw_layers_time(&steps, &a->times));
    GW_TRY(gw_agree(r->comm, chooser_take_profile(r)));
    GW_TRY(gw_predict_links(w, a->nodes, r->job->yield, r->comm));
    a->memory = w->per_host > 1 ? gw_sim_link_json(&w->memory, "core_s_per_byte") : json_null();
    a->link = a->nodes > 1 ? gw_sim_link_json(&w->link, "core_s_per_byte") : json_null();
    return gw_codec_measure_price(&r->play.exact, "off", gw_model_grads(r->job->steps.model),
                                  r->profile.n, &r->exact, r->comm);
}

/* ---- candidates ---- */

/* The codec with an algorithm that is measured whole, up to the longest span that is exchanged at
 * once. */
static gw_err chooser_measure_exchange(const run *r, const gw_codec *codec, const gw_algo *algo,
                                       gw_candidate *c) {
    const gw_strategy *s = r->a->strategy;
    const gw_sim_setup *w = &r->play.world;
    gw_exchange_job job = {.comm = r->comm,
                           .n = r->profile.n,
                           .seed = r->a->config->run.seed,
                           .yield = r->job->yield,
                           .feedback = c->feedback,
                           .budget_s = r->exchange_s};
    if (s->ops->shape == GW_SHAPE_BUCKETS) {
        size_t bucket = gw_args_bytes(s->args, "bucket") / sizeof(float);
        job.n = bucket > 0 && bucket < job.n ? bucket : job.n;
    }
    job.n = job.n < GW_EXCHANGE_ENOUGH ? job.n : GW_EXCHANGE_ENOUGH;
    gw_err e = gw_exchange_measure(&job, algo, codec, &c->exchange, &c->sent);
    /* A link that lets bursts pass at once, as an emulated one does, keeps its rate in the long
     * run. */
    for (int i = 0; i < c->exchange.n && r->a->nodes > 1 && w->per_host == 1; i++) {
        double floats = c->exchange.bytes[i] / sizeof(float);
        c->exchange.time_s[i] =
            fmax(c->exchange.time_s[i], w->link.latency_s + c->sent * floats / w->link.bytes_per_s);
    }
    return e;
}

/* On one rank. GW_ERR_UNSUPPORTED: it cannot be played. */
static gw_err chooser_play(const run *r, const gw_codec *codec, const gw_codec_price *price,
                           gw_algo algo, gw_candidate *c) {
    gw_sim_play p = r->play;
    double whole = c->sent, ranks = p.world.ranks;
    bool measured = !gw_algo_sends_messages(algo.ops),
         divides = r->a->strategy->ops->gives == GW_GIVES_PARTS;
    p.codec = *codec;
    p.algo = algo;
    p.codec.price = price;
    p.exact.price = &r->exact;
    p.world.coded_bytes = codec->fixed ? 0 : price->bytes;
    if (measured)
        p.algo = gw_exchange_play(&p.world, &c->exchange, r->a->nodes > 1);
    GW_TRY(gw_sim_play_check(&p));
    GW_TRY(gw_sim_play_run(&p));
    c->step_s = p.step_s;
    c->local_s = r->profile.forward_s + r->profile.backward_s +
                 r->profile.optimizer_s / (divides ? ranks : 1);
    c->codec_s = measured ? 0 : p.tally.coded_s / p.steps / ranks;
    c->exposed_s = c->step_s - c->local_s - c->codec_s;
    c->sent = measured ? whole * (double)r->profile.n : p.sent.bytes / ranks;
    return GW_OK;
}

/* GW_ERR_UNSUPPORTED, on all ranks: this is no candidate. */
static gw_err chooser_predict(const run *r, gw_codec *codec, const gw_codec_price *price,
                              gw_candidate *c) {
    gw_algo algo;
    int rank;
    GW_MPI(MPI_Comm_rank(r->comm, &rank));
    GW_TRY(gw_agree(r->comm, gw_algo_open(&algo, &r->a->algo[c->nth_algo], codec)));
    gw_err e = GW_OK;
    if (!gw_algo_sends_messages(algo.ops) && r->a->ranks > 1) {
        e = chooser_measure_exchange(r, codec, &algo, c);
        if (e == GW_OK && c->exchange.n == 0)
            e = gw_fail(GW_ERR_UNSUPPORTED, "%s cannot be had on these ranks",
                        r->a->algo[c->nth_algo].text);
    }
    if (e == GW_OK)
        e = gw_agree(r->comm, rank == 0 ? chooser_play(r, codec, price, algo, c) : GW_OK);
    gw_algo_close(&algo);
    return e;
}

/* A check only counts them. */
static gw_err chooser_add_candidates(const run *r, gw_codec *codec, int nth) {
    gw_chooser *a = r->a;
    gw_codec_price price = {.bytes = sizeof(float)};
    bool feedback = gw_residuals_kept(a->config->run.feedback, codec->caps);
    bool identity = codec->caps & GW_CODEC_IDENTITY;
    if (identity)
        price = r->exact;
    else if (!r->job->check)
        GW_TRY(gw_codec_measure_price(codec, a->config->run.feedback,
                                      gw_model_grads(r->job->steps.model), r->profile.n, &price,
                                      r->comm));
    for (int i = 0; i < a->n_algos && a->n < GW_CHOOSER_MOST; i++) {
        gw_candidate *c = &a->candidate[a->n];
        bool ok;
        GW_TRY(chooser_combine(a, codec, &a->algo[i], &ok));
        a->n += r->job->check && ok;
        if (r->job->check || !ok)
            continue;
        *c = (gw_candidate){.nth_codec = nth,
                            .nth_algo = i,
                            .feedback = feedback,
                            .plain = codec->ops->caps & GW_CODEC_IDENTITY,
                            .bytes = price.bytes,
                            .measured_s = NAN};
        memcpy(c->price, price.float_s, sizeof c->price);
        gw_err e = chooser_predict(r, codec, &price, c);
        if (e != GW_OK && e != GW_ERR_UNSUPPORTED)
            return e;
        a->n += e == GW_OK;
    }
    return GW_OK;
}

static gw_err chooser_one_codec(const run *r, int nth) {
    gw_mix mix;
    gw_chooser *a = r->a;
    gw_err e = gw_agree(r->comm, gw_mix_single(&mix, &a->codec[nth], a->config->run.wire_check));
    GW_TRY(e);
    bool remembers = r->job->steps.optimizer->state.count > 0; /* a momentum */
    bool loses = remembers && a->default_codecs && gw_residuals_kept("auto", mix.codec->caps);
    a->dropped |= loses;
    if (!loses)
        e = gw_codec_join(mix.codec, a->ranks);
    if (e == GW_OK && !loses)
        e = chooser_add_candidates(r, mix.codec, nth);
    gw_mix_close(&mix);
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e; /* too many ranks for it: on all alike */
}

/* ---- choosing ---- */

static gw_err chooser_nothing_left(const gw_chooser *a) {
    char last[256];
    gw_text_copy(last, sizeof last, gw_err_text());
    if (a->named)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--forecast: steps with %s over %s are not predicted on these %d ranks "
                       "(%s): remove --forecast",
                       a->codec[0].text, a->algo[0].text, a->ranks, last);
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--compress auto: none of its codecs can be had on these %d ranks%s", a->ranks,
                   a->dropped ? "; those that need error feedback are left out under momentum, "
                                "unless auto:codecs=(..) names them"
                              : "");
}

/* All ranks choose by rank 0's figures: whatever they were made of, they are then the same. */
static gw_err chooser_choose(gw_chooser *a, MPI_Comm comm) {
    GW_TRY(gw_bcast(a->candidate, (int)((size_t)a->n * sizeof *a->candidate), MPI_BYTE, 0, comm));
    qsort(a->candidate, (size_t)a->n, sizeof *a->candidate, gw_stats_ascending);
    for (int i = 0; i < a->n; i++) {
        gw_candidate *c = &a->candidate[i];
        c->codec = a->codec[c->nth_codec].text; /* in this rank's memory */
        c->algo = a->algo[c->nth_algo].text;
        if (a->plain < 0 && c->plain)
            a->plain = i;
        c->leads = true;
        for (int j = 0; j < i; j++)
            c->leads &= strcmp(a->candidate[j].codec, c->codec) != 0;
    }
    bool gains = a->plain < 0 ||
                 gw_chooser_gains(a->candidate[0].step_s, a->candidate[a->plain].step_s, a->margin);
    a->chosen = gains ? 0 : a->plain;
    if (!a->named) {
        const gw_candidate *best = &a->candidate[a->chosen];
        int at = gw_text_print(a->why, sizeof a->why, "auto: %s over %s, predicted step %.3f ms",
                               best->codec, best->algo, best->step_s * 1e3);
        int told = 0;
        for (int i = 0; i < a->n && told < 3 && at < (int)sizeof a->why; i++) {
            const gw_candidate *c = &a->candidate[i];
            if (!c->leads || strcmp(c->codec, best->codec) == 0)
                continue;
            at += gw_text_print(a->why + at, sizeof a->why - (size_t)at, "%s %s over %s %.3f",
                                told++ ? "," : "; next", c->codec, c->algo, c->step_s * 1e3);
        }
        if (told > 0 && a->chosen > 0 && at < (int)sizeof a->why)
            gw_text_print(a->why + at, sizeof a->why - (size_t)at,
                          "; no gain above %.3g%% by compressing", 100 * a->margin);
    }
    return GW_OK;
}

/* Return the most exchanges that will be measured whole. */
static int chooser_count_whole(const gw_chooser *a) {
    int n = 0;
    for (int i = 0; i < a->n_codecs; i++)
        for (int k = 0; k < a->n_algos; k++) {
            gw_codec codec;
            gw_algo algo;
            if (gw_codec_open(&codec, &a->codec[i]) != GW_OK)
                continue;
            if (gw_algo_open(&algo, &a->algo[k], &codec) == GW_OK) {
                n += !gw_algo_sends_messages(algo.ops);
                gw_algo_close(&algo);
            }
            gw_codec_close(&codec);
        }
    return n > 0 ? n : 1;
}

/* ---- what was chosen ---- */

static gw_err chooser_retake(gw_chooser *a, const char *codec, const char *algo) {
    for (int i = 0; i < a->n; i++) {
        const gw_candidate *c = &a->candidate[i];
        if (strcmp(c->codec, codec) != 0 || strcmp(c->algo, algo) != 0)
            continue;
        a->chosen = i;
        snprintf(a->why, sizeof a->why,
                 "auto: %s over %s, as before the restart; predicted step %.3f ms", codec, algo,
                 c->step_s * 1e3);
        return GW_OK;
    }
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--compress auto: the checkpoint's run chose %.100s over %.100s, which is not "
                   "among the choices here: name a codec",
                   codec, algo);
}

gw_err gw_chooser_settle(gw_chooser *a, const gw_chooser_job *job) {
    run r = {.a = a, .job = job, .comm = job->steps.comm};
    gw_mix mix;
    if (!a)
        return GW_OK;
    a->nodes = job->nodes;
    GW_MPI(MPI_Comm_size(r.comm, &a->ranks));
    /* hier on one node is shm. */
    for (int i = 0; i < a->n_algos && a->nodes == 1 && a->n_algos > 1 && !a->algos; i++)
        if (strcmp(a->algo[i].text, "hier") == 0) {
            memmove(&a->algo[i], &a->algo[i + 1], (size_t)(a->n_algos - i - 1) * sizeof *a->algo);
            a->n_algos--;
        }
    size_t floats = gw_model_size(job->steps.model);
    const gw_strategy *s = a->strategy;
    if (s->ops->shape == GW_SHAPE_BUCKETS &&
        gw_buckets_cut(floats, gw_args_bytes(s->args, "bucket")).count > MOST_BUCKETS)
        return gw_fail(
            GW_ERR_USAGE,
            "%s: steps of more than %d buckets are not predicted: use a larger bucket, or %s",
            s->ops->head.name, MOST_BUCKETS, a->named ? "no --forecast" : "name a codec");
    GW_TRY(gw_agree(r.comm, gw_alloc(&a->candidate, GW_CHOOSER_MOST, sizeof *a->candidate)));
    r.exchange_s = a->budget_s / chooser_count_whole(a);
    gw_err e = job->check ? GW_OK : chooser_measure(&r);
    for (int i = 0; i < a->n_codecs; i++)
        GW_THEN(e, chooser_one_codec(&r, i));
    if (e == GW_OK && a->n == 0)
        e = chooser_nothing_left(a);
    if (!job->check)
        GW_THEN(e, chooser_choose(a, r.comm));
    gw_sim_play_close(&r.play);
    gw_step_profile_free(&r.profile);
    if (e != GW_OK || a->named || job->check)
        return e;
    if (job->codec)
        GW_TRY(chooser_retake(a, job->codec, job->algo));
    a->session->note = a->why;
    const gw_candidate *c = &a->candidate[a->chosen];
    e = gw_mix_single(&mix, &a->codec[c->nth_codec], a->config->run.wire_check);
    GW_THEN(e, gw_session_bind(a->session, &mix, &a->algo[c->nth_algo]));
    return gw_agree(r.comm, e);
}

/* ---- what was predicted, and from what ---- */

json_t *gw_chooser_json(const gw_chooser *a) {
    json_t *all = json_array();
    for (const gw_candidate *c = a->candidate; c < a->candidate + a->n; c++) {
        const gw_curve *whole = &c->exchange;
        json_t *points = whole->n > 0 ? json_array() : json_null();
        for (int i = 0; i < whole->n; i++)
            json_array_append_new(
                points, gw_json_object("bytes:f time_s:f", whole->bytes[i], whole->time_s[i]));
        json_t *row = gw_json_object(
            "codec:s algorithm:s error_feedback:b step_s:f local_s:f codec_s:f exposed_s:f "
            "wire_bytes:f bytes_per_float:f seconds_per_float:o exchange:o measured_step_s:f",
            c->codec, c->algo, c->feedback, c->step_s, c->local_s, c->codec_s, c->exposed_s,
            c->sent, c->bytes, gw_codec_price_json(c->price), points, c->measured_s);
        json_array_append_new(all, row);
    }
    const gw_candidate *c = &a->candidate[a->chosen];
    json_t *out = gw_json_object(
        "codec:s algorithm:s error_feedback:b how:s why:s margin:f predicted_step_s:f local_s:f "
        "codec_s:f exposed_s:f measured_step_s:f ratio:f ranks:i nodes:i",
        c->codec, c->algo, c->feedback,
        "simulated: local + codec + exposed of a played step (docs/benchmarks.md, plan), out of "
        "parts measured before the first step",
        a->named ? NULL : a->why, a->named ? NAN : a->margin, c->step_s, c->local_s, c->codec_s,
        c->exposed_s, a->measured_s, c->step_s / a->measured_s, a->ranks, a->nodes);
    gw_json_add(out, "local:o links:o memory:o candidates:o", gw_layers_json(&a->times),
                json_incref(a->link), json_incref(a->memory), all);
    return out;
}
