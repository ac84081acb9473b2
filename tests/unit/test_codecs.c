/* What every codec promises, over the whole registry: sizes, memory, errors, bias, bad values. */
#include "codec_cases.h"

#include <math.h>

static const char *plugin; /* its path; only the tests that do not depend on the codec run */

static void each_or_plugin(void (*check)(const char *spec)) {
    if (plugin)
        check(plugin);
    else
        each_spec(check);
}

static void check_sizes(const char *spec) {
    gw_codec c = must_open(spec);
    size_t last = 0;
    for (size_t n = 0; n < 3000; n++) {
        assert_true(gw_codec_bound(&c, n) >= last);
        last = gw_codec_bound(&c, n);
    }
    static float x[4096];
    fill_gradient(3, x, 4096);
    for (size_t i = 0; i < LENGTHS && lengths[i] <= 4096; i++) {
        size_t len, n = lengths[i];
        free(encoded(&c, 1, x, n, &len));
        assert_true(len <= gw_codec_bound(&c, n));
        if (c.caps & GW_CODEC_FIXED)
            assert_int_equal(len, gw_codec_bound(&c, n));
        if (c.caps & GW_CODEC_TIGHT)
            assert_true(10 * len >= 9 * gw_codec_bound(&c, n));
    }
    gw_codec_close(&c);
}

static void sizes(void **state) {
    each_or_plugin(check_sizes);
}

/* Input, wire and output each end (or begin) at a page that traps. */
static void check_guarded(const char *spec) {
    gw_codec c = must_open(spec);
    for (size_t i = 0; i < LENGTHS; i++)
        for (int at_end = 0; at_end < 2; at_end++) {
            size_t n = lengths[i], len = 0, cap = gw_codec_bound(&c, n);
            guarded x = guard(n * sizeof(float), at_end), y = guard(n * sizeof(float), at_end);
            guarded wire = guard(cap, at_end);
            fill_gradient(n, x.p, n);
            assert_int_equal(gw_codec_encode(&c, (gw_turn){5, 1}, x.p, n, wire.p, cap, &len),
                             GW_OK);
            assert_int_equal(gw_codec_decode(&c, wire.p, len, y.p, n, 0), GW_OK);
            float *once = must_alloc(n * sizeof(float)), *sum = y.p;
            memcpy(once, y.p, n * sizeof(float));
            assert_int_equal(gw_codec_decode(&c, wire.p, len, y.p, n, 1), GW_OK);
            for (size_t j = 0; j < n; j++)
                assert_true(sum[j] == once[j] + once[j]);
            if (c.caps & GW_CODEC_SPARSE) {
                assert_int_equal(gw_codec_decode(&c, wire.p, len, y.p, n, -1), GW_OK);
                assert_memory_equal(y.p, once, n * sizeof(float));
            }
            free(once);
            unguard(x);
            unguard(y);
            unguard(wire);
        }
    gw_codec_close(&c);
}

static void guard_pages(void **state) {
    each_or_plugin(check_guarded);
}

static void check_wrong_length(const char *spec) {
    gw_codec c = must_open(spec);
    float x[600], y[600];
    fill_gradient(9, x, 600);
    for (size_t n = 0; n <= 600; n += n ? 37 : 1) {
        size_t len, bound = gw_codec_bound(&c, n);
        unsigned char *wire = encoded(&c, 1, x, n, &len);
        unsigned char *longer = must_alloc(bound + 16);
        memcpy(longer, wire, len);
        guarded g = guard(bound + 16, 1);
        for (size_t wrong = 0; wrong < bound + 16; wrong++) {
            unsigned char *in = (unsigned char *)g.p + bound + 16 - wrong; /* ends at the trap */
            memcpy(in, longer, wrong);
            gw_err e = gw_codec_decode(&c, in, wrong, y, n, 0);
            if (wrong > bound || (c.caps & GW_CODEC_FIXED && wrong != len))
                assert_int_equal(e, GW_ERR_CORRUPT);
        }
        unguard(g);
        free(wire);
        free(longer);
    }
    gw_codec_close(&c);
}

static void wrong_length_is_corrupt(void **state) {
    each_or_plugin(check_wrong_length);
}

