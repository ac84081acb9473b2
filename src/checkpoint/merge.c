#include "checkpoint/merge.h"

#include "base/mem.h"

#include <stdlib.h>

gw_err gw_merge_open(gw_merge *m, size_t n, int vectors) {
    size_t all = (size_t)vectors * n;
    m->n = n;
    m->vectors = vectors;
    GW_TRY(gw_alloc(&m->params, n, sizeof *m->params));
    GW_TRY(gw_alloc(&m->holders, n, sizeof *m->holders));
    GW_TRY(gw_alloc(&m->state, all, sizeof *m->state));
    GW_TRY(gw_alloc(&m->owners, vectors > 0 ? n : 0, sizeof *m->owners));
    return gw_alloc(&m->first, all, sizeof *m->first);
}

void gw_merge_free(gw_merge *m) {
    free(m->params);
    free(m->state);
    free(m->holders);
    free(m->owners);
    free(m->first);
    *m = (gw_merge){0};
}

/* A row of a block: `n` floats at `own` of the rank's arena, at `off` of the whole one. */
static void merge_params(gw_merge *m, const gw_rank_state *r, size_t own, size_t off, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double x = (double)r->params[own + i];
        size_t k = off + i;
        m->differ |= m->holders[k] > 0 && m->params[k] != x * m->holders[k];
        for (int v = 0; v < m->vectors && m->holders[k] == 0; v++)
            m->first[(size_t)v * m->n + k] = r->vectors.x[(size_t)v * r->n + own + i];
        m->params[k] += x;
        m->holders[k]++;
    }
}

static void merge_owned(gw_merge *m, const gw_rank_state *r, size_t own, size_t off, size_t n) {
    for (int i = 0; m->vectors > 0 && i < r->owned.n; i++) {
        gw_span s = gw_span_common(r->owned.span[i], (gw_span){own, n});
        for (size_t at = s.off, k = off + s.off - own; at < gw_span_end(s); at++, k++) {
            for (int v = 0; v < m->vectors; v++)
                m->state[(size_t)v * m->n + k] += (double)r->vectors.x[(size_t)v * r->n + at];
            m->owners[k]++;
        }
    }
}

void gw_merge_add(gw_merge *m, const gw_rank_state *r) {
    m->updates = r->updates > m->updates ? r->updates : m->updates;
    for (const gw_block *b = r->blocks; b < r->blocks + r->n_blocks; b++)
        for (size_t row = 0; row < b->rows; row++) {
            size_t own = b->own + row * b->cols, off = b->off + row * b->stride;
            merge_params(m, r, own, off, b->cols);
            merge_owned(m, r, own, off, b->cols);
        }
}

/* A mean of equal floats is that float, to the bit: their sum in doubles is exact. */
gw_err gw_merge_end(const gw_merge *m, const char *from, float *params, float *state) {
    for (size_t k = 0; k < m->n; k++) {
        if (m->holders[k] == 0)
            return gw_fail(GW_ERR_INPUT, "%s: no rank's file has parameter %zu", from, k);
        params[k] = (float)(m->params[k] / m->holders[k]);
    }
    for (size_t i = 0; i < (size_t)m->vectors * m->n; i++) {
        uint32_t owners = m->owners[i % m->n]; /* none: no step since it was merged */
        state[i] = owners ? (float)(m->state[i] / owners) : m->first[i];
    }
    return GW_OK;
}
