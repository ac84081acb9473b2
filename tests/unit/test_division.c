/* --partition: every sample lies on one rank, in numbers and labels as told, by the seed alone. */
#include "data/division.h"
#include "data/sampler.h"

#include "base/mem.h"

#include "unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3001, CLASSES = 10, BATCH = 64, MOST = 5 };
static const char *const kinds[] = {"labels:alpha=0.1", "labels:alpha=1", "labels:alpha=100",
                                    "sizes:alpha=5"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static gw_division read(const char *text) {
    gw_division how;
    assert_ok(gw_division_read(&how, text));
    return how;
}

static uint8_t label_of(uint32_t i) {
    return (uint8_t)(i * i % 97 % CLASSES); /* the classes differ in size */
}

/* Sample i's image is its number. */
static gw_raw make_set(void) {
    gw_raw raw = {
        .train.n = N, .rows = 1, .cols = sizeof(uint32_t), .classes = CLASSES, .targets = 1};
    assert_int_equal(gw_alloc(&raw.train.images, N, sizeof(uint32_t)), GW_OK);
    assert_int_equal(gw_alloc(&raw.train.labels, N, sizeof(gw_label)), GW_OK);
    for (uint32_t i = 0; i < N; i++) {
        memcpy(raw.train.images + i * sizeof i, &i, sizeof i);
        raw.train.labels[i] = label_of(i);
    }
    return raw;
}

static gw_divided divide(gw_raw *raw, const char *text, uint64_t seed, int parts) {
    gw_division how = read(text);
    gw_division_job job = {&how, seed, parts, BATCH};
    gw_divided d = {0};
    if (gw_division_make(&d, &job, raw, false) != GW_OK)
        fail_msg("%s: %s", text, gw_err_text());
    return d;
}

static double mean_skew(const gw_divided *d) {
    double sum = 0;
    for (int p = 0; p < d->parts; p++)
        sum += d->skew[p] / d->parts;
    return sum;
}

static void covers(const char *text, int parts) {
    gw_raw raw = make_set(), again = make_set();
    gw_divided d = divide(&raw, text, 3, parts), same = divide(&again, text, 3, parts);
    uint8_t seen[N] = {0};
    uint32_t end = 0, first, count;
    assert_int_equal(d.parts, parts);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t is;
        memcpy(&is, raw.train.images + i * sizeof is, sizeof is);
        assert_true(is < N && !seen[is]++);
        assert_int_equal(raw.train.labels[i], label_of(is));
    }
    for (int p = 0; p < parts; p++) {
        gw_shares by = {parts, d.ends};
        assert_int_equal(gw_portion_cut(N, BATCH, p, by, &first, &count), GW_OK);
        assert_int_equal(first, end);
        assert_int_equal(count, d.samples[p]);
        end += count;
    }
    assert_int_equal(end, N);
    assert_memory_equal(raw.train.images, again.train.images, N * sizeof(uint32_t));
    assert_string_equal(d.hash, same.hash);
    gw_divided_free(&d);
    gw_divided_free(&same);
    gw_raw_free(&raw);
    gw_raw_free(&again);
}

static void each_sample_lies_on_one_rank(void **state) {
    for (int parts = 2; parts <= MOST; parts++)
        for (int k = 0; k < KINDS; k++)
            covers(kinds[k], parts);
}

static void one_rank_is_not_divided(void **state) {
    gw_raw raw = make_set();
    gw_divided d = divide(&raw, "labels:alpha=0.1", 3, 1);
    assert_int_equal(d.parts, 0);
    for (uint32_t i = 0; i < N; i++)
        assert_memory_equal(raw.train.images + i * sizeof i, &i, sizeof i);
    gw_divided_free(&d);
    gw_raw_free(&raw);
}

/* As many samples for each rank; distances as defined; and falling with alpha. */
static void labels_are_skewed(void **state) {
    enum { PARTS = 4, SEEDS = 20 };
    double skew[3] = {0};
    for (int k = 0; k < 3; k++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            gw_raw raw = make_set();
            gw_divided d = divide(&raw, kinds[k], seed, PARTS);
            const gw_label *of = raw.train.labels;
            for (int p = 0; p < PARTS; of += d.samples[p++]) {
                double distance = 0;
                for (int c = 0; c < CLASSES; c++) {
                    double all = 0, mine = 0;
                    for (uint32_t i = 0; i < N; i++)
                        all += raw.train.labels[i] == c;
                    for (uint32_t i = 0; i < d.samples[p]; i++)
                        mine += of[i] == c;
                    distance += fabs(mine / d.samples[p] - all / N) / 2;
                }
                assert_true(fabs(distance - d.skew[p]) < 1e-9);
                assert_true(abs((int)d.samples[p] - N / PARTS) <= N / BATCH + 1);
            }
            skew[k] += mean_skew(&d) / SEEDS;
            gw_divided_free(&d);
            gw_raw_free(&raw);
        }
    if (!(skew[0] > 0.5 && skew[0] > skew[1] && skew[1] > 2 * skew[2] && skew[2] < 0.2))
        fail_msg("mean skews %g, %g, %g", skew[0], skew[1], skew[2]);
}

