/* From stored bytes to a network's input: conversion and nearest-neighbour enlargement. */
#include "data/data.h"

#include "base/clones.h"

#include <assert.h>
#include <string.h>

/* Below this many output floats, starting threads costs more than it saves. */
enum { PARALLEL_FLOATS = 1 << 16 };

static const float unit = 1.0f / 255.0f;

GW_CLONES static void gather_convert(float *restrict out, const uint8_t *restrict in, int n) {
    for (int i = 0; i < n; i++)
        out[i] = (float)in[i] * unit;
}

static void gather_stretch(float *restrict out, const uint8_t *restrict in, int n, int scale) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < scale; k++)
            out[i * scale + k] = (float)in[i] * unit;
}

GW_CLONES static void gather_stretch2(float *restrict out, const uint8_t *restrict in, int n) {
    for (int i = 0; i < n; i++)
        out[2 * i] = out[2 * i + 1] = (float)in[i] * unit;
}

static void gather_enlarge(float *out, const uint8_t *image, const gw_dataset *s) {
    int scale = s->scale;
    size_t width = (size_t)s->cols * (size_t)scale;
    for (int r = 0; r < s->rows; r++) {
        float *row = out + (size_t)r * (size_t)scale * width;
        if (scale == 2)
            gather_stretch2(row, image + (size_t)r * (size_t)s->cols, s->cols);
        else
            gather_stretch(row, image + (size_t)r * (size_t)s->cols, s->cols, scale);
        for (int k = 1; k < scale; k++)
            memcpy(row + (size_t)k * width, row, width * sizeof *row);
    }
}

/* Rows lie at random places of a large set, so hardware prefetching comes too late. */
static void gather_prefetch(const uint8_t *image, int pixels) {
    enum { LINE = 64, MOST = 2048 };
    for (int i = 0; i < pixels && i < MOST; i += LINE)
        __builtin_prefetch(image + i);
}

void gw_dataset_gather(const gw_dataset *s, const uint32_t *idx, int n, float *out,
                       uint8_t *labels) {
    enum { AHEAD = 2 };
    int pixels = s->rows * s->cols;
    size_t features = (size_t)gw_dataset_features(s);
#pragma omp parallel for schedule(static) if ((size_t)n * features >= PARALLEL_FLOATS)
    for (int i = 0; i < n; i++) {
        assert(idx[i] >= s->first && idx[i] - s->first < s->n);
        size_t at = idx[i] - s->first;
        const uint8_t *image = s->images + at * (size_t)pixels;
        if (i + AHEAD < n)
            gather_prefetch(s->images + (idx[i + AHEAD] - s->first) * (size_t)pixels, pixels);
        if (s->scale == 1)
            gather_convert(out + (size_t)i * features, image, pixels);
        else
            gather_enlarge(out + (size_t)i * features, image, s);
        if (labels)
            labels[i] = s->labels[at];
    }
}

void gw_dataset_labels(const gw_dataset *s, const uint32_t *idx, int n, uint8_t *labels) {
    for (int i = 0; i < n; i++)
        labels[i] = s->labels[idx[i] - s->first];
}
