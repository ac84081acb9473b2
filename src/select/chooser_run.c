/* Measuring, predicting and choosing on the ranks. */
#include "select/chooser.h"

#include "base/mem.h"
#include "base/text.h"
#include "mpi/wait.h"
#include "run/residuals.h"
#include "run/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the step's shape ---- */

gw_err gw_chooser_shape(const gw_strategy *strategy, gw_shape *shape) {
    gw_strategy_shape of = strategy->ops->shape;
    gw_walk *w = &shape->walk;
    size_t bucket = gw_span_end(w->layers[w->n_layers - 1]);
    shape->overlapped = of != GW_SHAPE_WHOLE;
    if (of == GW_SHAPE_BUCKETS)
        bucket = gw_args_bytes(strategy->args, "bucket") / sizeof(float);
    else if (of == GW_SHAPE_LAYERS || w->lazy)
        bucket = 0;
    if (gw_walk_cut(w, bucket) > GW_WALK_PARTS)
        return gw_fail(GW_ERR_USAGE, "%s: more than %d buckets: use larger ones",
                       strategy->ops->head.name, GW_WALK_PARTS);
    return GW_OK;
}

static size_t chooser_longest_part(const gw_shape *shape) {
    size_t most = 0;
    for (int i = 0; i < shape->walk.n_parts; i++)
        most = shape->walk.part[i].span.n > most ? shape->walk.part[i].span.n : most;
    return most;
}

/* ---- candidates ---- */

/* Floats of a codec's calls when the algorithm reduces a span of n. */
static size_t chooser_call(const gw_algo_survey *s, size_t n) {
    double each = s->chunk > 0 ? s->chunk : s->part * (double)n;
    return each >= (double)n ? n : each < 1 ? 1 : (size_t)each;
}

enum { MOST_PRICES = 8 };

/* Prices are measured for the sizes in use; those within a third of each other share one. */
static int chooser_price_for(gw_codec_price *price, int *n_prices, size_t call) {
    int nearest = -1;
    double least = INFINITY;
    for (int i = 0; i < *n_prices; i++) {
        double far = fabs(log((double)call / (double)price[i].part));
        if (far < least) {
            least = far;
            nearest = i;
        }
    }
    if (least < log(4.0 / 3) || *n_prices == MOST_PRICES)
        return nearest;
    price[*n_prices].part = call;
    return (*n_prices)++;
}

static gw_way chooser_way(const gw_algo_survey *s, const gw_codec *codec,
                          const gw_codec_price *price, size_t n) {
    gw_way way = {.exact = s->exact};
    if (codec->caps & GW_CODEC_IDENTITY) {
        way.messages = s->exact;
        way.bytes = sizeof(float);
        way.sent = s->exact_sent;
        return way; /* sums are in the curve, and overlap with it as they do */
    }
    way.messages = s->coded;
    way.sent = s->sent;
    way.chunks = s->chunks;
    way.bytes = price->bytes;
    memcpy(way.work, s->work, sizeof way.work);
    memcpy(way.price, price->price, sizeof way.price);
    if (s->summed && gw_codec_agrees(codec))
        way.agreed = (double)gw_codec_prefix(codec, n) / (double)n;
    return way;
}

static bool chooser_carries(const gw_algo_survey *s, const gw_codec *codec) {
    return codec->caps & GW_CODEC_IDENTITY ? s->exact.n > 0 : s->coded.n > 0;
}

typedef struct run {
    gw_chooser *a;
    const gw_chooser_job *job;
    gw_shape *shape;
    MPI_Comm comm;
    size_t n; /* floats of the model */
} run;

