/* A whole model's step as tests write it out: all rows of the only microbatch. */
#ifndef GW_TESTS_SIMPLE_STEP_H
#define GW_TESTS_SIMPLE_STEP_H

#include "nn/model.h"

/* Where the samples lie: (max_batch, inputs). */
static inline float *simple_input(gw_model *m) {
    return gw_model_work(m) + gw_model_edge(m, 0, GW_EDGE_INPUT, (gw_micro){.n = 0}).off;
}

static inline void simple_forward(gw_model *m, int l, int batch) {
    gw_model_product(m, l, (gw_micro){.n = batch});
    gw_model_transfer(m, l, (gw_micro){.n = batch});
}

static inline double simple_loss(gw_model *m, const gw_label *labels, int batch, float scale,
                                 int *correct) {
    return gw_model_loss_join(m, labels, (gw_micro){.n = batch}, scale, correct);
}

/* The gradient of layer l, written to or added to its place in `grads`. */
static inline void simple_gradient(gw_model *m, int l, int batch, float *grads, bool add) {
    gw_model_enter(m, l, (gw_micro){.n = batch}, grads, add);
    gw_model_weights(m, l, (gw_micro){.n = batch}, grads, add);
}

static inline void simple_backward(gw_model *m, int l, int batch) {
    simple_gradient(m, l, batch, gw_model_grads(m), false);
}

static inline void simple_backward_onto(gw_model *m, int l, int batch, float *sums) {
    simple_gradient(m, l, batch, sums, true);
}

static inline void simple_descend(gw_model *m, int l, int batch) {
    gw_model_descend_rows(m, l, (gw_micro){.n = batch});
}

#endif
