/* Every layer's gradient, with every activation, and both losses, against central differences of a
 * plain model in double. */
#include "nn/model_ops.h"

#include "base/rng.h"

#include "tests/simple_step.h"
#include "unit.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* ---- a plain model in double ---- */

enum { REFERENCE_WIDTH = 32 };

static double reference_transfer(gw_activation a, double z) {
    return a == GW_RELU ? fmax(z, 0.0) : a == GW_SIGMOID ? 1.0 / (1.0 + exp(-z)) : tanh(z);
}

/* Loss of one sample. */
static double reference_sample(const gw_model_spec *s, const double *p, const float *x, int label) {
    double in[REFERENCE_WIDTH], out[REFERENCE_WIDTH];
    int n_in = s->inputs;
    for (int i = 0; i < n_in; i++)
        in[i] = (double)x[i];
    for (int l = 0; l <= s->n_hidden; l++) {
        int n_out = l < s->n_hidden ? s->hidden[l] : s->classes;
        for (int j = 0; j < n_out; j++) {
            double z = p[n_in * n_out + j];
            for (int i = 0; i < n_in; i++)
                z += in[i] * p[i * n_out + j];
            out[j] = l < s->n_hidden ? reference_transfer(s->activation, z) : z;
        }
        p += (n_in + 1) * n_out;
        n_in = n_out;
        memcpy(in, out, sizeof in);
    }
    double sum = 0.0, loss = 0.0;
    for (int j = 0; j < s->classes; j++) {
        sum += exp(in[j]);
        loss += log(1.0 + exp(in[j]));
    }
    return (s->output == GW_OUTPUT_SIGMOID ? loss : log(sum)) - in[label];
}

static double reference_loss(const gw_model_spec *s, const double *p, const float *x,
                             const gw_label *labels, int batch) {
    double sum = 0.0;
    for (int i = 0; i < batch; i++)
        sum += reference_sample(s, p, x + i * s->inputs, labels[i]);
    return sum;
}

/* Central difference of the loss by parameter i. */
static double reference_slope(const gw_model_spec *s, double *p, size_t i, const float *x,
                              const gw_label *labels, int batch) {
    const double h = 1e-6;
    double kept = p[i];
    p[i] = kept + h;
    double up = reference_loss(s, p, x, labels, batch);
    p[i] = kept - h;
    double down = reference_loss(s, p, x, labels, batch);
    p[i] = kept;
    return (up - down) / (2.0 * h);
}

/* ---- the model ---- */

enum { MAX_PARAMS = 20000, LOOKED_AT = 2000, MAX_ROWS = 16 };

static void fill(gw_model *m, gw_label *labels, int batch) {
    const gw_model_spec *s = gw_model_get_spec(m);
    for (int i = 0; i < batch * s->inputs; i++)
        simple_input(m)[i] = s->context > 0
                                 ? (float)(gw_rng_u64(5, (uint64_t)i) % (uint64_t)s->classes)
                                 : (float)gw_rng_normal(5, (uint64_t)i);
    for (int i = 0; i < batch * gw_model_spec_targets(s); i++)
        labels[i] = (gw_label)(gw_rng_u64(6, (uint64_t)i) % (uint64_t)s->classes);
    for (int l = 0; l < gw_model_layers(m); l++) { /* initial biases are 0: an easy place to hide */
        gw_span span = gw_model_spans(m)[l];
        for (size_t i = span.off; i < gw_span_end(span); i++)
            gw_model_params(m)[i] += 0.3f * (float)gw_rng_normal(7, i);
    }
}

static double run(gw_model *m, const gw_label *labels, int batch, float scale) {
    gw_model_count(m, batch);
    for (int l = 0; l < gw_model_layers(m); l++)
        simple_forward(m, l, batch);
    double loss = simple_loss(m, labels, batch, scale, NULL);
    for (size_t i = 0; i < gw_model_size(m); i++)
        gw_model_grads(m)[i] = NAN; /* the backward pass writes every element */
    for (int l = gw_model_layers(m) - 1; l >= 0; l--) {
        simple_backward(m, l, batch);
        simple_descend(m, l, batch);
    }
    return loss;
}

