#include "compress/sparse_wire.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 4, VALUE = 4, ESCAPE = 255 };

gw_err gw_sparse_open(void **self, const char *name, size_t size) {
    const gw_pick_kernels *kernels;
    gw_sparse *s = NULL;
    GW_TRY(gw_pick_open(&kernels));
    GW_TRY(gw_alloc(&s, size, 1));
    s->name = name;
    s->kernels = kernels;
    *self = s;
    return GW_OK;
}

void gw_sparse_close(void *self) {
    gw_sparse *s = self;
    if (s)
        gw_scratch_clear(&s->scratch);
    free(s);
}

size_t gw_sparse_bound(const void *self, size_t n) {
    const gw_sparse *s = self;
    size_t k = s->most(s, n);
    return n ? HEADER + k * (1 + VALUE) + (n - k) / ESCAPE : 0;
}

/* Write the gaps before at[i] .. at[end-1]; `next` follows at[i-1]. Where a hundredth is kept, one
 * escape is as likely as none, so that case has no branch; two escapes are rare. */
static unsigned char *sparse_put_few_gaps(const uint32_t *restrict at, size_t i, size_t end,
                                          uint32_t next, unsigned char *restrict gaps) {
    for (; i < end; i++) {
        uint32_t gap = at[i] - next, escape = gap >= ESCAPE;
        next = at[i] + 1;
        *gaps = ESCAPE;
        gaps += escape;
        gap -= escape * ESCAPE;
        for (; __builtin_expect(gap >= ESCAPE, 0); gap -= ESCAPE)
            *gaps++ = ESCAPE;
        *gaps++ = (unsigned char)gap;
    }
    return gaps;
}

/* In groups: where more is kept, most groups have no escape. */
static unsigned char *sparse_put_many_gaps(const uint32_t *restrict at, size_t n,
                                           unsigned char *restrict gaps) {
    enum { GROUP = 8 };
    size_t i = 1;
    gaps = sparse_put_few_gaps(at, 0, i, 0, gaps);
    for (; i + GROUP <= n; i += GROUP) {
        uint32_t gap[GROUP], most = 0;
        for (size_t j = 0; j < GROUP; j++)
            gap[j] = at[i + j] - at[i + j - 1] - 1;
        for (size_t j = 0; j < GROUP; j++)
            most = gap[j] > most ? gap[j] : most;
        if (most < ESCAPE) {
            for (size_t j = 0; j < GROUP; j++)
                gaps[j] = (unsigned char)gap[j];
            gaps += GROUP;
        } else {
            gaps = sparse_put_few_gaps(at, i, i + GROUP, at[i - 1] + 1, gaps);
        }
    }
    return sparse_put_few_gaps(at, i, n, at[i - 1] + 1, gaps);
}

static void sparse_put_values(const uint32_t *restrict bits, size_t n, gw_u32u *restrict values) {
    for (size_t i = 0; i < n; i++)
        values[i] = gw_le32(bits[i]);
}

static size_t sparse_put(const gw_kept *kept, void *out) {
    enum { WIDE = 48 }; /* mean gap from which groups no longer pay */
    const uint32_t *at = kept->at;
    size_t n = kept->n;
    unsigned char *gaps = (unsigned char *)out + HEADER;
    *(gw_u32u *)out = gw_le32((uint32_t)n);
    gaps = n && at[n - 1] / n < WIDE ? sparse_put_many_gaps(at, n, gaps)
                                     : sparse_put_few_gaps(at, 0, n, 0, gaps);
    sparse_put_values(kept->bits, n, (gw_u32u *)(void *)gaps);
    return (size_t)(gaps + n * VALUE - (unsigned char *)out);
}

/* Encode x, or e += x; then subtract what is kept from e. */
static gw_err sparse_encode_either(const void *self, gw_turn turn, const float *x, float *e,
                                   size_t n, void *out, size_t *len) {
    gw_sparse *s = (gw_sparse *)self; /* only its scratch changes */
    *len = 0;
    if (n == 0)
        return GW_OK;
    if (n > GW_SELECT_MOST)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "%s: a span of %zu floats is too long for 32-bit indices: use buckets",
                       s->name, n);
    gw_block *block;
    gw_kept kept;
    GW_TRY(s->select(s, turn, x, e, n, &kept, &block));
    *len = sparse_put(&kept, out);
    if (e)
        gw_kept_take(&kept, e);
    gw_scratch_give(&s->scratch, block);
    return GW_OK;
}