static void sizes_are_as_told(void **state) {
    gw_raw raw = make_set();
    gw_divided d = divide(&raw, "sizes:4,2,1,1", 3, 4);
    const int of_batch[] = {32, 16, 8, 8};
    for (int p = 0; p < 4; p++)
        assert_true(d.samples[p] / (N / BATCH) == (uint32_t)of_batch[p] && d.skew[p] < 0.1);
    gw_divided_free(&d);
    gw_raw_free(&raw);
}

/* Shares of Dirichlet(a, .., a) over P ranks: mean 1 / P, mean square (a + 1) / (P (P a + 1)). */
static void sizes_are_dirichlet(void **state) {
    enum { PARTS = 4, SEEDS = 20000 };
    static const double alphas[] = {1, 10};
    for (int k = 0; k < 2; k++) {
        gw_division how = {.on = true, .alpha = alphas[k]};
        gw_raw raw = {.train.n = 1 << 28};
        double sum = 0, square = 0, fourth = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            gw_divided d = {0};
            gw_division_job job = {&how, seed, PARTS, 1 << 28};
            assert_int_equal(gw_division_make(&d, &job, &raw, true), GW_OK);
            double share = d.samples[seed % PARTS] / 0x1p28;
            sum += share / SEEDS;
            square += share * share / SEEDS;
            fourth += pow(share, 4) / SEEDS;
            gw_divided_free(&d);
        }
        double mean = 1.0 / PARTS, expected = (how.alpha + 1) / (PARTS * (PARTS * how.alpha + 1));
        assert_true(fabs(sum - mean) < 5 * sqrt((expected - mean * mean) / SEEDS));
        assert_true(fabs(square - expected) < 5 * sqrt((fourth - square * square) / SEEDS));
    }
}

/* In an epoch each rank takes each of its samples once, and of each batch what it has of all. */
static void sampler_keeps_to_the_parts(void **state) {
    enum { PARTS = 3, EPOCHS = 2 };
    const uint32_t ends[PARTS] = {5, 7, 8};
    const int full[PARTS] = {40, 16, 8};
    gw_dataset set = {.n = N, .n_global = N, .shares = {PARTS, ends}};
    gw_sampler *s[PARTS];
    for (int p = 0; p < PARTS; p++)
        assert_int_equal(gw_sampler_open(&s[p], &set, BATCH, false, 1, p, PARTS), GW_OK);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        uint8_t seen[N] = {0};
        for (int p = 0; p < PARTS; p++) {
            uint32_t first, count;
            assert_int_equal(gw_portion_cut(N, BATCH, p, set.shares, &first, &count), GW_OK);
            gw_sampler_epoch(s[p], epoch);
            for (int b = 0; b < gw_sampler_batches(s[p]); b++) {
                gw_batch batch = gw_sampler_batch(s[p], b);
                assert_true(batch.global < BATCH || batch.local == full[p]);
                assert_true(batch.local <= gw_sampler_max_local(s[p]));
                for (int i = 0; i < batch.local; i++)
                    assert_true(batch.idx[i] - first < count && !seen[batch.idx[i]]++);
            }
        }
        assert_null(memchr(seen, 0, N));
    }
    gw_sampler *other;
    assert_int_equal(gw_sampler_open(&other, &set, BATCH, false, 1, 0, 2), GW_ERR_INTERNAL);
    for (int p = 0; p < PARTS; p++)
        gw_sampler_close(s[p]);
}

/* The same on any machine. */
static void parts_are_known(void **state) {
    static const char *const hashes[KINDS] = {"crc32:b180652f", "crc32:e8274b47", "crc32:71ffd202",
                                              "crc32:59391adb"};
    for (int k = 0; k < KINDS; k++) {
        gw_raw raw = make_set();
        gw_divided d = divide(&raw, kinds[k], 1, 4);
        assert_string_equal(d.hash, hashes[k]);
        gw_divided_free(&d);
        gw_raw_free(&raw);
    }
}

static void refusals(void **state) {
    static const char *const bad[] = {
        "",          "shares",   "labels:alpha=0", "labels:beta=1",      "sizes",          "sizes:",
        "sizes:0,1", "sizes:3,", "sizes:-1",       "sizes:alpha=1,of=2", "uniform:alpha=1"};
    gw_division how;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (gw_division_read(&how, bad[i]) != GW_ERR_USAGE)
            fail_msg("'%s' is not refused", bad[i]);
    static const struct {
        const char *text;
        int parts, batch;
    } cannot[] = {{"sizes:3,1", 3, BATCH},
                  {"sizes:3,1", 1, BATCH},
                  {"sizes:1,999", 2, BATCH},
                  {"labels", 4, 3},
                  {"labels", 2, N + 1}};
    for (size_t i = 0; i < sizeof cannot / sizeof *cannot; i++) {
        gw_raw raw = {.train.n = N};
        gw_divided d = {0};
        how = read(cannot[i].text);
        gw_division_job job = {&how, 1, cannot[i].parts, cannot[i].batch};
        if (gw_division_make(&d, &job, &raw, true) != GW_ERR_USAGE)
            fail_msg("%s on %d ranks is not refused", cannot[i].text, cannot[i].parts);
        gw_divided_free(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_lies_on_one_rank),
        cmocka_unit_test(one_rank_is_not_divided),
        cmocka_unit_test(labels_are_skewed),
        cmocka_unit_test(sizes_are_as_told),
        cmocka_unit_test(sizes_are_dirichlet),
        cmocka_unit_test(sampler_keeps_to_the_parts),
        cmocka_unit_test(parts_are_known),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
