/* From stored bytes to a network's input: conversion and nearest-neighbour resizing. */
#include "data/data.h"

#include "base/clones.h"

#include <assert.h>
#include <string.h>

/* Below this many output floats, starting threads costs more than it saves. */
enum { PARALLEL_FLOATS = 1 << 16 };

static const float unit = 1.0f / 255.0f;

GW_CLONES static void gather_convert(float *restrict out, const uint8_t *restrict in, int n,
                                     float by) {
    for (int i = 0; i < n; i++)
        out[i] = (float)in[i] * by;
}

/* i * n / to for i = 0, 1, .. without a division each. */
typedef struct places {
    int at, rest, whole, part, to;
} places;

static places gather_places(int n, int to) {
    return (places){0, 0, n / to, n % to, to};
}

static int gather_next(places *p) {
    int at = p->at;
    p->at += p->whole;
    p->rest += p->part;
    if (p->rest >= p->to) {
        p->rest -= p->to;
        p->at++;
    }
    return at;
}

GW_CLONES static void gather_stretch2(float *restrict out, const uint8_t *restrict in, int n) {
    for (int i = 0; i < n; i++)
        out[2 * i] = out[2 * i + 1] = (float)in[i] * unit;
}

GW_CLONES static void gather_stretch4(float *restrict out, const uint8_t *restrict in, int n) {
    for (int i = 0; i < n; i++)
        out[4 * i] = out[4 * i + 1] = out[4 * i + 2] = out[4 * i + 3] = (float)in[i] * unit;
}

static void gather_pick(float *restrict out, const uint8_t *restrict in, const int *restrict from,
                        int n) {
    for (int i = 0; i < n; i++)
        out[i] = (float)in[from[i]] * unit;
}

/* n columns of the output, those of the image that `from` names; NULL: all, 2 or 4 of each. */
static void gather_columns(float *out, const uint8_t *image, const gw_dataset *s, const int *from,
                           int n) {
    places rows = gather_places(s->rows, s->to_rows);
    const float *made = out;
    for (int r = 0, last = -1; r < s->to_rows; r++, out += s->to_cols) {
        int row = gather_next(&rows);
        const uint8_t *in = image + (size_t)row * (size_t)s->cols;
        if (row == last) {
            memcpy(out, made, (size_t)n * sizeof *out);
            continue;
        }
        if (from)
            gather_pick(out, in, from, n);
        else
            (n == 2 * s->cols ? gather_stretch2 : gather_stretch4)(out, in, s->cols);
        made = out;
        last = row;
    }
}

static void gather_resize(float *out, const uint8_t *image, const gw_dataset *s) {
    enum { TILE = 128 };
    int from[TILE];
    places cols = gather_places(s->cols, s->to_cols);
    if (s->to_cols == 2 * s->cols || s->to_cols == 4 * s->cols) {
        gather_columns(out, image, s, NULL, s->to_cols);
        return;
    }
    for (int left = 0; left < s->to_cols; left += TILE) {
        int n = s->to_cols - left < TILE ? s->to_cols - left : TILE;
        for (int i = 0; i < n; i++)
            from[i] = gather_next(&cols);
        gather_columns(out + left, image, s, from, n);
    }
}

/* Rows lie at random places of a large set, so hardware prefetching comes too late. */
static void gather_prefetch(const uint8_t *image, int pixels) {
    enum { LINE = 64, MOST = 2048 };
    for (int i = 0; i < pixels && i < MOST; i += LINE)
        __builtin_prefetch(image + i);
}

static size_t gather_place(const gw_dataset *s, uint32_t idx) {
    return (idx - s->first) % s->stored;
}

void gw_dataset_gather(const gw_dataset *s, const uint32_t *idx, int n, float *out,
                       gw_label *labels) {
    enum { AHEAD = 2 };
    int pixels = s->rows * s->cols;
    size_t features = (size_t)gw_dataset_features(s);
    bool as_stored = s->to_rows == s->rows && s->to_cols == s->cols;
#pragma omp parallel for schedule(static) if ((size_t)n * features >= PARALLEL_FLOATS)
    for (int i = 0; i < n; i++) {
        assert(idx[i] >= s->first && idx[i] - s->first < s->n);
        size_t at = gather_place(s, idx[i]);
        const uint8_t *image = s->images + at * (size_t)pixels;
        if (i + AHEAD < n)
            gather_prefetch(s->images + gather_place(s, idx[i + AHEAD]) * (size_t)pixels, pixels);
        if (as_stored)
            gather_convert(out + (size_t)i * features, image, pixels, s->tokens ? 1 : unit);
        else
            gather_resize(out + (size_t)i * features, image, s);
    }
    if (labels)
        gw_dataset_labels(s, idx, n, labels);
}

void gw_dataset_labels(const gw_dataset *s, const uint32_t *idx, int n, gw_label *labels) {
    size_t targets = (size_t)s->targets;
    for (int i = 0; i < n; i++)
        memcpy(labels + (size_t)i * targets, s->labels + gather_place(s, idx[i]) * targets,
               targets * sizeof *labels);
}
