/* A plain model in double, straight from the definition. */
#ifndef GW_TEST_REFERENCE_MODEL_H
#define GW_TEST_REFERENCE_MODEL_H

#include "nn/model_ops.h"

#include <math.h>
#include <string.h>

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

#endif
