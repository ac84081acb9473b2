/* adaptive beyond what every codec promises: the widths are the fewest bits for the error of one
 * width, against all choices that there are; never more bytes than qsgd and the widths; what is
 * damaged is refused. */
#include "codec_cases.h"

enum { BUCKET = 64, LEAST = 2, MOST = 8 };

static double error_of(double scale, int width) {
    double levels = (1 << (width - 1)) - 1;
    return scale / levels * (scale / levels);
}

/* Buckets with these scales. */
static void fill(const double *scale, size_t buckets, float *x) {
    for (size_t i = 0; i < buckets * BUCKET; i++)
        x[i] = (float)(scale[i / BUCKET] * (i % BUCKET ? 2 * gw_rng_unit(5, i) - 1 : 1));
}

/* The widths of an encoding, and their sum. */
static int widths_of(const gw_codec *c, const float *x, size_t buckets, unsigned char *widths) {
    size_t len, n = buckets * BUCKET;
    unsigned char *wire = encoded(c, 1, x, n, &len);
    int bits = 0;
    memcpy(widths, wire, buckets);
    for (size_t i = 0; i < buckets; i++)
        bits += widths[i];
    assert_int_equal(len, buckets * 5 + (size_t)bits * BUCKET / 8);
    free(wire);
    return bits;
}

/* Fewest bits of all choices whose error is at most `allowed`. */
static int fewest(const double *scale, size_t buckets, double allowed) {
    if (allowed < 0)
        return 1 << 20;
    if (buckets == 0)
        return 0;
    int best = 1 << 20;
    for (int w = LEAST; w <= MOST; w++) {
        int rest = fewest(scale + 1, buckets - 1, allowed - error_of(*scale, w));
        best = w + rest < best ? w + rest : best;
    }
    return best;
}

static void widths_are_the_fewest_bits(void **state) {
    enum { BUCKETS = 6, DRAWS = 60 };
    int gained = 0, exact = 0;
    for (int bits = 3; bits <= 7; bits++)
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            char spec[64];
            double scale[BUCKETS], allowed = 0, error = 0;
            float x[BUCKETS * BUCKET];
            unsigned char widths[BUCKETS];
            snprintf(spec, sizeof spec, "adaptive:bits=%d,bucket=%d", bits, BUCKET);
            for (int i = 0; i < BUCKETS; i++) { /* powers of two: floats have them exactly */
                scale[i] = ldexp(1, (int)(gw_rng_unit(draw, (uint64_t)i) * 10));
                allowed += error_of(scale[i], bits);
            }
            gw_codec c = must_open(spec);
            fill(scale, BUCKETS, x);
            int sum = widths_of(&c, x, BUCKETS, widths);
            for (int i = 0; i < BUCKETS; i++)
                error += error_of(scale[i], widths[i]);
            int best = fewest(scale, BUCKETS, allowed * (1 + 1e-9));
            assert_true(error <= allowed * (1 + 1e-9));
            assert_true(sum <= bits * BUCKETS);
            /* less than a bucket's bit is lost; of those with one scale all get it or none */
            int alike = 0;
            for (int i = 0; i < BUCKETS; i++) {
                int same = 0;
                for (int k = 0; k < BUCKETS; k++)
                    same += scale[k] == scale[i];
                alike = same > alike ? same : alike;
            }
            assert_in_range(sum, best, best + alike);
            gained += sum < bits * BUCKETS;
            exact += sum == best;
            gw_codec_close(&c);
        }
    assert_true(gained > 5 * DRAWS / 2);
    assert_true(exact > 5 * DRAWS / 3);
}

static void equal_scales_are_qsgd(void **state) {
    static const size_t n[] = {1, 2, 63, 64, 65, 127, 128, 1000, 4096};
    gw_codec plain = must_open("qsgd:bits=4,bucket=64"), c = must_open("adaptive:bucket=64");
    for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
        float *x = must_alloc(n[k] * sizeof *x);
        for (size_t i = 0; i < n[k]; i++)
            x[i] = i % BUCKET ? (float)gw_rng_unit(1, i) : -1;
        size_t len, buckets = (n[k] + BUCKET - 1) / BUCKET;
        unsigned char *wire = encoded(&c, 1, x, n[k], &len);
        assert_int_equal(len, gw_codec_bound(&plain, n[k]) + buckets);
        assert_int_equal(len, gw_codec_bound(&c, n[k]));
        free(wire), free(x);
    }
    gw_codec_close(&plain), gw_codec_close(&c);
}

/* A tenth of the buckets a thousand times as large: these get more bits, the others the least. */
static void large_buckets_pay(void **state) {
    enum { BUCKETS = 100 };
    double scale[BUCKETS];
    float x[BUCKETS * BUCKET];
    unsigned char widths[BUCKETS];
    for (int i = 0; i < BUCKETS; i++)
        scale[i] = i % 10 ? 1 : 1000;
    fill(scale, BUCKETS, x);
    gw_codec c = must_open("adaptive:bits=5,bucket=64");
    int sum = widths_of(&c, x, BUCKETS, widths);
    assert_in_range(sum, 2 * 90 + 5 * 10, 2 * 90 + 6 * 10);
    assert_int_equal(widths[1], 2);
    x[BUCKET] = NAN; /* a bad bucket has no say, and a bucket of zeros takes nothing */
    memset(x + 2 * BUCKET, 0, BUCKET * sizeof *x);
    widths_of(&c, x, BUCKETS, widths);
    assert_int_equal(widths[1], 2);
    assert_int_equal(widths[2], 0);
    assert_in_range(widths[0], 5, 6);
    gw_codec_close(&c);
}

static void damage_is_refused(void **state) {
    enum { N = 5 * BUCKET + 3 };
    float x[N], y[N];
    size_t len;
    fill_gradient(1, x, N);
    gw_codec c = must_open("adaptive:bucket=64");
    unsigned char *wire = encoded(&c, 1, x, N, &len), *widths = wire;
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(gw_codec_decode(&c, wire, cut, y, N, GW_INTO_SET), GW_ERR_CORRUPT);
    for (int i = 0; i < 5; i++) /* the last has 3 floats: another width may take as many bytes */
        for (int w = 0; w < 256; w++) {
            unsigned char was = widths[i];
            widths[i] = (unsigned char)w;
            gw_err e = gw_codec_decode(&c, wire, len, y, N, GW_INTO_SET);
            assert_int_equal(e, w == was ? GW_OK : GW_ERR_CORRUPT);
            widths[i] = was;
        }
    free(wire);
    gw_codec_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths_are_the_fewest_bits),
        cmocka_unit_test(equal_scales_are_qsgd),
        cmocka_unit_test(large_buckets_pay),
        cmocka_unit_test(damage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
