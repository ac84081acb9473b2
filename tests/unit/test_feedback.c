/* Error feedback, over the whole registry: nothing is lost, and a fused kernel does what the three
 * passes do, bit for bit, at each level and on any number of threads. */
#include "codec_cases.h"

#include "compress/feedback.h"

#include <math.h>
#include <omp.h>

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

/* Gradients; floats of one magnitude; zeros; few large ones; any bits at all. */
static void fill_kind(int kind, uint64_t key, float *x, size_t n) {
    fill_gradient(key, x, n);
    for (size_t i = 0; i < n; i++)
        switch (kind) {
        case 1: x[i] = i % 3 ? 0.5f : -0.5f; break;
        case 2: x[i] = 0; break;
        case 3: x[i] = i % 701 ? x[i] * 1e-6f : x[i]; break;
        case 4: x[i] = gw_float_of((uint32_t)gw_rng_u64(key, i)); break;
        default: break;
        }
}
enum { KINDS = 5 };

static void check_pass(const gw_codec *plain, const gw_codec *c, int kind, size_t n, int at_end) {
    size_t cap = gw_codec_bound(c, n), len = 0;
    float *want = must_alloc(n * sizeof *want), *value = must_alloc(n * sizeof *value);
    unsigned char *bytes;
    guarded x = guard(n * sizeof(float), at_end), e = guard(n * sizeof(float), at_end);
    guarded wire = guard(cap, at_end);
    fill_kind(kind, n, x.p, n);
    fill_kind(kind, n + 100, e.p, n);
    memcpy(want, e.p, n * sizeof *want);
    size_t same = reference(plain, 5, x.p, want, n, &bytes, value);
    assert_int_equal(gw_feedback_encode(c, (gw_turn){5, 1}, x.p, e.p, n, true, wire.p, cap, &len),
                     GW_OK);
    assert_int_equal(len, same);
    assert_memory_equal(wire.p, bytes, len);
    assert_same_floats(e.p, want, n);
    assert_same_floats(x.p, value, n);
    unguard(x), unguard(e), unguard(wire);
    free(bytes), free(want), free(value);
}

static void check_passes(const char *spec, int level) {
    gw_codec plain = must_open(spec), c;
    bool opened = open_at(&c, spec, level);
    int kinds = plain.caps & GW_CODEC_SPARSE ? KINDS : 1;
    for (int kind = 0; kind < kinds && opened; kind++)
        for (size_t i = 0; i < LENGTHS; i++)
            for (int at_end = 0; at_end < 2; at_end++)
                check_pass(&plain, &c, kind, lengths[i], at_end);
    if (opened)
        gw_codec_close(&c);
    gw_codec_close(&plain);
}

static void check_levels(const char *spec) {
    for (int level = 0; level < GW_SIMD_LEVELS; level++)
        check_passes(spec, level);
}

static void fused_is_the_same_as_three_passes(void **state) {
    each_spec(check_levels);
}

/* What is odd of x and of e at one place: neither finite, denormal, zero of either sign, huge. */
typedef struct odd {
    float x, e;
} odd;

static const odd odds[] = {
    {NAN, 1},          {1, NAN},
    {INFINITY, 1},     {-INFINITY, INFINITY},
    {1e-39f, -2e-39f}, {-1e-45f, 1e-45f},
    {0.0f, -0.0f},     {-0.0f, -0.0f},
    {3e38f, 0},        {3e38f, 3e38f},
    {-3e38f, 1e37f},   {-3e38f, 3e38f},
    {1e-31f, -1e-32f}, {-1e-38f, 1.3e-38f},
    {1e-20f, -1e20f},  {0x1p-101f, 0x1p-101f},
};

/* One kind at every place, or at some of them among a gradient. */
static void fill_odd_pairs(float *x, float *e, size_t n, odd o, size_t stride) {
    fill_gradient(n, x, n);
    fill_gradient(n + 100, e, n);
    for (size_t i = 0; i < n; i += stride) {
        bool minus = i / stride % 2;
        x[i] = minus ? -o.x : o.x;
        e[i] = minus ? -o.e : o.e;
    }
}

