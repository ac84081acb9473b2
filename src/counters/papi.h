/** What PAPI can count on this machine. Probed only on demand (doctor, run.json), since starting
 *  PAPI takes milliseconds. */
#ifndef GW_COUNTERS_PAPI_H
#define GW_COUNTERS_PAPI_H

#include "base/err.h"

#include <stdbool.h>

enum { GW_PAPI_COMPONENTS = 16 };

typedef struct gw_papi_component {
    char name[32];
    bool enabled;
    char reason[160]; /* why not, in PAPI's words; "" when enabled */
} gw_papi_component;

typedef struct gw_papi_report {
    char version[24]; /* of the library; "absent": it could not be started */
    int components;   /* of `component` that are filled */
    gw_papi_component component[GW_PAPI_COMPONENTS];
    bool hardware;    /* PAPI_TOT_CYC counted a loop of known work */
    char reason[256]; /* why hardware is false; "" when it is true */
} gw_papi_report;

/** Register gradwire's own counts as software-defined events of PAPI (component sde), for PAPI's
 *  other tools and for --papi-events: sde:::gradwire::wire_bytes, messages, collectives and batches
 *  of this process, inside batches. Call it before PAPI starts; does nothing without PAPI's
 *  libsde. */
void gw_sde_offer(void);

/** Fill *out, starting PAPI; never fails: *out holds the reasons. Main thread, outside batches,
 *  while PAPI counts nothing. */
void gw_papi_probe(gw_papi_report *out);

#endif
