/* A model's layout, its initial weights, empty batches, and its file, sound and hostile. */
#include "nn/model.h"

#include "base/file.h"
#include "base/mem.h"
#include "tests/simple_step.h"

#include "folder.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static const gw_model_spec small = {.inputs = 12,
                                    .classes = 4,
                                    .n_hidden = 2,
                                    .hidden = {9, 5},
                                    .activation = GW_TANH,
                                    .init = {GW_INIT_XAVIER},
                                    .seed = 42};

static gw_model *make(const gw_model_spec *spec, int max_batch) {
    gw_model *m = NULL;
    assert_int_equal(gw_model_open(&m, spec, max_batch), GW_OK);
    return m;
}

static void test_layout(void **state) {
    gw_model *m = make(&small, 3);
    assert_int_equal(gw_model_layers(m), 3);
    size_t at = 0;
    const size_t want[] = {13 * 9, 10 * 5, 6 * 4};
    for (int l = 0; l < 3; l++) { /* the layers tile the arena */
        assert_int_equal(gw_model_spans(m)[l].off, at);
        assert_int_equal(gw_model_spans(m)[l].n, want[l]);
        assert_int_equal(gw_model_spans(m)[l].off, at);
        const gw_tensor *t = gw_model_tensors(m) + 2 * l;
        assert_true(t[0].span.off == at && t[0].span.n == (size_t)t[0].rows * (size_t)t[0].cols);
        assert_true(t[1].span.off == gw_span_end(t[0].span) && t[1].rows == 1);
        assert_true(t[0].span.n + t[1].span.n == want[l] && t[0].layer == l && t[1].layer == l);
        at += want[l];
    }
    assert_int_equal(gw_model_size(m), at);
    assert_true(gw_shard_flops(&small, 0) == 2.0 * 2 * 12 * 9);
    assert_true(gw_shard_flops(&small, 1) == 2.0 * 3 * 9 * 5);
    gw_model_close(m);
    gw_model_close(NULL);
}

static void check_variance(gw_init init, double want) {
    gw_model_spec spec = {
        .inputs = 300, .classes = 10, .n_hidden = 1, .hidden = {200}, .init = {init}, .seed = 9};
    gw_model *m = make(&spec, 1);
    const float *w = gw_model_params(m);
    double sum = 0.0, squares = 0.0;
    int n = 300 * 200, beyond = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)w[i];
        squares += (double)w[i] * (double)w[i];
        beyond += fabs((double)w[i]) > 2.0 * sqrt(want);
    }
    double se = sqrt(want / n);
    assert_true(fabs(sum / n) < 4.0 * se);
    assert_true(fabs(squares / n - want) < 4.0 * want * sqrt(2.0 / n));
    assert_true(fabs((double)beyond / n - 0.0455) < 0.005); /* normal, not uniform */
    for (int i = 0; i < 200; i++)
        assert_true(w[n + i] == 0.0f);
    gw_model_close(m);
}

static void test_initial_weights(void **state) {
    check_variance(GW_INIT_HE, 2.0 / 300);
    check_variance(GW_INIT_XAVIER, 2.0 / 500);
    gw_model *a = make(&small, 1);
    omp_set_num_threads(3);
    gw_model *b = make(&small, 8); /* neither threads nor batch matter */
    omp_set_num_threads(1);
    assert_memory_equal(gw_model_params(a), gw_model_params(b), gw_model_size(a) * sizeof(float));
    gw_model_spec other = small;
    other.seed++;
    gw_model *c = make(&other, 1);
    gw_model_spec mixed = small; /* each layer has its own, and those of Xavier what they had */
    mixed.n_init = 3;
    mixed.init[1] = GW_INIT_HE;
    mixed.init[2] = GW_INIT_XAVIER;
    gw_model *d = make(&mixed, 1);
    for (size_t i = 0; i < gw_model_size(a); i++) {
        gw_span one = gw_model_spans(a)[1];
        float was = gw_model_params(a)[i], is = gw_model_params(d)[i];
        assert_true(i < one.off || i >= gw_span_end(one)
                        ? was == is
                        : fabsf(is - was * sqrtf(14.0f / 9)) <= 1e-6f * fabsf(is));
    }
    gw_model_close(d);
    assert_true(gw_model_params(a)[0] != gw_model_params(c)[0]);
    size_t second = gw_model_spans(a)[1].off; /* no layer repeats the draws of another */
    assert_true(gw_model_params(a)[0] * sqrtf(21.0f) != gw_model_params(a)[second] * sqrtf(14.0f));
    gw_model_close(a);
    gw_model_close(b);
    gw_model_close(c);
}

