/* topk by itself: exactly which elements it keeps, in how many bytes, and what it refuses. */
#include "codec_cases.h"

#include <math.h>

enum { HEADER = 4, VALUE = 4 };

static gw_codec open_topk(double ratio, int level) {
    char spec[64];
    gw_codec c = {0};
    snprintf(spec, sizeof spec, "topk:ratio=%.17g", ratio);
    open_at(&c, spec, level);
    return c;
}

static uint32_t magnitude(float x) {
    return gw_float_bits(x) & 0x7fffffff;
}

/* ---- which elements ---- */

/* Larger first, then lower index first. */
static const float *by_x;
static int by_rank(const void *a, const void *b) {
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    uint32_t p = magnitude(by_x[i]), q = magnitude(by_x[j]);
    return p != q ? (p < q) - (p > q) : (i > j) - (i < j);
}

/* What must come back, by sorting. */
static void reference(const float *x, size_t n, size_t k, float *y) {
    size_t *order = must_alloc(n * sizeof *order);
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    by_x = x;
    qsort(order, n, sizeof *order, by_rank);
    memset(y, 0, n * sizeof *y);
    for (size_t i = 0; i < k; i++)
        y[order[i]] = x[order[i]];
    free(order);
}

enum { SHAPES = 10 };

/* Spans for which a guess from a sample is wrong, with few values, or unusual ones. */
static void fill_shape(int shape, float *x, size_t n) {
    fill_gradient((uint64_t)shape + 1, x, n);
    for (size_t i = 0; i < n; i++)
        switch (shape) {
        case 1: x[i] = -1; break;
        case 2: x[i] = (float)i; break;
        case 3: x[i] = -(float)(n - i); break;
        case 4: x[i] = 0; break;
        case 5: x[i] = i % 1000 == 77 ? x[i] : -0.0f; break;
        case 6: x[i] = (float)((int)(gw_rng_u64(6, i) % 5) - 2); break;
        case 7: x[i] = i < n - n / 150 ? x[i] : 1e6f * x[i]; break; /* all at the end */
        case 8: /* any bits, including NaN, infinities of both signs and denormals */
            x[i] = gw_float_of((uint32_t)gw_rng_u64(8, i));
            break;
        case 9: x[i] = i % 64 < 3 ? 1e3f * x[i] : x[i]; break;
        default: break;
        }
}

static void check_exact(double ratio, size_t n) {
    float *x = must_alloc(n * sizeof *x), *y = must_alloc(n * sizeof *y);
    float *want = must_alloc(n * sizeof *want);
    for (int shape = 0; shape < SHAPES; shape++) {
        fill_shape(shape, x, n);
        size_t k = (size_t)(ratio * (double)n + 0.5);
        k = k == 0 ? 1 : k;
        reference(x, n, k, want);
        for (int level = 0; level < GW_SIMD_LEVELS; level++) {
            gw_codec c = open_topk(ratio, level);
            if (!c.ops)
                break;
            for (size_t i = 0; i < n; i++)
                y[i] = NAN; /* decoding without add must overwrite all of it */
            round_trip(&c, 0, x, n, y);
            if (memcmp(y, want, n * sizeof *y) != 0)
                fail_msg("ratio %g, %zu floats, shape %d, level %d: others are kept", ratio, n,
                         shape, level);
            gw_codec_close(&c);
        }
    }
    free(x), free(y), free(want);
}

