/* Codecs that send places and values: hostile encodings, and their kernels; then threshold's own
 * behaviour and the warm-up of topk. */
#include "codec_cases.h"
#include "compress/kernel/pick.h"

#include <math.h>

enum { HEADER = 4, VALUE = 4 };

/* ---- hostile encodings ---- */

static size_t write_wire(unsigned char *wire, uint32_t k, const char *gaps, size_t bytes,
                         size_t values) {
    *(gw_u32u *)(void *)wire = gw_le32(k);
    memcpy(wire + HEADER, gaps, bytes);
    memset(wire + HEADER + bytes, 0x3f, values * VALUE);
    return HEADER + bytes + values * VALUE;
}

static void hostile_counts_and_gaps(void **state) {
    enum { N = 10 };
    unsigned char wire[256];
    gw_codec c = must_open("threshold");
    float y[N];
    size_t len = write_wire(wire, 2, "\x01\x07", 2, 2);
    assert_int_equal(gw_codec_decode(&c, wire, len, y, N, GW_INTO_SET), GW_OK);
    assert_true(y[1] != 0 && y[9] != 0 && y[8] == 0);
    refuse(&c, wire, write_wire(wire, 2, "\x01\x08", 2, 2), N); /* index n */
    refuse(&c, wire, write_wire(wire, 1, "\xff\x00", 2, 1), N); /* index 255 */
    refuse(&c, wire, write_wire(wire, 1, "\xff", 1, 1), N);     /* a gap without end */
    refuse(&c, wire, write_wire(wire, 2, "\x01\xff", 2, 2), N);
    refuse(&c, wire, write_wire(wire, 2, "\x01\x01\x01", 3, 2), N); /* one gap more than values */
    refuse(&c, wire, write_wire(wire, 3, "\x01\x01", 2, 3), N);     /* one less */
    refuse(&c, wire, write_wire(wire, 0, "\x01", 1, 0), N);
    refuse(&c, wire, write_wire(wire, N + 1, "\0\0\0\0\0\0\0\0\0\0\0", N + 1, N + 1), N);
    static const uint32_t counts[] = {N + 1, 0x33333333, 0x40000000, 0x80000000, 0xffffffff};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) /* products that wrap to little */
        for (size_t bytes = 0; bytes < 8; bytes++)
            refuse(&c, wire, write_wire(wire, counts[i], "\0\0\0\0\0\0\0", bytes, 2), N);
    for (size_t cut = 0; cut < HEADER; cut++)
        refuse(&c, wire, cut, N);
    gw_codec_close(&c);
}

/* ---- kernels ---- */

static void check_kernels(const gw_pick_kernels *k, size_t n, uint32_t least) {
    const gw_pick_kernels *want = &gw_pick_portable;
    size_t room = (n + GW_BLOCK - 1) / GW_BLOCK * GW_BLOCK;
    float *x = must_alloc(n * sizeof *x), *e = must_alloc(n * sizeof *e);
    float *f = must_alloc(n * sizeof *f);
    guarded at = guard(room * sizeof(uint32_t), 1), same = guard(room * sizeof(uint32_t), 1);
    fill_gradient(n, x, n);
    fill_gradient(n + 9, e, n);
    memcpy(f, e, n * sizeof *e);
    size_t a = gw_pick_chunk(want, x, NULL, n, least, 5, at.p);
    assert_int_equal(gw_pick_chunk(k, x, NULL, n, least, 5, same.p), a);
    assert_memory_equal(at.p, same.p, a * sizeof(uint32_t));
    a = gw_pick_chunk(want, x, e, n, least, 5, at.p);
    assert_int_equal(gw_pick_chunk(k, x, f, n, least, 5, same.p), a);
    assert_memory_equal(at.p, same.p, a * sizeof(uint32_t));
    assert_memory_equal(e, f, n * sizeof *e);
    guarded b = guard(n * sizeof(float), 1), b2 = guard(n * sizeof(float), 1);
    guarded p = guard(n * sizeof(float), 1), p2 = guard(n * sizeof(float), 1);
    memcpy(b.p, x, n * sizeof *x), memcpy(b2.p, x, n * sizeof *x);
    memcpy(p.p, e, n * sizeof *x), memcpy(p2.p, e, n * sizeof *x);
    a = want->count(b.p, n, least);
    assert_int_equal(k->count(b2.p, n, least), a);
    assert_int_equal(want->filter(p.p, b.p, n, least), a);
    assert_int_equal(k->filter(p2.p, b2.p, n, least), a);
    assert_memory_equal(b.p, b2.p, a * sizeof(float));
    assert_memory_equal(p.p, p2.p, a * sizeof(float));
    unguard(at), unguard(same), unguard(b), unguard(b2), unguard(p), unguard(p2);
    free(x), free(e), free(f);
}

