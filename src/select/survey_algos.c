/* The algorithms' curves: alpha and beta of each on the actual ranks. */
#include "select/survey.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "comm/lane_parts.h"
#include "comm/tuning.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ALGOS = 64, LEAST_ROUNDS = 3, COPIES = 5, MOST_ROUNDS = 51, LANES = 3 };

static const size_t wanted[] = {1 << 10, 16 << 10, 256 << 10, 4 << 20};
enum { WANTED = sizeof wanted / sizeof *wanted };

/* How a span goes: as floats, in opaque encodings, in encodings that MPI adds. */
typedef enum lane_kind { EXACT, OPAQUE, SUMMED } lane_kind;

typedef struct probe {
    gw_algo_survey *of;
    lane_kind kind;
    gw_algo algo;
    gw_schedule *schedule; /* of the size at hand; NULL: cannot be laid down */
    double runs[MOST_ROUNDS];
    gw_tally tally; /* of the last run */
} probe;

typedef struct survey {
    const gw_survey_place *place;
    gw_codec codec[LANES];
    gw_lane *lane[LANES];
    float *base[LANES];
    probe probe[2 * MOST_ALGOS];
    int n;
    float *scratch;           /* as long as the longest span */
    double price[GW_CODINGS]; /* of the counting codec's own copies at the size at hand, s/float */
    uint64_t rounds;          /* so far: each has an order of its own, the same on all ranks */
    double spent_s;           /* by reduced times: the same on all ranks */
    double last_s, before_s;  /* of one round of all, at the last two sizes */
} survey;

static gw_err largest(const survey *s, double *x, int n) {
    return gw_allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_MAX, s->place->comm);
}

/* ---- opening ---- */

