/* zlib: the parts of its streams, that hostile ones do no harm, and what a spec means: options,
 * stages, chains. */
#include "codec_cases.h"

static void decode_is(const char *spec, const unsigned char *wire, size_t len, size_t n,
                      const float *want) {
    gw_codec c = must_open(spec);
    float y[8];
    assert_true(n <= 8);
    assert_int_equal(gw_codec_decode(&c, wire, len, y, n, GW_INTO_SET), GW_OK);
    assert_memory_equal(y, want, n * sizeof *y);
    gw_codec_close(&c);
}

/* Streams of another deflate, which may compress the same floats differently. */
static void streams_of_others(void **state) {
    const float zeros[8] = {0};
    /* A literal 0, a match of 31 bytes at distance 1, in fixed Huffman codes. */
    const unsigned char run[] = {1, 0x63, 0x60, 0xc0, 0x0f, 0x00};
    decode_is("zlib", run, sizeof run, 8, zeros);
    /* The same after an empty stored block. */
    const unsigned char two[] = {1, 0, 0, 0, 0xff, 0xff, 0x63, 0x60, 0xc0, 0x0f, 0x00};
    decode_is("zlib", two, sizeof two, 8, zeros);
}

/* The bound holds, and how small an encoding can be. */
static void lengths_of_streams(void **state) {
    enum { N = 100000 };
    static float x[N];
    gw_codec c = must_open("zlib");
    size_t len;
    assert_int_equal(gw_codec_bound(&c, 0), 0);
    assert_int_equal(gw_codec_bound(&c, N), 1 + 4 * N);
    memset(x, 0, sizeof x);
    free(encoded(&c, 1, x, N, &len));
    assert_true(len < 4 * N / 200);
    for (size_t i = 0; i < N; i++)
        x[i] = gw_float_of((uint32_t)gw_rng_u64(5, i));
    unsigned char *wire = encoded(&c, 1, x, N, &len);
    assert_int_equal(len, 1 + 4 * N); /* nothing to gain: stored */
    assert_int_equal(wire[0], 0);
    free(wire);
    fill_gradient(1, x, N);
    free(encoded(&c, 1, x, N, &len));
    assert_true(len < 4 * N * 29 / 32);
    gw_codec_close(&c);
}

/* NaN payloads, denormals, signs of zero: bit for bit, with any options. */
static void no_bit_is_lost(void **state) {
    enum { N = 5003 };
    static const char *const specs[] = {"zlib",
                                        "zlib:shuffle=off",
                                        "zlib:shuffle=on,strategy=huffman",
                                        "zlib:strategy=default",
                                        "zlib:level=1",
                                        "zlib:level=9,strategy=default,shuffle=off"};
    float x[N], y[N];
    for (size_t i = 0; i < N; i++) {
        uint64_t u = gw_rng_u64(6, i);
        uint32_t bits = u >> 62 ? (uint32_t)u & 0x3fffff : (uint32_t)(u >> 8);
        x[i] = gw_float_of(i % 7 ? bits | 0x7f800000 : bits);
    }
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        gw_codec c = must_open(specs[s]);
        round_trip(&c, 1, x, N, y);
        assert_memory_equal(x, y, sizeof x);
        gw_codec_close(&c);
    }
}

static void expect_corrupt(const gw_codec *c, const unsigned char *wire, size_t len, size_t n,
                           const char *says) {
    guarded g = guard(len, 1), y = guard(n * sizeof(float), 1);
    if (len)
        memcpy(g.p, wire, len);
    assert_int_equal(gw_codec_decode(c, g.p, len, y.p, n, GW_INTO_SET), GW_ERR_CORRUPT);
    assert_message(says);
    unguard(g);
    unguard(y);
}

static void hostile_streams(void **state) {
    enum { N = 1000 };
    gw_codec c = must_open("zlib");
    float x[N];
    size_t len;
    fill_gradient(1, x, N);
    unsigned char *wire = encoded(&c, 1, x, N, &len);
    assert_int_equal(wire[0], 1);
    for (size_t cut = 1; cut < len; cut += 7)
        expect_corrupt(&c, wire, cut, N, "too early");
    unsigned char longer[4 * N + 1];
    memcpy(longer, wire, len);
    longer[len] = 0;
    expect_corrupt(&c, longer, len + 1, N, "follow");
    expect_corrupt(&c, wire, len, N + 1, "expected 4004");
    expect_corrupt(&c, wire, len, N - 1, "at most 3996");
    wire[0] = 2;
    expect_corrupt(&c, wire, len, N, "kind 2");
    wire[0] = 0; /* stored, and too few */
    expect_corrupt(&c, wire, len, N, "expected 4000");
    expect_corrupt(&c, wire, 0, N, "0 bytes");
    const unsigned char reserved[] = {1, 0x07};
    expect_corrupt(&c, reserved, sizeof reserved, N, "invalid block type");
    const unsigned char far[] = {1, 0x63, 0x00, 0x82, 0x00}; /* before the first byte */
    expect_corrupt(&c, far, sizeof far, N, "zlib");
    free(wire);
    gw_codec_close(&c);
}

/* Four kilobytes that expand to two megabytes: not a byte is written outside the buffer. */
static void bombs_do_not_go_off(void **state) {
    enum { N = 1000, MANY = 1 << 19 };
    gw_codec c = must_open("zlib"), chain = must_open("qsgd:bits=8+zlib");
    float *zeros = must_alloc(MANY * sizeof *zeros);
    memset(zeros, 0, MANY * sizeof *zeros);
    size_t len;
    unsigned char *wire = encoded(&c, 1, zeros, MANY, &len);
    assert_true(len <= 4 * N);
    expect_corrupt(&c, wire, len, N, "it holds more");
    expect_corrupt(&chain, wire, len < 900 ? len : 900, N, "it holds more");
    free(wire);
    free(zeros);
    gw_codec_close(&c);
    gw_codec_close(&chain);
}