static void test_empty_batch(void **state) {
    gw_model *m = make(&small, 2);
    for (size_t i = 0; i < gw_model_size(m); i++)
        gw_model_grads(m)[i] = NAN;
    for (int l = 0; l < 3; l++)
        simple_forward(m, l, 0);
    int correct = -1;
    assert_true(simple_loss(m, NULL, 0, 1.0f, &correct) == 0.0);
    assert_int_equal(correct, 0);
    for (int l = 2; l >= 0; l--) {
        simple_backward(m, l, 0);
        simple_descend(m, l, 0);
    }
    for (size_t i = 0; i < gw_model_size(m); i++)
        assert_true(gw_model_grads(m)[i] == 0.0f);
    gw_model_close(m);
}

static void test_correct(void **state) {
    gw_model_spec spec = {.inputs = 3, .classes = 3};
    gw_model *m = make(&spec, 3);
    memset(gw_model_params(m), 0, gw_model_size(m) * sizeof(float));
    for (int i = 0; i < 3; i++) /* identity weights: the input is the logits */
        gw_model_params(m)[4 * i] = simple_input(m)[4 * i] = 1.0f;
    simple_forward(m, 0, 3);
    gw_span logits = gw_model_edge(m, 0, GW_EDGE_OUTPUT, (gw_micro){.n = 3});
    assert_int_equal(logits.n, 9);
    for (int i = 0; i < 9; i++)
        assert_true(gw_model_work(m)[logits.off + (size_t)i] == (i % 4 == 0 ? 1.0f : 0.0f));
    int correct;
    const gw_label labels[] = {0, 2, 2};
    simple_loss(m, labels, 3, 1.0f, &correct);
    assert_int_equal(correct, 2);
    gw_model_close(m);
}

static void refused(gw_model_spec spec) {
    gw_model *m = NULL;
    assert_int_equal(gw_model_open(&m, &spec, 1), GW_ERR_USAGE);
    assert_null(m);
}

static void test_refused(void **state) {
    const gw_model_spec good = {.inputs = 4, .classes = 2, .n_hidden = 1, .hidden = {3}};
    gw_model_spec bad[11];
    for (int i = 0; i < 11; i++)
        bad[i] = good;
    bad[0].inputs = 0;
    bad[1].inputs = (1 << 20) + 1;
    bad[2].classes = GW_MAX_CLASSES + 1;
    bad[3].hidden[0] = -1;
    bad[4].n_hidden = GW_MAX_LAYERS;
    bad[5].activation = (gw_activation)3;
    bad[6].init[0] = (gw_init)9;
    bad[7].inputs = bad[7].hidden[0] = 1 << 16; /* 2^32 weights */
    bad[8].output = (gw_output)2;
    bad[9].n_init = 3;
    bad[10].n_init = 2;
    bad[10].init[1] = (gw_init)2;
    for (int i = 0; i < 11; i++)
        refused(bad[i]);
}

static gw_err save(gw_model *m) {
    uint64_t bytes;
    uint32_t crc32;
    return gw_model_save(m, gw_model_params(m), folder, "model", &bytes, &crc32);
}