/* The same gradient again, onto what is there. */
static void check_added(gw_model *m, const gw_label *labels, int batch) {
    static float sums[MAX_PARAMS], grads[MAX_PARAMS];
    size_t n = gw_model_size(m);
    memcpy(grads, gw_model_grads(m), n * sizeof *grads);
    for (size_t i = 0; i < n; i++)
        sums[i] = (float)(i % 7) / 4;
    for (int l = 0; l < gw_model_layers(m); l++)
        simple_forward(m, l, batch);
    simple_loss(m, labels, batch, 1.0f / (float)batch, NULL);
    for (int l = gw_model_layers(m) - 1; l >= 0; l--) {
        simple_backward_onto(m, l, batch, sums);
        simple_descend(m, l, batch);
    }
    for (size_t i = 0; i < n; i++) {
        float want = (float)(i % 7) / 4 + grads[i];
        if (!(fabsf(sums[i] - want) <= 2e-6f * fmaxf(1, fabsf(want))))
            fail_msg("element %zu: %.9g, want %.9g", i, (double)sums[i], (double)want);
    }
    assert_memory_equal(gw_model_grads(m), grads, n * sizeof *grads);
}

static void check(gw_model_spec spec, int batch) {
    gw_model *m = NULL;
    gw_label labels[MAX_ROWS];
    double p[MAX_PARAMS];
    assert_int_equal(gw_model_open(&m, &spec, MAX_ROWS), GW_OK);
    assert_true(gw_model_size(m) <= MAX_PARAMS);
    fill(m, labels, batch);
    double loss = run(m, labels, batch, 1.0f / (float)batch);
    check_added(m, labels, batch);
    for (size_t i = 0; i < gw_model_size(m); i++)
        p[i] = (double)gw_model_params(m)[i];
    const float *x = simple_input(m);
    double want = reference_loss(&spec, p, x, labels, batch);
    assert_true(fabs(loss - want) <= 1e-5 * fabs(want));
    for (int l = 0; l < gw_model_layers(m); l++) {
        gw_span span = gw_model_spans(m)[l];
        for (size_t i = span.off; i < gw_span_end(span); i++) {
            double slope = reference_slope(&spec, p, i, x, labels, batch) / batch;
            double got = (double)gw_model_grads(m)[i];
            if (!(fabs(got - slope) <= 2e-6 + 1e-5 * fabs(slope)))
                fail_msg("layer %d of %d, activation %d, batch %d, element %zu: %.9g, want %.9g", l,
                         gw_model_layers(m), (int)spec.activation, batch, i - span.off, got, slope);
        }
    }
    gw_model_close(m);
}

static void test_activations(void **state) {
    static const int batches[] = {1, 2, 7, 16};
    for (int i = 0; i < 8 * (GW_TANH + 1); i++) {
        gw_activation a = (gw_activation)(i / 8);
        gw_output o = i % 8 < 4 ? GW_OUTPUT_SOFTMAX : GW_OUTPUT_SIGMOID;
        check((gw_model_spec){.inputs = 13, .classes = 5, .activation = a, .output = o, .seed = 1},
              batches[i % 4]);
        check((gw_model_spec){.inputs = 9,
                              .classes = 10,
                              .n_hidden = 1,
                              .hidden = {17},
                              .activation = a,
                              .output = o,
                              .init = {GW_INIT_XAVIER},
                              .seed = 2},
              batches[i % 4]);
        check((gw_model_spec){.inputs = 11,
                              .classes = 3,
                              .n_hidden = 3,
                              .hidden = {19, 1, 16},
                              .activation = a,
                              .output = o,
                              .seed = 3},
              batches[i % 4]);
    }
}

/* Large enough that products, biases, loss and derivatives are all shared by the threads. */
static void test_threads_agree(void **state) {
    enum { BATCH = 301 };
    static gw_label labels[BATCH];
    gw_model_spec spec = {.inputs = 70, .classes = 200, .n_hidden = 2, .hidden = {130, 113}};
    for (int a = GW_RELU; a <= GW_TANH; a++) {
        spec.activation = (gw_activation)a;
        gw_model *m[3];
        double loss[3];
        for (int t = 0; t < 3; t++) { /* 1, 2 and 3 threads */
            omp_set_num_threads(t + 1);
            assert_int_equal(gw_model_open(&m[t], &spec, BATCH), GW_OK);
            fill(m[t], labels, BATCH);
            loss[t] = run(m[t], labels, BATCH, 1.0f / BATCH);
            double again = run(m[t], labels, BATCH, 1.0f / BATCH);
            assert_true(loss[t] == again); /* the same threads give the same bits */
        }
        for (int t = 1; t < 3; t++) {
            assert_true(fabs(loss[t] - loss[0]) <= 1e-6 * loss[0]);
            for (size_t i = 0; i < gw_model_size(m[0]); i++) {
                double want = (double)gw_model_grads(m[0])[i];
                assert_true(fabs((double)gw_model_grads(m[t])[i] - want) <=
                            1e-7 + 1e-5 * fabs(want));
            }
        }
        for (int t = 0; t < 3; t++)
            gw_model_close(m[t]);
    }
    omp_set_num_threads(1);
}

