#include "nn/layer.h"

#include "nn/elementwise.h"

#include <omp.h>

/* y = f(z) on rows of `cols`, z = y + b; one function a transfer so that each inner loop is one
 * formula. */
#define FINISH(transfer, f)                                                                        \
    GW_CLONES static void layer_finish_##transfer(float *restrict y, const float *restrict b,      \
                                                  int rows, int cols) {                            \
        for (int i = 0; i < rows; i++, y += cols)                                                  \
            for (int j = 0; j < cols; j++) {                                                       \
                float z = y[j] + b[j];                                                             \
                y[j] = f;                                                                          \
            }                                                                                      \
    }
FINISH(linear, z)
FINISH(relu, z < 0.0f ? 0.0f : z) /* keeps NaN: a diverged run must not look healthy */
FINISH(sigmoid, gw_sigmoidf(z))
FINISH(tanh, gw_tanhf(z))

/* dz = dy * f'(z) in place, f' being a function of y, and db = column sums of dz, on `cols` of the
 * `ld` columns. */
#define START(transfer, descended)                                                                 \
    GW_CLONES static void layer_start_##transfer(float *restrict db, float *restrict dy,           \
                                                 const float *restrict y, int rows, int cols,      \
                                                 size_t ld) {                                      \
        for (int i = 0; i < rows; i++, dy += ld, y += ld)                                          \
            for (int j = 0; j < cols; j++) {                                                       \
                float dz = descended;                                                              \
                dy[j] = dz;                                                                        \
                db[j] += dz;                                                                       \
            }                                                                                      \
    }
START(linear, dy[j])
START(relu, y[j] > 0.0f ? dy[j] : 0.0f)
START(sigmoid, dy[j] * y[j] * (1.0f - y[j]))
START(tanh, dy[j] * (1.0f - y[j] * y[j]))

int gw_layer_threads(int rows, int cols) {
    return (long long)rows * cols < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
}

void gw_layer_finish(gw_activation transfer, float *y, const float *b, int rows, int cols) {
    switch (transfer) {
    case GW_RELU: layer_finish_relu(y, b, rows, cols); break;
    case GW_SIGMOID: layer_finish_sigmoid(y, b, rows, cols); break;
    case GW_TANH: layer_finish_tanh(y, b, rows, cols); break;
    case GW_LINEAR: layer_finish_linear(y, b, rows, cols); break;
    }
}

void gw_layer_start(gw_activation transfer, float *db, float *dy, const float *y, int rows,
                    int cols, size_t ld) {
    switch (transfer) {
    case GW_RELU: layer_start_relu(db, dy, y, rows, cols, ld); break;
    case GW_SIGMOID: layer_start_sigmoid(db, dy, y, rows, cols, ld); break;
    case GW_TANH: layer_start_tanh(db, dy, y, rows, cols, ld); break;
    case GW_LINEAR: layer_start_linear(db, dy, y, rows, cols, ld); break;
    }
}
