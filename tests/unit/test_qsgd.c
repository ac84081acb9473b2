/* qsgd beyond what every codec promises: each code comes back as itself, and no kind of NaN slips
 * through the search for the largest value, wherever it stands; then its correlated rounding. */
#include "codec_cases.h"

#include <math.h>

static const char *const widths[] = {"qsgd:bits=2", "qsgd:bits=3", "qsgd:bits=4", "qsgd:bits=5",
                                     "qsgd:bits=6", "qsgd:bits=7", "qsgd:bits=8"};
enum { WIDTHS = sizeof widths / sizeof *widths, BUCKET = 512 };

/* check(codec, bits) for each width on each level that this CPU has. */
static void each_width(void (*check)(const gw_codec *c, int bits)) {
    for (int level = 0; level < GW_SIMD_LEVELS; level++)
        for (int w = 0; w < WIDTHS; w++) {
            gw_codec c;
            if (!open_at(&c, widths[w], level))
                continue;
            check(&c, w + 2);
            gw_codec_close(&c);
        }
}

/* Every possible code comes back as itself, from every place in a block. */
static void check_codes(const gw_codec *c, int bits) {
    enum { N = 3 * BUCKET + 70 };
    static float x[N], y[N];
    int levels = (1 << (bits - 1)) - 1;
    for (int shift = 0; shift < 3; shift++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)((i * 7 + i / 64 + shift) % (2 * levels + 1) - levels);
        for (int i = 0; i < N; i += BUCKET)
            x[i] = (float)levels;
        x[N - 1] = (float)-levels;
        round_trip(c, 1, x, N, y);
        assert_memory_equal(x, y, sizeof x);
    }
}

static void whole_steps_are_kept(void **state) {
    each_width(check_codes);
}

/* Buckets with NaNs of all kinds: alone among zeros or denormals, all over a bucket, beside an
 * infinity. The buckets between and after them stay as they are. */
static void check_nans(const gw_codec *c, int bits) {
    enum { N = 9 * BUCKET + 100 };
    static const uint32_t kinds[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0xffffffff};
    static const int places[] = {0, 17, 63, 64, 300, BUCKET - 1};
    static float x[N], y[N];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            uint32_t *bad = (uint32_t *)(void *)x;
            fill_gradient(k, x, N);
            memset(x + BUCKET, 0, 2 * BUCKET * sizeof *x);
            for (int i = 4 * BUCKET; i < 6 * BUCKET; i++)
                memcpy(&bad[i], &kinds[k], sizeof *bad);
            x[7 * BUCKET + 5] = -INFINITY;
            memcpy(&bad[BUCKET + places[p]], &kinds[k], sizeof *bad);
            memcpy(&bad[7 * BUCKET + places[p]], &kinds[k], sizeof *bad);
            memcpy(&bad[N - 1], &kinds[k], sizeof *bad);
            round_trip(c, 5, x, N, y);
            for (int i = 0; i < N; i++) {
                int bucket = i / BUCKET;
                bool lost = bucket == 1 || bucket == 4 || bucket == 5 || bucket == 7 || bucket == 9;
                assert_true(lost ? isnan(y[i]) : isfinite(y[i]));
                assert_true(bucket != 2 || y[i] == 0);
            }
        }
}

static void no_nan_is_missed(void **state) {
    each_width(check_nans);
}

/* ---- rounding=correlated ---- */

static const char correlated[] = "qsgd:bits=4,rounding=correlated";

enum { RANKS = 4, SPAN = 2 * BUCKET + 100, DRAWS = 3200, LEVELS = 7 };

/* As lanes do it: own keys, and one that is common. */
static gw_turn turn_of(uint64_t draw, int rank, int ranks) {
    return (gw_turn){.key = gw_rng_key(draw, (uint64_t)rank),
                     .step = 1,
                     .common = gw_rng_key(draw, UINT64_MAX),
                     .rank = rank,
                     .ranks = ranks};
}

static void round_trip_by(const gw_codec *c, gw_turn turn, const float *x, float *y) {
    static unsigned char wire[4 * SPAN];
    size_t len, cap = gw_codec_bound(c, SPAN);
    assert_int_equal(gw_codec_encode(c, turn, x, SPAN, wire, cap, &len), GW_OK);
    assert_int_equal(gw_codec_decode(c, wire, len, y, SPAN, GW_INTO_SET), GW_OK);
}

/* Over the draws: the mean square error of the mean of all ranks' values, in squared steps; and the
 * squares of each rank's own mean error, over what chance gives. */
typedef struct errors {
    double of_mean, bias;
} errors;

