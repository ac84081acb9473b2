/* onebit: the values of its two numbers, also at the ends of the range. */
#include "codec_cases.h"

#include <math.h>

static float scale_at(const unsigned char *wire, size_t signs, size_t bucket) {
    return gw_float_of(gw_le32(((const gw_u32u *)(const void *)(wire + signs))[bucket]));
}

static void mean_and_signs(void **state) {
    enum { N = 1300, SIGNS = (N + 7) / 8 };
    gw_codec c = must_open("onebit");
    float x[N], y[N];
    size_t len;
    fill_gradient(3, x, N);
    unsigned char *wire = encoded(&c, 0, x, N, &len);
    assert_int_equal(gw_codec_decode(&c, wire, len, y, N, GW_INTO_SET), GW_OK);
    for (size_t b = 0; b < 3; b++) {
        double sum = 0;
        size_t lo = 512 * b, hi = lo + 512 < N ? lo + 512 : N;
        for (size_t i = lo; i < hi; i++)
            sum += fabs((double)x[i]);
        double mean = sum / (double)(hi - lo);
        float m = scale_at(wire, SIGNS, b);
        assert_true(fabs((double)m / mean - 1) < 1e-5);
        for (size_t i = lo; i < hi; i++)
            assert_true(y[i] == (signbit(x[i]) ? -m : m));
    }
    free(wire);
    gw_codec_close(&c);
}

/* The mean of large floats is a float, although their sum is not. */
static void large_means(void **state) {
    enum { N = 512 };
    gw_codec c;
    for (int level = 0; level < GW_SIMD_LEVELS && open_at(&c, "onebit", level); level++) {
        float x[N], y[N];
        for (int i = 0; i < N; i++)
            x[i] = i % 2 ? 0x1.fffffep127f : -0x1.fffffep127f;
        round_trip(&c, 0, x, N, y);
        assert_memory_equal(x, y, sizeof x);
        for (int i = 0; i < N; i++)
            x[i] = i % 2 ? 1e38f : 3e38f;
        round_trip(&c, 0, x, N, y);
        assert_true(fabsf(y[7] / 2e38f - 1) < 1e-6f);
        x[100] = -INFINITY;
        round_trip(&c, 0, x, N, y);
        for (int i = 0; i < N; i++)
            assert_true(isnan(y[i]));
        gw_codec_close(&c);
    }
}

/* A denormal counts as zero in any mode. A mean below 2^-100 becomes zero, one just above
 * does not. */
static void small_means(void **state) {
    gw_codec c = must_open("onebit");
    const struct {
        float x[4], mean;
    } cases[] = {{{0x1p-98f, 0, 0, 0}, 0x1p-100f},
                 {{0x1.fffffep-99f, 0, 0, 0}, 0},
                 {{0, -0.0f, 0, 0}, 0},
                 {{1e-39f, -1e-39f, 1e-45f, 0x1.fffffcp-127f}, 0},
                 {{4, 1e-39f, -1e-45f, 0}, 1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        float y[4];
        round_trip(&c, 0, cases[k].x, 4, y);
        for (int i = 0; i < 4; i++)
            assert_true(fabsf(y[i]) == cases[k].mean);
    }
    gw_codec_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_and_signs),

        cmocka_unit_test(large_means),
        cmocka_unit_test(small_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
