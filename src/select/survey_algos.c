/* The algorithms' curves: alpha and beta of each on the actual ranks. */
#include "select/survey.h"

#include "base/mem.h"
#include "comm/lane_parts.h"
#include "comm/timing.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_ALGOS = 64, COPIES = 5, LANES = 3 };

static const size_t wanted[] = {1 << 10, 16 << 10, 256 << 10, 4 << 20};
enum { WANTED = sizeof wanted / sizeof *wanted };

/* How a span goes: as floats, in opaque encodings, in encodings that MPI adds. */
typedef enum lane_kind { EXACT, OPAQUE, SUMMED } lane_kind;

typedef struct tally {
    double floats[GW_CODINGS], calls[GW_CODINGS];
} tally;

typedef struct probe {
    gw_algo_survey *of;
    lane_kind kind;
    gw_algo algo;
    gw_timed timed;
    tally coded; /* in the last run */
} probe;

typedef struct survey {
    const gw_survey_place *place;
    gw_codec codec[LANES];
    gw_lane *lane[LANES];
    float *base[LANES];
    probe probe[2 * MOST_ALGOS];
    gw_timing timing;         /* of the probes */
    float *scratch;           /* as long as the longest span */
    double price[GW_CODINGS]; /* of the counting codec's own copies at the size at hand, s/float */
} survey;

static gw_err survey_largest(const survey *s, double *x, int n) {
    return gw_allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_MAX, s->place->comm);
}

/* ---- what an algorithm asks of a codec ---- */

/* Found out by running it, plugins included, over a codec that sends the floats as they are and
 * counts: codings are counted where they are called, which is one thread. */
static tally counted;

/* What was encoded last: decoded at once into where it came from, it is adopted. */
static const void *last_out, *last_x;

extern const gw_codec_ops gw_codec_none; /* whose bytes these are */

static void tally_count(gw_coding kind, double calls, size_t n) {
    counted.calls[kind] += calls;
    counted.floats[kind] += calls * (double)n;
}

static gw_err tally_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                           size_t cap, size_t *len) {
    last_out = out;
    last_x = x;
    tally_count(GW_CODING_ENCODE, 1, n);
    return gw_codec_none.encode(self, turn, x, n, out, cap, len);
}

static gw_err tally_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                           gw_into into) {
    GW_TRY(gw_codec_none.decode(self, in, len, y, n, into));
    if (into == GW_INTO_SET && in == last_out && y == last_x) {
        tally_count(GW_CODING_ENCODE, -1, n);
        tally_count(GW_CODING_ADOPT, 1, n);
    } else {
        tally_count(into == GW_INTO_ADD ? GW_CODING_ADD : GW_CODING_SET, 1, n);
    }
    last_out = NULL;
    return GW_OK;
}

static gw_err tally_add(void *inout, const void *in, size_t len) {
    tally_count(GW_CODING_SUM, 1, len / sizeof(float));
    return gw_codec_none.add(inout, in, len);
}

/* 4 bytes a float; `summed`: MPI can add its encodings. */
static void tally_open(gw_codec *out, bool summed) {
    static gw_codec_ops ops[2];
    ops[summed] =
        (gw_codec_ops){.head = {GW_CODEC_ABI, "tally", "floats as they are, counted", NULL},
                       .caps = GW_CODEC_LOSSLESS | GW_CODEC_UNBIASED | GW_CODEC_FIXED,
                       .bound = gw_codec_none.bound,
                       .encode = tally_encode,
                       .decode = tally_decode,
                       .add = summed ? tally_add : NULL,
                       .unit_bytes = summed ? sizeof(float) : 0};
    *out =
        (gw_codec){.ops = &ops[summed], .spec = "tally", .fixed = true, .caps = ops[summed].caps};
}

/* ---- opening ---- */

