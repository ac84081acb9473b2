#include "mpi/replicas.h"

#include "base/mem.h"
#include "mpi/wait.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { NAMED = 8 /* ranks that a message lists one by one */ };

/* ---- who differs, and where ---- */

typedef struct table {
    const uint32_t *crc; /* [rank * layers + layer] */
    int ranks, layers;
} table;

static bool replicas_same(const table *t, int a, int b) {
    size_t row = (size_t)t->layers;
    return memcmp(t->crc + (size_t)a * row, t->crc + (size_t)b * row, row * sizeof *t->crc) == 0;
}

/* A rank of those, more than half of all, that hold the same; -1: there are none. */
static int replicas_majority(const table *t) {
    for (int a = 0; a < t->ranks; a++) {
        int alike = 0;
        for (int b = 0; b < t->ranks; b++)
            alike += replicas_same(t, a, b);
        if (2 * alike > t->ranks)
            return a;
    }
    return -1;
}

/* The first layer in which some rank's hash is not that of rank `model`, and the first such rank.
 */
static int replica_first_layer(const table *t, int model, int *rank) {
    for (int l = 0; l < t->layers; l++)
        for (int r = 0; r < t->ranks; r++)
            if (t->crc[r * t->layers + l] != t->crc[model * t->layers + l]) {
                *rank = r;
                return l;
            }
    return -1; /* excluded by the caller: two ranks differ */
}

/* "rank 3", "ranks 0, 2", "ranks 0, 1, .. and 9 more": all but those like `model`; -1: all. */
static void replica_list_ranks(char *out, size_t cap, const table *t, int model) {
    int named = 0, left = 0;
    char text[16 * NAMED] = "";
    for (int r = 0; r < t->ranks; r++) {
        if (model >= 0 && replicas_same(t, r, model))
            continue;
        size_t have = strlen(text);
        if (named < NAMED)
            snprintf(text + have, sizeof text - have, "%s%d", named++ ? ", " : "", r);
        else
            left++;
    }
    if (left > 0)
        snprintf(out, cap, "ranks %s and %d more", text, left);
    else
        snprintf(out, cap, "rank%s %s", named > 1 ? "s" : "", text);
}

gw_err gw_replicas_tell(const gw_replicas *r, const uint32_t *all, int ranks) {
    int n_layers = r->n_layers;
    table t = {all, ranks, n_layers};
    char who[16 * NAMED + 32];
    int most = replicas_majority(&t), model = most >= 0 ? most : 0, odd = 0;
    int l = replica_first_layer(&t, model, &odd);
    replica_list_ranks(who, sizeof who, &t, most);
    return gw_fail(GW_ERR_DIVERGED,
                   "step %lld: replicas differ: %s %s, first in layer %d (crc32 %08x on rank %d, "
                   "%08x on rank %d): either memory or a message was damaged, or the strategy, "
                   "algorithm or codec does not keep replicas equal",
                   (long long)r->step, who, most >= 0 ? "from all others" : "have no majority",
                   r->number ? r->number[l] : l, all[odd * n_layers + l], odd,
                   all[model * n_layers + l], model);
}

/* ---- comparing ---- */

static gw_err replicas_gather(const gw_replicas *r, const uint32_t *mine) {
    int ranks;
    uint32_t *all = NULL;
    GW_TRY(gw_comm_place(r->comm, NULL, &ranks));
    GW_TRY(gw_agree(r->comm, gw_alloc(&all, (size_t)ranks * (size_t)r->n_layers, sizeof *all)));
    gw_err e = gw_allgather(mine, all, r->n_layers * (int)sizeof *mine, r->comm);
    GW_THEN(e, gw_replicas_tell(r, all, ranks));
    free(all);
    return e;
}

gw_err gw_replicas_compare(const gw_replicas *r, uint32_t *hash) {
    uint32_t *mine = NULL;
    uLong crc = 0;
    GW_TRY(gw_agree(r->comm, gw_alloc(&mine, (size_t)r->n_layers, sizeof *mine)));
    for (int l = 0; l < r->n_layers; l++) {
        gw_span s = r->layers[l];
        size_t bytes = s.n * sizeof(float);
        mine[l] = r->params ? (uint32_t)crc32_z(0, (const Bytef *)(r->params + s.off), bytes)
                            : r->sum(r->ctx, l);
        crc = crc32_combine(crc, mine[l], (z_off_t)bytes);
    }
    *hash = (uint32_t)crc;
    uint32_t ends[2] = {*hash, ~*hash}; /* least and greatest in one: the complement turns them */
    gw_err e = gw_allreduce(MPI_IN_PLACE, ends, 2, MPI_UINT32_T, MPI_MIN, r->comm);
    if (e == GW_OK && ends[0] != ~ends[1])
        e = replicas_gather(r, mine);
    free(mine);
    return e;
}
