/** What emulated links take of the processors that compute (docs/measurement.md). */
#ifndef GW_MACHINE_LINK_COST_H
#define GW_MACHINE_LINK_COST_H

#include "base/err.h"
#include "machine/kernel_time.h"

#include <jansson.h>
#include <mpi.h>
#include <stdbool.h>

typedef struct gw_link_cost {
    bool emulated;
    gw_kernel_time begin;
    double begin_s;
    double seconds; /* between begin and end; the other figures are NaN where it is too short */
    double interrupts_s; /* of the whole machine, and so other programs' too */
    double system_s;     /* all ranks together; copies that real links need, too, and page faults */
    double cores;        /* a rank that trains: interrupts_s / seconds / ranks */
    bool warns;          /* cores is so large that overlap looks worse than it is */
} gw_link_cost;

void gw_link_cost_begin(gw_link_cost *c);

/** Collective. Fills in all of it on rank 0: NaN where it cannot be measured. */
gw_err gw_link_cost_end(gw_link_cost *c, int workers, MPI_Comm comm);

/** run.json's `link`; null: the hosts' own. NULL without memory. */
json_t *gw_link_cost_json(const gw_link_cost *c);

#endif
