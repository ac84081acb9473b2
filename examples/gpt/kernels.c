#include "kernels.h"

#include "nn/elementwise.h"

#include <math.h>

void gpt_embed(float *x, const float *table, const float *place, const uint8_t *text, int rows,
               int width) {
    for (int i = 0; i < rows; i++) {
        const float *word = table + (size_t)text[i] * (size_t)width;
        for (int j = 0; j < width; j++) {
            x[i * width + j] = word[j] + place[i * width + j];
        }
    }
}

void gpt_embed_back(float *table, float *place, const float *dx, const uint8_t *text, int rows,
                    int width) {
    for (int i = 0; i < rows; i++) {
        float *word = table + (size_t)text[i] * (size_t)width;
        for (int j = 0; j < width; j++) {
            word[j] += dx[i * width + j];
            place[i * width + j] += dx[i * width + j];
        }
    }
}

GW_CLONES void gpt_add(float *restrict y, const float *restrict x, const float *restrict bias,
                       size_t rows, int width) {
    for (size_t i = 0; i < rows; i++, x += width, y += width) {
        for (int j = 0; j < width; j++) {
            y[j] = x[j] + bias[j];
        }
    }
}

GW_CLONES double gpt_cross_entropy(float *restrict logits, const uint8_t *restrict target,
                                   float scale, size_t rows, int width) {
    double loss = 0;
    for (size_t i = 0; i < rows; i++, logits += width) {
        float most = logits[0], wanted = logits[target[i]], sum = 0;
#pragma omp simd reduction(max : most)
        for (int j = 0; j < width; j++) {
            most = logits[j] > most ? logits[j] : most;
        }
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < width; j++) {
            logits[j] = gw_expf(logits[j] - most);
            sum += logits[j];
        }
        loss += log((double)sum) - (double)(wanted - most);
        float inverse = scale / sum;
        for (int j = 0; j < width; j++) {
            logits[j] *= inverse;
        }
        logits[target[i]] -= scale;
    }
    return loss;
}

GW_CLONES void gpt_adamw(float *restrict param, const float *restrict grad, float *restrict first,
                         float *restrict second, size_t n, double rate, double decay, long step) {
    const float b1 = 0.9F, b2 = 0.99F;
    float keep = (float)(1 - rate * decay);
    float size = (float)(rate / (1 - pow(0.9, (double)step)));
    float root = (float)(1 / sqrt(1 - pow(0.99, (double)step)));
    for (size_t i = 0; i < n; i++) {
        first[i] = b1 * first[i] + (1 - b1) * grad[i];
        second[i] = b2 * second[i] + (1 - b2) * grad[i] * grad[i];
        param[i] = keep * param[i] - size * first[i] / (sqrtf(second[i]) * root + 1e-8F);
    }
}
