/** The memory-bound part of a run's computation: which source tells it, and each batch's figures.
 */
#ifndef GW_TRAIN_MEMORY_H
#define GW_TRAIN_MEMORY_H

#include "counters/counters.h"
#include "counters/papi.h"
#include "prof/record.h"

#include <jansson.h>

typedef struct gw_memory gw_memory;

/** Collective, after gw_clock_start: choose and start what counts. `choice` (kept) NULL: no
 * counters are wanted. What it names and this machine cannot count is GW_ERR_UNSUPPORTED on all
 * ranks. All ranks count the same or, where theirs differs from rank 0's, nothing. */
gw_err gw_memory_open(gw_memory **out, const gw_group_choice *choice, int threads, MPI_Comm comm);

/** Put the names of the record's columns into names[0..n); return n. They are m's, which may be
 *  NULL. */
int gw_memory_columns(const gw_memory *m, const char *names[GW_COUNTERS]);

/** What counts; NULL: nothing does. m may be NULL. */
gw_counters *gw_memory_counters(const gw_memory *m);

/** Collective: after the last batch, sum up over the ranks. */
gw_err gw_memory_finish(gw_memory *m);

void gw_memory_close(gw_memory *m); /* may be NULL */

/** Where memory_* come from, in a word and why: for run.json. Owned by m; NULL m: not looked for.
 */
const char *gw_memory_source(const gw_memory *m);

/** run.json's "papi"; m NULL: counters were not asked for. Rank 0. */
json_t *gw_memory_papi_json(const gw_memory *m);

#endif
