/* qsgd beyond what every codec promises: its sizes, the ends of the float range, and that no kind
 * of NaN slips through the search for the largest value, wherever it stands. */
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

static void check_size(const gw_codec *c, int bits) {
    assert_int_equal(gw_codec_bound(c, BUCKET * 1000), (size_t)(BUCKET * bits / 8 + 4) * 1000);
    assert_int_equal(gw_codec_bound(c, BUCKET + 3),
                     (size_t)(BUCKET * bits / 8 + 8 + (3 * bits + 7) / 8));
}

static void bits_an_element(void **state) {
    (void)state;
    each_width(check_size);
}

static void check_largest(const gw_codec *c, int bits) {
    (void)bits;
    float x[3] = {0x1.fffffep127f, -0x1.fffffep127f, 1}, y[3];
    for (uint64_t key = 0; key < 1000; key++) {
        round_trip(c, key, x, 3, y);
        assert_true(isfinite(y[0]) && y[0] >= 0x1.fffff0p127f && y[1] == -y[0]);
    }
}

static void largest_float_stays_finite(void **state) {
    (void)state;
    each_width(check_largest);
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
    (void)state;
    each_width(check_codes);
}

/* Buckets with NaNs of all kinds: alone among zeros or denormals, all over a bucket, beside an
 * infinity. The buckets between and after them stay as they are. */
static void check_nans(const gw_codec *c, int bits) {
    enum { N = 9 * BUCKET + 100 };
    static const uint32_t kinds[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0xffffffff};
    static const int places[] = {0, 17, 63, 64, 300, BUCKET - 1};
    static float x[N], y[N];
    (void)bits;
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
    (void)state;
    each_width(check_nans);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_an_element),
        cmocka_unit_test(largest_float_stays_finite),
        cmocka_unit_test(whole_steps_are_kept),
        cmocka_unit_test(no_nan_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