gw_err gw_sparse_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                        size_t cap, size_t *len) {
    (void)cap;
    return sparse_encode_either(self, turn, x, NULL, n, out, len);
}

gw_err gw_sparse_encode_feedback(const void *self, gw_turn turn, const float *x, float *e, size_t n,
                                 void *out, size_t cap, size_t *len) {
    (void)cap;
    return sparse_encode_either(self, turn, x, e, n, out, len);
}

/* Check that the gaps name k of n elements and that nothing follows the last. */
static gw_err sparse_check_gaps(const char *name, const unsigned char *gaps, size_t bytes, size_t k,
                                size_t n) {
    size_t skipped = 0, named = 0;
    for (size_t i = 0; i < bytes; i++) {
        skipped += gaps[i];
        named += gaps[i] != ESCAPE;
    }
    bool open = bytes && gaps[bytes - 1] == ESCAPE;
    if (named != k || open || skipped > n - k)
        return gw_fail(GW_ERR_CORRUPT, "%s: %zu gaps that skip %zu elements, expected %zu of %zu",
                       name, named, skipped, k, n);
    return GW_OK;
}

static void sparse_scatter(const unsigned char *gaps, size_t bytes, const gw_u32u *value, float *y,
                           gw_into into) {
    for (size_t i = 0; i < bytes; i++) {
        y += gaps[i];
        if (gaps[i] == ESCAPE)
            continue;
        float v = gw_float_of(gw_le32(*value++));
        switch (into) {
        case GW_INTO_SET: *y = v; break;
        case GW_INTO_ADD: *y += v; break;
        case GW_INTO_SUBTRACT: *y -= v; break;
        case GW_INTO_CLEAR: *y = 0; break;
        }
        y++;
    }
}

/* The parts of a valid encoding: k elements of n. */
typedef struct parts {
    const unsigned char *gaps;
    const gw_u32u *values;
    size_t k, bytes; /* of the gaps */
} parts;

static gw_err sparse_take_apart(const gw_sparse *s, const void *in, size_t len, size_t n,
                                parts *p) {
    const char *name = s->name;
    size_t least = s->least(s, n), most = s->most(s, n);
    *p = (parts){0};
    if (n == 0 && len == 0)
        return GW_OK;
    if (n == 0 || len < HEADER)
        return gw_fail(GW_ERR_CORRUPT, "%s: %zu bytes for %zu floats", name, len, n);
    p->k = gw_le32(*(const gw_u32u *)in);
    if (p->k < least || p->k > most)
        return gw_fail(GW_ERR_CORRUPT, "%s: %zu of %zu floats, expected %zu to %zu", name, p->k, n,
                       least, most);
    if (len < HEADER + p->k * (1 + VALUE))
        return gw_fail(GW_ERR_CORRUPT, "%s: %zu bytes for %zu of %zu floats", name, len, p->k, n);
    p->gaps = (const unsigned char *)in + HEADER;
    p->bytes = len - HEADER - p->k * VALUE;
    p->values = (const gw_u32u *)(const void *)(p->gaps + p->bytes);
    return sparse_check_gaps(name, p->gaps, p->bytes, p->k, n);
}

gw_err gw_sparse_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                        gw_into into) {
    parts p;
    GW_TRY(sparse_take_apart(self, in, len, n, &p));
    if (into == GW_INTO_SET && n > 0)
        memset(y, 0, n * sizeof *y);
    sparse_scatter(p.gaps, p.bytes, p.values, y, into);
    return GW_OK;
}

/* Writes one element past the last while escapes follow, so `at` has room for k + 1. */
static void sparse_list_places(const parts *p, uint32_t *restrict at) {
    uint32_t next = 0;
    size_t i = 0;
    for (size_t b = 0; b < p->bytes; b++) {
        uint32_t ends = p->gaps[b] != ESCAPE;
        next += p->gaps[b];
        at[i] = next;
        i += ends;
        next += ends;
    }
}

gw_err gw_sparse_list(const void *self, const void *in, size_t len, size_t n, gw_elements *out) {
    parts p;
    GW_TRY(sparse_take_apart(self, in, len, n, &p));
    GW_TRY(gw_elements_reserve(out, p.k + 1));
    sparse_list_places(&p, out->at);
    for (size_t i = 0; i < p.k; i++)
        out->value[i] = gw_float_of(gw_le32(p.values[i]));
    out->n = p.k;
    return GW_OK;
}
