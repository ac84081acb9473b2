#include "prof/arrival.h"

#include "base/mem.h"
#include "base/rng.h"
#include "mpi/wait.h"

#include <stdlib.h>

static int arrival_by_key(const gw_exchange *x, const gw_exchange *y) {
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    if (x->schedule != y->schedule)
        return x->schedule < y->schedule ? -1 : 1;
    return (x->run > y->run) - (x->run < y->run);
}

static int arrival_in_order(const void *a, const void *b) {
    return arrival_by_key(&((const gw_arrival *)a)->x, &((const gw_arrival *)b)->x);
}

typedef struct located {
    double s;
    int rank;
} located;

/* ---- all ranks hear of everything, where they have different lists ---- */

typedef struct told {
    gw_exchange x;
    double s;
} told;

static int arrival_told_in_order(const void *key, const void *b) {
    return arrival_by_key(key, &((const told *)b)->x);
}

/* of[at[r]..at[r + 1]) is what rank r told, in order. */
static void arrival_take(gw_arrival *a, const told *of, const int *at, int rank) {
    const told *t = bsearch(&a->x, of + at[rank], (size_t)(at[rank + 1] - at[rank]), sizeof *t,
                            arrival_told_in_order);
    a->known &= t != NULL;
    if (!t)
        return;
    if (t->s > a->latest_s) {
        a->latest_s = t->s;
        a->last_rank = rank;
    }
    a->first_s = t->s < a->first_s ? t->s : a->first_s;
}

static gw_err arrival_tell_all(gw_arrival *all, size_t n, int rank, int ranks, MPI_Comm comm) {
    told *mine = NULL, *of = NULL;
    int *count = NULL, *at = NULL, own = (int)n;
    gw_err e = gw_alloc(&count, (size_t)ranks, sizeof *count);
    GW_THEN(e, gw_alloc(&at, (size_t)ranks + 1, sizeof *at));
    GW_THEN(e, gw_alloc(&mine, n, sizeof *mine));
    e = gw_agree(comm, e);
    GW_THEN(
        e, gw_mpi_check(MPI_Allgather(&own, 1, MPI_INT, count, 1, MPI_INT, comm), "MPI_Allgather"));
    for (int r = 0; e == GW_OK && r < ranks; r++)
        at[r + 1] = at[r] + count[r];
    GW_THEN(e, gw_agree(comm, gw_alloc(&of, (size_t)at[ranks], sizeof *of)));
    for (size_t i = 0; e == GW_OK && i < n; i++)
        mine[i] = (told){all[i].x, all[i].mine_s};
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Request request;
    GW_THEN(e, gw_mpi_check(MPI_Type_contiguous((int)sizeof *mine, MPI_BYTE, &type),
                            "MPI_Type_contiguous"));
    GW_THEN(e, gw_mpi_check(MPI_Type_commit(&type), "MPI_Type_commit"));
    GW_THEN(e, gw_mpi_check(MPI_Iallgatherv(mine, own, type, of, count, at, type, comm, &request),
                            "MPI_Iallgatherv"));
    GW_THEN(e, gw_wait(&request));
    if (type != MPI_DATATYPE_NULL)
        MPI_Type_free(&type);
    for (gw_arrival *a = all; e == GW_OK && a < all + n; a++) {
        a->known = true;
        a->first_s = a->latest_s = a->mine_s;
        a->last_rank = rank;
        for (int r = 0; a->x.n_peers == 0 && r < ranks; r++)
            arrival_take(a, of, at, r);
        for (int p = 0; p < a->x.n_peers; p++)
            arrival_take(a, of, at, a->x.peer[p]);
    }
    free(count);
    free(at);
    free(mine);
    free(of);
    return e;
}

gw_err gw_arrivals_resolve(gw_arrival *all, size_t n, MPI_Comm comm) {
    int rank, ranks;
    located *latest = NULL;
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    if (n > 0) /* all may be NULL else */
        qsort(all, n, sizeof *all, arrival_in_order);
    uint64_t d = n, apart = 0; /* d differs, but for one chance in 2^64, when the keys do */
    for (size_t i = 0; i < n; i++) {
        const gw_exchange *x = &all[i].x;
        d = gw_rng_key(gw_rng_key(d, (uint64_t)x->lane << 32 | (uint32_t)x->schedule), x->run);
        apart |= x->n_peers > 0;
    }
    uint64_t most[3] = {d, ~d, apart};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, most, 3, MPI_UINT64_T, MPI_MAX, comm));
    if (most[0] != ~most[1] || most[2] != 0)
        return arrival_tell_all(all, n, rank, ranks, comm);
    /* All ranks have the same list: two reductions do. */
    gw_err e = gw_agree(comm, gw_alloc(&latest, n, sizeof *latest));
    for (size_t i = 0; e == GW_OK && i < n; i++)
        latest[i] = (located){all[i].mine_s, rank};
    GW_THEN(e, gw_allreduce(MPI_IN_PLACE, latest, (int)n, MPI_DOUBLE_INT, MPI_MAXLOC, comm));
    for (size_t i = 0; e == GW_OK && i < n; i++) {
        all[i].latest_s = latest[i].s;
        all[i].last_rank = latest[i].rank;
        all[i].known = true;
        latest[i] = (located){all[i].mine_s, rank};
    }
    GW_THEN(e, gw_allreduce(MPI_IN_PLACE, latest, (int)n, MPI_DOUBLE_INT, MPI_MINLOC, comm));
    for (size_t i = 0; e == GW_OK && i < n; i++)
        all[i].first_s = latest[i].s;
    free(latest);
    return e;
}
