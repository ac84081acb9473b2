#include "compress/sparse_wire.h"

#include <string.h>

enum { HEADER = 4, VALUE = 4, ESCAPE = 255 };

size_t gw_sparse_bound(size_t n, size_t k) {
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

static unsigned char *sparse_put_gaps(const uint32_t *at, size_t n, unsigned char *gaps) {
    enum { WIDE = 48 }; /* mean gap from which groups no longer pay */
    bool many = n && at[n - 1] / n < WIDE;
    return many ? sparse_put_many_gaps(at, n, gaps) : sparse_put_few_gaps(at, 0, n, 0, gaps);
}

static void sparse_put_values(const uint32_t *restrict bits, size_t n, gw_u32u *restrict values) {
    for (size_t i = 0; i < n; i++)
        values[i] = gw_le32(bits[i]);
}

size_t gw_sparse_encode(const gw_kept *kept, void *out) {
    *(gw_u32u *)out = gw_le32((uint32_t)kept->n);
    gw_u32u *values =
        (gw_u32u *)(void *)sparse_put_gaps(kept->at, kept->n, (unsigned char *)out + HEADER);
    sparse_put_values(kept->bits, kept->n, values);
    return (size_t)((unsigned char *)(values + kept->n) - (unsigned char *)out);
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

static gw_err sparse_take_apart(const char *name, const void *in, size_t len, size_t n,
                                size_t least, size_t most, parts *p) {
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

gw_err gw_sparse_decode(const char *name, const void *in, size_t len, float *y, size_t n,
                        size_t least, size_t most, gw_into into) {
    parts p;
    GW_TRY(sparse_take_apart(name, in, len, n, least, most, &p));
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

gw_err gw_sparse_list(const char *name, const void *in, size_t len, size_t n, size_t least,
                      size_t most, gw_elements *out) {
    parts p;
    GW_TRY(sparse_take_apart(name, in, len, n, least, most, &p));
    GW_TRY(gw_elements_reserve(out, p.k + 1));
    sparse_list_places(&p, out->at);
    for (size_t i = 0; i < p.k; i++)
        out->value[i] = gw_float_of(gw_le32(p.values[i]));
    out->n = p.k;
    return GW_OK;
}
