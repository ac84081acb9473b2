/* int8sum beyond what every codec promises: a sum of codes never overflows, whatever the number of
 * ranks, and decodes to the sum of the values; a bad bucket is bad for all. */
#include "codec_cases.h"

#include <math.h>

static void no_sum_of_codes_overflows(void **state) {
    enum { N = 512 };
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = (i % 2 ? -1.0f : 1.0f) * (i % 3 ? 0x1.fffffep0f : 0x1.fffffcp0f);
    for (int ranks = 1; ranks <= 127; ranks++) {
        gw_codec c = must_open("int8sum");
        assert_int_equal(gw_codec_join(&c, ranks), GW_OK);
        int most = 0;
        for (uint64_t key = 0; key < 50; key++) {
            size_t len;
            unsigned char *wire = encoded(&c, key, x, N, &len);
            const signed char *code = (const signed char *)wire + gw_codec_prefix(&c, N);
            for (int i = 0; i < N; i++)
                most = abs(code[i]) > most ? abs(code[i]) : most;
            free(wire);
        }
        assert_int_equal(most, 127 / ranks);
        assert_true(ranks * most <= 127);
        gw_codec_close(&c);
    }
}

static void too_many_ranks_are_refused(void **state) {
    gw_codec c = must_open("int8sum");
    assert_fails(gw_codec_join(&c, 128), GW_ERR_UNSUPPORTED, "128 ranks");
    gw_codec_close(&c);
}

enum { SPAN = 3 * 512 + 100 };

/* The sum over `ranks` ranks as native makes it, without MPI: x[r] are their floats. */
static void summed(int ranks, float (*x)[SPAN], uint64_t key, float *sum) {
    gw_codec c = must_open("int8sum");
    assert_int_equal(gw_codec_join(&c, ranks), GW_OK);
    size_t cap = gw_codec_bound(&c, SPAN), head = gw_codec_prefix(&c, SPAN), len;
    float *scales = must_alloc(head), *own = must_alloc(head);
    char *all = must_alloc(cap), *one = must_alloc(cap);
    for (int r = 0; r < ranks; r++) {
        gw_codec_measure(&c, x[r], SPAN, own);
        for (size_t k = 0; k < head / sizeof *own; k++)
            scales[k] = own[k] > scales[k] ? own[k] : scales[k];
    }
    memcpy(all, scales, head);
    for (int r = 0; r < ranks; r++) {
        memcpy(one, scales, head);
        gw_turn turn = {gw_rng_key(key, (uint64_t)r), 1};
        assert_int_equal(gw_codec_encode_agreed(&c, turn, x[r], SPAN, one, cap, &len), GW_OK);
        assert_memory_equal(one, scales, head);
        assert_int_equal(c.ops->add(all + head, one + head, len - head), GW_OK);
    }
    assert_int_equal(gw_codec_decode(&c, all, cap, sum, SPAN, GW_INTO_SET), GW_OK);
    free(scales), free(own), free(all), free(one);
    gw_codec_close(&c);
}

/* Against the sum in double precision: each element within the bound of the header, and without
 * bias: the mean over many keys is nearer by far. */
static void sums_are_sums(void **state) {
    enum { RANKS = 127, KEYS = 60 };
    static const int sizes[] = {1, 2, 3, 4, 31, RANKS};
    static float x[RANKS][SPAN], sum[SPAN];
    static double want[SPAN], top[SPAN / 512 + 1], mean[SPAN];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int ranks = sizes[s];
        memset(want, 0, sizeof want), memset(top, 0, sizeof top), memset(mean, 0, sizeof mean);
        for (int r = 0; r < ranks; r++) {
            fill_gradient((uint64_t)r, x[r], SPAN);
            for (int i = 0; i < SPAN; i++) {
                want[i] += x[r][i];
                top[i / 512] = fmax(top[i / 512], fabs(x[r][i]));
            }
        }
        double off = 0, once = 0;
        for (uint64_t key = 0; key < KEYS; key++) {
            summed(ranks, x, key, sum);
            for (int i = 0; i < SPAN; i++) {
                double d = sum[i] - want[i];
                assert_true(fabs(d) <= ranks * top[i / 512] / (127 / ranks) * (1 + 1e-5));
                mean[i] += d / KEYS;
                once += d * d / KEYS;
            }
        }
        for (int i = 0; i < SPAN; i++)
            off += mean[i] * mean[i];
        assert_true(fabs(off * KEYS / once - 1) < 0.2);
    }
}

/* One rank's NaN, infinity or large value is the bucket's on all; tiny floats are gone. */
static void one_rank_is_enough(void **state) {
    static float x[3][SPAN], sum[SPAN];
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < 4; kind++) {
        for (int r = 0; r < 3; r++)
            fill_gradient((uint64_t)r, x[r], SPAN);
        for (int i = 0; i < 512; i++)
            x[0][i] = x[1][i] = x[2][i] = 1e-38f;
        x[kind % 3][700] = bad[kind];
        x[2][SPAN - 1] = 3e38f;
        summed(3, x, 1, sum);
        for (int i = 0; i < SPAN; i++) {
            assert_true(i / 512 == 1 ? isnan(sum[i]) : isfinite(sum[i]));
            assert_true(i >= 512 || sum[i] == 0);
        }
        assert_true(fabsf(sum[SPAN - 1] / 3e38f - 1) < 1e-5f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_sum_of_codes_overflows),
        cmocka_unit_test(too_many_ranks_are_refused),
        cmocka_unit_test(sums_are_sums),
        cmocka_unit_test(one_rank_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
