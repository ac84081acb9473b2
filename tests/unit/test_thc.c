/* thc beyond what every codec promises: the levels are the best ones, sums of encodings decode to
 * the sum of what they decode to, there is no bias but for the truncation, and a bad bucket is bad
 * for all. The references here integrate by Simpson's rule and try every table. */
#include "codec_cases.h"

#include <math.h>

static const gw_turn first = {.key = 1, .step = 1, .common = 0x123456789abcdef0u};

/* Encode x with a prefix that was agreed on: the elementwise maximum of all of x[r]. */
typedef struct sum {
    gw_codec codec;
    size_t n, cap, head;
    unsigned char *prefix, *wire, *all; /* all: the sum of those that were encoded */
} sum;

static sum open_sum(const char *spec, int ranks, size_t n, const float *x) {
    sum s = {.codec = must_open(spec), .n = n};
    assert_int_equal(gw_codec_join(&s.codec, ranks), GW_OK);
    s.cap = gw_codec_bound(&s.codec, n), s.head = gw_codec_prefix(&s.codec, n);
    s.prefix = must_alloc(s.head), s.wire = must_alloc(s.cap), s.all = must_alloc(s.cap);
    float *most = (float *)(void *)s.prefix, *own = must_alloc(s.head);
    for (int r = 0; r < ranks; r++) {
        gw_codec_measure(&s.codec, x + (size_t)r * n, n, own);
        for (size_t k = 0; k < s.head / sizeof *own; k++)
            most[k] = own[k] > most[k] ? own[k] : most[k];
    }
    free(own);
    return s;
}

static void close_sum(sum *s) {
    gw_codec_close(&s->codec);
    free(s->prefix), free(s->wire), free(s->all);
}

static void encode_agreed(sum *s, gw_turn turn, const float *x) {
    size_t len;
    memcpy(s->wire, s->prefix, s->head);
    assert_int_equal(gw_codec_encode_agreed(&s->codec, turn, x, s->n, s->wire, s->cap, &len), 0);
    assert_int_equal(len, s->cap);
}

static void decode(const sum *s, const void *wire, float *y) {
    assert_int_equal(gw_codec_decode(&s->codec, wire, s->cap, y, s->n, GW_INTO_SET), GW_OK);
}

/* The sum of all ranks, as native makes it, without MPI; own[r]: what rank r's decodes to. */
static void sum_ranks(sum *s, int ranks, uint64_t key, const float *x, float *own, float *y) {
    memset(s->all, 0, s->cap);
    for (int r = 0; r < ranks; r++) {
        gw_turn turn = first;
        turn.key = gw_rng_key(key, (uint64_t)r);
        encode_agreed(s, turn, x + (size_t)r * s->n);
        memcpy(s->all, s->wire, s->head);
        assert_int_equal(s->codec.ops->add(s->all + s->head, s->wire + s->head, s->n), GW_OK);
        decode(s, s->wire, own + (size_t)r * s->n);
    }
    decode(s, s->all, y);
}

/* ---- the levels ---- */

static double integral(double from, double to, double low, double high, double sd) {
    enum { PARTS = 200 };
    double all = 0, h = (to - from) / PARTS;
    for (int i = 0; i <= PARTS; i++) {
        double a = from + i * h, weight = i == 0 || i == PARTS ? 1 : i % 2 ? 4 : 2;
        all += weight * (a - low) * (high - a) * exp(-a * a / (2 * sd * sd));
    }
    return all * h / 3 / (sd * sqrt(2 * M_PI));
}

/* Twice the error of the positive half; bit p-1 of `set`: p is a level. */
static double error_of_levels(unsigned set, int half, double sd) {
    double all = 0;
    int low = -__builtin_ctz(set) - 1, from = 0;
    for (int p = 1; p <= half; p++)
        if (set >> (p - 1) & 1) {
            all += 2 * integral(from, p, low, p, sd);
            low = from = p;
        }
    return all;
}

