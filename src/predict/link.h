/** The links between these ranks as a simulation takes them (comm/fabric/sim.h): messages are timed
 *  as an allreduce sends them, to one neighbour and from another at the same time. */
#ifndef GW_PREDICT_LINK_H
#define GW_PREDICT_LINK_H

#include "comm/fabric/sim.h"

/** Measure the memory that the ranks of a host share, on all hosts at once; then the links between
 *  hosts, by the first rank of each. Sets ranks, per_host and both links of *w, and its network, a
 *  star of the hosts, which the caller closes; a rate or a latency that is not needed is that of an
 *  endless link. `hosts`: how many there are, however ranks lie on them; 0: find them, which must
 *  hold neighbours, as many each, as the ranks of a mesh need it: else GW_ERR_UNSUPPORTED.
 *  `yield`: a host runs more threads than cores. The same result on all ranks. Collective. */
gw_err gw_predict_links(gw_sim_setup *w, int hosts, bool yield, MPI_Comm comm);

#endif
