/** A fabric in memory (comm/fabric/fabric.h): ranks within one process, for tests of schedules.
 *
 *  Each rank is a thread, and one of them runs at a time. At each call of the fabric the seed says
 *  which one goes on; how calm that is, how long messages take and which sends are complete before
 *  they are received is drawn from it, too. So a seed is one interleaving, and comes back.
 *
 *  Schedules are held to what MPI asks of them. What is received is worthless until it has come.
 *  It is an error to write to what is being sent or received, to send more than is received, to
 *  leave a message or a schedule behind, and if no rank can go on. */
#ifndef GW_TESTS_MEMORY_FABRIC_H
#define GW_TESTS_MEMORY_FABRIC_H

#include "comm/fabric/fabric.h"

enum { MEMORY_RANKS = 17 };

/** Have each of `ranks` ranks run body(ctx, fabric); it closes `fabric`, or has a lane do so. The
 *  first error of any, with its rank; GW_ERR_INTERNAL: the world's own. */
gw_err memory_run(int ranks, uint64_t seed, gw_err (*body)(void *ctx, gw_fabric *fabric),
                  void *ctx);

#endif