static unsigned best_levels(int bits, int half, double sd) {
    double least = INFINITY;
    unsigned best = 0;
    for (unsigned set = 1u << (half - 1); set < 1u << half; set++)
        if (__builtin_popcount(set) == 1 << (bits - 1)) {
            double error = error_of_levels(set, half, sd);
            if (error < least)
                least = error, best = set;
        }
    return best;
}

/* The magnitudes that encodings have. */
static unsigned levels_sent(const char *spec) {
    enum { N = 1 << 14 };
    static float x[N];
    unsigned set = 0;
    for (size_t i = 0; i < N; i++)
        x[i] = (float)gw_rng_normal(7, i);
    gw_codec c = must_open(spec);
    for (uint64_t key = 0; key < 20; key++) {
        size_t len;
        unsigned char *wire = encoded(&c, key, x, N, &len);
        const signed char *level = (const signed char *)wire + gw_codec_prefix(&c, N);
        for (size_t i = 0; i < N; i++) {
            assert_true(level[i] != 0);
            set |= 1u << (abs(level[i]) - 1);
        }
        free(wire);
    }
    gw_codec_close(&c);
    return set;
}

/* Truncation beyond `reach` standard deviations: of 1/32, a tenth and a hundredth. */
static void levels_are_the_best(void **state) {
    static const struct {
        const char *spec;
        int bits, half;
        double reach;
    } tables[] = {{"thc", 4, 15, 2.15387469},
                  {"thc:bits=3", 3, 15, 2.15387469},
                  {"thc:bits=2,granularity=24,truncate=0.1", 2, 12, 1.64485363},
                  {"thc:bits=3,granularity=20,truncate=0.01", 3, 10, 2.57582930},
                  {"thc:granularity=16", 4, 8, 2.15387469}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        unsigned want =
            best_levels(tables[i].bits, tables[i].half, tables[i].half / tables[i].reach);
        assert_int_equal(levels_sent(tables[i].spec), want);
    }
    /* as the codec's head says: 1 2 4 6 8 10 12 15 */
    assert_int_equal(levels_sent("thc"), 1 | 2 | 8 | 32 | 128 | 512 | 2048 | 16384);
}

/* Of normal values the mean square error is the table's, and the truncation's. */
static void error_is_the_tables(void **state) {
    enum { N = 1 << 16 };
    static float x[N], y[N];
    double reach = 2.15387469, sd = 15 / reach, lost = 0, all = 0, beyond = 0;
    for (int i = 0; i < 1000; i++) {
        double z = reach + (i + 0.5) * 0.005;
        beyond += 2 * (z - reach) * (z - reach) * exp(-z * z / 2) / sqrt(2 * M_PI) * 0.005;
    }
    double want = beyond + error_of_levels(best_levels(4, 15, sd), 15, sd) / (sd * sd);
    for (size_t i = 0; i < N; i++)
        x[i] = (float)gw_rng_normal(3, i) * (i % 4096 < 400 ? 5 : 1); /* not normal before H */
    gw_codec c = must_open("thc");
    round_trip(&c, 5, x, N, y);
    for (size_t i = 0; i < N; i++) {
        lost += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
        all += (double)x[i] * x[i];
    }
    if (fabs(lost / all / want - 1) > 0.03)
        fail_msg("error %g of the square, %g expected", lost / all, want);
    gw_codec_close(&c);
}

/* ---- sums ---- */

/* A whole bucket's H has whole numbers for levels, and 1 / sqrt(4096) is a power of two: sums of
 * what is decoded are exact, and equal the decoded sum to the bit. Elsewhere up to rounding. */
static void sums_are_sums(void **state) {
    enum { RANKS = 8, N = 2 * 4096 + 1000 };
    static float x[RANKS * N], own[RANKS * N], y[N];
    for (int r = 0; r < RANKS; r++)
        fill_gradient((uint64_t)r, x + r * N, N);
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        sum s = open_sum("thc", ranks, N, x);
        sum_ranks(&s, ranks, 9, x, own, y);
        for (size_t i = 0; i < N; i++) {
            double want = 0, size = 0;
            float step = ((float *)(void *)s.prefix)[1 + i / 4096] / 15;
            for (int r = 0; r < ranks; r++) {
                double whole = nearbyint((double)own[r * N + i] / (double)step * 64) / 64;
                want += i < 8192 ? whole : (double)own[r * N + i] / (double)step;
                size += fabs((double)own[r * N + i]);
                assert_true(i >= 8192 || own[r * N + i] == (float)whole * step);
            }
            if (i < 8192)
                assert_true(y[i] == (float)want * step);
            else
                assert_true(fabs(y[i] - want * (double)step) <= 1e-6 * (size + (double)step));
        }
        close_sum(&s);
    }
}

