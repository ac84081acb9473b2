/* The bytes themselves: golden vectors, which instruction set, number of threads and denormal mode
 * must not change. */
#include "codec_cases.h"

#include <math.h>
#include <omp.h>
#include <zlib.h>

/* A gradient with every unusual kind of float. */
static void fill_odd(float *x, size_t n) {
    static const float odd[] = {NAN,     INFINITY, -INFINITY, 0x1.fffffep127f, 1e-39f,   -1e-45f,
                                -0.0f,   65519.9f, 65520.0f,  0x1p-24f,        1e-30f,   -3e-8f,
                                6.1e-5f, 1.5e-38f, -2e-31f,   0x1.002p0f,      0x1.01p0f};
    fill_gradient(n + 5, x, n);
    for (size_t i = 0; i + 1 < n; i += 97) /* leaves some buckets clean */
        if (i / 2000 % 2)
            x[i] = odd[i / 97 % (sizeof odd / sizeof *odd)];
}

static void check_levels(const char *spec) {
    gw_codec want, c;
    assert_true(open_at(&want, spec, 0));
    for (int level = 1; level < GW_SIMD_LEVELS && open_at(&c, spec, level); level++) {
        for (size_t i = 0; i < LENGTHS; i++) {
            size_t n = lengths[i], len, same;
            float *x = must_alloc(n * sizeof *x), *y = must_alloc(n * sizeof *y);
            float *z = must_alloc(n * sizeof *z);
            fill_odd(x, n);
            unsigned char *a = encoded(&want, 7, x, n, &len), *b = encoded(&c, 7, x, n, &same);
            assert_int_equal(len, same);
            assert_memory_equal(a, b, len);
            for (int add = 0; add < 2; add++) {
                assert_int_equal(gw_codec_decode(&want, a, len, y, n, add), GW_OK);
                assert_int_equal(gw_codec_decode(&c, a, len, z, n, add), GW_OK);
                assert_same_floats(y, z, n);
            }
            free(x), free(y), free(z), free(a), free(b);
        }
        gw_codec_close(&c);
    }
    gw_codec_close(&want);
}

static void levels_agree(void **state) {
    each_spec(check_levels);
}

static void check_threads(const char *spec) {
    enum { N = 300007 };
    gw_codec c = must_open(spec);
    float *x = must_alloc(N * sizeof *x), *y = must_alloc(N * sizeof *y);
    float *z = must_alloc(N * sizeof *z);
    fill_odd(x, N);
    size_t len, same;
    omp_set_num_threads(1);
    unsigned char *a = encoded(&c, 7, x, N, &len);
    assert_int_equal(gw_codec_decode(&c, a, len, y, N, 0), GW_OK);
    for (int threads = 2; threads <= 4; threads++) {
        omp_set_num_threads(threads);
        unsigned char *b = encoded(&c, 7, x, N, &same);
        assert_int_equal(len, same);
        assert_memory_equal(a, b, len);
        assert_int_equal(gw_codec_decode(&c, a, len, z, N, 0), GW_OK);
        assert_memory_equal(y, z, N * sizeof *y);
        free(b);
    }
    omp_set_num_threads(1);
    free(x), free(y), free(z), free(a);
    gw_codec_close(&c);
}

/* A scale that no encoder writes. Scales follow the codes; those of int8sum precede them. */
static void check_wild_scales(const char *spec) {
    enum { N = 1500 };
    static const uint32_t wild[] = {0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff, 0x80000000,
                                    0x80000001, 0xbf800000, 0xff800000, 0xffc00000};
    gw_codec c;
    for (int level = 0; level < GW_SIMD_LEVELS && open_at(&c, spec, level); level++) {
        float x[N], y[N];
        size_t len, buckets = (N + bucket_of(&c) - 1) / bucket_of(&c);
        fill_gradient(4, x, N);
        unsigned char *wire = encoded(&c, 1, x, N, &len);
        uint32_t value = 0;
        for (size_t w = 0; w < sizeof wild / sizeof *wild; w++)
            for (int add = 0; add < 2; add++) {
                bool first = gw_codec_prefix(&c, N) > 0;
                value = first ? wild[w] : gw_le32(wild[w]);
                unsigned char *scales = first ? wire : wire + len - buckets * sizeof value;
                for (size_t b = 0; b < buckets; b++)
                    memcpy(scales + b * sizeof value, &value, sizeof value);
                memset(y, 0, sizeof y);
                assert_int_equal(gw_codec_decode(&c, wire, len, y, N, (gw_into)add), GW_OK);
                for (int i = 0; i < N; i++)
                    assert_true(isnan(y[i]));
            }
        free(wire);
        gw_codec_close(&c);
    }
}

