#include "train/auto.h"

#include "base/mem.h"
#include "base/wait.h"
#include "comm/buckets.h"

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

typedef enum pattern { WHOLE, BUCKETS, LAYERS } pattern;

static const struct {
    const char *name;
    pattern parts;
    bool overlapped;
} known[] = {{"allreduce", WHOLE, false}, {"iallreduce", BUCKETS, true}, {"sparse", LAYERS, true}};
enum { KNOWN = sizeof known / sizeof *known };

static int known_of(const gw_strategy *s) {
    for (int i = 0; i < KNOWN; i++)
        if (strcmp(s->ops->head.name, known[i].name) == 0)
            return i;
    return -1;
}

static gw_err check_strategy(const gw_strategy *s) {
    if (known_of(s) >= 0)
        return GW_OK;
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--compress auto: the cost model knows the strategies %s, %s and %s, not %s: "
                   "name a codec",
                   known[0].name, known[1].name, known[2].name, s->ops->head.name);
}

/* ---- reading ---- */

bool gw_auto_wanted(const char *compress) {
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

/* As a session opens it. */
static gw_err open_codec(const gw_auto *a, const char *spec, gw_codec *out, bool *plain) {
    GW_TRY(gw_codec_open(out, spec));
    *plain = out->caps & GW_CODEC_IDENTITY;
    if (a->wire_check)
        gw_codec_frame(out);
    return GW_OK;
}

/* *ok: that codec can be had by this algorithm under the strategy; if not, the last message tells
 * why. */
static gw_err combine(const gw_auto *a, const gw_codec *codec, const char *spec, bool *ok) {
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
    GW_TRY(open_codec(a, spec, &codec, &plain));
    gw_err e = GW_OK;
    for (int i = 0; e == GW_OK && i < a->n_algos; i++) {
        bool ok;
        e = combine(a, &codec, a->algo[i].spec, &ok);
        *any |= ok;
    }
    gw_codec_close(&codec);
    return e;
}

static gw_err read_all(gw_auto *a, const char *compress) {
    GW_TRY(check_strategy(a->strategy));
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
    return gw_fail(GW_ERR_USAGE,
                   "--compress auto: error-feedback=%s is for codecs that hold something back: "
                   "name one",
                   a->feedback);
}

gw_err gw_auto_new(gw_auto **out, const char *compress, const gw_strategy *strategy,
                   const char *feedback, bool wire_check) {
    gw_auto *a = NULL;
    GW_TRY(gw_alloc(&a, 1, sizeof *a));
    a->strategy = strategy;
    a->wire_check = wire_check;
    a->measured_s = NAN;
    a->chosen = a->plain = -1;
    snprintf(a->feedback, sizeof a->feedback, "%s", feedback);
    gw_err e = check_feedback(a);
    if (e == GW_OK)
        e = read_all(a, compress);
    if (e != GW_OK) {
        gw_auto_free(a);
        return e;
    }
    *out = a;
    return GW_OK;
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

/* ---- the step's shape ---- */

static gw_err shape_parts(gw_auto *a, gw_shape *shape, size_t n, gw_span **parts) {
    int k = known_of(a->strategy);
    pattern p = known[k].parts == WHOLE && shape->lazy ? LAYERS : known[k].parts;
    shape->overlapped = known[k].overlapped;
    gw_buckets cut = {.n = n, .each = n, .count = 1};
    if (p == BUCKETS)
        cut = gw_buckets_cut(n, gw_args_bytes(a->strategy->args, "bucket"));
    int count = p == LAYERS ? shape->n_layers : cut.count;
    if (count > GW_FORECAST_PARTS)
        return gw_fail(GW_ERR_USAGE, "%s: more than %d buckets: use larger ones",
                       a->strategy->ops->head.name, GW_FORECAST_PARTS);
    GW_TRY(gw_alloc(parts, (size_t)count, sizeof **parts));
    for (int i = 0; i < count; i++)
        (*parts)[i] = p == LAYERS ? shape->layers[count - 1 - i] : gw_buckets_span(&cut, i);
    shape->parts = *parts;
    shape->n_parts = count;
    return GW_OK;
}

static size_t longest_part(const gw_shape *shape) {
    size_t most = 0;
    for (int i = 0; i < shape->n_parts; i++)
        most = shape->parts[i].n > most ? shape->parts[i].n : most;
    return most;
}

/* Ranks of one node exchange through its memory. */
static gw_err count_nodes(gw_auto *a, MPI_Comm comm) {
    MPI_Comm node;
    int here = 0, first;
    GW_MPI(MPI_Comm_size(comm, &a->ranks));
    GW_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    GW_MPI(MPI_Comm_rank(node, &here));
    GW_MPI(MPI_Comm_free(&node));
    first = here == 0;
    GW_TRY(gw_allreduce(&first, &a->nodes, 1, MPI_INT, MPI_SUM, comm));
    return GW_OK;
}

/* ---- candidates ---- */

static bool feedback_of(const gw_auto *a, const gw_codec *codec) {
    bool wanted = strcmp(a->feedback, "auto") == 0 ? codec->caps & GW_CODEC_BIASED
                                                   : strcmp(a->feedback, "on") == 0;
    return wanted && !(codec->caps & GW_CODEC_LOSSLESS);
}

/* Floats of a codec's calls when the algorithm reduces a span of n. */
static size_t call_of(const gw_algo_survey *s, size_t n) {
    double each = s->chunk > 0 ? s->chunk : s->part * (double)n;
    return each >= (double)n ? n : each < 1 ? 1 : (size_t)each;
}

enum { MOST_PRICES = 8 };

/* Prices are measured for the sizes in use; those within a third of each other share one. */
static int price_for(gw_codec_price *price, int *n_prices, size_t call) {
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

static gw_way way_of(const gw_algo_survey *s, const gw_codec *codec, const gw_codec_price *price,
                     size_t n) {
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

static bool carries(const gw_algo_survey *s, const gw_codec *codec) {
    return codec->caps & GW_CODEC_IDENTITY ? s->exact.n > 0 : s->coded.n > 0;
}

typedef struct run {
    gw_auto *a;
    const gw_shape *shape;
    MPI_Comm comm;
    size_t n;
} run;

static gw_err add_candidates(const run *r, gw_codec *codec, const char *spec, bool plain) {
    gw_auto *a = r->a;
    gw_codec_price price[MOST_PRICES];
    int n_prices = 0, which[GW_AUTO_MOST], of[GW_AUTO_MOST], found = 0;
    size_t longest = longest_part(r->shape);
    for (int i = 0; i < a->n_algos && a->n + found < GW_AUTO_MOST; i++) {
        bool ok;
        GW_TRY(combine(a, codec, a->algo[i].spec, &ok));
        if (!ok || !carries(&a->algo[i], codec))
            continue;
        of[found] = i;
        which[found++] = price_for(price, &n_prices, call_of(&a->algo[i], longest));
    }
    bool feedback = feedback_of(a, codec);
    if (!(codec->caps & GW_CODEC_IDENTITY))
        GW_TRY(gw_survey_codec(codec, feedback, a->gradient, r->n, price, n_prices, r->comm));
    for (int k = 0; k < found; k++) {
        const gw_algo_survey *algo = &a->algo[of[k]];
        gw_candidate *c = &a->candidate[a->n++];
        *c = (gw_candidate){.feedback = feedback, .plain = plain, .measured_s = NAN};
        snprintf(c->codec, sizeof c->codec, "%s", spec);
        snprintf(c->algo, sizeof c->algo, "%s", algo->spec);
        c->way = way_of(algo, codec, &price[which[k]], longest);
        c->forecast = gw_forecast_step(r->shape, &c->way);
    }
    return GW_OK;
}

static gw_err one_codec(const run *r, const char *spec, bool momentum) {
    gw_codec codec = {0};
    bool plain = false;
    gw_err e = gw_agree(r->comm, open_codec(r->a, spec, &codec, &plain));
    if (e != GW_OK) {
        gw_codec_close(&codec);
        return e;
    }
    bool loses = momentum && r->a->default_codecs && codec.caps & GW_CODEC_BIASED;
    r->a->dropped |= loses;
    if (!loses)
        e = gw_codec_join(&codec, r->a->ranks);
    if (!loses && e == GW_OK)
        e = add_candidates(r, &codec, spec, plain);
    gw_codec_close(&codec);
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e; /* too many ranks for it: on all alike */
}

/* ---- choosing ---- */

static int shorter_first(const void *a, const void *b) {
    double x = ((const gw_candidate *)a)->forecast.step_s;
    double y = ((const gw_candidate *)b)->forecast.step_s;
    return (x > y) - (x < y);
}

static void say(gw_auto *a) {
    const gw_candidate *best = &a->candidate[a->chosen];
    int at = snprintf(a->why, sizeof a->why, "auto: %s over %s, predicted step %.3f ms; next",
                      best->codec, best->algo, best->forecast.step_s * 1e3);
    int told = 0;
    for (int i = 0; i < a->n && told < 3 && at < (int)sizeof a->why; i++) {
        const gw_candidate *c = &a->candidate[i];
        bool known_codec = strcmp(c->codec, best->codec) == 0;
        for (int j = 0; j < i; j++)
            known_codec |= strcmp(c->codec, a->candidate[j].codec) == 0;
        if (known_codec)
            continue;
        at += snprintf(a->why + at, sizeof a->why - (size_t)at, "%s %s over %s %.3f",
                       told++ ? "," : "", c->codec, c->algo, c->forecast.step_s * 1e3);
    }
    if (told == 0)
        snprintf(a->why, sizeof a->why, "auto: %s over %s, predicted step %.3f ms", best->codec,
                 best->algo, best->forecast.step_s * 1e3);
    else if (a->chosen > 0 && at < (int)sizeof a->why)
        snprintf(a->why + at, sizeof a->why - (size_t)at, "; no gain above %.3g%% by compressing",
                 100 * a->margin);
}

/* All ranks choose by rank 0's figures: whatever they were made of, they are then the same. */
static gw_err choose(gw_auto *a, MPI_Comm comm) {
    double step_s[GW_AUTO_MOST];
    GW_TRY(gw_bcast(a->candidate, (int)((size_t)a->n * sizeof *a->candidate), MPI_BYTE, 0, comm));
    qsort(a->candidate, (size_t)a->n, sizeof *a->candidate, shorter_first);
    for (int i = 0; i < a->n; i++) {
        step_s[i] = a->candidate[i].forecast.step_s;
        if (a->plain < 0 && a->candidate[i].plain)
            a->plain = i;
    }
    a->chosen = gw_forecast_choose(step_s, a->n, a->plain, a->margin);
    if (a->chosen < 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--compress auto: none of its codecs can be had on these %d ranks%s",
                       a->ranks,
                       a->dropped ? "; those that need error feedback are left out under momentum, "
                                    "unless auto:codecs=(..) names them"
                                  : "");
    say(a);
    return GW_OK;
}

/* hier on one node is shm. */
static void drop_doubles(gw_auto *a) {
    for (int i = 0; i < a->n_algos && a->nodes == 1 && a->n_algos > 1 && a->algos.n == 0; i++)
        if (strcmp(a->algo[i].spec, "hier") == 0) {
            memmove(&a->algo[i], &a->algo[i + 1], (size_t)(a->n_algos - i - 1) * sizeof *a->algo);
            a->n_algos--;
        }
}

/* Floats: 32 MiB, above which no cache bends the line any more and memory would be wasted. */
enum { LONGEST = 8 << 20 };

static gw_err measure(gw_auto *a, const gw_auto_job *job, gw_shape *shape) {
    gw_stepper *t = job->rehearsal.stepper;
    MPI_Comm comm = job->rehearsal.comm;
    size_t n = gw_model_size(t->model), longest = longest_part(shape);
    gw_survey_place place = {.comm = comm,
                             .n = longest < LONGEST ? longest : LONGEST,
                             .seed = job->seed,
                             .yield = job->yield,
                             .budget_s = a->budget_s};
    GW_TRY(gw_survey_algos(&place, a->algo, a->n_algos));
    GW_TRY(gw_survey_step(&job->rehearsal, a->params, a->gradient, &shape->local));
    a->local = shape->local;
    run r = {a, shape, comm, n};
    bool momentum = gw_optimizer_momentum(t->optimizer);
    for (int i = 0; i < a->codecs.n; i++)
        GW_TRY(one_codec(&r, a->codecs.item[i], momentum));
    return choose(a, comm);
}

gw_err gw_auto_run(gw_auto *a, const gw_auto_job *job) {
    gw_model *model = job->rehearsal.stepper->model;
    MPI_Comm comm = job->rehearsal.comm;
    size_t n = gw_model_size(model);
    gw_span *parts = NULL;
    GW_TRY(count_nodes(a, comm));
    drop_doubles(a);
    gw_shape shape = {.layers = gw_model_spans(model),
                      .n_layers = gw_model_layers(model),
                      .lazy = job->lazy,
                      .link = a->nodes > 1};
    gw_err e = gw_alloc(&a->params, n, sizeof(float));
    if (e == GW_OK)
        e = gw_alloc(&a->gradient, n, sizeof(float));
    if (e == GW_OK)
        e = gw_alloc(&a->candidate, GW_AUTO_MOST, sizeof *a->candidate);
    if (e == GW_OK)
        e = shape_parts(a, &shape, n, &parts);
    e = gw_agree(comm, e);
    if (e == GW_OK)
        e = measure(a, job, &shape);
    free(parts);
    return e;
}
