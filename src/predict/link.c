/* Times of messages between the ranks, as a simulation takes them: LogGP's L, o and G
 * (A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman, SPAA 1995), and what a byte takes of a
 * core. */
#include "predict/link.h"

#include "base/mem.h"
#include "base/stats.h"
#include "links/transport.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdlib.h>

enum { TAG = 1, TINY = 8, SHORT = 64 << 10, LONG = 1 << 20, BURST = 16, LEAST = 5, MOST = 41 };
#define ENOUGH_S 30e-3 /* of rounds of one kind */
#define ENDLESS  1e15  /* bytes/s: as good as no limit, and finite */

/* Ranks in a ring. */
typedef struct ring {
    MPI_Comm comm;
    int rank, ranks;
    char *data; /* that goes out, then what comes in */
} ring;

/* The slowest rank's, typical. */
static gw_err link_time(const ring *r, int messages, int bytes, double *out) {
    double run[MOST], spent_s = 0;
    int n = -2; /* rounds that do not count: connections are made, pages touched */
    for (; n < LEAST || (n < MOST && spent_s < ENOUGH_S); n++) {
        GW_TRY(gw_barrier(r->comm));
        double start_s = MPI_Wtime();
        /* So many messages to the next rank, and as many from the last one. */
        MPI_Request request[2 * BURST];
        int next = (r->rank + 1) % r->ranks, last = (r->rank + r->ranks - 1) % r->ranks;
        for (int i = 0; i < messages; i++)
            GW_MPI(MPI_Irecv(r->data + LONG, bytes, MPI_BYTE, last, TAG, r->comm, &request[i]));
        for (int i = messages; i < 2 * messages; i++)
            GW_MPI(MPI_Isend(r->data, bytes, MPI_BYTE, next, TAG, r->comm, &request[i]));
        for (int i = 0; i < 2 * messages; i++)
            GW_TRY(gw_wait(&request[i]));
        double took_s = MPI_Wtime() - start_s;
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &took_s, 1, MPI_DOUBLE, MPI_MAX, r->comm));
        spent_s += took_s;
        run[n < 0 ? 0 : n] = took_s;
    }
    *out = gw_stats_typical(run, n);
    return GW_OK;
}

/* Between the ranks of one host messages are the cores' own copying, at both ends in turn. Over a
 * link, a core copies bytes while others are on their way; the receiver's last part is behind
 * that. */
static gw_err link_of(const ring *r, bool memory, bool yield, gw_sim_link *out) {
    double one_s, burst_s, short_s, long_s, moved_s;
    GW_TRY(link_time(r, 1, TINY, &one_s));
    GW_TRY(link_time(r, BURST, TINY, &burst_s));
    GW_TRY(link_time(r, 1, SHORT, &short_s));
    GW_TRY(link_time(r, 1, LONG, &long_s));
    /* seconds per byte that goes out while another comes in */
    double slope = fmax(long_s - short_s, 0) / (LONG - SHORT);
    out->overhead_s = fmin(fmax(burst_s - one_s, 0) / (BURST - 1), one_s) / 2;
    out->latency_s = one_s - 2 * out->overhead_s;
    out->byte_s = slope / 2;
    if (memory)
        return GW_OK;
    GW_TRY(gw_transport_byte(yield, r->comm, &moved_s));
    out->byte_s = isnan(moved_s) ? 0 : fmin(moved_s / 2, slope / 2);
    out->bytes_per_s = slope > 0 ? 1 / (slope - out->byte_s) : ENDLESS;
    return GW_OK;
}

/* As many ranks on each host, and neighbours on the same one. */
static gw_err link_check_hosts(const ring *host, MPI_Comm comm) {
    int rank, ranks;
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    int k[3] = {host->ranks, -host->ranks, host->rank != rank % host->ranks};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, k, 3, MPI_INT, MPI_MAX, comm));
    return k[0] != -k[1] || k[2]
               ? gw_fail(GW_ERR_UNSUPPORTED,
                         "a prediction needs as many ranks on each host, and neighbours on the "
                         "same one: start %d ranks host by host",
                         ranks)
               : GW_OK;
}

gw_err gw_predict_links(gw_sim_setup *w, int hosts, bool yield, MPI_Comm comm) {
    ring host = {.comm = MPI_COMM_NULL}, firsts = {.comm = MPI_COMM_NULL};
    gw_sim_link both[2] = {{.bytes_per_s = ENDLESS}, {.bytes_per_s = ENDLESS}};
    GW_TRY(gw_comm_place(comm, NULL, &w->ranks));
    gw_err e = gw_comm_split_host(comm, &host.comm);
    GW_THEN(e, gw_comm_place(host.comm, &host.rank, &host.ranks));
    GW_THEN(e, gw_comm_split(comm, host.rank == 0 ? 0 : -1, &firsts.comm)); /* one of each host */
    if (host.rank == 0)
        GW_THEN(e, gw_comm_place(firsts.comm, &firsts.rank, &firsts.ranks));
    GW_THEN(e, gw_alloc(&host.data, 2, LONG));
    firsts.data = host.data;
    e = gw_agree(comm, e);
    if (e == GW_OK && hosts == 0)
        e = link_check_hosts(&host, comm);
    w->per_host = hosts > 0 ? (w->ranks + hosts - 1) / hosts : host.ranks;
    if (e == GW_OK && host.ranks > 1)
        e = link_of(&host, true, yield, &both[1]);
    e = gw_agree(comm, e);
    if (e == GW_OK && w->per_host < w->ranks && host.rank == 0)
        e = link_of(&firsts, false, yield, &both[0]);
    free(host.data);
    gw_comm_free(&host.comm);
    gw_comm_free(&firsts.comm);
    e = gw_agree(comm, e);
    GW_THEN(e, gw_bcast(both, sizeof both, MPI_BYTE, 0, comm));
    w->link = both[0];
    w->memory = both[1];
    int stars = (w->ranks + w->per_host - 1) / w->per_host;
    GW_THEN(e, gw_agree(comm, gw_network_open(&w->network, NULL, stars, w->link.bytes_per_s)));
    return e;
}
