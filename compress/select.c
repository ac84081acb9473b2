#include "compress/select.h"

#include <math.h>

enum {
    CHUNK = 4096, /* floats between two checks of the room left: they fit in L1 */
    SAMPLES = 8192
};

/* A threshold magnitude: `reach` floats are at or above it, `above` strictly above. */
typedef struct cut {
    uint32_t at;
    size_t reach, above;
} cut;

/* A range of magnitudes [lo, hi): `reach` floats are at or above lo, `above` at or above hi. */
typedef struct range {
    uint32_t lo, hi;
    size_t reach, above;
} range;

/* A stand-in for log(count), good enough to interpolate with: a float's bits grow like its
 * logarithm. */
static double select_steepness(double count) {
    return (double)gw_float_bits((float)count);
}

/* Distance above lo at which about `rank` floats remain, if counts fall exponentially. Where one
 * end is already near, aim slightly past `rank`, so that the far end comes close. 0: the ends are
 * too near to tell. */
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

/* A cut that rank to rank + slack of bits[0..n) reach, or more if ties leave none: then fewer than
 * rank lie above it. No float has a magnitude below `floor`, and rank <= n. Each step counts the
 * floats at or above a magnitude in the remaining range. It starts with a small leap above the
 * floor, where magnitudes crowd, and doubles it until too few are left. Then it interpolates, which
 * needs few steps, and now and then bisects, which always ends. */
static cut select_find_cut(const gw_pick_kernels *kernels, const uint32_t *bits, size_t n,
                           uint32_t floor, size_t rank, size_t slack) {
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
    uint32_t floor; /* no element has a lower magnitude */
} candidates;

/* Of the elements at exactly the cut's magnitude keep the first `left`. */
static size_t select_filter_ties(gw_kept *kept, uint32_t least, size_t left) {
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
    cut at = select_find_cut(kernels, kept->bits, kept->n, c->floor, k, 0);
    kept->n = at.reach == k ? kernels->filter(kept->at, kept->bits, kept->n, at.at)
                            : select_filter_ties(kept, at.at, k - at.above);
    c->floor = at.at;
}

/* A magnitude that about k elements of x, or of x + e, reach, estimated from a sample with `sigmas`
 * standard deviations to spare. One sample a stride, at a jittered place, so that periodic data
 * cannot mislead it. 0, which all elements reach, if the sample is too small to tell. */
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
    return select_find_cut(kernels, sample, m, 0, (size_t)rank, (size_t)rank / 8 + 1).at;
}

/* Collect all elements of magnitude `least` or more, dropping those that k others are known to
 * beat. */
static void select_collect(const gw_pick_kernels *kernels, const float *x, float *e, size_t n,
                           size_t k, uint32_t least, candidates *c) {
    gw_kept *kept = &c->kept;
    const float *from = e ? e : x;
    kept->n = 0;
    c->floor = least;
    for (size_t lo = 0; lo < n; lo += CHUNK) {
        size_t m = n - lo < CHUNK ? n - lo : CHUNK;
        if (c->room - kept->n < (m + GW_BLOCK - 1) / GW_BLOCK * GW_BLOCK)
            select_prune(kernels, c, k), least = c->floor + 1; /* a later tie loses */
        size_t had = kept->n;
        kept->n += gw_pick_chunk(kernels, x + lo, e ? e + lo : NULL, m, least, (uint32_t)lo,
                                 kept->at + had);
        for (size_t i = had; i < kept->n; i++)
            kept->bits[i] = gw_float_bits(from[kept->at[i]]);
    }
}

static size_t select_room(size_t n, size_t k) {
    size_t all = (n + GW_BLOCK - 1) / GW_BLOCK * GW_BLOCK;
    size_t room = k + (k > CHUNK ? k : CHUNK) + CHUNK;
    return room < all ? room : all;
}

size_t gw_select_words(size_t n, size_t k) {
    return 2 * select_room(n, k);
}

void gw_select_largest(const gw_pick_kernels *kernels, const float *x, float *e, size_t n, size_t k,
                       uint32_t *words, gw_kept *out) {
    size_t room = select_room(n, k);
    candidates c = {.kept = {.at = words, .bits = words + room}, .room = room};
    double sigmas = 2.5;
    select_collect(kernels, x, e, n, k, select_guess(kernels, x, e, n, k, sigmas), &c);
    while (c.kept.n < k) { /* rare: the guess was too high; it ends at 0 */
        const float *sum = e ? e : x;
        sigmas *= 4;
        select_collect(kernels, sum, NULL, n, k, select_guess(kernels, sum, NULL, n, k, sigmas),
                       &c);
    }
    select_prune(kernels, &c, k);
    *out = c.kept;
}
