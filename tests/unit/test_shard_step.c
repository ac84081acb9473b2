/* A step of the shards of a model, by microbatches, is the whole model's step: initial weights,
 * loss, predictions and gradients, over all meshes, splits and ways to hold a microbatch. */
#include "nn/model_ops.h"

#include "shard_grid.h"
#include "tests/simple_step.h"

#include <omp.h>
#include <stdio.h>

enum { MAX_ROWS = 360, MAX_TARGETS = 640, MAX_INPUTS = 80, MAX_PARAMS = 140000 };

/* A step's data, and what comes of it. */
typedef struct batch {
    int rows;
    float x[MAX_ROWS * MAX_INPUTS];
    gw_label labels[MAX_TARGETS];
} batch;

typedef struct result {
    double loss;
    int correct;
    gw_label predictions[MAX_TARGETS];
    float grads[MAX_PARAMS];
} result;

static batch data;
static result whole, split;
static float params[MAX_PARAMS], initial[MAX_PARAMS];

static int plan_rows(const grid_plan *p) {
    int rows = 0;
    for (int i = 0; i < p->micro; i++)
        rows += p->rows[i];
    return rows;
}

static void fill(const gw_model_spec *spec, int rows) {
    data.rows = rows;
    for (int i = 0; i < rows * spec->inputs; i++)
        data.x[i] = spec->context > 0
                        ? (float)(gw_rng_u64(5, (uint64_t)i) % (uint64_t)spec->classes)
                        : (float)gw_rng_normal(5, (uint64_t)i);
    for (int i = 0; i < rows * gw_model_spec_targets(spec); i++)
        data.labels[i] = (gw_label)(gw_rng_u64(6, (uint64_t)i) % (uint64_t)spec->classes);
}

/* The whole model's step over the same microbatches; its parameters go to `initial` and
 * `params`. */
static void step_whole(const gw_model_spec *spec, const grid_plan *p) {
    gw_model *m = NULL;
    assert_int_equal(gw_model_open(&m, spec, MAX_ROWS), GW_OK);
    size_t n = gw_model_size(m);
    assert_true(n <= MAX_PARAMS);
    memcpy(initial, gw_model_params(m), n * sizeof *initial);
    for (size_t i = 0; i < n; i++) /* initial biases are 0: an easy place to hide */
        params[i] = gw_model_params(m)[i] += 0.1f * (float)gw_rng_normal(7, i);
    whole = (result){0};
    int targets = gw_model_spec_targets(spec);
    for (int j = 0, row = 0; j < p->micro; row += p->rows[j++]) {
        int rows = p->rows[j], at = row * targets, correct;
        memcpy(simple_input(m), data.x + row * spec->inputs,
               (size_t)(rows * spec->inputs) * sizeof *data.x);
        for (int l = 0; l < gw_model_layers(m); l++)
            simple_forward(m, l, rows);
        whole.loss += simple_loss(m, data.labels + at, rows, 1.0f / (float)data.rows, &correct);
        whole.correct += correct;
        memcpy(whole.predictions + at, gw_model_predictions(m),
               (size_t)(rows * targets) * sizeof *whole.predictions);
        for (int l = gw_model_layers(m) - 1; l >= 0; l--) {
            if (j == 0)
                simple_backward(m, l, rows);
            else
                simple_backward_onto(m, l, rows, gw_model_grads(m));
            simple_descend(m, l, rows);
        }
    }
    memcpy(whole.grads, gw_model_grads(m), n * sizeof *whole.grads);
    gw_model_close(m);
}

static const char *plan_text(const gw_model_spec *spec, const grid_plan *p) {
    static char text[256];
    snprintf(text, sizeof text,
             "%d layers, activation %d, stages %d, chunks %d, tensor %d, split %d, micro %d (%d %d "
             "%d %d), runs %d, recompute %d, keep %d",
             gw_model_spec_layers(spec), (int)spec->activation, p->stages, p->chunks, p->tensor,
             (int)p->split, p->micro, p->rows[0], p->rows[1], p->rows[2], p->rows[3], p->runs,
             p->recompute, p->keep);
    return text;
}