static void wild_scales_are_nan(void **state) {
    static const char *const specs[] = {"qsgd:bits=2", "qsgd:bits=3", "qsgd:bits=4", "qsgd:bits=5",
                                        "qsgd:bits=6", "qsgd:bits=7", "qsgd:bits=8", "int8sum",
                                        "ternary",     "onebit",      "e3m0"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        check_wild_scales(specs[i]);
}

static void threads_agree(void **state) {
    each_spec(check_threads);
}

static void check_keys(const char *spec) {
    enum { N = 3000 };
    gw_codec c = must_open(spec);
    float x[N];
    fill_gradient(3, x, N);
    size_t len;
    unsigned char *a = encoded(&c, 1, x, N, &len), *again = encoded(&c, 1, x, N, &len);
    unsigned char *other = encoded(&c, 2, x, N, &len);
    assert_memory_equal(a, again, len);
    bool thc = strcmp(c.ops->head.name, "thc") == 0; /* biased, as it truncates, and random */
    int chance =
        (thc || c.caps & (GW_CODEC_UNBIASED | GW_CODEC_SHARED)) && !(c.caps & GW_CODEC_LOSSLESS);
    assert_int_equal(memcmp(a, other, len) != 0, chance);
    free(a), free(again), free(other);
    gw_codec_close(&c);
}

static void keys_fix_the_bytes(void **state) {
    each_spec(check_keys);
}

/* add(encode a, encode b) = encode(decode(encode a) + decode(encode b)), on every level. */
static void check_add(const char *spec) {
    gw_codec c;
    for (int level = 0; level < GW_SIMD_LEVELS && open_at(&c, spec, level); level++) {
        for (size_t i = 0; i < LENGTHS && gw_codec_summable(&c); i++) {
            size_t n = lengths[i], len;
            float *x = must_alloc(n * sizeof *x), *y = must_alloc(n * sizeof *y);
            fill_gradient(1, x, n);
            fill_gradient(2, y, n);
            if (n > 20)
                x[9] = 65000, y[9] = 65000, x[13] = NAN, x[17] = -INFINITY;
            unsigned char *a = encoded(&c, 0, x, n, &len), *b = encoded(&c, 0, y, n, &len);
            size_t prefix = gw_codec_prefix(&c, n), units = (len - prefix) / c.ops->unit_bytes;
            assert_int_equal(len, prefix + units * c.ops->unit_bytes);
            assert_true(units == n || c.caps & GW_CODEC_SPARSE);
            assert_int_equal(gw_codec_decode(&c, a, len, x, n, 0), GW_OK);
            assert_int_equal(gw_codec_decode(&c, b, len, x, n, 1), GW_OK);
            unsigned char *want = encoded(&c, 0, x, n, &len);
            setenv("GW_SIMD", level_names[level], 1);
            assert_int_equal(c.ops->add(a + prefix, b + prefix, len - prefix), GW_OK);
            unsetenv("GW_SIMD");
            assert_memory_equal(a, want, len);
            free(x), free(y), free(a), free(b), free(want);
        }
        gw_codec_close(&c);
    }
}

/* Where the prefix is agreed on: with one maximum for both, decode(add(a, b)) is the sum of what a
 * and b decode to, up to the rounding of these two, which thc's rotation spreads over a bucket. */
static void check_agreed_add(const char *spec) {
    bool rotates = strncmp(spec, "thc", 3) == 0;
    gw_codec c;
    for (int level = 0; level < GW_SIMD_LEVELS && open_at(&c, spec, level); level++) {
        assert_int_equal(gw_codec_join(&c, 2), GW_OK);
        for (size_t i = 0; i < LENGTHS; i++) {
            size_t n = lengths[i], len, head = gw_codec_prefix(&c, n), cap = gw_codec_bound(&c, n);
            float *x = must_alloc(n * sizeof *x), *y = must_alloc(n * sizeof *y);
            float *a = must_alloc(cap + sizeof *a), *b = must_alloc(cap + sizeof *b);
            fill_odd(x, n);
            fill_gradient(2, y, n);
            gw_codec_measure(&c, x, n, a);
            gw_codec_measure(&c, y, n, b);
            for (size_t k = 0; k < head / sizeof *a; k++)
                a[k] = b[k] = a[k] > b[k] ? a[k] : b[k];
            assert_int_equal(gw_codec_encode_agreed(&c, (gw_turn){1, 1}, x, n, a, cap, &len), 0);
            assert_int_equal(gw_codec_encode_agreed(&c, (gw_turn){2, 1}, y, n, b, cap, &len), 0);
            assert_memory_equal(a, b, head);
            assert_int_equal(gw_codec_decode(&c, a, len, x, n, GW_INTO_SET), GW_OK);
            assert_int_equal(gw_codec_decode(&c, b, len, y, n, GW_INTO_SET), GW_OK);
            assert_int_equal(c.ops->add((char *)a + head, (char *)b + head, len - head), GW_OK);
            float *sum = must_alloc(n * sizeof *sum);
            assert_int_equal(gw_codec_decode(&c, a, len, sum, n, GW_INTO_SET), GW_OK);
            for (size_t k = 0; k < n; k++) {
                double want = (double)x[k] + y[k], most = (fabs(x[k]) + fabs(y[k])) * 0x1p-23;
                most += rotates ? (double)a[1 + k / bucket_of(&c)] * 0x1p-20 : 0;
                assert_true(isnan(want) ? isnan(sum[k]) : fabs((double)sum[k] - want) <= most);
            }
            free(x), free(y), free(a), free(b), free(sum);
        }
        gw_codec_close(&c);
    }
}

static void check_sums(const char *spec) {
    gw_codec c = must_open(spec);
    bool agrees = gw_codec_agrees(&c);
    gw_codec_close(&c);
    if (agrees)
        check_agreed_add(spec);
    else
        check_add(spec);
}

static void encoded_bytes_add_up(void **state) {
    each_spec(check_sums);
}

static void check_golden(const char *spec, const float *x, size_t n, const char *hex) {
    gw_codec c = must_open(spec);
    size_t len;
    unsigned char *wire = encoded(&c, 11, x, n, &len);
    char got[128] = "";
    for (size_t i = 0; i < len; i++)
        snprintf(got + 2 * i, 3, "%02x", wire[i]);
    assert_string_equal(got, hex);
    free(wire);
    gw_codec_close(&c);
}

static void golden_vectors(void **state) {
    const float halves[] = {1, -2, 65504, 0x1p-24f, -0.0f, INFINITY, 0x1.006p0f};
    check_golden("fp16", halves, 7, "003c00c0ff7b01000080007c023c");
    const float uppers[] = {1, -2, 3e38f, 0x1p-126f, -0.0f, INFINITY, 0x1.03p0f};
    check_golden("bf16", uppers, 7, "803f00c0627f80000080807f823f");
    /* Whole multiples of the step, which are not rounded at random. */
    const float whole8[] = {127, -127, 64, -1, 0};
    check_golden("qsgd:bits=8", whole8, 5, "7f8140ff000000fe42");
    const float whole4[] = {7, -7, 3, -1, 0};
    check_golden("qsgd:bits=4", whole4, 5, "97f3000000e040");
    const float whole2[] = {1, -1, 0, 1, -1};
    check_golden("qsgd:bits=2", whole2, 5, "4d030000803f");
    const float whole3[] = {3, -3, 1, -1, 0}, whole5[] = {15, -15, 7, -1, 0};
    check_golden("qsgd:bits=3", whole3, 5, "6b0e00004040");
    check_golden("qsgd:bits=5", whole5, 5, "2f9e0f0000007041");
    const float whole6[] = {31, -31, 16, -1, 0}, whole7[] = {63, -63, 32, -1, 0};
    check_golden("qsgd:bits=6", whole6, 5, "5f08fd000000f841");
    check_golden("qsgd:bits=7", whole7, 5, "bf20e80f0000007c42");
    const float near8[] = {127, 63.4f, -1.6f, 0.4f, -0.6f}, near5[] = {15, -7.6f, 6.4f, -0.6f};
    check_golden("qsgd:bits=8,rounding=nearest", near8, 5, "7f3ffe00ff0000fe42");
    check_golden("qsgd:bits=5,rounding=nearest", near5, 4, "0f9b0f00007041");
    check_golden("int8sum", whole8, 5, "0000fe427f8140ff00");
    const float bad[] = {1, NAN};
    check_golden("int8sum", bad, 2, "0000807f0000");
    check_golden("qsgd:bits=8", bad, 2, "00000000c07f");
    check_golden("qsgd:bits=8,rounding=nearest", bad, 2, "00000000c07f");
    check_golden("qsgd:bits=8", bad, 0, "");
    const float powers[] = {1, -2, 0x1p-60f, 0x1p-124f, -0.0f, 0}; /* window 2 */
    check_golden("natural", powers, 6, "7dfe4101800002");
    const float trits[] = {1, -1, 0, 1, -1, 0, 1}; /* 21021 and 02111 in base 3 */
    check_golden("ternary", trits, 7, "c4430000803f");
    const float signs[] = {1, -2, 3, -0.0f, 4};
    check_golden("onebit", signs, 5, "0a00000040");
    const float five[] = {1, -2, 0, 3, -3};
    float fourths[] = {4, -2, 0, 1.5f, -0.03f}, chunk[] = {3, -1, 0.5f, -2};
    check_golden("e3m0:rounding=nearest", fourths, 5, "e7600000008040");
    check_golden("e3m0:rounding=nearest", bad, 2, "000000c07f");
    check_golden("chunktopk:k=32,chunk=64", chunk, 4, "00000000000000c000004040000000008043");
    check_golden("topk:ratio=0.5", five, 5, "03000000010100000000c000004040000040c0");
    float far[600] = {0};
    far[599] = 1; /* 599 = 2 * 255 + 89 */
    check_golden("topk:ratio=0.001", far, 600, "01000000ffff590000803f");
    check_golden("topk", far, 0, "");
    check_golden("threshold:value=2", five, 5, "03000000010100000000c000004040000040c0");
    check_golden("threshold:value=4", five, 5, "00000000");
    check_golden("threshold", far, 0, "");
    check_golden("randomk:ratio=0.4", five, 5, "0b000000000000000000803f00000000");
    check_golden("randomk", far, 0, "");
    /* Too few to gain by deflating: stored, so that the version of zlib does not matter. */
    const float odd[] = {1, -2, 0x1.234566p0f};
    check_golden("zlib", odd, 3, "000000b30000a28000913fc03f");
    check_golden("zlib:shuffle=off", odd, 3, "000000803f000000c0b3a2913f");
    check_golden("zlib", odd, 0, "");
    check_golden("qsgd:bits=8+zlib", whole8, 5, "007f8140ff000000fe42");
    check_golden("qsgd:bits=8+zlib:shuffle=on", whole8, 5, "007f0081004000fffe42");
    const float ones[] = {1, 1};
    check_golden("none", ones, 2, "0000803f0000803f");
}

/* The rounding itself, frozen: another build that joins a run must draw the same numbers. */
static void golden_randomness(void **state) {
    const struct {
        const char *spec;
        uLong crc;
    } want[] = {
        {"qsgd:bits=8", 0x2859db16},       {"qsgd:bits=4", 0xafae7a6b},
        {"qsgd:bits=2", 0xb0dfba99},       {"qsgd:bits=3", 0x60a6887f},
        {"qsgd:bits=5", 0xc8aeedec},       {"qsgd:bits=6", 0x9118d98c},
        {"qsgd:bits=7", 0xd5c2d740},       {"int8sum", 0x04a0adad},
        {"randomk:ratio=0.1", 0xf505c7d5}, {"randomk:ratio=0.9", 0x82c99163},
        {"natural", 0x72d7e64e},           {"ternary", 0x72547b2c},
        {"thc:bucket=64", 0xc419943f},     {"onebit", 0x1bf9a5cd},
    };
    float x[1000];
    for (int i = 0; i < 1000; i++)
        x[i] = (float)((i * 7919) % 2001 - 1000) / 1024;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        gw_codec c = must_open(want[i].spec);
        size_t len;
        unsigned char *wire = encoded(&c, 0x0123456789abcdefu, x, 1000, &len);
        assert_int_equal(crc32_z(0, wire, len), want[i].crc);
        free(wire);
        gw_codec_close(&c);
    }
}

