#include "compress/select.h"

#include <math.h>

enum {
    CHUNK = 4096, /* floats looked at between two looks at the room left: they stay in L1 */
    SAMPLES = 8192
};

/* A magnitude that cuts floats in two: `reach` reach it, `above` lie above it. */
typedef struct cut {
    uint32_t at;
    size_t reach, above;
} cut;

/* A range of magnitudes [lo, hi): how many of the floats reach lo, and hi. */
typedef struct range {
    uint32_t lo, hi;
    size_t reach, above;
} range;

/* A count's logarithm, near enough to interpolate with: the bits of a float grow like it. */
static double select_steepness(double count) {
    return (double)gw_float_bits((float)count);
}

/* How far above lo about `rank` are reached, if counts fall by like factors over like distances; a
 * little to the other side of it where one end is near already, so that the far one comes close. 0:
 * they are too near to tell. */
static uint32_t select_interpolate(const range *r, double rank) {
    double over = (double)r->reach - rank, under = rank - (double)r->above, aim = rank;
    if (8 * over < under)
        aim -= over + 1;
    else if (8 * under < over)
        aim += under + 1;
    double top = select_steepness((double)r->reach), low = select_steepness((double)r->above + 0.5);
    if (!(top > low)) /* one float for both: counts above 2^24 */
        return 0;
    return (uint32_t)((r->hi - r->lo) * ((top - select_steepness(aim)) / (top - low)));
}

/* A cut that rank to rank + slack of bits[0..n) reach, or more if there is none: then fewer than
 * rank lie above it. None is of lower magnitude than `floor`, and rank <= n. Each step counts what
 * reaches a magnitude within the range left: a small leap above the floor, where magnitudes crowd,
 * then one twice as large, until too few are left; then where the counts at the ends of the range
 * would have it, which ends in few steps, and in its middle now and then, which ends in any case.
 */
static cut find_cut(const gw_pick_kernels *kernels, const uint32_t *bits, size_t n, uint32_t floor,
                    size_t rank, size_t slack) {
    range r = {floor, GW_MAGNITUDE + 1u, n, 0};
    uint32_t leap = floor ? 1u << 19 : 0; /* a 16th of an octave */
    for (unsigned step = 0; r.reach > rank + slack && r.hi - r.lo > 1; step++) {
        uint32_t width = r.hi - r.lo;
        uint32_t ahead = leap       ? leap
                         : step % 4 ? select_interpolate(&r, (double)rank + (double)slack / 2)
                                    : 0;
        if (ahead == 0 || ahead >= width)
            ahead = width / 2;
        size_t found = kernels->count(bits, n, r.lo + ahead);
        if (found >= rank)
            r.lo += ahead, r.reach = found, leap *= 2;
        else
            r.hi = r.lo + ahead, r.above = found, leap = 0;
    }
    return (cut){r.lo, r.reach, r.above};
}

/* Elements that may be among the k largest. */
typedef struct candidates {
    gw_kept kept;
    size_t room;
    uint32_t floor; /* none is of lower magnitude */
} candidates;

/* Of those of just the cut's magnitude keep the first `left`. */
static size_t filter_ties(gw_kept *kept, uint32_t least, size_t left) {
    size_t n = 0;
    for (size_t i = 0; i < kept->n; i++) {
        uint32_t m = gw_magnitude(kept->bits[i]);
        size_t keep = m > least;
        if (m == least && left)
            keep = 1, left--;
        kept->at[n] = kept->at[i];
        kept->bits[n] = kept->bits[i];
        n += keep;
    }
    return n;
}

/* Keep the k largest of at least k. */
static void select_prune(const gw_pick_kernels *kernels, candidates *c, size_t k) {
    gw_kept *kept = &c->kept;
    cut at = find_cut(kernels, kept->bits, kept->n, c->floor, k, 0);
    kept->n = at.reach == k ? kernels->filter(kept->at, kept->bits, kept->n, at.at)
                            : filter_ties(kept, at.at, k - at.above);
    c->floor = at.at;
}

/* A magnitude that about k elements of x, or of x + e, reach: more than k, in a sample from data in
 * any order, unless chance strays by `sigmas` standard deviations. Drawn one a stride, at a place
 * that no period of the data can follow. 0, which all elements reach, where the sample is too small
 * to tell. */
static uint32_t select_guess(const gw_pick_kernels *kernels, const float *x, const float *e,
                             size_t n, size_t k, double sigmas) {
    uint32_t sample[SAMPLES];
    size_t m = n / 128 < SAMPLES ? n / 128 : SAMPLES;
    m = m > 1024 ? m : n / 8 < 1024 ? n / 8 : 1024;
    double expected = (double)k * (double)m / (double)n;
    double rank = expected + sigmas * sqrt(expected) + 1;
    if (rank >= (double)m)
        return 0;
    size_t stride = n / m;
    for (size_t i = 0; i < m; i++) {
        uint64_t jitter = (uint32_t)(i * 0x9e3779b1u);
        size_t at = i * stride + (jitter * stride >> 32);
        sample[i] = gw_float_bits(e ? e[at] + x[at] : x[at]);
    }
    return find_cut(kernels, sample, m, 0, (size_t)rank, (size_t)rank / 8 + 1).at;
}

/* All elements of magnitude `least` or more, less those found to have k others before them. */
static void select_collect(const gw_pick_kernels *kernels, const float *x, float *e, size_t n,
                           size_t k, uint32_t least, candidates *c) {
    gw_kept *kept = &c->kept;
    const float *from = e ? e : x;
    kept->n = 0;
    c->floor = least;
    for (size_t lo = 0; lo < n; lo += CHUNK) {
        size_t m = n - lo < CHUNK ? n - lo : CHUNK;
        if (c->room - kept->n < (m + GW_BLOCK - 1) / GW_BLOCK * GW_BLOCK)
            select_prune(kernels, c, k),
                least = c->floor + 1; /* an equal one that comes later has lost */
        size_t had = kept->n;
        kept->n += gw_pick_chunk(kernels, x + lo, e ? e + lo : NULL, m, least, (uint32_t)lo,
                                 kept->at + had);
        for (size_t i = had; i < kept->n; i++)
            kept->bits[i] = gw_float_bits(from[kept->at[i]]);
    }
}

static size_t room_for(size_t n, size_t k) {
    size_t all = (n + GW_BLOCK - 1) / GW_BLOCK * GW_BLOCK;
    size_t room = k + (k > CHUNK ? k : CHUNK) + CHUNK;
    return room < all ? room : all;
}

size_t gw_select_words(size_t n, size_t k) {
    return 2 * room_for(n, k);
}

void gw_select_largest(const gw_pick_kernels *kernels, const float *x, float *e, size_t n, size_t k,
                       uint32_t *words, gw_kept *out) {
    size_t room = room_for(n, k);
    candidates c = {.kept = {.at = words, .bits = words + room}, .room = room};
    double sigmas = 2.5;
    select_collect(kernels, x, e, n, k, select_guess(kernels, x, e, n, k, sigmas), &c);
    while (c.kept.n < k) { /* guessed too high: seldom, and in the end the guess is 0 */
        const float *sum = e ? e : x;
        sigmas *= 4;
        select_collect(kernels, sum, NULL, n, k, select_guess(kernels, sum, NULL, n, k, sigmas),
                       &c);
    }
    select_prune(kernels, &c, k);
    *out = c.kept;
}
