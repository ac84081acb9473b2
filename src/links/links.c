#include "links/links.h"

#include "base/mem.h"
#include "base/stats.h"
#include "links/curve.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 31, TAG = 1, SIZES = 3 };
#define SIZE_S 1.5e-3 /* of all round trips of a size, unless a few take longer */

static const int sizes[SIZES] = {8, 64 << 10, 256 << 10};

/* The first rank decides when a size has had its share, and says so with a byte ahead of each
 * round: 1: one more. */
static gw_err links_rounds(void *data, int bytes, int peer, bool leads, MPI_Comm comm,
                           double *half) {
    double run[MOST_ROUNDS], spent = 0;
    char more = 1;
    int n = -1;
    for (;; n++) {
        if (leads)
            more = n < LEAST_ROUNDS || (n < MOST_ROUNDS && spent < SIZE_S);
        GW_TRY(gw_message(&more, 1, peer, TAG, leads, comm));
        if (!more)
            break;
        GW_TRY(gw_message(&more, 1, peer, TAG, !leads, comm)); /* both stand ready */
        double start = MPI_Wtime();
        GW_TRY(gw_message(data, bytes, peer, TAG, leads, comm));
        GW_TRY(gw_message(data, bytes, peer, TAG, !leads, comm));
        if (n >= 0)
            spent += run[n] = (MPI_Wtime() - start) / 2;
    }
    if (leads)
        *half = gw_stats_typical(run, n);
    return GW_OK;
}

/* Half round trips of messages of some sizes, timed at the link's first rank. */
static gw_err links_measure(gw_link *l, int rank, MPI_Comm comm) {
    gw_curve curve = {.n = SIZES};
    char *data = NULL;
    bool leads = rank == l->from;
    double found[2] = {0};
    if (leads || rank == l->to)
        GW_TRY(gw_alloc(&data, (size_t)sizes[SIZES - 1], 1));
    gw_err e = GW_OK;
    for (int i = 0; data && i < SIZES && e == GW_OK; i++) {
        curve.bytes[i] = sizes[i];
        e = links_rounds(data, sizes[i], leads ? l->to : l->from, leads, comm, &curve.time_s[i]);
    }
    free(data);
    GW_TRY(e);
    if (leads) {
        found[0] = curve.time_s[0];
        double beta = gw_curve_beta(&curve);
        found[1] = beta > 0 ? beta : NAN;
    }
    GW_TRY(gw_bcast_asleep(found, (int)sizeof found, l->from, comm));
    l->alpha_s = found[0];
    l->beta_s_a_byte = found[1];
    return GW_OK;
}

/* leader[r]: the lowest rank on rank r's host. */
static int links_choose(const int *leader, int ranks, gw_link out[GW_LINKS]) {
    int n = 0;
    for (int r = 1; r < ranks && n < GW_LINKS; r++) {
        bool second = leader[r] != r;
        for (int q = 0; q < r && second; q++)
            second = leader[q] != leader[r] || q == leader[r];
        if (second)
            out[n++] = (gw_link){.from = leader[r], .to = r, .same_host = true};
    }
    for (int r = 1; r < ranks && n < GW_LINKS; r++)
        if (leader[r] == r)
            out[n++] = (gw_link){.from = 0, .to = r};
    return n;
}

gw_err gw_links_measure(MPI_Comm comm, gw_link out[GW_LINKS], int *n) {
    int rank, ranks, *leader = NULL;
    MPI_Comm host;
    *n = 0;
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    GW_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    int lowest = rank;
    gw_err e = gw_bcast(&lowest, 1, MPI_INT, 0, host); /* its rank 0 is the lowest of them */
    GW_MPI(MPI_Comm_free(&host));
    GW_TRY(e);
    GW_TRY(gw_agree(comm, gw_alloc(&leader, (size_t)ranks, sizeof *leader)));
    e = gw_allgather(&lowest, leader, (int)sizeof lowest, comm);
    int found = e == GW_OK ? links_choose(leader, ranks, out) : 0;
    free(leader);
    GW_TRY(e);
    for (int i = 0; i < found; i++)
        GW_TRY(links_measure(&out[i], rank, comm));
    *n = found;
    return GW_OK;
}