/* A check only counts them. */
static gw_err chooser_add_candidates(const run *r, gw_codec *codec, int nth) {
    gw_chooser *a = r->a;
    gw_codec_price price[MOST_PRICES];
    int n_prices = 0, which[GW_CHOOSER_MOST], of[GW_CHOOSER_MOST], found = 0;
    size_t longest = chooser_longest_part(r->shape);
    for (int i = 0; i < a->n_algos && a->n + found < GW_CHOOSER_MOST; i++) {
        bool ok;
        GW_TRY(gw_chooser_combine(a, codec, &a->algo[i].spec, &ok));
        a->n += r->job->check && ok;
        if (r->job->check || !ok || !chooser_carries(&a->algo[i], codec))
            continue;
        of[found] = i;
        which[found++] = chooser_price_for(price, &n_prices, chooser_call(&a->algo[i], longest));
    }
    bool feedback = gw_residuals_kept(a->config->run.feedback, codec->caps);
    if (!r->job->check && !(codec->caps & GW_CODEC_IDENTITY))
        GW_TRY(gw_survey_codec(codec, feedback, a->gradient, r->n, price, n_prices, r->comm));
    for (int k = 0; k < found; k++) {
        const gw_algo_survey *algo = &a->algo[of[k]];
        gw_candidate *c = &a->candidate[a->n++];
        *c = (gw_candidate){.nth_codec = nth,
                            .nth_algo = of[k],
                            .feedback = feedback,
                            .plain = codec->ops->caps & GW_CODEC_IDENTITY,
                            .measured_s = NAN};
        c->way = chooser_way(algo, codec, &price[which[k]], longest);
        c->forecast = gw_forecast_step(r->shape, &c->way);
    }
    return GW_OK;
}

static gw_err chooser_one_codec(const run *r, int nth, bool remembers) {
    gw_mix mix;
    gw_codec *codec = mix.codec;
    const gw_chooser *a = r->a;
    gw_err e = gw_agree(r->comm, gw_mix_single(&mix, &a->codec[nth], a->config->run.wire_check));
    bool loses = remembers && a->default_codecs && gw_residuals_kept("auto", codec->caps);
    r->a->dropped |= loses;
    if (e == GW_OK && !loses)
        e = gw_codec_join(codec, a->ranks);
    if (e == GW_OK && !loses)
        e = chooser_add_candidates(r, codec, nth);
    gw_mix_close(&mix);
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e; /* too many ranks for it: on all alike */
}

/* ---- choosing ---- */

static int chooser_shorter_first(const void *a, const void *b) {
    double x = ((const gw_candidate *)a)->forecast.step_s;
    double y = ((const gw_candidate *)b)->forecast.step_s;
    return (x > y) - (x < y);
}

static void chooser_say(gw_chooser *a) {
    const gw_candidate *best = &a->candidate[a->chosen];
    int at = gw_text_print(a->why, sizeof a->why, "auto: %s over %s, predicted step %.3f ms; next",
                           best->codec, best->algo, best->forecast.step_s * 1e3);
    int told = 0;
    for (int i = 0; i < a->n && told < 3 && at < (int)sizeof a->why; i++) {
        const gw_candidate *c = &a->candidate[i];
        bool known_codec = strcmp(c->codec, best->codec) == 0;
        for (int j = 0; j < i; j++)
            known_codec |= strcmp(c->codec, a->candidate[j].codec) == 0;
        if (known_codec)
            continue;
        at += gw_text_print(a->why + at, sizeof a->why - (size_t)at, "%s %s over %s %.3f",
                            told++ ? "," : "", c->codec, c->algo, c->forecast.step_s * 1e3);
    }
    if (told == 0)
        gw_text_print(a->why, sizeof a->why, "auto: %s over %s, predicted step %.3f ms",
                      best->codec, best->algo, best->forecast.step_s * 1e3);
    else if (a->chosen > 0 && at < (int)sizeof a->why)
        gw_text_print(a->why + at, sizeof a->why - (size_t)at,
                      "; no gain above %.3g%% by compressing", 100 * a->margin);
}

static gw_err chooser_nothing_left(const gw_chooser *a) {
    if (a->named)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--forecast: %s cannot be measured apart from a run on these %d ranks: "
                       "remove --forecast",
                       a->codec[0].text, a->ranks);
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--compress auto: none of its codecs can be had on these %d ranks%s", a->ranks,
                   a->dropped ? "; those that need error feedback are left out under momentum, "
                                "unless auto:codecs=(..) names them"
                              : "");
}

/* All ranks choose by rank 0's figures: whatever they were made of, they are then the same. */
static gw_err chooser_choose(gw_chooser *a, MPI_Comm comm) {
    double step_s[GW_CHOOSER_MOST];
    GW_TRY(gw_bcast(a->candidate, (int)((size_t)a->n * sizeof *a->candidate), MPI_BYTE, 0, comm));
    qsort(a->candidate, (size_t)a->n, sizeof *a->candidate, chooser_shorter_first);
    for (int i = 0; i < a->n; i++) {
        gw_candidate *c = &a->candidate[i];
        c->codec = a->codec[c->nth_codec].text; /* in this rank's memory */
        c->algo = a->algo[c->nth_algo].spec.text;
        step_s[i] = c->forecast.step_s;
        if (a->plain < 0 && c->plain)
            a->plain = i;
    }
    a->chosen = gw_forecast_choose(step_s, a->n, a->plain, a->margin);
    if (a->chosen < 0)
        return chooser_nothing_left(a);
    if (!a->named)
        chooser_say(a);
    return GW_OK;
}

