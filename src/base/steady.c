#include "base/steady.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = GW_STEADY_BLOCKS, PIECES = GW_STEADY_PIECES };

/* Steps are counted by their length, in bins 1% wide, from a nanosecond on to over an hour. */
enum { BINS = 2912 };
#define BIN_LEAST 1e-9
#define BIN_WIDTH 0.00995033085316808 /* ln 1.01 */

/* Piece i has the sums of `width` steps, the last one of `last`. The width divides the period
 * `repeat.all` up to its length, and is a multiple of it from there on. */
struct gw_steady {
    int figures, pieces;
    int64_t width, last;
    gw_repeat repeat;
    double *sum;   /* [piece][figure], over the steps that know it; */
    int64_t *have; /* so many */
    int64_t bin[BINS];
};

typedef struct block {
    int from, to; /* pieces */
    double mean;  /* of the first figure */
} block;

static int64_t steady_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

gw_repeat gw_repeat_of(int64_t period) {
    return (gw_repeat){period > 0 ? period : 1, period};
}

void gw_repeat_also(gw_repeat *r, int64_t every, int64_t last) {
    if (every < 1 || every > last || r->all == 0)
        return;
    int64_t factor = every / steady_divisor(r->all, every);
    r->all = factor <= last / r->all ? r->all * factor : 0;
}

gw_err gw_steady_open(gw_steady **out, int figures) {
    gw_steady *s;
    GW_TRY(gw_alloc(&s, 1, sizeof *s));
    s->figures = figures;
    s->width = 1;
    s->repeat = gw_repeat_of(1);
    gw_err e = gw_alloc_unset(&s->sum, (size_t)PIECES * (size_t)figures, sizeof *s->sum);
    GW_THEN(e, gw_alloc_unset(&s->have, (size_t)PIECES * (size_t)figures, sizeof *s->have));
    GW_OPENED(e, out, s, gw_steady_free);
}

void gw_steady_free(gw_steady *s) {
    if (!s)
        return;
    free(s->sum);
    free(s->have);
    free(s);
}

void gw_steady_repeat(gw_steady *s, gw_repeat repeat) {
    s->repeat = repeat;
}

int64_t gw_steady_steps(const gw_steady *s) {
    return s->pieces == 0 ? 0 : (s->pieces - 1) * s->width + s->last;
}

static int64_t *steady_bin(gw_steady *s, double x) {
    double at = x > BIN_LEAST ? log(x / BIN_LEAST) / BIN_WIDTH : 0;
    return &s->bin[at < BINS - 1 ? (int)at : BINS - 1];
}

/* All pieces are full. Neighbours become one piece: 2 of them, or what leads to a whole period. */
static void steady_merge(gw_steady *s) {
    size_t f = (size_t)s->figures;
    int64_t steps = gw_steady_steps(s), rest = s->repeat.all / s->width, factor = 2;
    while (rest >= 2 && rest % factor && factor < PIECES)
        factor++;
    if (rest >= 2 && rest % factor)
        factor = rest;
    for (int64_t i = 0; i < s->pieces; i++)
        for (size_t k = 0; k < f; k++) {
            size_t from = (size_t)i * f + k, to = (size_t)(i / factor) * f + k;
            s->sum[to] = s->sum[from] + (i % factor ? s->sum[to] : 0);
            s->have[to] = s->have[from] + (i % factor ? s->have[to] : 0);
        }
    s->pieces = (int)((s->pieces - 1) / factor + 1);
    s->width *= factor;
    s->last = steps - (s->pieces - 1) * s->width;
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
    ++*steady_bin(s, figure[0]);
    for (size_t k = 0; k < f; k++)
        if (!isnan(figure[k])) {
            s->sum[at + k] += figure[k];
            s->have[at + k]++;
        }
}

void gw_steady_forget(gw_steady *s, int n) {
    size_t f = (size_t)s->figures, rest = (size_t)(s->pieces - n) * f;
    for (size_t i = 0; i < (size_t)n; i++) /* a piece is a step */
        --*steady_bin(s, s->sum[i * f]);
    memmove(s->sum, s->sum + (size_t)n * f, rest * sizeof *s->sum);
    memmove(s->have, s->have + (size_t)n * f, rest * sizeof *s->have);
    s->pieces -= n;
}

static int steady_block_by_mean(const void *a, const void *b) {
    const block *x = a, *y = b;
    int order = (x->mean > y->mean) - (x->mean < y->mean);
    return order ? order : x->from - y->from; /* the same choice by every qsort */
}