/* Both kinds of AVX-512; a program uses one of them. */
static void kernels_agree(void **state) {
    static const float limits[] = {0, 1e-3f, 0.02f, 0.1f, INFINITY};
    const gw_pick_kernels *kernels[GW_SIMD_LEVELS + 1] = {&gw_pick_portable};
    size_t count = 1;
#ifdef GW_X86
    gw_simd level;
    assert_int_equal(gw_simd_pick(&level), GW_OK);
    if (level >= GW_SIMD_AVX2)
        kernels[count++] = &gw_pick_avx2;
    if (level >= GW_SIMD_AVX512)
        kernels[count++] = &gw_pick_avx512;
    if (level >= GW_SIMD_AVX512 && gw_pick_has_vbmi2())
        kernels[count++] = &gw_pick_vbmi2;
#endif
    for (size_t k = 0; k < count; k++)
        for (size_t l = 0; l < sizeof limits / sizeof *limits; l++)
            for (size_t n = 0; n < 300; n += n < 70 ? 1 : 13)
                check_kernels(kernels[k], n, gw_float_bits(limits[l]));
}

/* ---- threshold ---- */

static void keeps_what_reaches_it(void **state) {
    enum { N = 10000 };
    static float x[N], y[N];
    const float value = 0.03f;
    fill_gradient(3, x, N);
    x[7] = value, x[8] = -value, x[9] = nextafterf(value, 0), x[10] = NAN, x[11] = -INFINITY;
    for (int level = 0; level < GW_SIMD_LEVELS; level++) {
        gw_codec c;
        if (!open_at(&c, "threshold:value=0.03", level))
            break;
        round_trip(&c, 0, x, N, y);
        for (size_t i = 0; i < N; i++) {
            float want = !(fabsf(x[i]) < value) ? x[i] : 0;
            assert_memory_equal(&y[i], &want, sizeof want);
        }
        gw_codec_close(&c);
    }
}

/* ---- warm-up ---- */

static void topk_warms_up(void **state) {
    enum { N = 10000 };
    static const size_t want[] = {2500, 1118, 500, 224, 100, 100};
    static float x[N], y[N];
    fill_gradient(5, x, N);
    gw_codec c = must_open("topk:warmup=4"), cold = must_open("topk");
    size_t len, most = gw_codec_bound(&c, N);
    unsigned char *wire = must_alloc(most);
    assert_int_equal(most, HEADER + (1 + VALUE) * 2500 + (N - 2500) / 255);
    for (uint64_t step = 1; step <= 6; step++) {
        assert_int_equal(gw_codec_encode(&c, (gw_turn){0, step}, x, N, wire, most, &len), GW_OK);
        assert_int_equal(gw_le32(*(gw_u32u *)(void *)wire), want[step - 1]);
        assert_int_equal(gw_codec_decode(&c, wire, len, y, N, GW_INTO_SET), GW_OK);
        if (step == 4)
            refuse(&cold, wire, len, N); /* another count than its own */
    }
    gw_codec full = must_open("topk:ratio=0.2501");
    free(wire);
    wire = encoded(&full, 0, x, N, &len);
    refuse(&c, wire, len, N); /* more than the schedule ever sends */
    free(wire);
    gw_codec_close(&full);
    gw_codec_close(&cold);
    gw_codec_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_counts_and_gaps),
        cmocka_unit_test(kernels_agree),
        cmocka_unit_test(keeps_what_reaches_it),
        cmocka_unit_test(topk_warms_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
