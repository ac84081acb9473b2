/** What a transformer computes beside products, for models and for programs that have one of their
 *  own: each a few passes over rows, one a token, of `width` floats, row-major and dense, on one
 *  thread. A caller splits rows, or columns, over threads. */
#ifndef GW_NN_TOKENS_H
#define GW_NN_TOKENS_H

#include "nn/elementwise.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

#define GW_TOKENS         GW_CLONES static inline
#define GW_TOKENS_EPSILON 1e-5f /* beside a variance */

/** y = gain * (x - mean) / deviation + bias by rows (Ba, Kiros and Hinton, "Layer normalization",
 *  arXiv 1607.06450, 2016); leaves mean and 1 / deviation of each row in `told`, (rows, 2). */
GW_TOKENS void gw_tokens_norm(float *restrict y, float *restrict told, const float *restrict x,
                              const float *restrict gain, const float *restrict bias, size_t rows,
                              int width) {
    for (size_t i = 0; i < rows; i++, x += width, y += width) {
        float sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < width; j++)
            sum += x[j];
        float mean = sum / (float)width;
#pragma omp simd reduction(+ : square)
        for (int j = 0; j < width; j++)
            square += (x[j] - mean) * (x[j] - mean);
        float scale = 1 / sqrtf(square / (float)width + GW_TOKENS_EPSILON);
        for (int j = 0; j < width; j++)
            y[j] = (x[j] - mean) * scale * gain[j] + bias[j];
        told[2 * i] = mean;
        told[2 * i + 1] = scale;
    }
}

/** dx = the gradient of x + `above`, which may be dx itself. */
GW_TOKENS void gw_tokens_norm_back(float *dx, const float *above, const float *restrict dy,
                                   const float *restrict x, const float *restrict told,
                                   const float *restrict gain, size_t rows, int width) {
    for (size_t i = 0; i < rows; i++, x += width, dx += width, above += width, dy += width) {
        float mean = told[2 * i], scale = told[2 * i + 1], sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
        for (int j = 0; j < width; j++) {
            float d = dy[j] * gain[j];
            sum += d;
            product += d * ((x[j] - mean) * scale);
        }
        sum /= (float)width;
        product /= (float)width;
#pragma omp simd
        for (int j = 0; j < width; j++)
            dx[j] = above[j] + scale * (dy[j] * gain[j] - sum - (x[j] - mean) * scale * product);
    }
}

/** That of columns [from, to) of gain and bias, added to both. */
GW_TOKENS void gw_tokens_norm_columns(float *restrict dgain, float *restrict dbias,
                                      const float *restrict dy, const float *restrict x,
                                      const float *restrict told, size_t rows, int width, int from,
                                      int to) {
    for (size_t i = 0; i < rows; i++, x += width, dy += width) {
        float mean = told[2 * i], scale = told[2 * i + 1];
        for (int j = from; j < to; j++) {
            dgain[j] += dy[j] * ((x[j] - mean) * scale);
            dbias[j] += dy[j];
        }
    }
}

/** sum[from..to) += those of the rows of x. */
GW_TOKENS void gw_tokens_columns(float *restrict sum, const float *restrict x, size_t rows,
                                 int width, int from, int to) {
    for (size_t i = 0; i < rows; i++, x += width)
        for (int j = from; j < to; j++)
            sum[j] += x[j];
}

/** d *= slope in columns [from, to), whose sums over rows are added to `sum`. */
GW_TOKENS void gw_tokens_slope(float *restrict d, const float *restrict slope, float *restrict sum,
                               size_t rows, int width, int from, int to) {
    for (size_t i = 0; i < rows; i++, d += width, slope += width)
        for (int j = from; j < to; j++) {
            d[j] *= slope[j];
            sum[j] += d[j];
        }
}

/** Each row of y = bias. */
GW_TOKENS void gw_tokens_fill(float *y, const float *bias, size_t rows, int width) {
    for (size_t i = 0; i < rows; i++)
        memcpy(y + i * (size_t)width, bias, (size_t)width * sizeof *y);
}

/** Each row of y += x + bias. */
GW_TOKENS void gw_tokens_add(float *restrict y, const float *restrict x, const float *restrict bias,
                             size_t rows, int width) {
    for (size_t i = 0; i < rows; i++, x += width, y += width)
        for (int j = 0; j < width; j++)
            y[j] += x[j] + bias[j];
}

/** y = gelu(x + bias) with tanh (Hendrycks and Gimpel, "Gaussian error linear units", arXiv
 *  1606.08415, 2016), and x = gelu'(x + bias), which is all that the backward pass wants of x. */
GW_TOKENS void gw_tokens_gelu(float *restrict y, float *restrict x, const float *restrict bias,
                              size_t rows, int width) {
    const float root = 0.797884561f, cube = 0.044715f; /* sqrt(2 / pi) */
    for (size_t i = 0; i < rows; i++, x += width, y += width)
        for (int j = 0; j < width; j++) {
            float v = x[j] + bias[j], square = v * v;
            /* 0.5 (1 + tanh(u)) is the logistic function of 2u. */
            float gate = gw_sigmoidf(2 * root * v * (1 + cube * square));
            y[j] = v * gate;
            x[j] = gate + v * gate * (1 - gate) * 2 * root * (1 + 3 * cube * square);
        }
}

/** Columns 0 to i of `side`, and those that fill a vector up. */
static inline int gw_tokens_vectors(int i, int side) {
    enum { WIDEST = 16 };
    int end = (i / WIDEST + 1) * WIDEST;
    return end < side ? end : side;
}

/** Softmax of scale * row i of a square matrix over columns 0 to i; 0 in the others. */
GW_TOKENS void gw_tokens_attend(float *restrict score, float scale, int side) {
    for (int i = 0; i < side; i++, score += side) {
        int end = gw_tokens_vectors(i, side);
        float most = score[0], sum = 0;
        for (int j = i + 1; j < end; j++)
            score[j] = -FLT_MAX; /* whose exponential is too small for the sum to tell */
#pragma omp simd reduction(max : most)
        for (int j = 0; j < end; j++)
            most = score[j] > most ? score[j] : most;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < end; j++) {
            score[j] = gw_expf((score[j] - most) * scale);
            sum += score[j];
        }
        float inverse = 1 / sum;
        for (int j = 0; j < end; j++)
            score[j] *= inverse;
        for (int j = i + 1; j < side; j++)
            score[j] = 0;
    }
}

/** d = the gradient of the scores before scaling, where `weight` is gw_tokens_attend's result and
 *  d was that of the weights. */
GW_TOKENS void gw_tokens_attend_back(float *restrict d, const float *restrict weight, float scale,
                                     int side) {
    for (int i = 0; i < side; i++, d += side, weight += side) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < gw_tokens_vectors(i, side); j++) /* weights behind column i are 0 */
            sum += d[j] * weight[j];
        for (int j = 0; j < side; j++)
            d[j] = scale * weight[j] * (d[j] - sum);
    }
}

#endif
