/** The ceilings of a run: measured, or taken from a cache or a file, before the first step; looked
 * at again after the last. */
#ifndef GW_ROOFLINE_GAUGE_H
#define GW_ROOFLINE_GAUGE_H

#include "links/links.h"
#include "roofline/ceilings.h"
#include "roofline/drift.h"
#include "roofline/twins.h"

#include <jansson.h>

typedef enum gw_gauge_source {
    GW_GAUGE_ABSENT, /* not asked for, or there is nobody to write it down for */
    GW_GAUGE_MEASURED,
    GW_GAUGE_CACHED,
    GW_GAUGE_FILE
} gw_gauge_source;

/** Rates that change by more than this between begin and end mark the run. */
#define GW_GAUGE_DRIFT 0.1

typedef struct gw_gauge {
    gw_ceilings c; /* of this rank's host */
    gw_gauge_source source;
    int batch;     /* rows of a step that products were measured for: a host's most */
    int added;     /* named times that were measured now, whatever the source of the rest */
    double took_s; /* all of it, on the host where it took longest */
    double age_s;  /* of what was read */
    double before; /* flop/s of one thread of this rank's host, before the first step */
    double drift;  /* largest relative change at the end of any host, by its size; NaN: not known */
    char note[512]; /* a cache that could not be used or kept: why; "": nothing to say */
    gw_link link[GW_LINKS];
    int links;
} gw_gauge;

typedef struct gw_gauge_setup {
    MPI_Comm comm;
    const char *from; /* "auto" or the path of a file */
    int threads;      /* of each rank */
    bool oversubscribed;
    gw_twin_setup twins;
} gw_gauge_setup;

/** Collective. One rank a host (of emulated hosts: one of all) reads or measures, and the others
 *  sleep meanwhile; then the links are measured. GW_ERR_INPUT on all ranks: the file is bad or from
 *  another machine; a bad cache is only noted, and measured anew. */
gw_err gw_gauge_open(gw_gauge *g, const gw_gauge_setup *s);

/** Collective: refuse a file that gw_gauge_open would refuse; nothing is measured. */
gw_err gw_gauge_check(const gw_gauge_setup *s);

/** Collective, at the end: fill g->drift, in some 20 ms, or more where the machine
 *  is restless (roofline/drift.h). Nothing to do if nothing was measured. */
gw_err gw_gauge_close(gw_gauge *g, const gw_gauge_setup *s);

/** Collective over `host`, the ranks that share this host: what a set must be for to serve here. */
gw_err gw_gauge_identify(gw_ceilings *want, const gw_gauge_setup *s, MPI_Comm host);

/** For run.json: every figure with its unit and source, of rank 0's host; null: absent. */
json_t *gw_gauge_json(const gw_gauge *g);

#endif