/* Any bytes, and encodings of which up to three were changed: refused, or decoded in their span. */
static void check_garbage(const char *spec) {
    enum { MOST = 1200, TIMES = 10000 };
    gw_codec c = must_open(spec);
    size_t most = gw_codec_bound(&c, MOST);
    guarded y = guard(MOST * sizeof(float), 1), wire = guard(most, 1);
    unsigned char *end = (unsigned char *)wire.p + most, *bytes = must_alloc(most);
    float x[MOST];
    fill_gradient(7, x, MOST);
    for (size_t i = 0; i < MOST; i++)
        ((float *)y.p)[i] = 1;
    for (uint64_t t = 0; t < TIMES; t++) {
        size_t n = gw_rng_u64(1, t) % (MOST + 1), len = gw_codec_bound(&c, n);
        uint64_t changes = t / 2 % 4;
        if (t % 2)
            for (size_t i = 0; i < len; i++)
                bytes[i] = (unsigned char)(gw_rng_u64(t, i / 8) >> (i % 8 * 8));
        else
            assert_int_equal(gw_codec_encode(&c, (gw_turn){t, 1}, x, n, bytes, len, &len), GW_OK);
        for (uint64_t i = 0; i < changes && len > 0; i++) {
            uint64_t u = gw_rng_u64(t + TIMES, i);
            bytes[u % len] = u >> 62 ? (unsigned char)(u >> 32) : 255;
        }
        memcpy(end - len, bytes, len);
        float *out = (float *)y.p + MOST - n;
        gw_err e = gw_codec_decode(&c, end - len, len, out, n, (gw_into)(t / 8 % 2));
        assert_true(e == GW_OK || (e == GW_ERR_CORRUPT && (t % 2 || changes)));
    }
    free(bytes);
    unguard(y);
    unguard(wire);
    gw_codec_close(&c);
}

static void garbage_is_harmless(void **state) {
    each_or_plugin(check_garbage);
}

/* |mean over K keys - x|^2 must be what the variance of K draws explains, within 10% and within
 * five of its standard deviations; with this N, the latter is smaller for nearly every codec. */
static void check_unbiased(const char *spec) {
    enum { N = 1 << 14, K = 400 };
    gw_codec c = must_open(spec);
    static float x[N], y[N];
    static double sum[N], square[N];
    size_t n = c.caps & GW_CODEC_LOSSLESS ? N / 4 : N; /* which take longest, and err nowhere */
    memset(sum, 0, sizeof sum);
    memset(square, 0, sizeof square);
    fill_gradient(17, x, n);
    for (int k = 0; k < K && c.caps & GW_CODEC_UNBIASED; k++) {
        round_trip(&c, gw_rng_key(99, (uint64_t)k), x, n, y);
        for (size_t i = 0; i < n; i++) {
            double d = (double)y[i] - x[i];
            sum[i] += d;
            square[i] += d * d;
        }
    }
    double bias = 0, expected = 0, spread = 0;
    for (size_t i = 0; i < n; i++) {
        double mean = sum[i] / K, variance = (square[i] / K - mean * mean) * K / (K - 1);
        bias += mean * mean;
        expected += variance / K;
        spread += 2 * (variance / K) * (variance / K);
    }
    if (c.caps & GW_CODEC_LOSSLESS)
        assert_true(bias == 0);
    else if (c.caps & GW_CODEC_UNBIASED &&
             fabs(bias - expected) > fmin(0.1 * expected, 5 * sqrt(spread)))
        fail_msg("%s: squared bias is %.3f of what chance gives", spec, bias / expected);
    gw_codec_close(&c);
}

static void unbiased(void **state) {
    each_or_plugin(check_unbiased);
}

static double largest(const float *x, size_t n) {
    double top = 0;
    for (size_t j = 0; j < n; j++)
        top = fmax(top, fabs((double)x[j]));
    return top;
}

static double peak_of_bucket(const gw_codec *c, const float *x, size_t n, size_t i) {
    size_t width = bucket_of(c), lo = i / width * width, hi = lo + width < n ? lo + width : n;
    float top = 0;
    for (size_t j = lo; j < hi; j++)
        top = fmaxf(top, fabsf(x[j]));
    return (double)top;
}