static void test_round_trip(void **state) {
    for (int hidden = 0; hidden <= 2; hidden++) {
        gw_model_spec spec = small;
        spec.n_hidden = hidden;
        spec.output = (gw_output)(hidden % 2);
        spec.n_init = hidden > 1 ? hidden + 1 : 0; /* the file of 0 hidden layers is a version 1 */
        spec.init[2] = GW_INIT_XAVIER;
        gw_model *m = make(&spec, 1), *back = NULL;
        for (size_t i = 0; i < gw_model_size(m); i++)
            gw_model_params(m)[i] += (float)i;
        assert_int_equal(save(m), GW_OK);
        assert_int_equal(gw_model_load(&back, path, 7, NULL), GW_OK);
        const gw_model_spec *got = gw_model_get_spec(back);
        assert_int_equal(got->inputs, 12);
        assert_int_equal(got->classes, 4);
        assert_int_equal(got->n_hidden, hidden);
        assert_memory_equal(got->hidden, small.hidden, (size_t)hidden * sizeof(int));
        assert_int_equal(got->activation, GW_TANH);
        assert_int_equal(got->output, spec.output);
        for (int l = 0; l <= hidden; l++)
            assert_int_equal(gw_model_spec_init(got, l), gw_model_spec_init(&spec, l));
        assert_int_equal(got->seed, 42);
        assert_int_equal(gw_model_size(back), gw_model_size(m));
        assert_memory_equal(gw_model_params(back), gw_model_params(m),
                            gw_model_size(m) * sizeof(float));
        gw_model_close(m);
        gw_model_close(back);
    }
}

static void assert_not_a_model(void) {
    gw_model *m = NULL;
    assert_int_equal(gw_model_load(&m, path, 1, NULL), GW_ERR_INPUT);
    assert_null(m);
    assert_message(path); /* the message names the file */
}

/* A file must not have code loaded. */
static void test_plugins_are_named_by_the_caller(void **state) {
    gw_model_spec spec = small;
    strcpy(spec.text, "./nowhere.so:width=3");
    gw_model *m = make(&spec, 1), *back = NULL;
    assert_int_equal(save(m), GW_OK);
    gw_model_close(m);
    assert_not_a_model();
    assert_message("plugin ./nowhere.so: name it with --plugin");
    assert_fails(gw_model_load(&back, path, 1, &GW_SPEC_NAMED("./missing.so")), GW_ERR_INPUT,
                 "missing.so");
    assert_int_equal(gw_model_load(&back, path, 1, &GW_SPEC_NAMED("mlp")), GW_ERR_INPUT);
    assert_null(back);
}

static void damage(gw_model_spec spec) {
    gw_model *m = make(&spec, 1);
    char *data;
    size_t n;
    FILE *in;
    assert_int_equal(save(m), GW_OK);
    assert_int_equal(gw_file_open(path, &in, &n), GW_OK);
    assert_int_equal(gw_alloc(&data, n, 1), GW_OK);
    assert_int_equal(fread(data, 1, n, in), n);
    fclose(in);
    for (size_t cut = 0; cut < n; cut++) {
        put_bytes("model", data, cut);
        assert_not_a_model();
    }
    for (size_t at = 0; at < n; at++) {
        data[at] ^= 0x10;
        put_bytes("model", data, n);
        assert_not_a_model();
        data[at] ^= 0x10;
    }
    unlink(path);
    assert_not_a_model();
    free(data);
    gw_model_close(m);
}

static void test_damaged_files(void **state) {
    gw_model_spec spec = small;
    spec.n_init = 3; /* version 2 */
    damage(spec);
    strcpy(spec.text, "mlp"); /* version 3 */
    damage(spec);
}

/* Files with a right checksum and impossible or greedy contents. */
static void write_file(const int32_t shape[5], int32_t hidden, const int32_t *extra) {
    gw_io *io = NULL;
    int32_t init[GW_MAX_LAYERS + 1] = {0};
    uint64_t seed = 1;
    float params[4] = {0};
    int32_t widths[GW_MAX_LAYERS + 1];
    for (int i = 0; i <= GW_MAX_LAYERS; i++)
        widths[i] = hidden;
    size_t n = shape[2] > 0 && shape[2] <= GW_MAX_LAYERS ? (size_t)shape[2] : 0;
    assert_int_equal(gw_io_save(&io, folder, "model", "GWMODEL1", extra ? 2 : 1), GW_OK);
    assert_int_equal(gw_io_field(io, "shape", (void *)(uintptr_t)shape, 5 * sizeof *shape), GW_OK);
    assert_int_equal(gw_io_field(io, "hidden", widths, n * sizeof *widths), GW_OK);
    assert_int_equal(gw_io_field(io, "seed", &seed, sizeof seed), GW_OK);
    if (extra) { /* output, initialisations, the first of them */
        size_t inits = extra[1] > 0 && extra[1] <= GW_MAX_LAYERS + 1 ? (size_t)extra[1] : 0;
        init[0] = extra[2];
        assert_int_equal(gw_io_field(io, "output", (void *)(uintptr_t)extra, 2 * sizeof *extra),
                         GW_OK);
        assert_int_equal(gw_io_field(io, "init", init, inits * sizeof *init), GW_OK);
    }
    assert_int_equal(gw_io_field(io, "params", params, sizeof params), GW_OK);
    assert_int_equal(gw_io_close(io), GW_OK);
}