static void check_near(const gw_model_spec *spec, const grid_plan *p, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)whole.grads[i]));
    if (!(fabs(split.loss - whole.loss) <= 1e-5 * fabs(whole.loss)))
        fail_msg("%s: loss %.9g, want %.9g", plan_text(spec, p), split.loss, whole.loss);
    for (size_t i = 0; i < n; i++) {
        double got = (double)split.grads[i], want = (double)whole.grads[i];
        if (!(fabs(got - want) <= 1e-5 * fabs(want) + 1e-6 * most))
            fail_msg("%s: element %zu: %.9g, want %.9g", plan_text(spec, p), i, got, want);
    }
}

/* With whole layers and whole products the bits are the same; else sums are rounded otherwise. */
static void check(const gw_model_spec *spec, grid_plan p) {
    grid g;
    fill(spec, plan_rows(&p));
    step_whole(spec, &p);
    grid_open(&g, spec, &p);
    size_t n = gw_model_shard(g.model[0][0])->whole, bytes = n * sizeof(float);
    grid_collect(&g, gw_model_params, split.grads);
    assert_memory_equal(split.grads, initial, bytes);
    grid_deal(&g, params);
    split = (result){0};
    split.loss = grid_step(&g, data.x, data.labels, 1.0f / (float)data.rows, &split.correct,
                           split.predictions);
    grid_collect(&g, gw_model_grads, split.grads);
    check_near(spec, &p, n);
    assert_int_equal(split.correct, whole.correct);
    assert_memory_equal(split.predictions, whole.predictions,
                        (size_t)(data.rows * gw_model_spec_targets(spec)) *
                            sizeof *whole.predictions);
    if (p.tensor == 1 && p.runs == 1) {
        assert_true(split.loss == whole.loss);
        assert_memory_equal(split.grads, whole.grads, bytes);
    }
    grid_close(&g);
}

static const gw_model_spec narrow = {
    .inputs = 13,
    .classes = 5,
    .n_hidden = 5,
    .hidden = {19, 3, 8, 16, 6},
    .n_init = 6,
    .init = {GW_INIT_HE, GW_INIT_HE, GW_INIT_XAVIER, GW_INIT_HE, GW_INIT_XAVIER, GW_INIT_XAVIER},
    .seed = 3};
static const gw_model_spec wide = {
    .inputs = 80, .classes = 10, .n_hidden = 2, .hidden = {133, 96}, .seed = 4};

static grid_plan plan(int stages, int tensor, gw_tensor_split split_by) {
    return (grid_plan){.stages = stages,
                       .chunks = 1,
                       .tensor = tensor,
                       .split = split_by,
                       .micro = 2,
                       .rows = {7, 4},
                       .runs = 1};
}

/* Over all activations, both losses, stages and tensor ranks, both splits; 3 neurons on 4 ranks
 * leave one without biases, where layers are cut in pairs. */
static void test_meshes(void **state) {
    for (int a = GW_RELU; a <= GW_TANH; a++) {
        gw_model_spec spec = narrow;
        spec.activation = (gw_activation)a;
        for (int stages = 1; stages <= 6; stages++)
            for (int tensor = 1; tensor <= 4; tensor++) {
                spec.output = (gw_output)((a + stages + tensor) % 2);
                check(&spec, plan(stages, tensor, GW_SPLIT_PAIRS));
                if (tensor < 4)
                    check(&spec, plan(stages, tensor, GW_SPLIT_COLUMNS));
            }
    }
}

/* A split loss behind either split, parts of whole cache lines and a last one of their rest. */
static void test_wide(void **state) {
    gw_model_spec yes_or_no = wide;
    yes_or_no.output = GW_OUTPUT_SIGMOID;
    for (int stages = 1; stages <= 3; stages++)
        for (int tensor = 1; tensor <= 4; tensor++) {
            check(&wide, plan(stages, tensor, GW_SPLIT_PAIRS));
            check(&wide, plan(stages, tensor, GW_SPLIT_COLUMNS));
            check(&yes_or_no, plan(stages, tensor, GW_SPLIT_PAIRS));
            check(&yes_or_no, plan(stages, tensor, GW_SPLIT_COLUMNS));
        }
}

