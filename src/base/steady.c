#include "base/steady.h"

#include "base/mem.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = GW_STEADY_BLOCKS, PIECES = GW_STEADY_PIECES };

/* Piece i has the sums of `width` steps, the last one of `last`. */
struct gw_steady {
    int figures, pieces;
    int64_t width, last;
    double *sum;   /* [piece][figure], over the steps that know it; */
    int64_t *have; /* so many */
};

typedef struct block {
    int from, to; /* pieces */
    double mean;  /* of the first figure */
} block;

gw_err gw_steady_open(gw_steady **out, int figures) {
    gw_steady *s;
    GW_TRY(gw_alloc(&s, 1, sizeof *s));
    s->figures = figures;
    s->width = 1;
    gw_err e = gw_alloc_unset(&s->sum, (size_t)PIECES * (size_t)figures, sizeof *s->sum);
    GW_THEN(e, gw_alloc_unset(&s->have, (size_t)PIECES * (size_t)figures, sizeof *s->have));
    if (e != GW_OK) {
        gw_steady_free(s);
        return e;
    }
    *out = s;
    return GW_OK;
}

void gw_steady_free(gw_steady *s) {
    if (!s)
        return;
    free(s->sum);
    free(s->have);
    free(s);
}

int64_t gw_steady_steps(const gw_steady *s) {
    return s->pieces == 0 ? 0 : (s->pieces - 1) * s->width + s->last;
}

/* All pieces are full: each becomes one with its neighbour. */
static void steady_merge(gw_steady *s) {
    size_t f = (size_t)s->figures;
    for (size_t i = 0; i < PIECES / 2; i++)
        for (size_t k = 0; k < f; k++) {
            s->sum[i * f + k] = s->sum[2 * i * f + k] + s->sum[(2 * i + 1) * f + k];
            s->have[i * f + k] = s->have[2 * i * f + k] + s->have[(2 * i + 1) * f + k];
        }
    s->pieces = PIECES / 2;
    s->width *= 2;
    s->last = s->width;
}

void gw_steady_add(gw_steady *s, const double *figure) {
    size_t f = (size_t)s->figures;
    if (s->pieces == PIECES && s->last == s->width)
        steady_merge(s);
    if (s->pieces == 0 || s->last == s->width) {
        size_t at = (size_t)s->pieces++ * f;
        memset(s->sum + at, 0, f * sizeof *s->sum);
        memset(s->have + at, 0, f * sizeof *s->have);
        s->last = 0;
    }
    size_t at = (size_t)(s->pieces - 1) * f;
    s->last++;
    for (size_t k = 0; k < f; k++)
        if (!isnan(figure[k])) {
            s->sum[at + k] += figure[k];
            s->have[at + k]++;
        }
}

void gw_steady_forget(gw_steady *s, int n) {
    size_t f = (size_t)s->figures, rest = (size_t)(s->pieces - n) * f;
    memmove(s->sum, s->sum + (size_t)n * f, rest * sizeof *s->sum);
    memmove(s->have, s->have + (size_t)n * f, rest * sizeof *s->have);
    s->pieces -= n;
}

static int steady_block_by_mean(const void *a, const void *b) {
    const block *x = a, *y = b;
    int order = (x->mean > y->mean) - (x->mean < y->mean);
    return order ? order : x->from - y->from; /* the same choice by every qsort */
}

/* The blocks that count; returns how many. */
static int steady_blocks(const gw_steady *s, block *out) {
    size_t f = (size_t)s->figures;
    int n = s->pieces < BLOCKS ? s->pieces : BLOCKS, cut = n / 4;
    block all[BLOCKS];
    for (int b = 0; b < n; b++) {
        double sum = 0, have = 0;
        all[b].from = b * s->pieces / n;
        all[b].to = (b + 1) * s->pieces / n;
        for (int i = all[b].from; i < all[b].to; i++) {
            sum += s->sum[(size_t)i * f];
            have += (double)s->have[(size_t)i * f];
        }
        all[b].mean = sum / have;
    }
    qsort(all, (size_t)n, sizeof *all, steady_block_by_mean);
    memcpy(out, all + cut, (size_t)(n - 2 * cut) * sizeof *out);
    return n - 2 * cut;
}

/* NaN, 0/0, where no step knows it. */
static double steady_mean(const gw_steady *s, const block *of, int n, size_t k) {
    double sum = 0, have = 0;
    for (int b = 0; b < n; b++)
        for (int i = of[b].from; i < of[b].to; i++) {
            sum += s->sum[(size_t)i * (size_t)s->figures + k];
            have += (double)s->have[(size_t)i * (size_t)s->figures + k];
        }
    return sum / have;
}

void gw_steady_means(const gw_steady *s, double *steady, double *plain) {
    block kept[BLOCKS], all = {.to = s->pieces};
    int n = steady_blocks(s, kept);
    for (size_t k = 0; k < (size_t)s->figures; k++) {
        steady[k] = steady_mean(s, kept, n, k);
        plain[k] = steady_mean(s, &all, 1, k);
    }
}

gw_err gw_steady_of(const double *x, int n, double *out) {
    gw_steady *s;
    double plain;
    GW_TRY(gw_steady_open(&s, 1));
    for (int i = 0; i < n; i++)
        gw_steady_add(s, x + i);
    gw_steady_means(s, out, &plain);
    gw_steady_free(s);
    return GW_OK;
}