static void keeps_the_largest(void **state) {
    static const double ratios[] = {1e-5, 0.001, 0.01, 0.1, 0.5, 1};
    static const size_t counts[] = {1, 2, 63, 64, 65, 129, 1000, 4095, 4097, 10000, 100003};
    for (size_t r = 0; r < sizeof ratios / sizeof *ratios; r++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            check_exact(ratios[r], counts[i]);
    check_exact(0.01, 1 << 20);
}

static void lowest_indices_win_ties(void **state) {
    enum { N = 50000, K = 500 };
    float *x = must_alloc(N * sizeof *x), *y = must_alloc(N * sizeof *y);
    for (size_t i = 0; i < N; i++)
        x[i] = i % 2 ? -0.5f : 0.5f;
    gw_codec c = must_open("topk:ratio=0.01");
    round_trip(&c, 0, x, N, y);
    for (size_t i = 0; i < N; i++)
        assert_true(y[i] == (i < K ? x[i] : 0));
    gw_codec_close(&c);
    free(x), free(y);
}

static void bad_values_come_first(void **state) {
    float x[100] = {0}, y[100];
    for (int i = 0; i < 100; i++)
        x[i] = 3e38f;
    x[50] = INFINITY, x[90] = -NAN;
    gw_codec c = must_open("topk:ratio=0.01");
    round_trip(&c, 0, x, 100, y);
    assert_true(isnan(y[90]) && y[50] == 0);
    gw_codec_close(&c);
    c = must_open("topk:ratio=0.02");
    round_trip(&c, 0, x, 100, y);
    assert_true(isnan(y[90]) && y[50] == INFINITY && y[0] == 0);
    gw_codec_close(&c);
}

static void minus_x_gives_minus_y(void **state) {
    enum { N = 30000, K = 300 };
    float *x = must_alloc(N * sizeof *x);
    size_t len, same;
    fill_gradient(11, x, N);
    gw_codec c = must_open("topk");
    unsigned char *a = encoded(&c, 0, x, N, &len);
    for (size_t i = 0; i < N; i++)
        x[i] = -x[i];
    unsigned char *b = encoded(&c, 0, x, N, &same);
    assert_int_equal(len, same);
    for (size_t i = 0; i < len; i++) {
        size_t values = len - K * VALUE;
        int sign = i >= values && (i - values) % VALUE == 3 ? 0x80 : 0;
        assert_int_equal(a[i] ^ sign, b[i]);
    }
    free(a), free(b), free(x);
    gw_codec_close(&c);
}

/* Concurrent calls share no scratch. */
static void encodes_at_the_same_time(void **state) {
    enum { N = 40000, TIMES = 200 };
    float *x = must_alloc(N * sizeof *x);
    size_t len;
    int bad = 0;
    fill_gradient(13, x, N);
    gw_codec c = must_open("topk");
    unsigned char *want = encoded(&c, 0, x, N, &len);
#pragma omp parallel for num_threads(4) reduction(+ : bad)
    for (int t = 0; t < TIMES; t++) {
        size_t n = t % 2 ? N : N / 2, cap = gw_codec_bound(&c, N), got = 0;
        unsigned char *wire = malloc(cap);
        bad += gw_codec_encode(&c, (gw_turn){0, 1}, x, n, wire, cap, &got) != GW_OK;
        bad += n == N && (got != len || memcmp(wire, want, len) != 0);
        free(wire);
    }
    assert_int_equal(bad, 0);
    free(want), free(x);
    gw_codec_close(&c);
}

/* ---- how many bytes ---- */

static void counts_round_half_up(void **state) {
    static const struct {
        double ratio;
        size_t n, k;
    } cases[] = {{0.01, 1, 1},      {0.01, 149, 1}, {0.01, 150, 2}, {0.01, 235146, 2351},
                 {0.25, 1000, 250}, {0.25, 2, 1},   {0.25, 6, 2},   {1, 1000, 1000},
                 {1e-9, 1000, 1},   {0.5, 3, 2}};
    static float x[235146];
    fill_gradient(3, x, 235146);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_codec c = open_topk(cases[i].ratio, 0);
        size_t len;
        unsigned char *wire = encoded(&c, 0, x, cases[i].n, &len);
        assert_int_equal(wire[0] | wire[1] << 8 | wire[2] << 16, cases[i].k);
        assert_int_equal(gw_codec_bound(&c, cases[i].n),
                         HEADER + 5 * cases[i].k + (cases[i].n - cases[i].k) / 255);
        free(wire);
        gw_codec_close(&c);
    }
}

/* All dropped elements in one gap: the bound is reached to the byte. */
static void bound_is_reached(void **state) {
    enum { N = 20000 };
    static float x[N];
    for (size_t i = 0; i < N; i++)
        x[i] = (float)i;
    static const double ratios[] = {0.001, 0.01, 0.5, 1};
    for (size_t r = 0; r < 4; r++) {
        gw_codec c = open_topk(ratios[r], 0);
        for (size_t n = 1; n < N; n = n * 3 / 2 + 1) {
            size_t len;
            free(encoded(&c, 0, x, n, &len));
            assert_int_equal(len, gw_codec_bound(&c, n));
        }
        gw_codec_close(&c);
    }
}

static void bits_an_element(void **state) {
    enum { N = 1000000 };
    float *x = must_alloc(N * sizeof *x);
    fill_gradient(29, x, N);
    gw_codec c = must_open("topk:ratio=0.01");
    size_t len;
    free(encoded(&c, 0, x, N, &len));
    assert_true(8.0 * (double)len / N > 0.4 && 8.0 * (double)len / N <= 0.432);
    gw_codec_close(&c);
    free(x);
}

