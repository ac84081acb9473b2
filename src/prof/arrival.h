/** Who arrived last at which exchange. */
#ifndef GW_PROF_ARRIVAL_H
#define GW_PROF_ARRIVAL_H

#include "base/probe.h"
#include "mpi/agree.h"

#include <stdbool.h>
#include <stddef.h>

/** A rank's arrival at an exchange: x names the exchange, and the ranks that it depends on. */
typedef struct gw_arrival {
    gw_exchange x;
    int id;        /* the caller's own */
    double mine_s; /* common clock */
    /* filled in: */
    bool known; /* all ranks that take part have reported theirs */
    double first_s, latest_s;
    int last_rank;
} gw_arrival;

/** Sort and fill in all[0..n). Ranks may bring different exchanges; one that a participating rank
 *  does not bring stays unknown. Collective. */
gw_err gw_arrivals_resolve(gw_arrival *all, size_t n, MPI_Comm comm);

#endif