static double norm_of_bucket(const gw_codec *c, const float *x, size_t n, size_t i) {
    size_t width = bucket_of(c), lo = i / width * width, hi = lo + width < n ? lo + width : n;
    double sum = 0;
    for (size_t j = lo; j < hi; j++)
        sum += (double)x[j] * x[j];
    return sqrt(sum);
}

/* One bit cannot tell a zero from its neighbours: with onebit, only buckets of zeros stay zero. */
static int keeps_zeros(const gw_codec *c) {
    return strcmp(c->ops->head.name, "onebit") != 0;
}

/* The largest error that is allowed for element i of x. */
static double error_bound(const gw_codec *c, const float *x, size_t n, size_t i) {
    const char *name = c->ops->head.name;
    if (strcmp(name, "fp16") == 0)
        return fmax(fabs(x[i]) * 0x1p-11, 0x1p-25);
    if (strcmp(name, "bf16") == 0)
        return fabs(x[i]) * 0x1p-8;
    if (strcmp(name, "qsgd") == 0 || strcmp(name, "int8sum") == 0) {
        int bits = *name == 'q' ? (int)gw_args_int(c->args, "bits") : 8;
        double step = peak_of_bucket(c, x, n, i) / ((1 << (bits - 1)) - 1);
        return c->caps & GW_CODEC_BIASED ? step / 2 * (1 + 1e-4) : step * (1 + 1e-6);
    }
    if (strcmp(name, "thc") == 0) /* of all elements of a bucket together, so of each */
        return 2 * norm_of_bucket(c, x, n, i);
    if (strcmp(name, "natural") == 0)
        return fabs(x[i]);              /* the distance of the powers of two around it */
    if (strcmp(name, "chunktopk") == 0) /* the mean of a bin lies among all values */
        return 2 * largest(x, n);
    if (strcmp(name, "e3m0") == 0) /* the distance of the powers of two around it, or the least */
        return fmax(fabs(x[i]), peak_of_bucket(c, x, n, i) * 0x1p-6);
    if (strcmp(name, "ternary") == 0 || strcmp(name, "onebit") == 0)
        return peak_of_bucket(c, x, n, i);
    if (c->caps & GW_CODEC_SPARSE)
        return fabs(x[i]); /* dropped */
    return c->caps & GW_CODEC_LOSSLESS ? 0 : INFINITY;
}

static void check_errors(const char *spec) {
    enum { N = 1500 };
    static const float scales[] = {1, 1e-20f, 1e20f, 3e38f};
    gw_codec c = must_open(spec);
    float x[N], y[N];
    for (int s = 0; s < 4; s++) {
        if (strcmp(c.ops->head.name, "fp16") == 0 && scales[s] > 1)
            continue; /* beyond its range: see overflow_is_visible */
        fill_gradient(23, x, N);
        for (int i = 0; i < N; i++)
            x[i] *= scales[s];
        round_trip(&c, 4, x, N, y);
        for (size_t i = 0; i < N; i++) {
            double off = fabs((double)y[i] - x[i]);
            if (!(off <= error_bound(&c, x, N, i)))
                fail_msg("%s: x[%zu] = %g decodes to %g", spec, i, x[i], y[i]);
            if (x[i] == 0 && is_described(&c) && keeps_zeros(&c))
                assert_true(y[i] == 0);
        }
    }
    gw_codec_close(&c);
}

static void error_bounds_and_zeros(void **state) {
    each_spec(check_errors);
}

/* The largest result allowed for a magnitude near the smallest: random rounding may double it and
 * knows no denormals. */
static float most_of_tiny(const gw_codec *c, float x) {
    return strcmp(c->ops->head.name, "natural") == 0 ? fmaxf(2 * x, 0x1p-126f) : x * 1.05f;
}

/* Zero, denormal and smallest buckets: no 0/0, no infinity. */
static void check_tiny(const char *spec) {
    enum { N = 700 };
    static const float values[] = {0.0f, -0.0f, 1e-45f, -1e-39f, 1.2e-38f, 1e-31f, -1e-30f};
    gw_codec c = must_open(spec);
    for (size_t v = 0; v < sizeof values / sizeof *values && is_described(&c); v++) {
        float x[N], y[N];
        for (int i = 0; i < N; i++)
            x[i] = i % 3 ? values[v] : 0;
        round_trip(&c, 8, x, N, y);
        for (int i = 0; i < N; i++)
            assert_true(fabsf(y[i]) <= most_of_tiny(&c, fabsf(values[v])) &&
                        (x[i] != 0 || y[i] == 0));
    }
    gw_codec_close(&c);
}