static errors measure(const char *spec, int ranks, const float *x, bool equal) {
    static float y[SPAN];
    static double mean[RANKS][SPAN], all[SPAN];
    errors e = {0};
    double off = 0, once = 0;
    gw_codec c = must_open(spec);
    memset(mean, 0, sizeof mean);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        memset(all, 0, sizeof all);
        for (int r = 0; r < ranks; r++) {
            const float *mine = x + (equal ? 0 : r * SPAN);
            round_trip_by(&c, turn_of(draw, r, ranks), mine, y);
            for (int i = 0; i < SPAN; i++) {
                double d = ((double)y[i] - (double)mine[i]) * LEVELS;
                assert_true(fabs(d) < 1.0001);
                mean[r][i] += d / DRAWS;
                once += d * d / DRAWS;
                all[i] += d / ranks;
            }
        }
        for (int i = 0; i < SPAN; i++)
            e.of_mean += all[i] * all[i] / SPAN / DRAWS;
    }
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < SPAN; i++)
            off += mean[r][i] * mean[r][i];
    e.bias = off * DRAWS / once;
    gw_codec_close(&c);
    return e;
}

/* Uniform in (-1, 1), the largest magnitude of each bucket 1: a step is 1 / LEVELS everywhere, and
 * all fractions of one are as frequent. */
static void fill_even(float *x, int ranks) {
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < SPAN; i++)
            x[r * SPAN + i] =
                i % BUCKET ? (float)(2 * gw_rng_unit(40 + (uint64_t)r, i) - 1) * 0.999f : 1;
}

/* Each rank's own values are as they are without: no bias, an error below a step. Of P equal values
 * the mean's error falls as 1 / 6 P^2 instead of 1 / 6 P; of others it does not rise. */
static void ranks_errors_cancel(void **state) {
    static float x[RANKS * SPAN];
    fill_even(x, RANKS);
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        errors one = measure("qsgd:bits=4", ranks, x, true);
        errors with = measure(correlated, ranks, x, true);
        errors others = measure(correlated, ranks, x, false);
        assert_true(fabs(with.bias - 1) < 0.1 && fabs(others.bias - 1) < 0.1);
        assert_true(fabs(one.of_mean * 6 * ranks - 1) < 0.05);
        if (fabs(with.of_mean * 6 * ranks * ranks - 1) > 0.05)
            fail_msg("%d ranks: the mean's error is %g, not 1 / %d", ranks, with.of_mean,
                     6 * ranks * ranks);
        assert_true(others.of_mean <= one.of_mean * 1.02);
    }
}

/* Offsets of all pairs of ranks are alike: of two ranks that have values among four, their errors
 * cancel whichever two these are. A cyclic shift for a permutation would fail here. */
static void any_two_ranks_cancel(void **state) {
    static float x[SPAN], y[2][SPAN];
    gw_codec c = must_open(correlated);
    for (int i = 0; i < SPAN; i++)
        x[i] = i % BUCKET ? 0.5f / LEVELS : 1;
    for (int a = 0; a < RANKS; a++)
        for (int b = a + 1; b < RANKS; b++) {
            double both = 0;
            for (uint64_t draw = 0; draw < 100; draw++) {
                round_trip_by(&c, turn_of(draw, a, RANKS), x, y[0]);
                round_trip_by(&c, turn_of(draw, b, RANKS), x, y[1]);
                for (int i = 0; i < SPAN; i++)
                    both += (double)(y[0][i] - x[i]) * (double)(y[1][i] - x[i]);
            }
            /* of 12 pairs of quarters 4 lie on one side of a half: (4 - 8) / 12 of 1 / 4 */
            double mean = both * LEVELS * LEVELS / 100 / (SPAN - 3);
            if (fabs(mean + 1.0 / 12) > 0.004)
                fail_msg("ranks %d and %d: %g, not -1/12", a, b, mean);
        }
    gw_codec_close(&c);
}

/* A rank that knows of no others, or encodes a sum, has the bits of rounding=stochastic. */
static void alone_as_ever(void **state) {
    static float x[SPAN], y[SPAN], z[SPAN];
    gw_codec c = must_open(correlated), plain = must_open("qsgd:bits=4");
    fill_gradient(3, x, SPAN);
    for (int ranks = 0; ranks <= 2; ranks++) {
        round_trip_by(&c, turn_of(7, 0, ranks), x, y);
        round_trip_by(&plain, turn_of(7, 0, ranks), x, z);
        assert_int_equal(memcmp(y, z, sizeof y) == 0, ranks < 2);
    }
    gw_codec_close(&c);
    gw_codec_close(&plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_steps_are_kept), cmocka_unit_test(no_nan_is_missed),
        cmocka_unit_test(ranks_errors_cancel),  cmocka_unit_test(any_two_ranks_cancel),
        cmocka_unit_test(alone_as_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
