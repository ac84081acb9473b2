/** The energy that a machine's processors take, by Linux's powercap (RAPL of Intel, of AMD since
 *  Zen): the packages, and the memory where it has a counter. See docs/measurement-compute.md. */
#ifndef GW_MACHINE_ENERGY_H
#define GW_MACHINE_ENERGY_H

#include "mpi/agree.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { GW_ENERGY_ZONES = 32, GW_ENERGY_PATH = 512, GW_ENERGY_WHY = 200 };

typedef struct gw_energy_zone {
    char path[GW_ENERGY_PATH]; /* of its energy_uj */
    uint64_t last, range;      /* uJ; it begins anew at 0 beyond `range` */
} gw_energy_zone;

typedef struct gw_energy {
    gw_energy_zone zone[GW_ENERGY_ZONES];
    int zones; /* 0: absent, or another rank reads */
    bool reads, counting;
    double joules;           /* of this machine, while it was counting */
    char why[GW_ENERGY_WHY]; /* where it comes from, or why it is absent */
} gw_energy;

/** Local: find the zones below /sys/class/powercap, or the folder that GRADWIRE_POWERCAP names (for
 *  tests). `reads`: one rank of a machine; what follows does nothing on others. */
void gw_energy_open(gw_energy *e, bool reads);

/** Local, between batches: what was taken since the last call counts if that one set `counting`. A
 *  counter that goes round twice meanwhile (after half an hour or more) looks as if it had once. */
void gw_energy_count(gw_energy *e, bool counting);

/** Collective: for run.json: what all machines took in so many steps; null if one does not tell. */
gw_err gw_energy_json(const gw_energy *e, int64_t steps, MPI_Comm comm, json_t **out);

#endif
