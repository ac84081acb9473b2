#include "cli/bench/bench_verify.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PERIOD = 4093,
    KEYS = 4 /* draws of a random codec that its largest error is sought in */
};

static float *table(const gw_bench_data *d, int rank) {
    return d->each + (size_t)rank * PERIOD;
}

/* Each of the P-1 additions rounds a partial sum of at most sum|x| by 2^-24 of it; doubled, for
 * sums that are kept in another form on the way. */
static void add_up(gw_bench_data *d) {
    for (int i = 0; i < PERIOD; i++) {
        double size = 0;
        for (int r = 0; r < d->ranks; r++) {
            d->sum[i] += table(d, r)[i];
            size += fabsf(table(d, r)[i]);
        }
        d->slack[i] = 0x1p-23 * d->ranks * size;
    }
}

gw_err gw_bench_data_open(gw_bench_data *d, gw_verb verb, int rank, int ranks, uint64_t seed) {
    *d = (gw_bench_data){.verb = verb, .rank = rank, .ranks = ranks};
    GW_TRY(gw_alloc(&d->each, (size_t)ranks * PERIOD, sizeof *d->each));
    GW_TRY(gw_alloc(&d->sum, PERIOD, sizeof *d->sum));
    GW_TRY(gw_alloc(&d->slack, PERIOD, sizeof *d->slack));
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < PERIOD; i++)
            table(d, r)[i] = (float)gw_rng_normal(gw_rng_key(seed, (uint64_t)r), (uint64_t)i);
    add_up(d);
    return GW_OK;
}

void gw_bench_data_close(gw_bench_data *d) {
    free(d->each);
    free(d->sum);
    free(d->slack);
    *d = (gw_bench_data){0};
}

/* ---- the bound of a lossy codec ---- */

typedef struct scratch {
    float *x, *y; /* PERIOD floats each */
    void *wire;
} scratch;

static gw_err widen(const scratch *s, const gw_codec *codec, double *most) {
    size_t cap = gw_codec_bound(codec, PERIOD), len;
    for (uint64_t key = 0; key < KEYS; key++) {
        GW_TRY(gw_codec_encode(codec, (gw_turn){gw_rng_key(1, key), 1}, s->x, PERIOD, s->wire, cap,
                               &len));
        GW_TRY(gw_codec_decode(codec, s->wire, len, s->y, PERIOD, 0));
        for (int i = 0; i < PERIOD; i++)
            *most = fmax(*most, fabs((double)s->y[i] - s->x[i]));
    }
    return GW_OK;
}

/* Largest error on each rank's data and on the sums of the ranks 0..r. */
static gw_err largest_error(const gw_bench_data *d, const gw_codec *codec, const scratch *s,
                            double *most) {
    for (int r = 0; r < d->ranks; r++) {
        memcpy(s->x, table(d, r), PERIOD * sizeof(float));
        GW_TRY(widen(s, codec, most));
    }
    memset(s->x, 0, PERIOD * sizeof(float));
    for (int r = 0; r < d->ranks; r++) {
        for (int i = 0; i < PERIOD; i++)
            s->x[i] += table(d, r)[i];
        GW_TRY(widen(s, codec, most));
    }
    return GW_OK;
}

gw_err gw_bench_data_bound(const gw_bench_data *d, const gw_codec *codec, double *bound) {
    *bound = 0;
    if (codec->caps & (GW_CODEC_IDENTITY | GW_CODEC_LOSSLESS))
        return GW_OK;
    scratch s = {0};
    double most = 0;
    gw_err e = gw_alloc(&s.x, PERIOD, sizeof(float));
    if (e == GW_OK)
        e = gw_alloc(&s.y, PERIOD, sizeof(float));
    if (e == GW_OK)
        e = gw_alloc(&s.wire, gw_codec_bound(codec, PERIOD), 1);
    if (e == GW_OK)
        e = largest_error(d, codec, &s, &most);
    free(s.x);
    free(s.y);
    free(s.wire);
    *bound = 3.0 * d->ranks * most;
    return e;
}

/* ---- filling and checking ---- */

void gw_bench_data_fill(const gw_bench_data *d, float *x, size_t n) {
    for (size_t i = 0; i < n; i += PERIOD)
        memcpy(x + i, table(d, d->rank), (n - i < PERIOD ? n - i : PERIOD) * sizeof(float));
}

static uint64_t wrong_sums(const gw_bench_data *d, const float *y, gw_span s, double bound) {
    uint64_t wrong = 0;
    for (size_t i = s.off, t = i % PERIOD; i < gw_span_end(s); i++) {
        wrong += !(fabs(y[i] - d->sum[t]) <= d->slack[t] + bound); /* a NaN is wrong, too */
        t = t + 1 == PERIOD ? 0 : t + 1;
    }
    return wrong;
}

static uint64_t wrong_copies(const gw_bench_data *d, const float *y, gw_span s, int of,
                             double bound) {
    uint64_t wrong = 0;
    const float *want = table(d, of);
    for (size_t i = s.off, t = i % PERIOD; i < gw_span_end(s); i++) {
        wrong += !(fabs((double)y[i] - want[t]) <= bound);
        t = t + 1 == PERIOD ? 0 : t + 1;
    }
    return wrong;
}

uint64_t gw_bench_data_wrong(const gw_bench_data *d, const float *y, size_t n, double bound) {
    gw_span all = {0, n};
    uint64_t wrong = 0;
    switch (d->verb) {
    case GW_ALLREDUCE: return wrong_sums(d, y, all, bound);
    case GW_REDUCE: return d->rank == GW_BENCH_ROOT ? wrong_sums(d, y, all, bound) : 0;
    case GW_BCAST: return wrong_copies(d, y, all, GW_BENCH_ROOT, bound);
    case GW_REDUCE_SCATTER: return wrong_sums(d, y, gw_span_part(all, d->rank, d->ranks), bound);
    case GW_ALLGATHER:
        for (int r = 0; r < d->ranks; r++)
            wrong += wrong_copies(d, y, gw_span_part(all, r, d->ranks), r, bound);
        return wrong;
    }
    abort(); /* no such verb */
}