/* A sparse codec clears what it sends, where a subtraction of an infinity would leave a NaN. */
static void check_odd(const char *spec, int level, odd o, size_t stride) {
    gw_codec plain = must_open(spec), c;
    bool opened = open_at(&c, spec, level);
    static const size_t spans[] = {1, 63, 64, 65, 511, 512, 513, 1000, 2049};
    enum { MOST = 2049 };
    for (size_t i = 0; i < sizeof spans / sizeof *spans && opened; i++) {
        size_t n = spans[i], cap = gw_codec_bound(&c, n), len = 0;
        float x[MOST], e[MOST], want[MOST], value[MOST];
        unsigned char *bytes, *wire = must_alloc(cap);
        fill_odd_pairs(x, e, n, o, stride);
        memcpy(want, e, n * sizeof *e);
        size_t same = reference(&plain, 5, x, want, n, &bytes, value);
        gw_turn turn = {5, 1};
        assert_int_equal(gw_codec_encode_feedback(&c, turn, x, e, n, wire, cap, &len), GW_OK);
        assert_int_equal(len, same);
        assert_memory_equal(wire, bytes, len);
        assert_same_floats(e, want, n);
        free(bytes), free(wire);
    }
    if (opened)
        gw_codec_close(&c);
    gw_codec_close(&plain);
}

static void check_all_odd(const char *spec) {
    static const size_t strides[] = {1, 3, 70, 700};
    gw_codec c = must_open(spec);
    bool fused = gw_codec_feeds_back(&c) && !(c.caps & GW_CODEC_SPARSE);
    gw_codec_close(&c);
    for (int level = 0; level < GW_SIMD_LEVELS && fused; level++)
        for (size_t o = 0; o < sizeof odds / sizeof *odds; o++)
            for (size_t s = 0; s < sizeof strides / sizeof *strides; s++)
                check_odd(spec, level, odds[o], strides[s]);
}

static void odd_values_are_the_same_as_well(void **state) {
    each_spec(check_all_odd);
}

/* Last: it leaves the mode on. */
static void and_with_denormals_flushed(void **state) {
    gw_flush_denormals();
    each_spec(check_all_odd);
}

/* Where x was added before, the encoding does the rest and no more. */
static void check_sums(const char *spec) {
    gw_codec c = must_open(spec);
    for (size_t i = 0; i < LENGTHS && c.caps & GW_CODEC_SPARSE; i++) {
        size_t n = lengths[i], cap = gw_codec_bound(&c, n), len[2];
        float *x[2], *e[2];
        unsigned char *wire[2];
        for (int added = 0; added < 2; added++) {
            x[added] = must_alloc(n * sizeof(float)), e[added] = must_alloc(n * sizeof(float));
            wire[added] = must_alloc(cap);
            fill_gradient(n, x[added], n);
            fill_gradient(n + 100, e[added], n);
            for (size_t j = 0; j < n && added; j++) {
                e[added][j] += x[added][j];
                x[added][j] = NAN; /* must not be read */
            }
            assert_int_equal((added ? gw_feedback_encode_sum
                                    : gw_feedback_encode)(&c, (gw_turn){5, 1}, x[added], e[added],
                                                          n, true, wire[added], cap, &len[added]),
                             GW_OK);
        }
        assert_int_equal(len[0], len[1]);
        assert_memory_equal(wire[0], wire[1], len[0]);
        assert_memory_equal(e[0], e[1], n * sizeof(float));
        assert_memory_equal(x[0], x[1], n * sizeof(float));
        for (int added = 0; added < 2; added++)
            free(x[added]), free(e[added]), free(wire[added]);
    }
    gw_codec_close(&c);
}

static void what_was_added_before_is_encoded_alike(void **state) {
    each_spec(check_sums);
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
    each_spec(check_sum);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_is_the_same_as_three_passes),
        cmocka_unit_test(what_was_added_before_is_encoded_alike),
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(odd_values_are_the_same_as_well),
        cmocka_unit_test(and_with_denormals_flushed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