static void no_sum_overflows(void **state) {
    static const struct {
        const char *spec;
        int most;
    } specs[] = {{"thc", 8}, {"thc:granularity=16", 15}, {"thc:bits=1,granularity=2", 127}};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int ranks = 1; ranks <= 140; ranks++) {
            gw_codec c = must_open(specs[i].spec);
            bool fits = ranks * ((int)gw_args_int(c.args, "granularity") / 2) <= 127;
            assert_int_equal(fits, ranks <= specs[i].most);
            assert_int_equal(gw_codec_join(&c, ranks), fits ? GW_OK : GW_ERR_UNSUPPORTED);
            gw_codec_close(&c);
        }
    gw_codec c = must_open("thc");
    assert_fails(gw_codec_join(&c, 16), GW_ERR_UNSUPPORTED, "granularity=14,bits=3");
    gw_codec_close(&c);
}

/* All ranks flip the same signs, in each exchange others: of one peak all elements of x' are as
 * large, and their signs are all that an encoding shows. */
static void signs_are_common(void **state) {
    enum { N = 4096 };
    static float x[2 * N];
    static signed char level[4][N];
    x[77] = x[N + 77] = 1;
    sum s = open_sum("thc", 2, N, x);
    const gw_turn turns[] = {{1, 1, 5ull << 40}, {2, 1, 5ull << 40}, {1, 1, 6ull << 40}};
    int differ[3] = {0};
    for (int t = 0; t < 3; t++) {
        encode_agreed(&s, turns[t], x);
        memcpy(level[t], s.wire + s.head, N);
    }
    for (int i = 0; i < N; i++) {
        differ[1] += (level[0][i] < 0) != (level[1][i] < 0);
        differ[2] += (level[0][i] < 0) != (level[2][i] < 0);
    }
    assert_int_equal(differ[1], 0);
    assert_true(differ[2] == 0 || differ[2] == N); /* one row of H, up to the sign of its element */
    x[78] = 1;
    encode_agreed(&s, turns[0], x);
    memcpy(level[0], s.wire + s.head, N);
    for (uint64_t c = 1; c < 40 && differ[0] != 2; c++) {
        encode_agreed(&s, (gw_turn){1, 1, c << 40}, x);
        for (int i = 0, d = 0; i < N; i++) {
            d += (level[0][i] < 0) != ((signed char)s.wire[s.head + (size_t)i] < 0);
            differ[0] = d > N / 8 && d < N - N / 8 ? 2 : differ[0];
        }
    }
    assert_int_equal(differ[0], 2);
    close_sum(&s);
}

/* ---- bias ---- */

enum { DRAWS = 3200, SPAN = 3 * 256 + 100 };

/* Squares of the mean error over the draws, and what chance gives: their ratio is near 1. */
static double bias(const char *spec, int ranks, const float *x, const double *want, double most) {
    static float own[4 * SPAN], y[SPAN];
    static double mean[SPAN];
    double once = 0, off = 0, widest = 0;
    sum s = open_sum(spec, ranks, SPAN, x);
    memset(mean, 0, sizeof mean);
    for (uint64_t key = 0; key < DRAWS; key++) {
        double all = 0;
        sum_ranks(&s, ranks, key, x, own, y);
        for (int i = 0; i < SPAN; i++) {
            double d = (double)y[i] - want[i];
            mean[i] += d / DRAWS;
            all += d * d;
        }
        widest = fmax(widest, all);
        once += all / DRAWS;
    }
    assert_true(most == 0 || sqrt(widest) <= most);
    for (int i = 0; i < SPAN; i++)
        off += mean[i] * mean[i];
    close_sum(&s);
    return off * DRAWS / once;
}