/* Round to nearest even with `fraction` bits and least exponent `least`, by way of doubles. */
static float nearest(float x, int fraction, int least, double overflow) {
    if (x == 0 || !isfinite(x))
        return x;
    int e = ilogb(x) > least ? ilogb(x) : least;
    double r = ldexp(nearbyint(ldexp((double)x, fraction - e)), e - fraction);
    return fabs(r) >= overflow ? copysignf(INFINITY, x) : (float)r;
}

static void check_half(const char *spec, int fraction, int least, double overflow) {
    enum { N = 1 << 18 };
    float *x = must_alloc(N * sizeof *x), *y = must_alloc(N * sizeof *y);
    gw_codec c;
    for (int level = 0; level < GW_SIMD_LEVELS && open_at(&c, spec, level); level++) {
        for (uint64_t i = 0; i < N; i++) {
            uint32_t bits = (uint32_t)gw_rng_u64(6, i);
            if (i % 2) /* around the ties and the ends of the range */
                bits = (bits & 0xffffe000) + (uint32_t)(i / 2 % 3 - 1) + (i % 4 == 1 ? 0x1000 : 0);
            if (i % 8 < 2)
                bits = (bits & 0xffff0000) + 0x8000 + (uint32_t)(i / 8 % 3 - 1);
            x[i] = gw_float_of(bits);
            x[i] = i % 16 < 8 && isfinite(x[i])
                       ? ldexpf(frexpf(x[i], &(int){0}), (int)(bits % 50) - 30)
                       : x[i];
        }
        round_trip(&c, 0, x, N, y);
        for (size_t i = 0; i < N; i++) {
            float want = nearest(x[i], fraction, least, overflow);
            if (isnan(want) ? !isnan(y[i]) : memcmp(&want, &y[i], sizeof want) != 0)
                fail_msg("%s %s: %a became %a, not %a", spec, level_names[level], x[i], y[i], want);
        }
        gw_codec_close(&c);
    }
    free(x);
    free(y);
}

