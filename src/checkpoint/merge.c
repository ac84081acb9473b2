#include "checkpoint/merge.h"

#include "base/mem.h"

#include <stdlib.h>

gw_err gw_merge_open(gw_merge *m, size_t n, bool momentum) {
    m->n = n;
    GW_TRY(gw_alloc(&m->params, n, sizeof *m->params));
    GW_TRY(gw_alloc(&m->holders, n, sizeof *m->holders));
    if (!momentum)
        return GW_OK;
    GW_TRY(gw_alloc(&m->momentum, n, sizeof *m->momentum));
    GW_TRY(gw_alloc(&m->owners, n, sizeof *m->owners));
    return gw_alloc(&m->first, n, sizeof *m->first);
}

void gw_merge_free(gw_merge *m) {
    free(m->params);
    free(m->momentum);
    free(m->holders);
    free(m->owners);
    free(m->first);
    *m = (gw_merge){0};
}

/* A row of a block: `n` floats at `own` of the rank's arena, at `off` of the whole one. */
static void merge_params(gw_merge *m, const gw_rank_state *r, size_t own, size_t off, size_t n) {
    bool kept = m->momentum && r->n_momentum == r->n;
    for (size_t i = 0; i < n; i++) {
        double x = (double)r->params[own + i];
        size_t k = off + i;
        m->differ |= m->holders[k] > 0 && m->params[k] != x * m->holders[k];
        if (kept && m->holders[k] == 0)
            m->first[k] = r->momentum[own + i];
        m->params[k] += x;
        m->holders[k]++;
    }
}

static void merge_owned(gw_merge *m, const gw_rank_state *r, size_t own, size_t off, size_t n) {
    bool kept = m->momentum && r->n_momentum == r->n;
    for (int i = 0; kept && i < r->owned.n; i++) {
        gw_span s = gw_span_common(r->owned.span[i], (gw_span){own, n});
        for (size_t at = s.off; at < gw_span_end(s); at++) {
            m->momentum[off + at - own] += (double)r->momentum[at];
            m->owners[off + at - own]++;
        }
    }
}

void gw_merge_add(gw_merge *m, const gw_rank_state *r) {
    for (const gw_block *b = r->blocks; b < r->blocks + r->n_blocks; b++)
        for (size_t row = 0; row < b->rows; row++) {
            size_t own = b->own + row * b->cols, off = b->off + row * b->stride;
            merge_params(m, r, own, off, b->cols);
            merge_owned(m, r, own, off, b->cols);
        }
}

/* A mean of equal floats is that float, to the bit: their sum in doubles is exact. */
gw_err gw_merge_end(const gw_merge *m, const char *from, float *params, float *momentum) {
    for (size_t k = 0; k < m->n; k++) {
        if (m->holders[k] == 0)
            return gw_fail(GW_ERR_INPUT, "%s: no rank's file has parameter %zu", from, k);
        params[k] = (float)(m->params[k] / m->holders[k]);
    }
    for (size_t k = 0; m->momentum && k < m->n; k++) /* no owner: no step since it was merged */
        momentum[k] = m->owners[k] ? (float)(m->momentum[k] / m->owners[k]) : m->first[k];
    return GW_OK;
}
