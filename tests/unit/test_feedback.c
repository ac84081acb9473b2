/* Error feedback, over the whole registry: nothing is lost, and a fused kernel does what the three
 * passes do, bit for bit, at each level and on any number of threads. */
#include "codec_cases.h"

#include "compress/feedback.h"

#include <math.h>
#include <omp.h>

static const char *const level_names[] = {"portable", "avx2", "avx512"};

/* v = x + e; wire = encode(v); e = v - decode(wire). */
static size_t reference(const gw_codec *c, uint64_t key, const float *x, float *e, size_t n,
                        unsigned char **wire, float *value) {
    size_t len;
    for (size_t i = 0; i < n; i++)
        e[i] += x[i];
    *wire = encoded(c, key, e, n, &len);
    assert_int_equal(gw_codec_decode(c, *wire, len, value, n, GW_INTO_SET), GW_OK);
    for (size_t i = 0; i < n; i++)
        e[i] -= value[i];
    return len;
}

static void check_passes(const char *spec, int level) {
    gw_codec plain = must_open(spec), c;
    setenv("GW_SIMD", level_names[level], 1);
    gw_err opened = gw_codec_open(&c, spec);
    unsetenv("GW_SIMD");
    for (size_t i = 0; i < LENGTHS && opened == GW_OK; i++) {
        size_t n = lengths[i], cap = gw_codec_bound(&c, n), len = 0;
        float *want = must_alloc(n * sizeof *want), *value = must_alloc(n * sizeof *value);
        unsigned char *bytes;
        for (int at_end = 0; at_end < 2; at_end++) {
            guarded x = guard(n * sizeof(float), at_end), e = guard(n * sizeof(float), at_end);
            guarded wire = guard(cap, at_end);
            fill_gradient(n, x.p, n);
            fill_gradient(n + 100, e.p, n);
            memcpy(want, e.p, n * sizeof *want);
            size_t same = reference(&plain, 5, x.p, want, n, &bytes, value);
            assert_int_equal(
                gw_feedback_encode(&c, (gw_turn){5, 1}, x.p, e.p, n, true, wire.p, cap, &len),
                GW_OK);
            assert_int_equal(len, same);
            assert_memory_equal(wire.p, bytes, len);
            assert_memory_equal(e.p, want, n * sizeof *want);
            assert_memory_equal(x.p, value, n * sizeof *value);
            unguard(x), unguard(e), unguard(wire);
            free(bytes);
        }
        free(want), free(value);
    }
    if (opened == GW_OK)
        gw_codec_close(&c);
    gw_codec_close(&plain);
}

static void check_levels(const char *spec) {
    for (int level = 0; level < GW_SIMD_LEVELS; level++)
        check_passes(spec, level);
}

static void fused_is_the_same_as_three_passes(void **state) {
    (void)state;
    each_spec(check_levels);
}

static void check_threads(const char *spec) {
    enum { N = 300007 };
    gw_codec c = must_open(spec);
    size_t cap = gw_codec_bound(&c, N), len, same;
    float *x = must_alloc(N * sizeof *x), *e[2];
    unsigned char *wire[2];
    for (int t = 0; t < 2; t++) {
        e[t] = must_alloc(N * sizeof *x);
        wire[t] = must_alloc(cap);
        fill_gradient(1, x, N);
        fill_gradient(2, e[t], N);
        omp_set_num_threads(1 + 2 * t);
        assert_int_equal(gw_feedback_encode(&c, (gw_turn){5, 1}, x, e[t], N, false, wire[t], cap,
                                            t ? &same : &len),
                         GW_OK);
    }
    omp_set_num_threads(1);
    assert_int_equal(len, same);
    assert_memory_equal(wire[0], wire[1], len);
    assert_memory_equal(e[0], e[1], N * sizeof *x);
    for (int t = 0; t < 2; t++)
        free(e[t]), free(wire[t]);
    free(x);
    gw_codec_close(&c);
}

static void threads_agree(void **state) {
    (void)state;
    each_spec(check_threads);
}

/* Over many exchanges what was sent and what is left add up to what came in. */
static void check_sum(const char *spec) {
    enum { N = 2000, STEPS = 40 };
    gw_codec c = must_open(spec);
    size_t cap = gw_codec_bound(&c, N), len;
    unsigned char *wire = must_alloc(cap);
    float x[N], e[N] = {0};
    double in[N] = {0}, sent[N] = {0};
    for (uint64_t t = 1; t <= STEPS; t++) {
        fill_gradient(t, x, N);
        for (size_t i = 0; i < N; i++)
            in[i] += x[i];
        assert_int_equal(gw_feedback_encode(&c, (gw_turn){t, t}, x, e, N, true, wire, cap, &len),
                         GW_OK);
        for (size_t i = 0; i < N; i++)
            sent[i] += x[i];
    }
    for (size_t i = 0; i < N; i++)
        if (!(fabs(sent[i] + e[i] - in[i]) <= STEPS * 1e-6))
            fail_msg("%s: of %g came %g, and %g is left", spec, in[i], sent[i], e[i]);
    free(wire);
    gw_codec_close(&c);
}

static void nothing_is_lost(void **state) {
    (void)state;
    each_spec(check_sum);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_is_the_same_as_three_passes),
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