static void tiny_buckets(void **state) {
    each_spec(check_tiny);
}

/* The end of the range: a scale or a product with one must not round to infinity. The formats of
 * the halves have no such floats. */
static void check_largest(const char *spec) {
    gw_codec c = must_open(spec);
    const char *name = c.ops->head.name;
    bool half = strcmp(name, "fp16") == 0 || strcmp(name, "bf16") == 0;
    bool scaled = strcmp(name, "qsgd") == 0 || strcmp(name, "int8sum") == 0 ||
                  strcmp(name, "ternary") == 0 || c.caps & GW_CODEC_LOSSLESS;
    float x[3] = {0x1.fffffep127f, -0x1.fffffep127f, 1}, y[3];
    for (uint64_t key = 0; key < 1000 && !half; key++) {
        round_trip(&c, key, x, 3, y);
        assert_true(isfinite(y[0]) && isfinite(y[1]) && isfinite(y[2]));
        assert_true(!scaled || (y[0] >= 0x1.fffff0p127f && y[1] == -y[0]));
    }
    gw_codec_close(&c);
}

static void largest_float_stays_finite(void **state) {
    each_spec(check_largest);
}

/* A threshold has the unit of the gradient and scales with it; nothing else does. */
static gw_codec must_open_scaled(const gw_codec *c, const char *spec, int k) {
    if (strcmp(c->ops->head.name, "threshold") != 0)
        return must_open(spec);
    char scaled[64];
    snprintf(scaled, sizeof scaled, "threshold:value=%.17g",
             ldexp(gw_args_real(c->args, "value"), k));
    return must_open(scaled);
}

/* Q(2^k x) = 2^k Q(x) exactly, with the same key. */
static void check_scaling(const char *spec) {
    enum { N = 1300 };
    gw_codec c = must_open(spec);
    float x[N], y[N], scaled[N], z[N];
    fill_gradient(31, x, N);
    round_trip(&c, 6, x, N, y);
    for (int k = -66; k <= 66; k += 11) {
        if (strcmp(c.ops->head.name, "fp16") == 0)
            break; /* its range is too short */
        for (int i = 0; i < N; i++)
            scaled[i] = ldexpf(x[i], k);
        gw_codec q = must_open_scaled(&c, spec, k);
        round_trip(&q, 6, scaled, N, z);
        for (int i = 0; i < N; i++)
            assert_true(z[i] == ldexpf(y[i], k));
        gw_codec_close(&q);
    }
    gw_codec_close(&c);
}

static void powers_of_two_commute(void **state) {
    each_spec(check_scaling);
}

/* x and -x round alike: exactly if rounding is not random, else in the mean. */
static void check_sign(const char *spec) {
    enum { N = 512, K = 300 };
    gw_codec c = must_open(spec);
    float x[N], minus[N], y[N], z[N];
    fill_gradient(37, x, N);
    for (int i = 0; i < N; i++)
        minus[i] = -x[i];
    double sum = 0, square = 0;
    for (uint64_t k = 0; k < K; k++) {
        round_trip(&c, k, x, N, y);
        round_trip(&c, k + K, minus, N, z);
        double d = 0;
        for (int i = 0; i < N; i++)
            d += (double)fabsf(y[i]) - (double)fabsf(z[i]);
        sum += d;
        square += d * d;
    }
    assert_true(fabs(sum) <= 5 * sqrt(square));
    gw_codec_close(&c);
}

static void signs_are_symmetric(void **state) {
    each_spec(check_sign);
}

/* A codec that draws places sees only those elements in a turn. */
static int looks_at(const gw_codec *c, uint64_t key, size_t n, size_t at) {
    enum { MOST = 2500 };
    static float x[MOST], y[MOST];
    unsigned drawn = GW_CODEC_SPARSE | GW_CODEC_SHARED;
    if ((c->caps & drawn) != drawn)
        return 1;
    for (size_t i = 0; i < n; i++)
        x[i] = 1;
    round_trip(c, key, x, n, y);
    return y[at] != 0;
}

/* A NaN or infinity shows where it is sent, and does not change other buckets; in a sparse encoding
 * it may replace one other element. */
