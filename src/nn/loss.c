#include "nn/loss.h"

#include "nn/elementwise.h"

#include <math.h>
#include <omp.h>
#include <stdbool.h>
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

static double loss_row(float *z, int label, int classes, float scale, uint8_t *best) {
    int top = 0;
    for (int j = 1; j < classes; j++)
        if (z[j] > z[top])
            top = j;
    *best = (uint8_t)top;
    double margin = (double)z[top] - (double)z[label];
    float sum = loss_exponentials(z, classes, z[top]);
    loss_scale(z, classes, scale / sum);
    z[label] -= scale;
    return log((double)sum) + margin;
}

static int loss_threads(int batch, size_t classes) {
    return (size_t)batch * classes < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
}

void gw_loss_softmax(float *z, const uint8_t *labels, int batch, int classes, float scale,
                     double *losses, uint8_t *best) {
    int threads = loss_threads(batch, (size_t)classes);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < batch; i++)
        losses[i] = loss_row(z + (size_t)i * (size_t)classes, labels[i], classes, scale, &best[i]);
}

/* ---- some of the classes ---- */

/* Whole, the search begins at class 0, whatever it holds, and a NaN is never larger. So a part
 * behind it begins at nothing. */
static void loss_tell_row(float *z, int label, const gw_loss_cut *cut, float *told) {
    int first = (int)cut->classes.off, n = (int)cut->classes.n, best = 0;
    float largest = first == 0 ? z[0] : -INFINITY;
    for (int j = 0; j < n; j++)
        if (z[j] > largest) {
            largest = z[j];
            best = j;
        }
    bool held = label >= first && label < first + n;
    told[GW_LOSS_LABEL] = held ? z[label - first] : -INFINITY;
    told[GW_LOSS_LARGEST] = largest;
    told[GW_LOSS_BEST] = (float)(first + best);
    /* nothing but -infinity here need not be so elsewhere: it must give no NaN */
    told[GW_LOSS_SUM] = loss_exponentials(z, n, largest == -INFINITY ? 0.0f : largest);
}

void gw_loss_tell(float *z, const uint8_t *labels, int batch, gw_loss_cut cut, float *told) {
    int threads = loss_threads(batch, cut.classes.n);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < batch; i++)
        loss_tell_row(z + (size_t)i * cut.classes.n, labels[i], &cut,
                      told + (size_t)i * GW_LOSS_TOLD);
}

/* `told` of one row; `stride` floats from rank to rank. */
static double loss_join_row(float *z, int label, const gw_loss_cut *cut, const float *told,
                            size_t stride, float scale, uint8_t *best) {
    const float *own = told + (size_t)cut->part * stride, *end = told + (size_t)cut->parts * stride;
    float largest = told[GW_LOSS_LARGEST], at_label = -INFINITY;
    *best = (uint8_t)told[GW_LOSS_BEST];
    for (const float *t = told; t < end; t += stride) {
        if (t[GW_LOSS_LARGEST] > largest) {
            largest = t[GW_LOSS_LARGEST];
            *best = (uint8_t)t[GW_LOSS_BEST];
        }
        at_label = fmaxf(at_label, t[GW_LOSS_LABEL]); /* of a NaN the sum tells */
    }
    double sum = 0.0;
    for (const float *t = told; t < end; t += stride)
        sum += (double)(t[GW_LOSS_SUM] * gw_expf(t[GW_LOSS_LARGEST] - largest));
    loss_scale(z, (int)cut->classes.n,
               gw_expf(own[GW_LOSS_LARGEST] - largest) * (scale / (float)sum));
    size_t column = (size_t)label - cut->classes.off; /* huge if the label is below */
    if (column < cut->classes.n)
        z[column] -= scale;
    return log(sum) + ((double)largest - (double)at_label);
}

void gw_loss_join(float *z, const uint8_t *labels, int batch, gw_loss_cut cut, const float *told,
                  float scale, double *losses, uint8_t *best) {
    int threads = loss_threads(batch, cut.classes.n);
    size_t stride = (size_t)batch * GW_LOSS_TOLD;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < batch; i++)
        losses[i] = loss_join_row(z + (size_t)i * cut.classes.n, labels[i], &cut,
                                  told + (size_t)i * GW_LOSS_TOLD, stride, scale, &best[i]);
}
