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

static float *verify_table(const gw_bench_data *d, int rank) {
    return d->each + (size_t)rank * PERIOD;
}

/* Each of the P-1 additions rounds a partial sum of at most sum|x| by 2^-24 of it; doubled, for
 * sums that are kept in another form on the way. */
static void verify_add_up(gw_bench_data *d) {
    for (int i = 0; i < PERIOD; i++) {
        double size = 0;
        for (int r = 0; r < d->ranks; r++) {
            d->sum[i] += verify_table(d, r)[i];
            size += fabsf(verify_table(d, r)[i]);
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
            verify_table(d, r)[i] =
                (float)gw_rng_normal(gw_rng_key(seed, (uint64_t)r), (uint64_t)i);
    verify_add_up(d);
    return GW_OK;
}

void gw_bench_data_close(gw_bench_data *d) {
    free(d->each);
    free(d->sum);
    free(d->slack);
    *d = (gw_bench_data){0};
}

/* ---- the bound of a lossy codec ---- */

/* Widen *most to the largest error of one element of x when it is encoded. */
static gw_err verify_widen(const gw_codec *codec, const float *x, void *wire, double *most) {
    static float y[PERIOD];
    size_t cap = gw_codec_bound(codec, PERIOD), len;
    for (uint64_t key = 0; key < KEYS; key++) {
        GW_TRY(
            gw_codec_encode(codec, (gw_turn){gw_rng_key(1, key), 1}, x, PERIOD, wire, cap, &len));
        GW_TRY(gw_codec_decode(codec, wire, len, y, PERIOD, GW_INTO_SET));
        for (int i = 0; i < PERIOD; i++)
            *most = fmax(*most, fabs((double)y[i] - x[i]));
    }
    return GW_OK;
}

/* Of each rank's data, and of the sums of the ranks 0..r. */
static gw_err verify_largest_error(const gw_bench_data *d, const gw_codec *codec, void *wire,
                                   double *most) {
    float sum[PERIOD] = {0};
    for (int r = 0; r < d->ranks; r++) {
        for (int i = 0; i < PERIOD; i++)
            sum[i] += verify_table(d, r)[i];
        GW_TRY(verify_widen(codec, verify_table(d, r), wire, most));
        GW_TRY(verify_widen(codec, sum, wire, most));
    }
    return GW_OK;
}

gw_err gw_bench_data_bound(const gw_bench_data *d, const gw_codec *codec, double *bound) {
    void *wire = NULL;
    double most = 0;
    *bound = 0;
    if (codec->caps & (GW_CODEC_IDENTITY | GW_CODEC_LOSSLESS))
        return GW_OK;
    GW_TRY(gw_alloc(&wire, gw_codec_bound(codec, PERIOD), 1));
    gw_err e = verify_largest_error(d, codec, wire, &most);
    free(wire);
    *bound = 3.0 * d->ranks * most;
    return e;
}

/* ---- filling and checking ---- */

void gw_bench_data_fill(const gw_bench_data *d, float *x, size_t n) {
    for (size_t i = 0; i < n; i += PERIOD)
        memcpy(x + i, verify_table(d, d->rank), (n - i < PERIOD ? n - i : PERIOD) * sizeof(float));
}

/* Elements of y[s] that are not the sum (`of` negative), or what rank `of` has there; a NaN is
 * wrong, too. */
static uint64_t verify_wrong_in(const gw_bench_data *d, const float *y, gw_span s, int of,
                                double bound) {
    uint64_t wrong = 0;
    for (size_t i = s.off, t = i % PERIOD; i < gw_span_end(s); i++) {
        double want = of < 0 ? d->sum[t] : (double)verify_table(d, of)[t];
        wrong += !(fabs(y[i] - want) <= (of < 0 ? d->slack[t] : 0) + bound);
        t = t + 1 == PERIOD ? 0 : t + 1;
    }
    return wrong;
}

uint64_t gw_bench_data_wrong(const gw_bench_data *d, const float *y, size_t n, double bound) {
    enum { SUM = -1 };
    gw_span all = {0, n}, own = gw_span_part(all, d->rank, d->ranks);
    uint64_t wrong = 0;
    switch (d->verb) {
    case GW_ALLREDUCE: return verify_wrong_in(d, y, all, SUM, bound);
    case GW_REDUCE: return d->rank == GW_BENCH_ROOT ? verify_wrong_in(d, y, all, SUM, bound) : 0;
    case GW_BCAST: return verify_wrong_in(d, y, all, GW_BENCH_ROOT, bound);
    case GW_REDUCE_SCATTER: return verify_wrong_in(d, y, own, SUM, bound);
    case GW_ALLGATHER:
        for (int r = 0; r < d->ranks; r++)
            wrong += verify_wrong_in(d, y, gw_span_part(all, r, d->ranks), r, bound);
        return wrong;
    }
    abort(); /* no such verb */
}