static gw_err survey_open_lanes(survey *s) {
    GW_TRY(gw_codec_open(&s->codec[EXACT], &gw_codec_exact));
    tally_open(&s->codec[OPAQUE], false);
    tally_open(&s->codec[SUMMED], true);
    for (int k = 0; k < LANES; k++) {
        gw_lane_setup setup = {.codec = &s->codec[k],
                               .n = s->place->n,
                               .seed = s->place->seed,
                               .yield = s->place->yield,
                               .shared = true,
                               .name = "survey"};
        GW_TRY(gw_lane_open(&s->lane[k], s->place->comm, &setup));
        GW_TRY(gw_lane_floats(s->lane[k], s->place->n, &s->base[k]));
    }
    return GW_OK;
}

/* *found: false where this algorithm cannot carry that kind. */
static gw_err survey_add_probe(survey *s, gw_algo_survey *of, lane_kind kind, bool *found) {
    probe *p = &s->probe[s->timing.n];
    *p = (probe){.of = of,
                 .kind = kind,
                 .timed = {.algo = &p->algo, .lane = s->lane[kind], .base = s->base[kind]}};
    gw_err e = gw_algo_open(&p->algo, &of->spec, &s->codec[kind]);
    *found = e == GW_OK;
    if (*found)
        s->timing.timed[s->timing.n++] = &p->timed;
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e;
}

static gw_err survey_open_probes(survey *s, gw_algo_survey *algo, int n_algos) {
    if (n_algos > MOST_ALGOS)
        return gw_fail(GW_ERR_USAGE, "more than %d algorithms", MOST_ALGOS);
    for (int a = 0; a < n_algos; a++) {
        bool found;
        GW_TRY(survey_add_probe(s, &algo[a], EXACT, &found));
        if (s->place->exact)
            continue;
        GW_TRY(survey_add_probe(s, &algo[a], OPAQUE, &found));
        if (!found)
            GW_TRY(survey_add_probe(s, &algo[a], SUMMED, &found));
    }
    return GW_OK;
}

/* ---- one size ---- */

/* What the counting codec's copies take where nothing is shared: what coding costs on top of that
 * in an exchange, because the data come from another core, belongs to the messages. */
static gw_err survey_copies(survey *s, size_t n) {
    const gw_codec *c = &s->codec[OPAQUE];
    float *x = s->base[OPAQUE];
    size_t len = n * sizeof *x;
    double best[3] = {INFINITY, INFINITY, INFINITY}, at[4];
    for (int k = 0; k < COPIES; k++) {
        at[0] = MPI_Wtime();
        GW_TRY(gw_codec_encode(c, (gw_turn){0}, x, n, s->scratch, len, &len));
        at[1] = MPI_Wtime();
        GW_TRY(gw_codec_decode(c, s->scratch, len, x, n, GW_INTO_SET));
        at[2] = MPI_Wtime();
        GW_TRY(gw_codec_decode(c, s->scratch, len, x, n, GW_INTO_ADD));
        at[3] = MPI_Wtime();
        for (int i = 0; i < 3; i++)
            best[i] = fmin(best[i], (at[i + 1] - at[i]) / (double)n);
    }
    s->price[GW_CODING_ENCODE] = best[0];
    s->price[GW_CODING_ADOPT] = best[0] + best[1];
    s->price[GW_CODING_SET] = best[1];
    s->price[GW_CODING_ADD] = s->price[GW_CODING_SUM] = best[2];
    return GW_OK;
}

static gw_err survey_time_copies(void *ctx, size_t n) {
    survey *s = ctx;
    return gw_agree(s->place->comm, survey_copies(s, n));
}

static gw_err survey_time_one(void *ctx, int i, double *out) {
    survey *s = ctx;
    probe *p = &s->probe[i];
    counted = (tally){0};
    last_out = last_x = NULL;
    GW_TRY(gw_timed_run(&p->timed, out));
    p->coded = counted;
    for (int k = 0; k < GW_CODINGS; k++)
        *out -= counted.floats[k] * s->price[k];
    *out = fmax(0, *out);
    return GW_OK;
}