static void check_poison(const char *spec) {
    enum { N = 2500 };
    static const size_t places[] = {0, 1, 511, 512, 700, 2049, N - 1};
    gw_codec c = must_open(spec);
    size_t width = bucket_of(&c);
    float x[N], clean[N], y[N];
    fill_gradient(41, x, N);
    round_trip(&c, 2, x, N, clean);
    for (size_t p = 0; p < sizeof places / sizeof *places && is_described(&c); p++)
        for (int kind = 0; kind < 3; kind++) {
            size_t at = places[p];
            int seen = looks_at(&c, 2, N, at);
            float kept = x[at];
            x[at] = kind == 0 ? NAN : kind == 1 ? INFINITY : -INFINITY;
            round_trip(&c, 2, x, N, y);
            size_t places_taken = c.caps & GW_CODEC_SPARSE ? 1 : 0;
            for (size_t i = 0; i < N; i++) {
                if (i / width != at / width && places_taken && y[i] == 0 && clean[i] != 0)
                    places_taken--;
                else if (i / width != at / width || !seen)
                    assert_memory_equal(&y[i], &clean[i], sizeof(float));
                else if (kind == 0 || width > 1)
                    assert_true(isnan(y[i]));
                else
                    assert_true(y[i] == x[at]);
            }
            x[at] = kept;
        }
    gw_codec_close(&c);
}

static void bad_values_poison_their_bucket(void **state) {
    each_spec(check_poison);
}

static void overflow_is_visible(void **state) {
    gw_codec c = must_open("fp16");
    float x[4] = {65519, 65520, -1e6f, 0x1p-25f}, y[4];
    round_trip(&c, 0, x, 4, y);
    assert_true(y[0] == 65504 && y[1] == INFINITY && y[2] == -INFINITY && y[3] == 0);
    gw_codec_close(&c);
}

static void bad_options(void **state) {
    static const char *const specs[] = {
        "int8sum:bucket=70",
        "qsgd:bits=9",
        "qsgd:bits=1",
        "qsgd:bits=4.5",
        "qsgd:bucket=100",
        "qsgd:bucket=0",
        "qsgd:bucket=1073741888", /* one step beyond the most */
        "qsgd:rounding=up",
        "fp16:bits=8",
        "qsdg",
        "qsgd:bits",
        "topk:ratio=0",
        "topk:ratio=1.01",
        "topk:warmup=-1",
        "randomk:ratio=2",
        "threshold:value=-1",
        "threshold:value=inf",
        "natural:bucket=100",
        "ternary:bucket=512",
        "onebit:bucket=1",
        "e3m0:bucket=100",
        "chunktopk:chunk=1000",
        "chunktopk:k=65,chunk=64",
        "chunktopk:bits=5",
        "adaptive:bucket=100",
        "adaptive:bits=9",
        "thc:bucket=65",
        "thc:bucket=96",
        "thc:bucket=32768",
        "thc:granularity=31",
        "thc:granularity=14",
        "thc:bits=8",
        "thc:truncate=0",
    };
    gw_codec c;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        assert_int_equal(open_codec(&c, specs[i]), GW_ERR_USAGE);
    setenv("GW_SIMD", "avx1024", 1);
    assert_int_equal(open_codec(&c, "bf16"), GW_ERR_USAGE);
    unsetenv("GW_SIMD");
}

/* Argument: a plugin's path [the registry]. */
int main(int argc, char **argv) {
    const struct CMUnitTest any[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(guard_pages),
        cmocka_unit_test(wrong_length_is_corrupt),
        cmocka_unit_test(garbage_is_harmless),
        cmocka_unit_test(unbiased),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_bounds_and_zeros),
        cmocka_unit_test(tiny_buckets),
        cmocka_unit_test(largest_float_stays_finite),
        cmocka_unit_test(powers_of_two_commute),
        cmocka_unit_test(signs_are_symmetric),
        cmocka_unit_test(bad_values_poison_their_bucket),
        cmocka_unit_test(overflow_is_visible),
        cmocka_unit_test(bad_options),
    };
    plugin = argc > 1 ? argv[1] : NULL;
    int failed = cmocka_run_group_tests(any, NULL, NULL);
    return failed || plugin ? failed : cmocka_run_group_tests(tests, NULL, NULL);
}
