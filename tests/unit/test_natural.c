/* natural: it sends only powers of two, with the odds that the paper names, over the whole range of
 * floats: inside the window of exponents, below it and at its upper end, at each level. */
#include "codec_cases.h"

#include <math.h>

/* x is 1.25 times a power of two in a bucket that reaches `top`. It becomes the upper power of two
 * once in four times; at the ends of the range, what the rows state. */
static void check_odds(int level, float top, float x, float lower, float upper, double odds) {
    enum { N = 512, KEYS = 40 };
    gw_codec c;
    if (!open_at(&c, "natural", level))
        return;
    float v[N], y[N];
    double up = 0, draws = 0;
    for (int i = 0; i < N; i++)
        v[i] = i % 2 ? x : -x;
    v[300] = top;
    for (uint64_t key = 0; key < KEYS; key++) {
        round_trip(&c, key, v, N, y);
        for (int i = 0; i < N; i++) {
            if (i == 300)
                continue;
            float mag = fabsf(y[i]);
            if (mag != lower && mag != upper)
                fail_msg("%a in a bucket up to %a became %a", x, top, mag);
            assert_true(mag == 0 || signbit(y[i]) == signbit(v[i]));
            up += mag == upper;
            draws++;
        }
    }
    double sigma = sqrt(draws * odds * (1 - odds));
    if (fabs(up - draws * odds) > 5 * sigma)
        fail_msg("%a in a bucket up to %a went up %g times of %g, not %g", x, top, up, draws,
                 draws * odds);
    gw_codec_close(&c);
}

static void odds_over_the_range(void **state) {
    const float least = 0x1p-126f;
    for (int level = 0; level < GW_SIMD_LEVELS; level++) {
        /* The window begins at zero: normal numbers and denormals. */
        check_odds(level, 0.49f, 0x1.4p-10f, 0x1p-10f, 0x1p-9f, 0.25);
        check_odds(level, 0.49f, 0x1.4p-126f, least, 2 * least, 0.25);
        check_odds(level, 0.49f, 0x1p-128f, 0, least, 0.25);
        check_odds(level, 0, 0x1.8p-130f, 0, least, 0.09375);
        check_odds(level, 0, 0x1p-126f, least, least, 1);
        /* It begins one higher, then far higher: smaller values round to its least power or to
         * zero. */
        check_odds(level, 1, 0x1.4p-10f, 0x1p-10f, 0x1p-9f, 0.25);
        check_odds(level, 1, 0x1.4p-126f, 0, 0x1p-125f, 0.625);
        check_odds(level, 1, 0x1p-128f, 0, 0x1p-125f, 0.125);
        check_odds(level, 1, 0x1.4p-125f, 0x1p-125f, 0x1p-124f, 0.25);
        check_odds(level, 0x1p60f, 0x1.4p-65f, 0x1p-65f, 0x1p-64f, 0.25);
        check_odds(level, 0x1p60f, 0x1.8p-66f, 0, 0x1p-65f, 0.75);
        check_odds(level, 0x1p60f, 0x1p-126f, 0, 0x1p-65f, 0);
        check_odds(level, 0x1p60f, 0x1p-149f, 0, 0x1p-65f, 0);
        /* The upper end: nothing is rounded up to infinity. */
        check_odds(level, 0x1p126f, 0x1.4p126f, 0x1p126f, 0x1p127f, 0.25);
        check_odds(level, 0, 0x1.4p127f, 0x1p127f, INFINITY, 0);
        check_odds(level, 0x1.fffffep127f, 0x1.4p1f, 0x1p1f, 0x1p2f, 0.25);
        check_odds(level, 0x1.fffffep127f, 0x1.4p0f, 0, 0x1p1f, 0.625);
    }
}

/* A window that no encoder writes means a bucket with a NaN. */
static void foreign_windows(void **state) {
    gw_codec c;
    for (int level = 0; level < GW_SIMD_LEVELS && open_at(&c, "natural:bucket=64", level);
         level++) {
        for (int window = 0; window < 256; window++) {
            unsigned char wire[130 + 3];
            float y[130];
            memset(wire, 0x7f, 130);
            wire[130] = wire[132] = 0;
            wire[131] = (unsigned char)window;
            for (int add = 0; add < 2; add++) {
                memset(y, 0, sizeof y);
                assert_int_equal(gw_codec_decode(&c, wire, sizeof wire, y, 130, (gw_into)add),
                                 GW_OK);
                for (int i = 0; i < 130; i++) {
                    float want = i / 64 != 1 ? 1 : window > 127 ? NAN : ldexpf(1, window);
                    assert_true(isnan(want) ? isnan(y[i]) : y[i] == want);
                }
            }
        }
        gw_codec_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odds_over_the_range),
        cmocka_unit_test(foreign_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
