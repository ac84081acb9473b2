/** What the steps of a run cost, out of its batches.csv: medians over the clean steps after
 * warm-up, as docs/measurement.md defines the columns. */
#ifndef GW_CLI_SHOW_SHOW_STEPS_H
#define GW_CLI_SHOW_SHOW_STEPS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/** Figures of a step: the mean over the ranks, and of GW_SHOW_WALL the longest. Seconds, and bytes
 *  for the last. */
typedef enum gw_show_figure {
    GW_SHOW_WALL,
    GW_SHOW_DATA,
    GW_SHOW_COMPUTE,  /* forward, backward and update; */
    GW_SHOW_PRODUCTS, /* the first two alone */
    GW_SHOW_CORE_CTR,
    GW_SHOW_MEMORY_CTR,
    GW_SHOW_CORE_LEAST,   /* by twins and model: surely core, */
    GW_SHOW_MEMORY_LEAST, /* surely waiting for memory, */
    GW_SHOW_EITHER,       /* and the rest of COMPUTE */
    GW_SHOW_CODEC,
    GW_SHOW_CODEC_MEMORY_CTR, /* of CODEC, by each source apart */
    GW_SHOW_CODEC_MEMORY_TWIN,
    GW_SHOW_EXPOSED, /* all of the step's time in MPI, which the next three divide */
    GW_SHOW_WAITING,
    GW_SHOW_TRANSFER,
    GW_SHOW_MPI_REST,
    GW_SHOW_CHECKPOINT,
    GW_SHOW_OTHER,
    GW_SHOW_INFLIGHT,
    GW_SHOW_WIRE_BYTES,
    GW_SHOW_FIGURES
} gw_show_figure;

typedef struct gw_show_steps {
    int64_t others; /* taken by another number of ranks, before the run went on: left out */
    int64_t warmup, steps, clean;   /* steps left out; after them; and of these the clean ones */
    int64_t drawn;                  /* that the medians are over: all or, of very many, a sample */
    bool judged;                    /* the file says which rows are clean; if not, all count */
    bool contaminated;              /* no step was clean: the medians are over all of them */
    double median[GW_SHOW_FIGURES]; /* NaN: absent */
    int64_t n[GW_SHOW_FIGURES];     /* steps that have the figure */
    /** The rank that had most to do by itself (its wall less its time in MPI), by the mean over
     *  the same steps; -1: not known, or all alone. */
    int slowest;
    double slowest_s, own_s; /* its mean, and that of all ranks */
} gw_show_steps;

/** Read DIR/batches.csv, rows of `ranks` ranks (up to step `since` of other numbers, too) in order
 *  of step, then rank. Memory is bounded: from 65536 steps on the medians are over so many of them,
 *  drawn at random. GW_ERR_INPUT: the file is none, or not whole. */
gw_err gw_show_steps_read(gw_show_steps *out, const char *dir, int64_t ranks, int64_t since,
                          int64_t warmup);

#endif
