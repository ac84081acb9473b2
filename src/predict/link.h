/** The links between these ranks as a simulation takes them (comm/fabric/sim.h): messages are timed
 *  as an allreduce sends them, to one neighbour and from another at the same time. */
#ifndef GW_PREDICT_LINK_H
#define GW_PREDICT_LINK_H

#include "comm/fabric/sim.h"

/** Measure the memory that the ranks of a host share, on all hosts at once; then the links between
 *  hosts, by the first rank of each. Sets ranks, per_host and both links of *w; a rate or a latency
 *  that is not needed is that of an endless link. `yield`: a host runs more threads than cores.
 *  The same result on all ranks. Collective. */
gw_err gw_links_of_ranks(gw_sim_setup *w, int nodes, bool yield, MPI_Comm comm);

/** The same where neighbours lie together, as the ranks of a mesh do, with a star of their hosts,
 *  which the caller closes. GW_ERR_UNSUPPORTED: hosts have different numbers of ranks, or do not
 *  hold neighbours. Collective. */
gw_err gw_predict_links(gw_sim_setup *w, gw_network **network, bool oversubscribed, MPI_Comm comm);

#endif