/* Without truncation none, whatever the number of ranks and with a short last bucket; the error's
 * norm is at most sqrt(n) M / h times the widest gap. With it there is one. */
static void only_truncation_biases(void **state) {
    enum { RANKS = 4, HALF = 15, GAP = 5 };
    static float x[RANKS * SPAN];
    static double want[SPAN];
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        double top = 0;
        for (int i = 0; i < SPAN; i++) {
            x[(ranks - 1) * SPAN + i] = (float)gw_rng_normal((uint64_t)ranks, (uint64_t)i);
            want[i] += (double)x[(ranks - 1) * SPAN + i];
        }
        sum s = open_sum("thc:truncate=1e-7,bucket=256", ranks, SPAN, x);
        for (int b = 0; b < 4; b++)
            top = fmax(top, (double)((float *)(void *)s.prefix)[1 + b]);
        close_sum(&s);
        double most = ranks * sqrt(SPAN) * top / HALF * GAP;
        double none = bias("thc:truncate=1e-7,bucket=256", ranks, x, want, most);
        if (fabs(none - 1) > 0.2)
            fail_msg("%d ranks: squared bias is %g of what chance gives", ranks, none);
        assert_true(bias("thc:bucket=256", ranks, x, want, 0) > 10);
    }
}

/* ---- bad values ---- */

/* One rank's NaN or infinity is the bucket's on all; zeros stay zeros and tiny floats become some;
 * the largest floats stay finite. */
static void one_rank_is_enough(void **state) {
    enum { N = 5 * 512 + 77, RANKS = 3 };
    static float x[RANKS * N], own[RANKS * N], y[N];
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < 4; kind++) {
        for (int r = 0; r < RANKS; r++) {
            fill_gradient((uint64_t)r, x + r * N, N);
            memset(x + r * N, 0, 512 * sizeof *x);
            for (int i = 1024; i < 1536; i++)
                x[r * N + i] = 1e-38f;
        }
        x[kind % RANKS * N + 700] = bad[kind];
        for (int i = 2048; i < 2560; i++)
            x[i] = 0x1.fffffep127f;
        sum s = open_sum("thc:bucket=512", RANKS, N, x);
        sum_ranks(&s, RANKS, 1, x, own, y);
        for (int i = 0; i < N; i++) {
            assert_true(i / 512 == 1 ? isnan(y[i]) : isfinite(own[i]));
            assert_true(i / 512 == 4 || i / 512 == 1 || isfinite(y[i]));
            assert_true((i >= 512 && i / 512 != 2) || y[i] == 0);
        }
        close_sum(&s);
    }
}

/* Wild prefixes: no crash, and a range that no encoder writes is a NaN. */
static void wild_ranges_are_nan(void **state) {
    enum { N = 700 };
    static const uint32_t wild[] = {0x7f800000, 0x7fc00000, 0x80000001, 0xbf800000, 0xffffffff};
    float x[N], y[N];
    size_t len;
    fill_gradient(4, x, N);
    gw_codec c = must_open("thc:bucket=512");
    unsigned char *wire = encoded(&c, 1, x, N, &len);
    for (size_t w = 0; w < sizeof wild / sizeof *wild; w++) {
        for (int i = 0; i < 3; i++)
            memcpy(wire + 4 * i, &wild[w], 4);
        assert_int_equal(gw_codec_decode(&c, wire, len, y, N, GW_INTO_SET), GW_OK);
        for (int i = 0; i < N; i++)
            assert_true(isnan(y[i]));
    }
    free(wire);
    gw_codec_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_the_best), cmocka_unit_test(error_is_the_tables),
        cmocka_unit_test(sums_are_sums),       cmocka_unit_test(no_sum_overflows),
        cmocka_unit_test(signs_are_common),    cmocka_unit_test(only_truncation_biases),
        cmocka_unit_test(one_rank_is_enough),  cmocka_unit_test(wild_ranges_are_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
