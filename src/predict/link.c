#include "predict/link.h"

#include "base/mem.h"
#include "base/stats.h"
#include "machine/transport.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST = 5, MOST = 31, TAG = 3, SMALL = 8, MIDDLE = 64 << 10 };
enum { LARGE = 512 << 10, LARGEST = 8 << 20 }; /* over a slow link, and one that caches speed up */
#define SLOW_S 1e-3
#define SIZE_S 10e-3 /* of all exchanges of a size, unless a few take longer */

typedef struct pair {
    MPI_Comm comm;
    int peer; /* -1: none */
    char *out, *in;
} pair;

/* A message each way. *post_s: what posting one's own took. */
static gw_err link_exchange(const pair *p, int bytes, double *wall_s, double *post_s) {
    MPI_Request r[2];
    double start = MPI_Wtime();
    GW_MPI(MPI_Irecv(p->in, bytes, MPI_BYTE, p->peer, TAG, p->comm, &r[0]));
    double posted = MPI_Wtime();
    GW_MPI(MPI_Isend(p->out, bytes, MPI_BYTE, p->peer, TAG, p->comm, &r[1]));
    *post_s = MPI_Wtime() - posted;
    GW_TRY(gw_wait(&r[0]));
    GW_TRY(gw_wait(&r[1]));
    *wall_s = MPI_Wtime() - start;
    return GW_OK;
}

/* All pairs at once, each time begun together; the slowest pair's typical times. */
static gw_err link_size(const pair *p, int bytes, double *wall_s, double *post_s) {
    double wall[MOST], post[MOST], spent = 0;
    int n = 0;
    for (int k = -1; n < MOST && (n < LEAST || spent < SIZE_S); k++) {
        double s[2] = {0};
        GW_TRY(gw_barrier(p->comm));
        if (p->peer >= 0)
            GW_TRY(link_exchange(p, bytes, &s[0], &s[1]));
        GW_TRY(gw_allreduce(MPI_IN_PLACE, s, 2, MPI_DOUBLE, MPI_MAX, p->comm));
        if (k < 0)
            continue;
        spent += wall[n] = s[0];
        post[n++] = s[1];
    }
    *wall_s = gw_stats_typical(wall, n);
    *post_s = gw_stats_typical(post, n);
    return GW_OK;
}

/* Latency and overhead by messages of a few bytes, the rest by the slope between long ones. */
static gw_err link_pairs(const pair *p, gw_sim_link *out, double *slope) {
    double small_s, middle_s, large_s, post_s, unused;
    GW_TRY(link_size(p, SMALL, &small_s, &post_s));
    GW_TRY(link_size(p, MIDDLE, &middle_s, &unused));
    int large = middle_s > SLOW_S ? LARGE : LARGEST;
    GW_TRY(link_size(p, large, &large_s, &unused));
    out->overhead_s = fmin(post_s, small_s / 2);
    out->latency_s = small_s - 2 * out->overhead_s;
    *slope = fmax(large_s - middle_s, 0.1 * large_s) / (large - MIDDLE);
    return GW_OK;
}

/* Ranks of one host copy what they send and receive; the slower both together, the slower each. */
static gw_err link_measure_memory(pair *p, int at, int per_host, gw_sim_link *out) {
    double slope;
    p->peer = (at ^ 1) < per_host ? p->peer : -1;
    GW_TRY(link_pairs(p, out, &slope));
    out->byte_s = slope / 2;
    out->bytes_per_s = per_host / out->byte_s;
    return GW_OK;
}

static gw_err link_measure_hosts(pair *p, bool oversubscribed, gw_sim_link *out) {
    double slope, byte_s;
    GW_TRY(link_pairs(p, out, &slope));
    GW_TRY(gw_transport_byte(oversubscribed, p->comm, &byte_s));
    out->bytes_per_s = 1 / slope;
    out->byte_s = isnan(byte_s) ? 0 : fmin(byte_s / 2, slope);
    return GW_OK;
}

static gw_err link_measure(gw_sim_setup *w, pair *p, bool oversubscribed) {
    int rank, at, k = w->per_host;
    GW_MPI(MPI_Comm_rank(p->comm, &rank));
    at = rank % k;
    p->peer = rank - at + (at ^ 1);
    if (k > 1)
        GW_TRY(link_measure_memory(p, at, k, &w->memory));
    w->link = w->memory;
    if (k == w->ranks)
        return GW_OK;
    int host = rank / k ^ 1;
    p->peer = at == 0 && host * k < w->ranks ? host * k : -1;
    GW_TRY(link_measure_hosts(p, oversubscribed, &w->link));
    w->memory = k > 1 ? w->memory : w->link;
    return GW_OK;
}

/* Which ranks lie together. */
static gw_err link_find_hosts(gw_sim_setup *w, MPI_Comm comm) {
    MPI_Comm host;
    int rank, at, here;
    GW_TRY(gw_comm_place(comm, &rank, &w->ranks));
    GW_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    gw_err e = gw_comm_place(host, &at, &here);
    MPI_Comm_free(&host);
    GW_TRY(e);
    int k[2] = {here, -here};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, k, 2, MPI_INT, MPI_MAX, comm));
    int odd = k[0] != -k[1] || at != rank % here;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &odd, 1, MPI_INT, MPI_MAX, comm));
    w->per_host = here;
    return odd ? gw_fail(GW_ERR_UNSUPPORTED,
                         "a prediction needs as many ranks on each host, and neighbours on the "
                         "same one: start %d ranks host by host",
                         w->ranks)
               : GW_OK;
}

gw_err gw_predict_links(gw_sim_setup *w, gw_network **network, bool oversubscribed, MPI_Comm comm) {
    pair p = {.comm = comm};
    GW_TRY(link_find_hosts(w, comm));
    w->link = w->memory = (gw_sim_link){.bytes_per_s = 1e9};
    gw_err e = gw_alloc(&p.out, LARGEST, 1);
    GW_THEN(e, gw_alloc(&p.in, LARGEST, 1));
    e = gw_agree(comm, e);
    if (w->ranks > 1)
        GW_THEN(e, link_measure(w, &p, oversubscribed));
    free(p.out);
    free(p.in);
    GW_THEN(e, gw_agree(comm, gw_network_open(network, NULL, w->ranks / w->per_host,
                                              w->link.bytes_per_s)));
    w->network = *network;
    return e;
}
