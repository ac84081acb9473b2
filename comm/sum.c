#include "comm/sum.h"

#include "base/clones.h"
#include "base/norm.h"

#include <string.h>

/* Plain stores, on purpose: the peer reads these lines next, from a cache that both cores reach.
 * Streaming stores made the pass 3 to 9 times slower at every size from 64 KiB to 16 MiB (Zen 4),
 * and prefetching the peer's lines for writing gained nothing. */
GW_CLONES static void sum_add_pair(float *restrict a, float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

GW_CLONES static void sum_weigh_pair(float *restrict a, float *restrict b, const float *weights,
                                     size_t n) {
    float wa = weights[0], wb = weights[1];
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] * wa + b[i] * wb;
        a[i] = sum;
        b[i] = sum;
    }
}

GW_CLONES static void sum_scale(float *y, float w, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] *= w;
}

GW_CLONES static void sum_weigh(float *restrict y, const float *restrict x, float w, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] += x[i] * w;
}

GW_CLONES static void sum_add(float *restrict y, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* A block of the sum is gathered in the first-level cache and then stored to all. Who looks for the
 * greatest magnitudes finds them there, too: the pass takes as long as without (Zen 4). */
enum { BLOCK = 2048 };

static void sum_block(float *sum, float *const *rows, const float *weights, int n, size_t i,
                      size_t m) {
    memcpy(sum, rows[0] + i, m * sizeof *sum);
    if (weights && weights[0] != 1)
        sum_scale(sum, weights[0], m);
    for (int r = 1; r < n; r++)
        if (weights && weights[r] != 1)
            sum_weigh(sum, rows[r] + i, weights[r], m);
        else
            sum_add(sum, rows[r] + i, m);
}

void gw_sum_rows(float *const *rows, const float *weights, int n, float *const *to, int n_to,
                 size_t len, uint32_t *most) {
    bool pair = n == 2 && n_to == 2 && to[0] == rows[0] && to[1] == rows[1];
    float sum[BLOCK];
    for (int r = 0; most && r < n; r++)
        most[r] = 0;
    for (size_t i = 0; i < len; i += BLOCK) {
        size_t m = len - i < BLOCK ? len - i : BLOCK;
        for (int r = 0; most && r < n; r++) {
            uint32_t here = gw_norm_greatest(rows[r] + i, m);
            most[r] = here > most[r] ? here : most[r];
        }
        if (pair && weights)
            sum_weigh_pair(rows[0] + i, rows[1] + i, weights, m);
        else if (pair)
            sum_add_pair(rows[0] + i, rows[1] + i, m);
        if (pair)
            continue;
        sum_block(sum, rows, weights, n, i, m);
        for (int j = 0; j < n_to; j++)
            memcpy(to[j] + i, sum, m * sizeof *sum);
    }
}

static size_t sum_cut(gw_span s, int i, int parts) {
    enum { LINE = 16 }; /* floats */
    size_t at = s.off + s.n * (size_t)i / (size_t)parts;
    at = (at + LINE - 1) / LINE * LINE;
    return i == 0 ? s.off : i == parts || at > gw_span_end(s) ? gw_span_end(s) : at;
}

gw_span gw_sum_part(gw_span s, int i, int parts) {
    size_t lo = sum_cut(s, i, parts);
    return (gw_span){lo, sum_cut(s, i + 1, parts) - lo};
}
