/** Who arrived last at which exchange. */
#ifndef GW_PROF_ARRIVAL_H
#define GW_PROF_ARRIVAL_H

#include "base/probe.h"
#include "mpi/agree.h"

#include <stdbool.h>
#include <stddef.h>

/** A rank's arrival at an exchange: x names it, and whose arrival it depends on. */
typedef struct gw_arrival {
    gw_exchange x;
    int id;        /* the caller's own */
    double mine_s; /* common clock */
    /* filled in: */
    bool known; /* all ranks that take part have told theirs */
    double first_s, latest_s;
    int last_rank;
} gw_arrival;

/** Collective: fill in all[0..n), which this sorts. Ranks may come with different exchanges; those
 *  that another one which takes part does not know stay unknown. */
gw_err gw_arrivals_resolve(gw_arrival *all, size_t n, MPI_Comm comm);

#endif
