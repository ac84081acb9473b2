#include "kernels.h"

#include <math.h>
#include <string.h>

/* One build for all CPUs: the loader picks the widest vectors. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(GPT_NO_CLONES)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* e^x for x up to 88, without a branch; at least e^-87. */
static inline float exponential(float x) {
    const float shift = 12582912.0F; /* 1.5 * 2^23: rounds what is added to it */
    x = x < -87.0F ? -87.0F : x;
    float whole = (x * 1.44269504F + shift) - shift;
    float r = (x - whole * 0.693145752F) - whole * 1.42860677e-6F; /* ln 2 in two parts */
    float series = 1.0F / 720 + r * (1.0F / 5040);
    series = 1.0F / 24 + r * (1.0F / 120 + r * series);
    series = 1.0F + r * (1.0F + r * (0.5F + r * (1.0F / 6 + r * series)));
    union {
        int32_t bits;
        float value;
    } power = {.bits = ((int32_t)whole + 127) * (1 << 23)};
    return series * power.value;
}

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

void gpt_fill(float *y, const float *bias, size_t rows, int width) {
    for (size_t i = 0; i < rows; i++) {
        memcpy(y + i * (size_t)width, bias, (size_t)width * sizeof *y);
    }
}

CLONES void gpt_add(float *restrict y, const float *restrict x, const float *restrict bias,
                    size_t rows, int width) {
    for (size_t i = 0; i < rows; i++, x += width, y += width) {
        for (int j = 0; j < width; j++) {
            y[j] = x[j] + bias[j];
        }
    }
}

CLONES void gpt_columns(float *restrict sum, const float *restrict x, size_t rows, int width) {
    memset(sum, 0, (size_t)width * sizeof *sum);
    for (size_t i = 0; i < rows; i++, x += width) {
        for (int j = 0; j < width; j++) {
            sum[j] += x[j];
        }
    }
}

CLONES void gpt_norm(float *restrict y, float *restrict mean, float *restrict rstd,
                     const float *restrict x, const float *restrict gain,
                     const float *restrict bias, size_t rows, int width) {
    for (size_t i = 0; i < rows; i++, x += width, y += width) {
        float sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < width; j++) {
            sum += x[j];
        }
        float middle = sum / (float)width;
#pragma omp simd reduction(+ : square)
        for (int j = 0; j < width; j++) {
            square += (x[j] - middle) * (x[j] - middle);
        }
        float scale = 1.0F / sqrtf(square / (float)width + 1e-5F);
        for (int j = 0; j < width; j++) {
            y[j] = (x[j] - middle) * scale * gain[j] + bias[j];
        }
        mean[i] = middle;
        rstd[i] = scale;
    }
}

CLONES void gpt_norm_back(float *restrict dx, float *restrict dgain, float *restrict dbias,
                          const float *restrict dy, const float *restrict x,
                          const float *restrict mean, const float *restrict rstd,
                          const float *restrict gain, size_t rows, int width) {
    memset(dgain, 0, (size_t)width * sizeof *dgain);
    memset(dbias, 0, (size_t)width * sizeof *dbias);
    for (size_t i = 0; i < rows; i++, x += width, dx += width, dy += width) {
        float middle = mean[i], scale = rstd[i], sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
        for (int j = 0; j < width; j++) {
            float normal = (x[j] - middle) * scale, d = dy[j] * gain[j];
            sum += d;
            product += d * normal;
            dgain[j] += dy[j] * normal;
            dbias[j] += dy[j];
        }
        sum /= (float)width;
        product /= (float)width;
        for (int j = 0; j < width; j++) {
            float normal = (x[j] - middle) * scale;
            dx[j] += scale * (dy[j] * gain[j] - sum - normal * product);
        }
    }
}

CLONES void gpt_gelu(float *restrict y, float *restrict x, size_t n) {
    const float root = 0.797884561F, cube = 0.044715F; /* sqrt(2 / pi) */
    for (size_t i = 0; i < n; i++) {
        float v = x[i], square = v * v;
        float inner = 2.0F * root * v * (1.0F + cube * square);
        /* 0.5 (1 + tanh(u)) is the logistic function of 2u. */
        float gate = 1.0F / (1.0F + exponential(-(inner < -80.0F ? -80.0F : inner)));
        y[i] = v * gate;
        x[i] = gate + v * gate * (1.0F - gate) * 2.0F * root * (1.0F + 3.0F * cube * square);
    }
}

CLONES void gpt_gelu_back(float *restrict dx, const float *restrict slope, float *restrict sum,
                          size_t rows, int width) {
    memset(sum, 0, (size_t)width * sizeof *sum);
    for (size_t i = 0; i < rows; i++, dx += width, slope += width) {
        for (int j = 0; j < width; j++) {
            dx[j] *= slope[j];
            sum[j] += dx[j];
        }
    }
}

CLONES void gpt_attend(float *restrict score, float scale, int side) {
    for (int i = 0; i < side; i++, score += side) {
        float most = score[0], sum = 0;
#pragma omp simd reduction(max : most)
        for (int j = 0; j <= i; j++) {
            most = score[j] > most ? score[j] : most;
        }
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j <= i; j++) {
            score[j] = exponential((score[j] - most) * scale);
            sum += score[j];
        }
        float inverse = 1.0F / sum;
        for (int j = 0; j <= i; j++) {
            score[j] *= inverse;
        }
        for (int j = i + 1; j < side; j++) {
            score[j] = 0;
        }
    }
}

CLONES void gpt_attend_back(float *restrict d, const float *restrict weight, float scale,
                            int side) {
    for (int i = 0; i < side; i++, d += side, weight += side) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < side; j++) {
            sum += d[j] * weight[j];
        }
        for (int j = 0; j < side; j++) {
            d[j] = scale * weight[j] * (d[j] - sum);
        }
    }
}

CLONES double gpt_cross_entropy(float *restrict logits, const uint8_t *restrict target, float scale,
                                size_t rows, int width) {
    double loss = 0;
    for (size_t i = 0; i < rows; i++, logits += width) {
        float most = logits[0], wanted = logits[target[i]], sum = 0;
#pragma omp simd reduction(max : most)
        for (int j = 0; j < width; j++) {
            most = logits[j] > most ? logits[j] : most;
        }
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < width; j++) {
            logits[j] = exponential(logits[j] - most);
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

CLONES void gpt_adamw(float *restrict param, const float *restrict grad, float *restrict first,
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
