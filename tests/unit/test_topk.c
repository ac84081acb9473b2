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

/* ---- what it refuses ---- */

static void corrupt_encodings(void **state) {
    enum { N = 3000, K = 30 };
    float x[N];
    fill_gradient(5, x, N);
    x[N - 1] = 9; /* the last element is kept: a larger gap leads outside */
    gw_codec c = must_open("topk");
    size_t len;
    unsigned char *wire = encoded(&c, 0, x, N, &len), bad[1024];
    for (size_t cut = 0; cut < len; cut++)
        refuse(&c, wire, cut, N);
    for (size_t more = 1; len + more <= gw_codec_bound(&c, N); more++) {
        memcpy(bad, wire, len);
        memset(bad + len, more % 2 ? 255 : 0, more);
        refuse(&c, bad, len + more, N);
    }
    for (unsigned count = 0; count < 256; count++)
        for (int byte = 0; byte < HEADER; byte++) {
            memcpy(bad, wire, len);
            bad[byte] = (unsigned char)count;
            if (bad[byte] != wire[byte])
                refuse(&c, bad, len, N);
        }
    for (size_t i = HEADER; i < len - K * VALUE; i++) {
        memcpy(bad, wire, len);
        if (bad[i] == 255)
            continue;
        bad[i]++; /* one element too far, or a gap without an end */
        refuse(&c, bad, len, N);
    }
    free(wire);
    gw_codec_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_largest),
        cmocka_unit_test(encodes_at_the_same_time),
        cmocka_unit_test(bound_is_reached),
        cmocka_unit_test(corrupt_encodings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
