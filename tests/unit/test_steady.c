#include "base/rng.h"
#include "base/steady.h"

#include "unit.h"

#include <math.h>

static double steady(const double *x, int n) {
    double out;
    assert_int_equal(gw_steady_of(x, n, &out), GW_OK);
    return out;
}

/* Every fourth step communicates, and for an eighth of the run somebody else was at work: the first
 * counts in full, the second not at all. */
static double recurring(int64_t i, int64_t n) {
    return (i % 4 ? 1.0 : 5.0) * (i >= n / 4 && i < n / 4 + n / 8 ? 10 : 1);
}

static void test_what_recurs_counts(void **state) {
    enum { N = 1600 };
    static double x[N];
    for (int i = 0; i < N; i++)
        x[i] = recurring(i, N);
    assert_true(steady(x, N) == 2);
}

static void test_few_steps(void **state) {
    assert_true(steady((double[]){3}, 1) == 3);
    assert_true(steady((double[]){9, 1, 2}, 3) == 4); /* a quarter of three is none */
    assert_true(steady((double[]){90, 3, 2, 4, 1, 3, 2, 90}, 8) == 3); /* two of each end */
}

/* Unequal blocks: of 41 steps one has two. */
static void test_all_steps_are_in_blocks(void **state) {
    double x[41];
    for (int i = 0; i < 41; i++)
        x[i] = i;
    assert_true(steady(x, 41) == (10 + 30 - 1) / 2.0); /* the blocks of steps 10 to 29 */
}

/* The parts are of the steps that the first figure keeps, and add up to it, whatever their own
 * order; of steps that do not know a part the others stand for it. */
static void test_parts_add_up(void **state) {
    enum { N = 100000, FIGURES = 4 };
    gw_steady *s;
    double mean[FIGURES], plain[FIGURES];
    assert_int_equal(gw_steady_open(&s, FIGURES), GW_OK);
    for (int64_t i = 0; i < N; i++) {
        double wall = recurring(i, N), part = (double)(i % 7) / 7;
        gw_steady_add(s, (double[]){wall, part, wall - part, i % 2 ? NAN : 3});
    }
    gw_steady_means(s, mean, plain);
    assert_int_equal(gw_steady_steps(s), N);
    assert_true(fabs(mean[0] - 2) < 1e-9); /* pieces of whole periods */
    assert_true(fabs(mean[1] + mean[2] - mean[0]) < 1e-9);
    assert_true(mean[3] == 3 && plain[3] == 3);
    assert_true(fabs(plain[0] - (2 * 0.875 + 20 * 0.125)) < 1e-9);
    gw_steady_free(s);
    gw_steady_free(NULL);
}

static void test_forget(void **state) {
    gw_steady *s;
    double mean[2], plain[2];
    assert_int_equal(gw_steady_open(&s, 2), GW_OK);
    for (int i = 0; i < 21; i++)
        gw_steady_add(s, (double[]){i < 10 ? 100 : 1, NAN});
    gw_steady_forget(s, 10);
    gw_steady_means(s, mean, plain);
    assert_int_equal(gw_steady_steps(s), 11);
    assert_true(mean[0] == 1 && plain[0] == 1);
    assert_true(isnan(mean[1]) && isnan(plain[1]));
    gw_steady_free(s);
}

/* Every `period`-th step exchanges and takes 100 times as long; otherwise each has a length of its
 * own. */
static double exchanging(int64_t i, int64_t period) {
    return (i % period == period - 1 ? 100 : 1) + gw_rng_unit(3, (uint64_t)i);
}

/* Blocks are whole periods, whatever the run's length: in each mean there are as many exchanges as
 * periods, and it is a mean over exactly the steps that it says. */