static void halves_round_to_nearest_even(void **state) {
    check_half("fp16", 10, -14, 65536);
    check_half("bf16", 7, -126, 0x1p128);
}

/* All 65536 halves decode to their value and encode to themselves. */
static void all_halves(void **state) {
    enum { N = 65536 };
    uint16_t *h = must_alloc(N * sizeof *h), *back = must_alloc(N * sizeof *h);
    float *y = must_alloc(N * sizeof *y);
    for (unsigned i = 0; i < N; i++)
        h[i] = gw_le16((uint16_t)i);
    for (int level = 0; level < GW_SIMD_LEVELS; level++) {
        gw_codec c;
        size_t len;
        if (!open_at(&c, "fp16", level))
            break;
        assert_int_equal(gw_codec_decode(&c, h, 2 * N, y, N, 0), GW_OK);
        assert_int_equal(gw_codec_encode(&c, (gw_turn){0, 1}, y, N, back, 2 * N, &len), GW_OK);
        for (unsigned i = 0; i < N; i++) {
            int e = i >> 10 & 31, f = i & 1023;
            double mag = e == 31 ? (f ? (double)NAN : (double)INFINITY)
                         : e     ? ldexp(1024 + f, e - 25)
                                 : ldexp(f, -24);
            double want = i >> 15 ? -mag : mag;
            assert_true(isnan(want) ? isnan(y[i]) : (double)y[i] == want);
            assert_int_equal(gw_le16(back[i]), isnan(want) ? i | 0x200 : i);
        }
        gw_codec_close(&c);
    }
    free(h), free(back), free(y);
}