/* hier on one node is shm. */
static void chooser_drop_doubles(gw_chooser *a) {
    for (int i = 0; i < a->n_algos && a->nodes == 1 && a->n_algos > 1 && !a->algos; i++)
        if (strcmp(a->algo[i].spec.text, "hier") == 0) {
            memmove(&a->algo[i], &a->algo[i + 1], (size_t)(a->n_algos - i - 1) * sizeof *a->algo);
            a->n_algos--;
        }
}

static gw_err chooser_measure(const run *r) {
    gw_chooser *a = r->a;
    const gw_chooser_job *job = r->job;
    size_t longest = chooser_longest_part(r->shape);
    gw_survey_place place = {.comm = r->comm,
                             .n = longest < GW_SURVEYED ? longest : GW_SURVEYED,
                             .seed = job->seed,
                             .yield = job->yield,
                             .budget_s = a->budget_s};
    GW_TRY(gw_survey_algos(&place, a->algo, a->n_algos));
    GW_TRY(gw_survey_step(&job->rehearsal, a->params, a->gradient, &a->local));
    r->shape->walk.local = a->local;
    return GW_OK;
}

static gw_err chooser_try(const run *r) {
    bool check = r->job->check, remembers = r->job->rehearsal.stepper->optimizer->state.count > 0;
    if (!check)
        GW_TRY(chooser_measure(r));
    for (int i = 0; i < r->a->n_codecs; i++)
        GW_TRY(chooser_one_codec(r, i, remembers));
    if (!check)
        return chooser_choose(r->a, r->comm);
    return r->a->n > 0 ? GW_OK : chooser_nothing_left(r->a);
}

static gw_err chooser_run(gw_chooser *a, const gw_chooser_job *job) {
    gw_model *model = job->rehearsal.stepper->model;
    MPI_Comm comm = job->rehearsal.comm;
    size_t n = gw_model_size(model);
    a->nodes = job->nodes;
    GW_MPI(MPI_Comm_size(comm, &a->ranks));
    chooser_drop_doubles(a);
    gw_shape shape = {.walk = {.layers = gw_model_spans(model),
                               .n_layers = gw_model_layers(model),
                               .lazy = job->lazy},
                      .link = a->nodes > 1};
    gw_err e = gw_alloc(&a->params, n, sizeof(float));
    GW_THEN(e, gw_alloc(&a->gradient, n, sizeof(float)));
    GW_THEN(e, gw_alloc(&a->candidate, GW_CHOOSER_MOST, sizeof *a->candidate));
    GW_THEN(e, gw_chooser_shape(a->strategy, &shape));
    e = gw_agree(comm, e);
    GW_THEN(e, chooser_try(&(run){a, job, &shape, comm, n}));
    return e;
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
                 c->forecast.step_s * 1e3);
        return GW_OK;
    }
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--compress auto: the checkpoint's run chose %.100s over %.100s, which is not "
                   "among the choices here: name a codec",
                   codec, algo);
}

static gw_err chooser_bind(const gw_chooser *a, const gw_candidate *c, gw_session *s) {
    gw_mix mix;
    GW_TRY(gw_mix_single(&mix, &a->codec[c->nth_codec], a->config->run.wire_check));
    return gw_session_bind(s, &mix, &a->algo[c->nth_algo].spec);
}

gw_err gw_chooser_session(const gw_chooser *a, const gw_candidate *c, gw_session **out) {
    gw_mix none_yet = {.framed = a->config->run.wire_check};
    GW_TRY(gw_session_new(out, a->config->run.comm, &none_yet, a->config->run.feedback));
    return chooser_bind(a, c, *out);
}

gw_err gw_chooser_settle(gw_chooser *a, const gw_chooser_job *job) {
    if (!a)
        return GW_OK;
    GW_TRY(chooser_run(a, job));
    if (a->named || job->check)
        return GW_OK;
    if (job->codec)
        GW_TRY(chooser_retake(a, job->codec, job->algo));
    const gw_candidate *c = &a->candidate[a->chosen];
    a->session->note = a->why;
    return gw_agree(job->rehearsal.comm, chooser_bind(a, c, a->session));
}
