/* Gathering: conversion, resizing and replication against the definition, on odd shapes, with and
 * without threads, and nothing written behind the end. */
#include "data/data.h"

#include "unit.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 1000, SAMPLES = 37, GUARD = 16 };

static void expect_gathered(const gw_dataset *s, int n, int threads) {
    int features = gw_dataset_features(s), before = omp_get_max_threads();
    size_t total = (size_t)n * (size_t)features;
    float *out = malloc((total + GUARD) * sizeof *out);
    gw_label labels[256];
    uint32_t idx[256];
    assert_non_null(out);
    assert_true(n < 256);
    for (size_t i = 0; i < total + GUARD; i++)
        out[i] = -7;
    memset(labels, 0xee, sizeof labels);
    for (int i = 0; i < n; i++)
        idx[i] = FIRST + (uint32_t)(i * 11 + 5) % s->n;
    omp_set_num_threads(threads);
    gw_dataset_gather(s, idx, n, out, labels);
    omp_set_num_threads(before);
    for (int i = 0; i < n; i++) {
        uint32_t at = (idx[i] - FIRST) % SAMPLES;
        const uint8_t *image = s->images + at * (size_t)(s->rows * s->cols);
        assert_int_equal(labels[i], s->labels[at]);
        for (int j = 0; j < features; j++) {
            int r = j / s->to_cols * s->rows / s->to_rows;
            int c = j % s->to_cols * s->cols / s->to_cols;
            float want = (float)image[r * s->cols + c] * (1.0f / 255.0f);
            if (out[(size_t)i * (size_t)features + (size_t)j] != want)
                fail_msg("%d x %d as %d x %d: sample %d input %d is %g, expected %g", s->rows,
                         s->cols, s->to_rows, s->to_cols, i, j,
                         out[(size_t)i * (size_t)features + (size_t)j], want);
        }
    }
    for (int i = 0; i < GUARD; i++)
        assert_true(out[total + (size_t)i] == -7);
    assert_int_equal(labels[n], 0xeeee);
    free(out);
}

/* Enlarged by 1 to 5; by ratios that are no whole numbers; reduced; and one way each. The samples
 * in memory stand for five more of a second copy. */
static void matches_the_definition(void **state) {
    static const int shapes[][2] = {{1, 1}, {1, 783}, {5, 7}, {28, 28}, {3, 130}};
    static const int sizes[][2] = {{56, 58}, {112, 112}, {1, 1}, {13, 9}, {40, 5}, {2, 131}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        int pixels = shapes[k][0] * shapes[k][1];
        uint8_t *images = malloc((size_t)pixels * SAMPLES);
        gw_label labels[SAMPLES];
        assert_non_null(images);
        for (int i = 0; i < pixels * SAMPLES; i++)
            images[i] = (uint8_t)(i * 37 + i / 256);
        for (int i = 0; i < SAMPLES; i++)
            labels[i] = (gw_label)(i * 3);
        for (int to = 1; to <= 5 + (int)(sizeof sizes / sizeof *sizes); to++) {
            gw_dataset s = {.n = SAMPLES + 5,
                            .n_global = 5000,
                            .first = FIRST,
                            .stored = SAMPLES,
                            .rows = shapes[k][0],
                            .cols = shapes[k][1],
                            .to_rows = to <= 5 ? shapes[k][0] * to : sizes[to - 6][0],
                            .to_cols = to <= 5 ? shapes[k][1] * to : sizes[to - 6][1],
                            .images = images,
                            .labels = labels,
                            .targets = 1};
            for (int n = 0; n <= 200; n = n * 5 + 1)
                expect_gathered(&s, n, 1 + n % 4);
        }
        free(images);
    }
}

static void every_byte_lands_in_0_to_1(void **state) {
    uint8_t image[256];
    gw_label label = 3;
    for (int i = 0; i < 256; i++)
        image[i] = (uint8_t)i;
    gw_dataset s = {1, 1, 0, 1, 16, 16, 16, 16, image, &label, 1};
    float out[256];
    gw_dataset_gather(&s, &(uint32_t){0}, 1, out, NULL);
    assert_true(out[0] == 0);
    assert_true(out[255] == 1);
    for (int i = 1; i < 256; i++)
        assert_true(out[i] > out[i - 1]);
}

/* Planes that lie one behind another are resized each by itself. */
static void planes_stay_apart(void **state) {
    enum { PLANES = 3, SIDE = 4 };
    static const int sizes[][2] = {{4, 4}, {8, 8}, {3, 5}, {7, 2}, {1, 1}};
    uint8_t image[PLANES * SIDE * SIDE];
    gw_label label = 0;
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)(5 * i + 1);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int rows = sizes[k][0], cols = sizes[k][1];
        float out[PLANES * 64];
        gw_dataset s = {1,    1,     0,      1, PLANES * SIDE, SIDE, PLANES * rows,
                        cols, image, &label, 1, PLANES};
        gw_dataset_gather(&s, &(uint32_t){0}, 1, out, NULL);
        for (int p = 0; p < PLANES; p++)
            for (int i = 0; i < rows * cols; i++) {
                int at = (p * SIDE + i / cols * SIDE / rows) * SIDE + i % cols * SIDE / cols;
                assert_true(out[p * rows * cols + i] == (float)image[at] * (1.0f / 255.0f));
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_definition),
        cmocka_unit_test(every_byte_lands_in_0_to_1),
        cmocka_unit_test(planes_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
