#include "data/sampler.h"

#include "base/mem.h"
#include "base/rng.h"

#include <assert.h>
#include <stdlib.h>

struct gw_sampler {
    uint32_t n;     /* samples of an epoch over all ranks */
    uint32_t first; /* `order` permutes first + [0, count) */
    uint32_t count;
    int batch, rank;
    gw_shares by;
    bool keeps; /* this rank's samples are the same in each epoch */
    uint64_t seed;
    uint32_t order[];
};

gw_err gw_sampler_open(gw_sampler **out, const gw_dataset *set, int batch, bool sharded,
                       uint64_t seed, int rank, int ranks) {
    uint32_t n = set->n_global, first, count;
    bool divided = set->shares.parts > 0, keeps = sharded || divided;
    gw_shares equal = {.parts = ranks}, by = divided ? set->shares : equal;
    GW_TRY(gw_portion_cut(n, batch, rank, by, &first, &count));
    if (!keeps) {
        first = 0;
        count = n;
    }
    bool holds = divided && !sharded ? set->n == n : set->first == first && set->n == count;
    if (!holds || by.parts != ranks)
        return gw_fail(GW_ERR_INTERNAL,
                       "sampler: rank %d holds samples %u + %u, its batches of %d need %u + %u: "
                       "the data set was opened for another batch size or layout",
                       rank, set->first, set->n, batch, first, count);
    gw_sampler *s = NULL;
    GW_TRY(gw_alloc(&s, 1, sizeof *s + count * sizeof s->order[0]));
    s->n = n;
    s->first = first;
    s->count = count;
    s->batch = batch;
    s->rank = rank;
    s->by = by;
    s->keeps = keeps;
    s->seed = seed;
    gw_sampler_epoch(s, 0);
    *out = s;
    return GW_OK;
}

void gw_sampler_close(gw_sampler *s) {
    free(s);
}

int gw_sampler_batches(const gw_sampler *s) {
    return (int)((s->n - 1) / (uint32_t)s->batch + 1);
}

int gw_sampler_full(const gw_sampler *s) {
    return (int)(s->n / (uint32_t)s->batch);
}

int gw_sampler_max_local(const gw_sampler *s) {
    size_t full = gw_portion_of((size_t)s->batch, s->rank, s->by).n;
    /* The part of a smaller whole can be larger: part 2 of 5 of 2 samples is 1, of 3 it is 0. */
    size_t last = gw_portion_of(s->n % (uint32_t)s->batch, s->rank, s->by).n;
    return (int)(full > last ? full : last);
}

void gw_sampler_epoch(gw_sampler *s, int epoch) {
    enum { SALT = 0x65706f63 };
    uint64_t key = gw_rng_key(gw_rng_key(s->seed, SALT), (uint64_t)epoch);
    if (s->keeps)
        key = gw_rng_key(key, (uint64_t)s->rank);
    for (uint32_t i = 0; i < s->count; i++)
        s->order[i] = s->first + i;
    gw_rng_shuffle(key, s->order, s->count);
}

gw_batch gw_sampler_batch(const gw_sampler *s, int b) {
    assert(b >= 0 && b < gw_sampler_batches(s));
    size_t size = (size_t)s->batch, begin = (size_t)b * size;
    size_t global = s->n - begin < size ? s->n - begin : size;
    gw_span mine = gw_portion_of(global, s->rank, s->by);
    /* Only the last batch is short; each one before took a full part of the portion. */
    size_t at = s->keeps ? (size_t)b * gw_portion_of(size, s->rank, s->by).n : begin + mine.off;
    return (gw_batch){s->order + at, (int)mine.n, (int)global};
}
