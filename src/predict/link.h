/** The links between these ranks as the simulator takes them (comm/fabric/sim.h): LogGP's L, o and
 *  G (A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman, SPAA 1995), and what a byte takes of a
 *  core. All pairs of ranks exchange messages at once, both ways, as in a step: so what two ranks
 *  take from each other on one memory is in the figures. */
#ifndef GW_PREDICT_LINK_H
#define GW_PREDICT_LINK_H

#include "comm/fabric/sim.h"
#include "mpi/agree.h"

/** Collective: set ranks, per_host, link, memory and network, a star, of *w; the caller closes
 *  *network. The slowest pair's figures, the same on all ranks. Of one host, `link` is `memory`.
 *  GW_ERR_UNSUPPORTED: hosts have different numbers of ranks, or do not hold neighbours. */
gw_err gw_predict_links(gw_sim_setup *w, gw_network **network, bool oversubscribed, MPI_Comm comm);

#endif
