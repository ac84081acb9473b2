/** Latency and bandwidth of the links between ranks, by ping-pong: alpha + beta n for a message of
 * n bytes (R. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2",
 * Parallel Computing 20, 1994). */
#ifndef GW_LINKS_LINKS_H
#define GW_LINKS_LINKS_H

#include "mpi/agree.h"

#include <stdbool.h>

enum { GW_LINKS = 16 };

typedef struct gw_link {
    int from, to;         /* ranks */
    bool same_host;       /* shared memory; else a network, emulated or not */
    double alpha_s;       /* one way, of 8 bytes */
    double beta_s_a_byte; /* slope between the two largest sizes; NaN: noise hid it */
} gw_link;

/** Collective: measure the link between the first two ranks of each host, then that of rank 0 to
 * the first rank of each other host; at most GW_LINKS, one after another while the other ranks
 * sleep. Half of a round trip, the typical one (gw_stats_typical) of some milliseconds a size. The
 *  same result on all ranks. */
gw_err gw_links_measure(MPI_Comm comm, gw_link out[GW_LINKS], int *n);

#endif