/* Error feedback into -0 everywhere encodes x itself, signs included, in either mode. A sparse
 * codec sends the sum, which for denormals depends on the mode. */
static void check_fed_back(const gw_codec *c, const float *x, size_t n, const unsigned char *want) {
    if (!gw_codec_feeds_back(c) || c->caps & GW_CODEC_SPARSE)
        return;
    size_t cap = gw_codec_bound(c, n), len;
    float *e = must_alloc(n * sizeof *e);
    unsigned char *wire = must_alloc(cap);
    for (size_t i = 0; i < n; i++)
        e[i] = -0.0f;
    assert_int_equal(gw_codec_encode_feedback(c, (gw_turn){3, 1}, x, e, n, wire, cap, &len), GW_OK);
    assert_memory_equal(wire, want, len);
    free(e), free(wire);
}

/* Last: it leaves the mode on. */
static void check_flushing(const char *spec) {
    enum { N = 5000 };
    static unsigned char *before[64];
    static int run, flushing;
    static size_t len[64];
    gw_codec c = must_open(spec);
    float x[N];
    fill_odd(x, N);
    if (strcmp(spec, gw_codecs.entries[0]->name) == 0) {
        flushing = before[0] != NULL;
        run = 0;
    }
    unsigned char *wire = encoded(&c, 3, x, N, &len[run]);
    check_fed_back(&c, x, N, wire);
    if (!flushing) {
        before[run] = wire;
    } else {
        if (is_described(&c))
            assert_memory_equal(wire, before[run], len[run]);
        free(wire);
        free(before[run]);
    }
    run++;
    gw_codec_close(&c);
}

static void flushing_denormals_changes_no_byte(void **state) {
    each_spec(check_flushing);
    gw_flush_denormals();
    each_spec(check_flushing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(wild_scales_are_nan),
        cmocka_unit_test(keys_fix_the_bytes),
        cmocka_unit_test(encoded_bytes_add_up),
        cmocka_unit_test(golden_vectors),
        cmocka_unit_test(golden_randomness),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(all_halves),
        cmocka_unit_test(flushing_denormals_changes_no_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
