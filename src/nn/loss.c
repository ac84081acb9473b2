#include "nn/loss.h"

#include "nn/elementwise.h"

#include <math.h>
#include <omp.h>
#include <stddef.h>

GW_CLONES static float loss_exponentials(float *z, int n, float max) {
    for (int j = 0; j < n; j++)
        z[j] = gw_expf(z[j] - max);
    float sum = 0.0f;
    for (int j = 0; j < n; j++)
        sum += z[j];
    return sum;
}

GW_CLONES static void loss_scale(float *z, int n, float by) {
    for (int j = 0; j < n; j++)
        z[j] *= by;
}

static double loss_row(float *z, int label, int classes, float scale, uint8_t *hit) {
    int best = 0;
    for (int j = 1; j < classes; j++)
        if (z[j] > z[best])
            best = j;
    *hit = best == label;
    double margin = (double)z[best] - (double)z[label];
    float sum = loss_exponentials(z, classes, z[best]);
    loss_scale(z, classes, scale / sum);
    z[label] -= scale;
    return log((double)sum) + margin;
}

void gw_loss_softmax(float *z, const uint8_t *labels, int batch, int classes, float scale,
                     double *losses, uint8_t *hits) {
    int threads = (long long)batch * classes < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < batch; i++)
        losses[i] = loss_row(z + (size_t)i * (size_t)classes, labels[i], classes, scale, &hits[i]);
}