static void write_shape(const int32_t shape[5], int32_t hidden) {
    write_file(shape, hidden, NULL);
}

static void test_hostile_extra(void **state) {
    static const int32_t shape[5] = {3, 1, 0, 0, 0};
    static const int32_t bad[][3] = {
        {2, 1, 0}, {-1, 1, 0}, {0, -1, 0}, {0, INT32_MAX, 0}, {0, GW_MAX_LAYERS + 1, 0},
        {0, 2, 0}, /* of one layer */
        {0, 1, 2}, {0, 1, -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(shape, 0, bad[i]);
        assert_not_a_model();
    }
    gw_model *m = NULL;
    write_file(shape, 0, (const int32_t[]){1, 1, 1});
    assert_int_equal(gw_model_load(&m, path, 1, NULL), GW_OK);
    assert_int_equal(gw_model_get_spec(m)->output, GW_OUTPUT_SIGMOID);
    assert_int_equal(gw_model_spec_init(gw_model_get_spec(m), 0), GW_INIT_XAVIER);
    gw_model_close(m);
}

static void test_hostile_files(void **state) {
    static const struct {
        int32_t shape[5], hidden;
    } bad[] = {
        {{0, 1, 0, 0, 0}, 0},
        {{-3, 1, 0, 0, 0}, 0},
        {{INT32_MAX, 1, 0, 0, 0}, 0},
        {{3, 0, 0, 0, 0}, 0},
        {{3, 1 << 20, 0, 0, 0}, 0},
        {{3, 1, -1, 0, 0}, 1},
        {{3, 1, GW_MAX_LAYERS, 0, 0}, 1},
        {{3, 1, INT32_MAX, 0, 0}, 1},
        {{3, 1, 2, 0, 0}, 0},
        {{3, 1, 2, 0, 0}, INT32_MIN},
        {{1 << 20, 1, 3, 0, 0}, 1 << 20}, /* 2^40 parameters */
        {{3, 1, 0, 3, 0}, 0},
        {{3, 1, 0, -1, 0}, 0},
        {{3, 1, 0, 0, 2}, 0},
        {{5, 1, 0, 0, 0}, 0}, /* six parameters where the file holds four */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_shape(bad[i].shape, bad[i].hidden);
        assert_not_a_model();
    }
    /* A file of 200 bytes claims 8 GB: refused before any memory is allocated. */
    const int32_t greedy[5] = {1 << 20, 1, 1, 0, 0};
    write_shape(greedy, 2000);
    assert_not_a_model();
    assert_message("truncated: 2097156001 parameters in");
    const int32_t good[5] = {3, 1, 0, 0, 0};
    gw_model *m = NULL;
    write_shape(good, 0);
    assert_int_equal(gw_model_load(&m, path, 1, NULL), GW_OK);
    gw_model_close(m);
}

static int set_up(void **state) {
    int failed = make_folder(state);
    snprintf(path, sizeof path, "%s/model", folder);
    return failed;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_initial_weights),
        cmocka_unit_test(test_empty_batch),
        cmocka_unit_test(test_correct),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_plugins_are_named_by_the_caller),
        cmocka_unit_test(test_hostile_files),
        cmocka_unit_test(test_hostile_extra),
    };
    return cmocka_run_group_tests(tests, set_up, remove_folder);
}