static void test_whole_periods(void **state) {
    static const int64_t periods[] = {1, 2, 3, 30, 97, 1000, 1024, 5003};
    static const int64_t lengths[] = {3, 50, 90, 1000, 4096, 4100, 5000, 21000, 70001};
    for (size_t p = 0; p < sizeof periods / sizeof *periods; p++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            int64_t period = periods[p], n = lengths[l];
            gw_steady *s;
            double mean[2], plain[2];
            assert_int_equal(gw_steady_open(&s, 2), GW_OK);
            gw_steady_repeat(s, gw_repeat_of(period));
            for (int64_t i = 0; i < n; i++)
                gw_steady_add(s, (double[]){exchanging(i, period), i % period == period - 1});
            gw_steady_kept kept = gw_steady_means(s, mean, plain);
            assert_int_equal(kept.period, period);
            assert_int_equal(kept.steps % period, 0);
            assert_int_equal(kept.trimmed, n / period >= GW_STEADY_FEWEST);
            assert_int_equal(kept.steps == 0, n < period);
            assert_string_equal(gw_steady_name(&kept), n < period     ? "absent"
                                                       : kept.trimmed ? "steady mean"
                                                                      : "plain mean");
            if (kept.steps > 0)
                assert_true(fabs(mean[1] * (double)period - 1) < 1e-12);
            if (kept.steps > 0 && !kept.trimmed) {
                double sum = 0;
                for (int64_t i = 0; i < kept.steps; i++)
                    sum += exchanging(i, period);
                assert_int_equal(kept.steps, n / period * period);
                assert_true(fabs(mean[0] * (double)kept.steps / sum - 1) < 1e-12);
            }
            assert_true(kept.trimmed ? kept.steps >= 0.45 * (double)(n - period) : true);
            gw_steady_free(s);
        }
}