/* What the algorithm did in its last run: of the largest size in the end. */
static gw_err survey_keep_counts(survey *s, probe *p, size_t n) {
    gw_algo_survey *of = p->of;
    double span = (double)n;
    gw_cost cost = gw_algo_cost(&p->algo, s->lane[p->kind], GW_ALLREDUCE, n);
    double sent = (double)cost.bytes / (s->lane[p->kind]->size * sizeof(float) * span);
    if (p->kind == EXACT) {
        of->exact_sent = sent;
        return GW_OK;
    }
    double floats = 0, calls = 0, chunks = gw_schedule_strands(p->timed.schedule);
    GW_TRY(survey_largest(s, &chunks, 1)); /* a leader of hier has more of them than others */
    of->chunks = chunks > 1 ? chunks / span : 0;
    of->sent = sent;
    of->summed = p->kind == SUMMED;
    GW_TRY(survey_largest(s, p->coded.floats, GW_CODINGS));
    GW_TRY(survey_largest(s, p->coded.calls, GW_CODINGS));
    for (int k = 0; k < GW_CODINGS; k++) {
        of->work[k] = p->coded.floats[k] / span;
        floats += k == GW_CODING_SUM ? 0 : p->coded.floats[k];
        calls += k == GW_CODING_SUM ? 0 : p->coded.calls[k];
    }
    double each = calls > 0 ? floats / calls : span;
    of->part = each / span;
    of->chunk = chunks > 1 ? each : 0;
    return GW_OK;
}

static gw_err survey_keep_size(void *ctx, size_t n) {
    survey *s = ctx;
    for (int i = 0; i < s->timing.n; i++) {
        probe *p = &s->probe[i];
        gw_curve *c = p->kind == EXACT ? &p->of->exact : &p->of->coded;
        if (!p->timed.schedule)
            continue;
        c->bytes[c->n] = (double)(n * sizeof(float));
        c->time_s[c->n++] = gw_stats_typical(p->timed.times.x, p->timed.times.n);
        GW_TRY(survey_keep_counts(s, p, n));
    }
    return GW_OK;
}

/* ---- all ---- */

static gw_err survey_all_sizes(survey *s) {
    const gw_survey_place *place = s->place;
    gw_timing_plan plan = {.wanted = wanted,
                           .n_wanted = WANTED,
                           .arena = place->n * sizeof(float),
                           .budget_s = place->budget_s,
                           .least = 3,
                           .most = 51,
                           .hopeless = INFINITY,
                           .begin = survey_time_copies,
                           .end = survey_keep_size};
    s->timing.rounds =
        (gw_rounds){.comm = place->comm, .seed = place->seed, .once = survey_time_one, .ctx = s};
    return gw_timing_sizes(&s->timing, &plan);
}

static void survey_close(survey *s) {
    for (int i = 0; i < s->timing.n; i++)
        gw_timed_close(&s->probe[i].timed);
    for (int k = 0; k < LANES; k++) {
        gw_lane_close(s->lane[k]); /* what algorithms keep hangs on the lanes */
        gw_codec_close(&s->codec[k]);
    }
    for (int i = 0; i < s->timing.n; i++)
        gw_algo_close(&s->probe[i].algo);
}

gw_err gw_survey_algos(const gw_survey_place *place, gw_algo_survey *algo, int n_algos) {
    survey *s = NULL;
    GW_TRY(gw_agree(place->comm, gw_alloc(&s, 1, sizeof *s)));
    s->place = place;
    gw_err e = survey_open_lanes(s);
    GW_THEN(e, gw_agree(place->comm, survey_open_probes(s, algo, n_algos)));
    GW_THEN(e, gw_agree(place->comm, gw_alloc(&s->scratch, place->n, sizeof(float))));
    GW_THEN(e, survey_all_sizes(s));
    survey_close(s);
    free(s->scratch);
    free(s);
    return e;
}