/* Blocks start at multiples of `stride` pieces, where periods do. */
typedef struct grouping {
    gw_steady_kept kept; /* trimmed, period */
    int stride, groups;
} grouping;

static grouping steady_grouping(const gw_steady *s) {
    int64_t steps = gw_steady_steps(s), all = s->repeat.all;
    grouping c = {.kept.trimmed = all > 0 && steps / all >= GW_STEADY_FEWEST};
    int64_t period = c.kept.period = c.kept.trimmed ? all : s->repeat.exchange;
    int64_t stride = period / steady_divisor(period, s->width);
    int64_t whole = s->last < s->width && steps % period ? s->pieces - 1 : s->pieces;
    if (stride > whole)
        return c;
    c.stride = (int)stride;
    c.groups = (int)(whole / stride);
    if (s->last < s->width && whole == s->pieces) /* the last piece is shorter, yet ends a period */
        c.groups = (int)((whole - 1) / stride + 1);
    return c;
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

/* All blocks, in their order; returns how many. */
static int steady_blocks(const gw_steady *s, const grouping *c, block *all) {
    int n = c->groups < BLOCKS ? c->groups : BLOCKS;
    for (int b = 0; b < n; b++) {
        int to = (b + 1) * c->groups / n * c->stride;
        all[b].from = b * c->groups / n * c->stride;
        all[b].to = to < s->pieces ? to : s->pieces;
        all[b].mean = steady_mean(s, &all[b], 1, 0);
    }
    return n;
}

/* Of these blocks the ones that count, moved to the front; returns how many. */
static int steady_keep(block *of, int n) {
    int cut = n / 4;
    qsort(of, (size_t)n, sizeof *of, steady_block_by_mean);
    memmove(of, of + cut, (size_t)(n - 2 * cut) * sizeof *of);
    return n - 2 * cut;
}

gw_steady_kept gw_steady_means(const gw_steady *s, double *steady, double *plain) {
    block kept[BLOCKS], all = {.to = s->pieces};
    grouping c = steady_grouping(s);
    int n = steady_blocks(s, &c, kept);
    if (c.kept.trimmed)
        n = steady_keep(kept, n);
    for (size_t k = 0; k < (size_t)s->figures; k++) {
        steady[k] = steady_mean(s, kept, n, k);
        plain[k] = steady_mean(s, &all, 1, k);
    }
    for (int b = 0; b < n; b++)
        for (int i = kept[b].from; i < kept[b].to; i++)
            c.kept.steps += s->have[(size_t)i * (size_t)s->figures];
    return c.kept;
}

const char *gw_steady_name(const gw_steady_kept *kept) {
    return kept->steps == 0 ? "absent" : kept->trimmed ? "steady mean" : "plain mean";
}

const gw_steady_doubt gw_steady_no_doubt = {NAN, NAN, NAN, NAN, NAN, NAN, NAN};

/* The steady mean of n blocks of `all`: those from `from` on, every `stride`th. */
static double steady_half(const gw_steady *s, const block *all, int from, int stride, int n) {
    block of[BLOCKS];
    for (int i = 0; i < n; i++)
        of[i] = all[from + i * stride];
    return steady_mean(s, of, steady_keep(of, n), 0);
}

static double steady_percentile(const gw_steady *s, double share) {
    double below = share * (double)gw_steady_steps(s);
    int64_t seen = s->bin[0];
    int b = 0;
    while (b < BINS - 1 && (double)seen <= below)
        seen += s->bin[++b];
    return BIN_LEAST * exp((b + 0.5) * BIN_WIDTH);
}

gw_steady_doubt gw_steady_look(const gw_steady *s) {
    gw_steady_doubt d = gw_steady_no_doubt;
    block all[BLOCKS];
    grouping c = steady_grouping(s);
    int n = steady_blocks(s, &c, all);
    d.p10 = steady_percentile(s, 0.1);
    d.p90 = steady_percentile(s, 0.9);
    if (n < GW_STEADY_HALVES || !c.kept.trimmed)
        return d;
    d.odd = steady_half(s, all, 0, 2, (n + 1) / 2);
    d.even = steady_half(s, all, 1, 2, n / 2);
    d.first = steady_half(s, all, 0, 1, n / 2);
    d.last = steady_half(s, all, n / 2, 1, n - n / 2);
    d.apart = fmax(fabs(d.odd - d.even), fabs(d.first - d.last)) / steady_half(s, all, 0, 1, n);
    return d;
}

bool gw_steady_doubts(const gw_steady_doubt *d) {
    return d->apart > GW_STEADY_APART;
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