/* As a stage it gets any number of bytes at any address. */
static void stages_pack_any_bytes(void **state) {
    enum { MOST = 600 };
    static const char *const specs[] = {"zlib", "zlib:shuffle=on", "zlib:strategy=huffman"};
    unsigned char in[MOST + 1], packed[MOST + 2], out[MOST + 1];
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        gw_codec c = must_open(specs[s]);
        for (size_t n = 0; n <= MOST; n++) {
            size_t len, got, odd = n % 2;
            for (size_t i = 0; i < n; i++)
                in[odd + i] = (unsigned char)(gw_rng_u64(n, i) % (n % 3 ? 256 : 3));
            assert_int_equal(
                c.ops->pack(c.self, in + odd, n, packed + odd, c.ops->pack_bound(c.self, n), &len),
                GW_OK);
            assert_true(len <= c.ops->pack_bound(c.self, n));
            assert_int_equal(c.ops->unpack(c.self, packed + odd, len, out + odd, n, &got), GW_OK);
            assert_int_equal(got, n);
            assert_memory_equal(in + odd, out + odd, n);
            if (n)
                assert_int_equal(c.ops->unpack(c.self, packed + odd, len, out + odd, n - 1, &got),
                                 GW_ERR_CORRUPT);
        }
        gw_codec_close(&c);
    }
}

static void stages_shrink_codes(void **state) {
    enum { N = 50000 };
    static float x[N];
    for (size_t i = 0; i < N; i++) /* a few large ones, as in the gradient of a wide layer */
        x[i] = (i % 500 == 0 ? 1.0f : 1e-3f) * (float)gw_rng_normal(4, i);
    gw_codec plain = must_open("qsgd:bits=4"), chain = must_open("qsgd:bits=4+zlib");
    size_t codes, packed;
    free(encoded(&plain, 1, x, N, &codes));
    free(encoded(&chain, 1, x, N, &packed));
    assert_true(packed < codes / 2);
    assert_int_equal(gw_codec_bound(&chain, N), codes + 1);
    assert_int_equal(chain.caps, plain.caps & ~(unsigned)GW_CODEC_FIXED);
    gw_codec_close(&plain);
    gw_codec_close(&chain);
}

static void refused(const char *spec, gw_err code, const char *says) {
    gw_codec c = {0};
    assert_int_equal(open_codec(&c, spec), code);
    assert_message(says);
}

static void bad_specs(void **state) {
    refused("zlib:level=0", GW_ERR_USAGE, "level");
    refused("zlib:level=10", GW_ERR_USAGE, "level");
    refused("zlib:strategy=fixed", GW_ERR_USAGE, "strategy");
    refused("zlib:shuffle=2", GW_ERR_USAGE, "shuffle");
    refused("zlib:level=6,strategy=rle", GW_ERR_USAGE, "no levels");
    refused("zlib:strategy=huffman,level=6", GW_ERR_USAGE, "no levels");
    refused("qsgd+zlip", GW_ERR_USAGE, "zlib");
    refused("qsdg+zlib", GW_ERR_USAGE, "qsgd");
    refused("qsgd+zlib:level=0", GW_ERR_USAGE, "level");
    refused("qsgd+topk", GW_ERR_UNSUPPORTED, "cannot follow");
    refused("none+zlib", GW_ERR_UNSUPPORTED, "zlib alone");
    refused("none+zlib:level=3", GW_ERR_UNSUPPORTED, "use zlib:level=3 alone");
    refused("qsgd+zlib+zlib", GW_ERR_UNSUPPORTED, "more than one stage");
    refused("qsgd+./nowhere.so", GW_ERR_INPUT, "nowhere.so");
    refused("./no+where/codec.so", GW_ERR_INPUT, "./no+where/codec.so");
    refused("qsgd+./no+where/codec.so", GW_ERR_INPUT, " ./no+where/codec.so");
    refused("+zlib", GW_ERR_USAGE, "empty item");
    refused("qsgd+", GW_ERR_USAGE, "qsgd+");
}

/* A '+' in a number or inside parentheses does not begin a stage. */
static void plus_of_a_number(void **state) {
    gw_codec c = must_open("topk:ratio=1e+0");
    assert_null(c.stage);
    gw_codec_close(&c);
    c = must_open("topk:ratio=(+0.5)+zlib:level=(+3)");
    assert_non_null(c.stage);
    assert_string_equal(c.name, "topk+zlib");
    assert_true(gw_args_real(c.args, "ratio") == 0.5);
    gw_codec_close(&c);
}

/* 4 GiB are refused before any memory is touched. */
static void too_long(void **state) {
    gw_codec c = must_open("zlib");
    float x = 0;
    size_t len, n = (size_t)1 << 30;
    assert_int_equal(gw_codec_encode(&c, (gw_turn){0, 1}, &x, n, &x, SIZE_MAX, &len),
                     GW_ERR_UNSUPPORTED);
    assert_int_equal(gw_codec_decode(&c, &x, sizeof x, &x, n, GW_INTO_SET), GW_ERR_UNSUPPORTED);
    gw_codec_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_of_others),   cmocka_unit_test(lengths_of_streams),
        cmocka_unit_test(no_bit_is_lost),      cmocka_unit_test(hostile_streams),
        cmocka_unit_test(bombs_do_not_go_off), cmocka_unit_test(stages_pack_any_bytes),
        cmocka_unit_test(stages_shrink_codes), cmocka_unit_test(bad_specs),
        cmocka_unit_test(plus_of_a_number),    cmocka_unit_test(too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