/* The loss of the model as it is. */
static double look(gw_model *m, const gw_label *labels, int batch) {
    for (int l = 0; l < gw_model_layers(m); l++)
        simple_forward(m, l, batch);
    return simple_loss(m, labels, batch, 0, NULL);
}

/* By differences of fourth order of the model's own loss, in float. */
static double slope_by(gw_model *m, size_t i, float h, const gw_label *labels, int batch) {
    float *p = &gw_model_params(m)[i], was = *p;
    double at[5];
    for (int k = -2; k <= 2; k++) {
        *p = was + (float)k * h;
        at[k + 2] = look(m, labels, batch);
    }
    *p = was;
    return (8 * (at[3] - at[1]) - (at[4] - at[0])) / (12 * (double)h);
}

static bool tracks(const gw_model *m, size_t i) {
    const gw_tensor *t = gw_model_tensors(m);
    while (i >= gw_span_end(t->span))
        t++;
    return t->tracks;
}

/* Where a maximum or a rectifier turns nearby, differences of two widths disagree, and tell
 * nothing; `turns`: the model has such, which may also turn unseen by both. */
static void check_slopes(gw_model *m, const gw_label *labels, int batch, bool turns) {
    size_t n = gw_model_size(m), step = 1 + n / LOOKED_AT, looked = 0, turned = 0;
    for (size_t i = 0; i < n; i += step) {
        double got = (double)gw_model_grads(m)[i], slope;
        if (tracks(m, i))
            continue;
        slope = slope_by(m, i, 0.02f, labels, batch);
        looked++;
        if (fabs(got - slope) <= (turns ? 3e-3 + 5e-3 * fabs(slope) : 5e-4 + 1e-3 * fabs(slope)))
            continue;
        double near = slope_by(m, i, 0.005f, labels, batch);
        turned++;
        if (!turns || fabs(near - slope) <= 3e-4 + 1e-3 * fabs(slope))
            fail_msg("element %zu: %.9g, want %.9g", i, got, slope);
    }
    if (turned * 4 > looked)
        fail_msg("%zu of %zu differences tell nothing", turned, looked);
}

/* Of every model that is known or loaded, which no reference in doubles knows. */
static void check_model(const char *text) {
    enum { BATCH = 7 };
    gw_model_spec spec = {
        .inputs = 9, .classes = 5, .n_hidden = 1, .hidden = {6}, .activation = GW_TANH, .seed = 4};
    gw_spec *tree = NULL;
    gw_model *m = NULL;
    gw_label labels[BATCH * 16];
    assert_int_equal(gw_spec_parse(&tree, "test", "model", text, GW_SPEC_ONE), GW_OK);
    assert_int_equal(gw_model_spec_choose(&spec, tree), GW_OK);
    gw_spec_free(tree);
    if (spec.context > 0)
        spec.inputs = spec.context;
    bool turns = strncmp(text, "cnn", 3) == 0;
    if (turns)
        spec.inputs = strchr(text, ':') ? 6 * 6 : 12 * 12;
    assert_int_equal(gw_model_open(&m, &spec, MAX_ROWS), GW_OK);
    assert_true(gw_model_size(m) <= MAX_PARAMS);
    fill(m, labels, BATCH);
    run(m, labels, BATCH, 1.0f / BATCH);
    check_added(m, labels, BATCH);
    run(m, labels, BATCH, 1);
    check_slopes(m, labels, BATCH, turns);
    gw_model_close(m);
}

static void test_models(void **state) {
    for (const gw_entry *const *e = gw_models.entries; *e; e++)
        check_model(strcmp((*e)->name, "gpt") == 0 ? "gpt:layers=1,heads=2,width=8,context=5"
                                                   : (*e)->name);
    check_model("cnn:preset=resnet,width=2");
    check_model(RESIDUAL ":width=8,blocks=3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_threads_agree),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
