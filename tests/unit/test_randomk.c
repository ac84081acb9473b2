/* randomk by itself: which places it draws, that all ranks draw the same and can sum, and what it
 * refuses. */
#include "codec_cases.h"

#include <math.h>

enum { KEY = 8, VALUE = 4 };

/* y[i] is 1 where the turn keeps element i of n; returns how many. */
static size_t drawn(const gw_codec *c, uint64_t key, size_t n, float *y) {
    float *ones = must_alloc(n * sizeof *ones);
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    round_trip(c, key, ones, n, y);
    for (size_t i = 0; i < n; i++) {
        assert_true(y[i] == 0 || y[i] == 1);
        k += y[i] == 1;
    }
    free(ones);
    return k;
}

/* Distinct, else fewer than k would be kept; ascending, else values would return to wrong
 * places. */
static void places_are_distinct(void **state) {
    static const char *const specs[] = {"randomk:ratio=1e-9", "randomk",
                                        "randomk:ratio=0.3",  "randomk:ratio=0.5",
                                        "randomk:ratio=0.8",  "randomk:ratio=1"};
    static float x[4097], y[4097];
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        gw_codec c = must_open(specs[s]);
        for (size_t n = 1; n <= 4097; n = n < 200 ? n + 1 : n * 2 - 63)
            for (uint64_t key = 0; key < 5; key++) {
                double want = floor(gw_args_real(c.args, "ratio") * (double)n + 0.5);
                size_t k = want < 1 ? 1 : (size_t)want;
                assert_int_equal(gw_codec_bound(&c, n), KEY + VALUE * k);
                assert_int_equal(drawn(&c, key, n, y), k);
                for (size_t i = 0; i < n; i++)
                    x[i] = (float)(i + 1);
                round_trip(&c, key, x, n, y);
                for (size_t i = 0; i < n; i++)
                    assert_true(y[i] == 0 || y[i] == x[i]);
            }
        gw_codec_close(&c);
    }
}

/* Over many keys each element is equally likely, and each pair of neighbours or of distant elements
 * is as likely as in a draw without replacement: chi-squared within 5 sigmas. */
static void check_likely(const char *spec, size_t n) {
    enum { KEYS = 20000, MOST = 256 };
    static float y[MOST];
    static double one[MOST], next[MOST], far[MOST];
    gw_codec c = must_open(spec);
    size_t k = 0;
    memset(one, 0, sizeof one);
    memset(next, 0, sizeof next);
    memset(far, 0, sizeof far);
    for (uint64_t t = 0; t < KEYS; t++) {
        k = drawn(&c, gw_rng_key(7, t), n, y);
        for (size_t i = 0; i < n; i++) {
            one[i] += y[i];
            next[i] += y[i] * y[(i + 1) % n];
            far[i] += y[i] * y[(i + n / 2) % n];
        }
    }
    double p = (double)k / (double)n, pair = p * (double)(k - 1) / (double)(n - 1);
    double chi1 = 0, chi2 = 0, chi3 = 0, dof = (double)n;
    for (size_t i = 0; i < n; i++) {
        chi1 += pow(one[i] - KEYS * p, 2) / (KEYS * p * (1 - p));
        chi2 += pow(next[i] - KEYS * pair, 2) / (KEYS * pair * (1 - pair));
        chi3 += pow(far[i] - KEYS * pair, 2) / (KEYS * pair * (1 - pair));
    }
    double most = dof + 5 * sqrt(4 * dof); /* `far` counts each pair twice */
    if (chi1 > most || chi2 > most || chi3 > most || chi1 < dof / 2)
        fail_msg("%s, %zu floats: chi-squared %.0f, %.0f and %.0f, at most %.0f is chance", spec, n,
                 chi1, chi2, chi3, most);
    gw_codec_close(&c);
}

static void places_are_equally_likely(void **state) {
    check_likely("randomk:ratio=0.1", 250);
    check_likely("randomk:ratio=0.1", 63);
    check_likely("randomk:ratio=0.45", 200);
    check_likely("randomk:ratio=0.9", 100);
}

static void warming_up_is_not_summable(void **state) {
    gw_codec c = must_open("randomk"), warm = must_open("randomk:warmup=4");
    assert_true(gw_codec_summable(&c) && !gw_codec_summable(&warm));
    assert_int_equal(gw_codec_prefix(&c, 10), KEY);
    assert_int_equal(gw_codec_prefix(&c, 0), 0);
    gw_codec_close(&warm);
    warm = must_open("randomk:ratio=0.25,warmup=4"); /* where it starts it is at its end */
    assert_true(gw_codec_summable(&warm));
    gw_codec_close(&warm);
    gw_codec_close(&c);
}

/* A falling ratio: the wire tells how many, and a number that no turn sends is refused. */
static void warm_up(void **state) {
    enum { N = 10000 };
    static const size_t want[] = {2500, 1118, 500, 224, 100, 100};
    static float x[N], y[N];
    static unsigned char wire[KEY + VALUE * N];
    gw_codec c = must_open("randomk:warmup=4");
    fill_gradient(5, x, N);
    for (uint64_t step = 1; step <= 6; step++) {
        size_t len, cap = gw_codec_bound(&c, N);
        assert_int_equal(gw_codec_encode(&c, (gw_turn){3, step}, x, N, wire, cap, &len), GW_OK);
        assert_int_equal(len, KEY + VALUE * want[step - 1]);
        assert_int_equal(gw_codec_decode(&c, wire, len, y, N, GW_INTO_SET), GW_OK);
    }
    for (size_t k = 0; k < 2600; k++)
        assert_int_equal(gw_codec_decode(&c, wire, KEY + VALUE * k, y, N, GW_INTO_SET),
                         k < 100 || k > 2500 ? GW_ERR_CORRUPT : GW_OK);
    gw_codec_close(&c);
}

/* Any key names places within the span. */
static void hostile_keys(void **state) {
    enum { TIMES = 20000, MOST = 300 };
    gw_codec c = must_open("randomk:ratio=0.2");
    for (uint64_t t = 0; t < TIMES; t++) {
        size_t n = 1 + gw_rng_u64(1, t) % MOST, len = gw_codec_bound(&c, n);
        guarded in = guard(len, 1), out = guard(n * sizeof(float), (int)(t & 1));
        memset(in.p, t % 3 ? 0xff : 0, len);
        if (t % 3 == 2)
            memcpy(in.p, &(uint64_t){gw_rng_u64(2, t)}, KEY);
        assert_int_equal(gw_codec_decode(&c, in.p, len, out.p, n, GW_INTO_SET), GW_OK);
        assert_int_equal(gw_codec_decode(&c, in.p, len, out.p, n, GW_INTO_CLEAR), GW_OK);
        for (size_t i = 0; i < n; i++)
            assert_true(((float *)out.p)[i] == 0);
        unguard(in);
        unguard(out);
    }
    gw_codec_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_distinct),
        cmocka_unit_test(places_are_equally_likely),

        cmocka_unit_test(warming_up_is_not_summable),
        cmocka_unit_test(warm_up),
        cmocka_unit_test(hostile_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
