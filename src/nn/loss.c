#include "nn/loss.h"

#include "nn/elementwise.h"

#include <math.h>
#include <omp.h>
#include <stddef.h>

enum { SHARE = 1 << 16 }; /* see GW_LOSS_TOLD: at least as many as there are classes */

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

/* Whole, the search begins at class 0, whatever it holds, and a NaN is never larger. So a part
 * behind it begins at nothing. */
static int loss_largest(const float *z, int n, size_t first, float *largest) {
    int best = 0;
    *largest = first == 0 ? z[0] : -INFINITY;
    for (int j = 0; j < n; j++)
        if (z[j] > *largest) {
            *largest = z[j];
            best = j;
        }
    return best;
}

/* decay = exp(-|z|), z = sigmoid(z). */
GW_CLONES static void loss_sigmoids(float *restrict z, float *restrict decay, int n) {
    for (int j = 0; j < n; j++) {
        float e = gw_expf(-fabsf(z[j]));
        z[j] = (z[j] < 0.0f ? e : 1.0f) / (1.0f + e);
        decay[j] = e;
    }
}

/* The loss of n classes; z becomes its slope. The label is out of [0, n) if it is another's. With s
 * = z, of the label -z, a class adds log(1 + exp(s)) = max(s, 0) + log(1 + exp(-|z|)), and one
 * logarithm serves a block of them: the product is 2^BLOCK at most. */
static double loss_sigmoid_part(float *z, size_t label, int n) {
    enum { BLOCK = 256 };
    float decay[BLOCK];
    double above = 0.0, below = 0.0;
    for (int j = 0; j < n; j++) {
        float s = (size_t)j == label ? -z[j] : z[j];
        above += s > 0.0f ? (double)s : 0.0;
    }
    for (int at = 0; at < n; at += BLOCK) {
        int wide = n - at < BLOCK ? n - at : BLOCK;
        double product = 1.0;
        loss_sigmoids(z + at, decay, wide);
        for (int j = 0; j < wide; j++)
            product *= 1.0 + (double)decay[j];
        below += log(product);
    }
    if (label < (size_t)n)
        z[label] -= 1.0f;
    return above + below;
}

static int loss_threads(int batch, size_t classes) {
    return (size_t)batch * classes < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
}

void gw_loss_whole(gw_output output, float *z, const gw_label *labels, int batch, int classes,
                   float scale, double *losses, gw_label *best) {
    int threads = loss_threads(batch, (size_t)classes);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < batch; i++) {
        float largest, *row = z + (size_t)i * (size_t)classes;
        best[i] = (gw_label)loss_largest(row, classes, 0, &largest);
        if (output == GW_OUTPUT_SIGMOID) {
            losses[i] = loss_sigmoid_part(row, labels[i], classes);
            loss_scale(row, classes, scale);
            continue;
        }
        double margin = (double)largest - (double)row[labels[i]];
        float sum = loss_exponentials(row, classes, largest);
        loss_scale(row, classes, scale / sum);
        row[labels[i]] -= scale;
        losses[i] = log((double)sum) + margin;
    }
}

/* ---- some of the classes ---- */

void gw_loss_tell(float *z, const gw_label *labels, int batch, gw_loss_cut cut, float *told) {
    int threads = loss_threads(batch, cut.classes.n), n = (int)cut.classes.n;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < batch; i++) {
        float *row = z + (size_t)i * cut.classes.n, *to = told + (size_t)i * GW_LOSS_TOLD, largest;
        size_t first = cut.classes.off, column = (size_t)labels[i] - first; /* huge if below */
        int best = loss_largest(row, n, first, &largest);
        to[GW_LOSS_LARGEST] = largest;
        to[GW_LOSS_LABEL] = column < cut.classes.n ? row[column] : -INFINITY;
        to[GW_LOSS_BEST] = (float)(first + (size_t)best);
        if (cut.output == GW_OUTPUT_SIGMOID)
            to[GW_LOSS_SUM] = (float)(loss_sigmoid_part(row, column, n) / SHARE);
        else /* nothing but -infinity here need not be so elsewhere: it must give no NaN */
            to[GW_LOSS_SUM] = loss_exponentials(row, n, largest == -INFINITY ? 0.0f : largest);
    }
}

void gw_loss_join(float *z, const gw_label *labels, int batch, gw_loss_cut cut, const float *told,
                  float scale, double *losses, gw_label *best) {
    int threads = loss_threads(batch, cut.classes.n), n = (int)cut.classes.n;
    size_t stride = (size_t)batch * GW_LOSS_TOLD; /* from rank to rank */
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < batch; i++) {
        const float *first = told + (size_t)i * GW_LOSS_TOLD;
        const float *own = first + (size_t)cut.part * stride;
        const float *end = first + (size_t)cut.parts * stride;
        float *row = z + (size_t)i * cut.classes.n;
        float largest = first[GW_LOSS_LARGEST], at_label = -INFINITY;
        double sum = 0.0;
        best[i] = (gw_label)first[GW_LOSS_BEST];
        for (const float *t = first; t < end; t += stride) {
            if (t[GW_LOSS_LARGEST] > largest) {
                largest = t[GW_LOSS_LARGEST];
                best[i] = (gw_label)t[GW_LOSS_BEST];
            }
            at_label = fmaxf(at_label, t[GW_LOSS_LABEL]); /* of a NaN the sum tells */
        }
        if (cut.output == GW_OUTPUT_SIGMOID) {
            for (const float *t = first; t < end; t += stride)
                sum += (double)t[GW_LOSS_SUM] * SHARE;
            loss_scale(row, n, scale);
            losses[i] = sum;
            continue;
        }
        for (const float *t = first; t < end; t += stride)
            sum += (double)(t[GW_LOSS_SUM] * gw_expf(t[GW_LOSS_LARGEST] - largest));
        loss_scale(row, n, gw_expf(own[GW_LOSS_LARGEST] - largest) * (scale / (float)sum));
        size_t column = (size_t)labels[i] - cut.classes.off; /* huge if the label is below */
        if (column < cut.classes.n)
            row[column] -= scale;
        losses[i] = log(sum) + ((double)largest - (double)at_label);
    }
}