/* One to four microbatches, some short or empty, held in each way, by runs of rows or not. */
static void test_microbatches(void **state) {
    static const int rows[][MAX_MICRO] = {{9}, {6, 6}, {5, 5, 3}, {0, 4, 4}, {4, 0, 4, 1}, {1, 0}};
    static const int micro[] = {1, 2, 3, 3, 4, 2};
    for (int i = 0; i < 6; i++)
        for (int bits = 0; bits < 8; bits++)
            for (int tensor = 1; tensor <= 3; tensor++) {
                grid_plan p = plan(2, tensor, bits % 2 ? GW_SPLIT_COLUMNS : GW_SPLIT_PAIRS);
                p.micro = micro[i];
                memcpy(p.rows, rows[i], sizeof p.rows);
                p.keep = bits & 2;
                p.recompute = bits & 4;
                check(&narrow, p);
                p.runs = 3;
                check(&narrow, p);
            }
}

/* Several chunks a stage, of one layer or two. */
static void test_interleaved(void **state) {
    for (int stages = 1; stages <= 3; stages++)
        for (int chunks = 2; chunks * stages <= 6; chunks++)
            for (int tensor = 1; tensor <= 3; tensor++)
                for (int bits = 0; bits < 8; bits++) {
                    grid_plan p =
                        plan(stages, tensor, bits % 2 ? GW_SPLIT_COLUMNS : GW_SPLIT_PAIRS);
                    p.chunks = chunks;
                    p.keep = bits & 2;
                    p.recompute = bits & 4;
                    check(&narrow, p);
                }
}

/* Large enough that several threads share each kernel's work, and the copies around joins. */
static void test_threads(void **state) {
    gw_model_spec spec = {
        .inputs = 70, .classes = 200, .n_hidden = 2, .hidden = {256, 258}, .activation = GW_TANH};
    omp_set_num_threads(3);
    for (int tensor = 1; tensor <= 2; tensor++)
        for (int split_by = GW_SPLIT_PAIRS; split_by <= GW_SPLIT_COLUMNS; split_by++) {
            grid_plan p = plan(2, tensor, (gw_tensor_split)split_by);
            p.rows[0] = MAX_ROWS - 7;
            p.rows[1] = 7;
            check(&spec, p);
        }
    omp_set_num_threads(1);
}

static gw_model_spec transformer(const char *text, int context) {
    gw_model_spec spec = {.inputs = context, .classes = 7, .seed = 8};
    gw_spec *tree = NULL;
    assert_int_equal(gw_spec_parse(&tree, "test", "model", text, GW_SPEC_ONE), GW_OK);
    assert_int_equal(gw_model_spec_choose(&spec, tree), GW_OK);
    gw_spec_free(tree);
    return spec;
}

/* Heads, hidden neurons and classes on ranks that have more or fewer of them; norms that are
 * gathered, and whose gradient arrives late. */
static void test_transformer(void **state) {
    const gw_model_spec all[] = {transformer("gpt:layers=2,heads=4,width=12,context=5", 5),
                                 transformer("gpt:layers=2,heads=5,width=40,context=3", 3)};
    for (int i = 0; i < 2; i++)
        for (int stages = 1; stages <= 3; stages++)
            for (int tensor = 1; tensor <= 4; tensor++)
                for (int bits = 0; bits < 8; bits++) {
                    grid_plan p = plan(stages, tensor, GW_SPLIT_PAIRS);
                    p.keep = bits & 1;
                    p.recompute = bits & 2;
                    p.runs = bits & 4 ? 3 : 1;
                    check(&all[i], p);
                }
    omp_set_num_threads(3);
    gw_model_spec large = transformer("gpt:layers=1,heads=4,width=96,context=16", 16);
    grid_plan p = plan(2, 2, GW_SPLIT_PAIRS);
    p.rows[0] = 32;
    check(&large, p);
    omp_set_num_threads(1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes),       cmocka_unit_test(test_wide),
        cmocka_unit_test(test_microbatches), cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_transformer),
    };
    omp_set_num_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