static gw_err open_lanes(survey *s) {
    GW_TRY(gw_codec_open(&s->codec[EXACT], "none"));
    gw_tally_open(&s->codec[OPAQUE], false);
    gw_tally_open(&s->codec[SUMMED], true);
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
static gw_err add_probe(survey *s, gw_algo_survey *of, lane_kind kind, bool *found) {
    probe *p = &s->probe[s->n];
    *p = (probe){.of = of, .kind = kind};
    gw_err e = gw_algo_open(&p->algo, of->spec, &s->codec[kind]);
    *found = e == GW_OK;
    s->n += *found;
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e;
}

static gw_err open_probes(survey *s, gw_algo_survey *algo, int n_algos) {
    if (n_algos > MOST_ALGOS)
        return gw_fail(GW_ERR_USAGE, "more than %d algorithms", MOST_ALGOS);
    for (int a = 0; a < n_algos; a++) {
        bool found;
        GW_TRY(add_probe(s, &algo[a], EXACT, &found));
        GW_TRY(add_probe(s, &algo[a], OPAQUE, &found));
        if (!found)
            GW_TRY(add_probe(s, &algo[a], SUMMED, &found));
    }
    return GW_OK;
}

/* ---- one size ---- */

static gw_err lay_down(survey *s, probe *p, gw_span span) {
    gw_schedule *schedule = NULL;
    GW_TRY(gw_schedule_new(&schedule, s->lane[p->kind], s->base[p->kind], span));
    gw_err e = gw_algo_lay_down(&p->algo, schedule, GW_ALLREDUCE, 0);
    if (e == GW_OK) {
        p->schedule = schedule;
        return GW_OK;
    }
    gw_schedule_free(schedule);
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e; /* on all ranks alike */
}

static gw_err lay_down_all(survey *s, gw_span span) {
    gw_err e = GW_OK;
    for (int i = 0; e == GW_OK && i < s->n; i++)
        e = lay_down(s, &s->probe[i], span);
    return gw_agree(s->place->comm, e);
}

static void free_all(survey *s) {
    for (int i = 0; i < s->n; i++) {
        gw_schedule_free(s->probe[i].schedule);
        s->probe[i].schedule = NULL;
    }
}

/* What the counting codec's copies take where nothing is shared: what coding costs on top of that
 * in an exchange, because the data come from another core, belongs to the messages. */
static gw_err time_copies(survey *s, size_t n) {
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

static gw_err time_one(survey *s, probe *p, double *out) {
    gw_tally_reset();
    GW_TRY(gw_tuning_time(p->schedule, out));
    p->tally = gw_tally_read();
    for (int k = 0; k < GW_CODINGS; k++)
        *out -= p->tally.floats[k] * s->price[k];
    *out = fmax(0, *out);
    return GW_OK;
}

/* One run of each, in an order drawn anew; *all_s: what they took together. */
static gw_err one_round(survey *s, int k, double *all_s) {
    double once[2 * MOST_ALGOS] = {0};
    uint32_t order[2 * MOST_ALGOS], n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->probe[i].schedule)
            order[n++] = (uint32_t)i;
    gw_rng_shuffle(gw_rng_key(s->place->seed, s->rounds++), order, n);
    for (uint32_t i = 0; i < n; i++)
        GW_TRY(time_one(s, &s->probe[order[i]], &once[order[i]]));
    GW_TRY(largest(s, once, s->n));
    *all_s = 0;
    for (int i = 0; i < s->n; i++) {
        s->probe[i].runs[k] = once[i];
        *all_s += once[i];
    }
    s->spent_s += *all_s;
    return GW_OK;
}

static void keep_point(probe *p, size_t bytes, int rounds) {
    gw_curve *c = p->kind == EXACT ? &p->of->exact : &p->of->coded;
    c->bytes[c->n] = (double)bytes;
    c->time_s[c->n++] = gw_stats_typical(p->runs, rounds);
}

/* Round after round for `share_s`, a few in any case. */
static gw_err all_rounds(survey *s, size_t n, double share_s) {
    double end_s = s->spent_s + share_s, each[MOST_ROUNDS];
    int rounds = 0;
    while (rounds < LEAST_ROUNDS || (rounds < MOST_ROUNDS && s->spent_s < end_s)) {
        GW_TRY(one_round(s, rounds, &each[rounds]));
        rounds++;
    }
    for (int i = 0; i < s->n; i++)
        if (s->probe[i].schedule)
            keep_point(&s->probe[i], n * sizeof(float), rounds);
    s->last_s = gw_stats_typical(each, rounds);
    return GW_OK;
}

/* What the algorithm did in its last run: of the largest size in the end. */
static gw_err keep_counts(survey *s, probe *p, size_t n) {
    gw_algo_survey *of = p->of;
    double span = (double)n, chunks = gw_schedule_strands(p->schedule);
    gw_cost cost = gw_algo_cost(&p->algo, s->lane[p->kind], GW_ALLREDUCE, n);
    double sent = (double)cost.bytes / (s->lane[p->kind]->size * sizeof(float) * span);
    GW_TRY(largest(s, &chunks, 1)); /* a leader of hier has more of them than others */
    if (p->kind == EXACT) {
        of->exact_chunks = chunks > 1 ? chunks / span : 0;
        of->exact_sent = sent;
        return GW_OK;
    }
    of->chunks = chunks > 1 ? chunks / span : 0;
    of->sent = sent;
    of->summed = p->kind == SUMMED;
    double floats = 0, calls = 0;
    GW_TRY(largest(s, p->tally.floats, GW_CODINGS));
    GW_TRY(largest(s, p->tally.calls, GW_CODINGS));
    for (int k = 0; k < GW_CODINGS; k++) {
        of->work[k] = p->tally.floats[k] / span;
        floats += k == GW_CODING_SUM ? 0 : p->tally.floats[k];
        calls += k == GW_CODING_SUM ? 0 : p->tally.calls[k];
    }
    double each = calls > 0 ? floats / calls : span;
    of->part = each / span;
    of->chunk = chunks > 1 ? each : 0;
    return GW_OK;
}

static gw_err one_size(survey *s, size_t bytes, int sizes_left) {
    size_t n = bytes / sizeof(float);
    GW_TRY(lay_down_all(s, (gw_span){0, n}));
    double cold;
    GW_TRY(gw_agree(s->place->comm, time_copies(s, n)));
    GW_TRY(one_round(s, 0, &cold)); /* connections are made, pages touched */
    GW_TRY(all_rounds(s, n, (s->place->budget_s - s->spent_s) / sizes_left));
    for (int i = 0; i < s->n; i++)
        if (s->probe[i].schedule)
            GW_TRY(keep_counts(s, &s->probe[i], n));
    return GW_OK;
}

/* ---- all sizes ---- */

static int choose_sizes(size_t arena, size_t sizes[GW_CURVE_POINTS]) {
    int n = 0;
    while (n < WANTED && wanted[n] <= arena) {
        sizes[n] = wanted[n];
        n++;
    }
    if (n == 0 || arena >= 2 * sizes[n - 1])
        sizes[n++] = arena;
    return n;
}

/* What a round of size i will take, by the slope so far: from one size alone none can be told. */
static double next_s(const survey *s, const size_t *sizes, int i) {
    if (i < 2)
        return 0;
    double slope = (s->last_s - s->before_s) / (double)(sizes[i - 1] - sizes[i - 2]);
    return s->last_s + fmax(0, slope) * (double)(sizes[i] - sizes[i - 1]);
}

static gw_err all_sizes(survey *s) {
    size_t sizes[GW_CURVE_POINTS];
    int n = choose_sizes(s->place->n * sizeof(float), sizes);
    for (int i = 0; i < n; i++) {
        if (s->spent_s + (LEAST_ROUNDS + 1) * next_s(s, sizes, i) > s->place->budget_s)
            break;
        s->before_s = s->last_s;
        gw_err e = one_size(s, sizes[i], n - i);
        free_all(s);
        GW_TRY(e);
    }
    return GW_OK;
}

static void close_all(survey *s) {
    for (int k = 0; k < LANES; k++) {
        gw_lane_close(s->lane[k]); /* what algorithms keep hangs on the lanes */
        gw_codec_close(&s->codec[k]);
    }
    for (int i = 0; i < s->n; i++)
        gw_algo_close(&s->probe[i].algo);
}

gw_err gw_survey_algos(const gw_survey_place *place, gw_algo_survey *algo, int n_algos) {
    survey *s = NULL;
    GW_TRY(gw_agree(place->comm, gw_alloc(&s, 1, sizeof *s)));
    s->place = place;
    gw_err e = open_lanes(s);
    if (e == GW_OK)
        e = gw_agree(place->comm, open_probes(s, algo, n_algos));
    if (e == GW_OK)
        e = gw_agree(place->comm, gw_alloc(&s->scratch, place->n, sizeof(float)));
    if (e == GW_OK)
        e = all_sizes(s);
    close_all(s);
    free(s->scratch);
    free(s);
    return e;
}