/* Rarer work makes blocks longer; if it comes too seldom, or never repeats, nothing is left out. */
static void test_rarer_work(void **state) {
    static const struct {
        int64_t period, every; /* of the exchange, of the rarer work */
        int steps, kept, unit;
        bool trimmed;
    } cases[] = {{1, 100, 1000, 600, 100, true},
                 {8, 12, 480, 240, 24, true},
                 {8, 100, 480, 480, 8, false},
                 {0, 1, 480, 480, 1, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_steady *s;
        double mean, plain;
        gw_repeat repeat = gw_repeat_of(cases[i].period);
        gw_repeat_also(&repeat, cases[i].every, cases[i].steps);
        gw_repeat_also(&repeat, cases[i].steps + 1, cases[i].steps); /* comes never */
        assert_int_equal(gw_steady_open(&s, 1), GW_OK);
        gw_steady_repeat(s, repeat);
        for (int step = 0; step < cases[i].steps; step++)
            gw_steady_add(s, (double[]){exchanging(step, 7)});
        gw_steady_kept kept = gw_steady_means(s, &mean, &plain);
        assert_int_equal(kept.steps, cases[i].kept);
        assert_int_equal(kept.period, cases[i].unit);
        assert_int_equal(kept.trimmed, cases[i].trimmed);
        assert_true(kept.trimmed || mean == plain);
        gw_steady_free(s);
    }
}

static gw_steady_doubt doubt(const double *x, int n) {
    gw_steady *s;
    assert_int_equal(gw_steady_open(&s, 1), GW_OK);
    for (int i = 0; i < n; i++)
        gw_steady_add(s, x + i);
    gw_steady_doubt d = gw_steady_look(s);
    gw_steady_free(s);
    return d;
}

/* By hand: blocks of one step, sorted and trimmed; too few of them tell nothing of halves. */
static void test_halves(void **state) {
    double x[20];
    for (int i = 0; i < 20; i++)
        x[i] = (i % 2 ? 3 : 1) + (i >= 10 ? 0.5 : 0);
    gw_steady_doubt d = doubt(x, 20);
    assert_true(fabs(d.odd - 1.25) < 1e-12 && fabs(d.even - 3.25) < 1e-12); /* 3 of each kind */
    assert_true(fabs(d.first - 2) < 1e-12 && fabs(d.last - 2.5) < 1e-12);
    assert_true(fabs(d.apart - 2 / steady(x, 20)) < 1e-12);
    assert_true(gw_steady_doubts(&d));
    d = doubt(x, GW_STEADY_HALVES - 1);
    assert_true(isnan(d.odd) && isnan(d.last) && isnan(d.apart) && !gw_steady_doubts(&d));
    for (int i = 0; i < 20; i++)
        x[i] = 1 + 0.001 * i;
    d = doubt(x, 20);
    assert_true(d.apart > 0 && !gw_steady_doubts(&d));
}

/* Of all steps, also where neighbours were merged; what was forgotten is in none. */
static void test_percentiles(void **state) {
    gw_steady *s;
    assert_int_equal(gw_steady_open(&s, 1), GW_OK);
    for (int i = 0; i < 10; i++)
        gw_steady_add(s, (double[]){1e3});
    gw_steady_add(s, (double[]){1e-6});
    gw_steady_forget(s, 10);
    gw_steady_doubt d = gw_steady_look(s);
    assert_true(fabs(d.p10 / 1e-6 - 1) < 0.006 && fabs(d.p90 / 1e-6 - 1) < 0.006);
    for (int i = 1; i < 100000; i++) /* 15% of them long, one by one */
        gw_steady_add(s, (double[]){i % 20 < 3 ? 9e-3 : 0.4e-3});
    d = gw_steady_look(s);
    assert_true(fabs(d.p10 / 0.4e-3 - 1) < 0.006 && fabs(d.p90 / 9e-3 - 1) < 0.006);
    gw_steady_free(s);
    d = doubt((double[]){0, 1e9}, 2); /* beyond the bins: their ends */
    assert_true(d.p10 > 0 && d.p10 < 2e-9 && d.p90 > 3600 && isfinite(d.p90));
}

/* ---- how often halves disagree: docs/measurement.md has these figures ---- */

enum { RUNS = 200, LONGEST = 1000 };
typedef double kind(uint64_t key, int i, int n, bool *slow);

static double unimodal(uint64_t key, int i, int n, bool *slow) {
    return exp(0.15 * gw_rng_normal(key, (uint64_t)i));
}

static double drifting(uint64_t key, int i, int n, bool *slow) {
    return unimodal(key, i, n, slow) * (1 + 0.3 * i / n);
}

static double periodic(uint64_t key, int i, int n, bool *slow) {
    return unimodal(key, i, n, slow) + (i % 8 == 3 ? 4 : 0);
}

/* Three steps in ten take 20 times as long, in groups of five on average. */
static double bistable(uint64_t key, int i, int n, bool *slow) {
    double u = gw_rng_unit(gw_rng_key(key, 1), (uint64_t)i);
    *slow = *slow ? u >= 0.2 : u < 0.2 * 0.3 / 0.7;
    return unimodal(key, i, n, NULL) * (*slow ? 20 : 1);
}

/* *moved: runs whose steady mean moves by a tenth if the blocks begin a step later; *told: those of
 * them that are doubted. Returns how many are. */
static int doubted(kind *step, int n, int *moved, int *told) {
    static double x[LONGEST];
    int count = 0;
    *moved = *told = 0;
    for (uint64_t run = 0; run < RUNS; run++) {
        bool slow = false;
        for (int i = 0; i < n; i++)
            x[i] = step(gw_rng_key(7, run), i, n, &slow);
        gw_steady_doubt d = doubt(x, n);
        bool moves = fabs(steady(x + 1, n - 1) / steady(x, n) - 1) > 0.1;
        count += gw_steady_doubts(&d);
        *moved += moves;
        *told += moves && gw_steady_doubts(&d);
    }
    return count;
}

static void test_how_often(void **state) {
    static const struct {
        const char *name;
        kind *step;
        int n, least, most; /* of RUNS */
    } cases[] = {
        {"unimodal", unimodal, 50, 0, 20},           {"unimodal", unimodal, 190, 0, 0},
        {"unimodal", unimodal, 1000, 0, 0},          {"every eighth long", periodic, 190, 0, 4},
        {"every eighth long", periodic, 1000, 0, 0}, {"30% drift", drifting, 190, 150, RUNS},
        {"30% drift", drifting, 1000, 190, RUNS},    {"bistable", bistable, 50, 120, RUNS},
        {"bistable", bistable, 190, 180, RUNS},      {"bistable", bistable, 1000, 160, RUNS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int moved, told, count = doubted(cases[i].step, cases[i].n, &moved, &told);
        print_message(
            "%s, %d steps: %d of %d doubted; %d move with the edges, %d of these doubted\n",
            cases[i].name, cases[i].n, count, RUNS, moved, told);
        assert_in_range(count, cases[i].least, cases[i].most);
        assert_true(told >= 0.95 * moved);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_recurs_counts),
        cmocka_unit_test(test_few_steps),
        cmocka_unit_test(test_all_steps_are_in_blocks),
        cmocka_unit_test(test_parts_add_up),
        cmocka_unit_test(test_forget),
        cmocka_unit_test(test_whole_periods),
        cmocka_unit_test(test_rarer_work),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_percentiles),
        cmocka_unit_test(test_how_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