/* ---- what it refuses ---- */

static void refuse(const gw_codec *c, const unsigned char *wire, size_t len, size_t n, int add) {
    guarded in = guard(len, 1), out = guard(n * sizeof(float), 1);
    float *y = out.p;
    memcpy(in.p, wire, len);
    for (size_t i = 0; i < n; i++)
        y[i] = 7;
    assert_int_equal(gw_codec_decode(c, in.p, len, y, n, add), GW_ERR_CORRUPT);
    for (size_t i = 0; i < n; i++)
        assert_true(y[i] == 7);
    unguard(in);
    unguard(out);
}

static void corrupt_encodings(void **state) {
    enum { N = 3000, K = 30 };
    float x[N];
    fill_gradient(5, x, N);
    x[N - 1] = 9; /* the last element is kept: a larger gap leads outside */
    gw_codec c = must_open("topk");
    size_t len;
    unsigned char *wire = encoded(&c, 0, x, N, &len), bad[1024];
    for (int add = 0; add < 2; add++) {
        for (size_t cut = 0; cut < len; cut++)
            refuse(&c, wire, cut, N, add);
        for (size_t more = 1; len + more <= gw_codec_bound(&c, N); more++) {
            memcpy(bad, wire, len);
            memset(bad + len, more % 2 ? 255 : 0, more);
            refuse(&c, bad, len + more, N, add);
        }
        for (unsigned count = 0; count < 256; count++)
            for (int byte = 0; byte < HEADER; byte++) {
                memcpy(bad, wire, len);
                bad[byte] = (unsigned char)count;
                if (bad[byte] != wire[byte])
                    refuse(&c, bad, len, N, add);
            }
        for (size_t i = HEADER; i < len - K * VALUE; i++) {
            memcpy(bad, wire, len);
            if (bad[i] == 255)
                continue;
            bad[i]++; /* one element too far, or a gap without an end */
            refuse(&c, bad, len, N, add);
        }
    }
    free(wire);
    gw_codec_close(&c);
}

/* Encodings with a few bytes changed: refused, or decoded within their span. */
static void damaged_encodings_stay_inside(void **state) {
    enum { N = 5000, TIMES = 20000 };
    float x[N];
    fill_gradient(7, x, N);
    gw_codec c = must_open("topk");
    size_t len, decoded = 0;
    unsigned char *wire = encoded(&c, 0, x, N, &len);
    guarded in = guard(len, 1), out = guard(N * sizeof(float), 1);
    for (uint64_t t = 0; t < TIMES; t++) {
        memcpy(in.p, wire, len);
        for (uint64_t j = 0; j < 1 + t % 4; j++) {
            uint64_t u = gw_rng_u64(t, j);
            ((unsigned char *)in.p)[u % len] = u >> 62 ? (unsigned char)(u >> 32) : 255;
        }
        gw_err e = gw_codec_decode(&c, in.p, len, out.p, N, (int)(t & 1));
        assert_true(e == GW_OK || e == GW_ERR_CORRUPT);
        decoded += e == GW_OK;
    }
    assert_true(decoded > TIMES / 10 && decoded < TIMES);
    unguard(in);
    unguard(out);
    free(wire);
    gw_codec_close(&c);
}

static void a_span_of_none_has_no_bytes(void **state) {
    gw_codec c = must_open("topk");
    unsigned char byte[1] = {0};
    float y[1];
    assert_int_equal(gw_codec_bound(&c, 0), 0);
    assert_int_equal(gw_codec_decode(&c, byte, 0, y, 0, 0), GW_OK);
    assert_int_equal(gw_codec_decode(&c, byte, 1, y, 0, 0), GW_ERR_CORRUPT);
    gw_codec_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_largest),
        cmocka_unit_test(lowest_indices_win_ties),
        cmocka_unit_test(bad_values_come_first),
        cmocka_unit_test(minus_x_gives_minus_y),
        cmocka_unit_test(encodes_at_the_same_time),
        cmocka_unit_test(counts_round_half_up),
        cmocka_unit_test(bound_is_reached),
        cmocka_unit_test(bits_an_element),
        cmocka_unit_test(corrupt_encodings),
        cmocka_unit_test(damaged_encodings_stay_inside),
        cmocka_unit_test(a_span_of_none_has_no_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
