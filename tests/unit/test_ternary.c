/* ternary: each byte of five trits, where each element lies, and the odds of its three values. */
#include "codec_cases.h"

#include <math.h>

static int digit(unsigned byte, int run) {
    static const unsigned power[] = {81, 27, 9, 3, 1};
    return (int)(byte / power[run] % 3) - 1;
}

/* Full and short buckets: all possible bytes, compared with plain arithmetic. */
static void every_byte(void **state) {
    enum { RUN = 256, N = 5 * RUN };
    for (int level = 0; level < GW_SIMD_LEVELS; level++)
        for (int full = 0; full < 2; full++) {
            gw_codec c;
            if (!open_at(&c, full ? "ternary:bucket=1280" : "ternary:bucket=1600", level))
                break;
            unsigned char wire[RUN + 4];
            float y[N];
            for (int j = 0; j < RUN; j++)
                wire[j] = (unsigned char)(j % 243);
            memcpy(wire + RUN, &(uint32_t){gw_le32(0x40400000)}, 4); /* 3 */
            for (int add = 0; add < 2; add++) {
                for (int i = 0; i < N; i++)
                    y[i] = (float)i;
                assert_int_equal(gw_codec_decode(&c, wire, sizeof wire, y, N, (gw_into)add), GW_OK);
                for (int i = 0; i < N; i++)
                    assert_true(y[i] == (float)(3 * digit(wire[i % RUN], i / RUN) + (add ? i : 0)));
            }
            for (int bad = 243; bad < 256; bad++) {
                wire[77] = (unsigned char)bad;
                assert_int_equal(gw_codec_decode(&c, wire, sizeof wire, y, N, GW_INTO_SET),
                                 GW_ERR_CORRUPT);
            }
            gw_codec_close(&c);
        }
}

/* Without random rounding: the largest magnitudes and zeros, of any length, come back unchanged and
 * lie where ternary.c says. */
static void layout(void **state) {
    enum { MOST = 1500, BUCKET = 640 };
    gw_codec c;
    for (int level = 0; level < GW_SIMD_LEVELS && open_at(&c, "ternary", level); level++) {
        for (size_t n = 1; n <= MOST; n += n < 660 ? 1 : 97) {
            float x[MOST], y[MOST];
            size_t len;
            for (size_t i = 0; i < n; i++) {
                uint64_t pick = gw_rng_u64(n, i) % 3;
                x[i] = pick == 0 || i % BUCKET == 0 ? -2.5f : pick == 1 ? 2.5f : 0;
            }
            unsigned char *wire = encoded(&c, n, x, n, &len);
            assert_int_equal(gw_codec_decode(&c, wire, len, y, n, GW_INTO_SET), GW_OK);
            assert_memory_equal(x, y, n * sizeof *x);
            for (size_t i = 0; i < n; i++) {
                size_t lo = i / BUCKET * BUCKET, size = n - lo < BUCKET ? n - lo : BUCKET;
                size_t run = (size + 4) / 5, at = i - lo;
                int code = digit(wire[lo / 5 + at % run], (int)(at / run));
                assert_true((float)code * 2.5f == x[i]);
            }
            free(wire);
        }
        gw_codec_close(&c);
    }
}

static void odds(void **state) {
    enum { N = 640, KEYS = 200 };
    static const float odds_of[] = {0.5f, 0.25f, 0.9f, 0.01f, 0x1p-16f, 0x1p-20f};
    gw_codec c = must_open("ternary");
    for (size_t o = 0; o < sizeof odds_of / sizeof *odds_of; o++) {
        float x[N], y[N];
        double count[2] = {0};
        for (int i = 0; i < N; i++)
            x[i] = (i % 2 ? -3 : 3) * (i == 100 ? 1 : odds_of[o]);
        for (uint64_t key = 0; key < KEYS; key++) {
            round_trip(&c, key, x, N, y);
            for (int i = 0; i < N; i++) {
                assert_true(y[i] == 0 || y[i] == (i % 2 ? -3 : 3));
                count[i % 2] += i != 100 && y[i] != 0;
            }
            assert_true(y[100] == 3);
        }
        for (int sign = 0; sign < 2; sign++) {
            double p = (double)odds_of[o], draws = KEYS * (N / 2 - (sign == 0));
            assert_true(fabs(count[sign] - p * draws) <= 5 * sqrt(p * (1 - p) * draws) + 1);
        }
    }
    gw_codec_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte),
        cmocka_unit_test(layout),
        cmocka_unit_test(odds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
