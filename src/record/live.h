/** What a run tells while it goes on, for a screen that draws it: metrics of its steps and epochs,
 *  as JSON lines, which docs/notebook.md defines. One process, its main thread; between batches.
 *  Lines reach the file with the first step a second later. */
#ifndef GW_RECORD_LIVE_H
#define GW_RECORD_LIVE_H

#include "base/args.h"
#include "folder/runfolder.h"
#include "prof/batch_row.h"

typedef struct gw_live gw_live;

/** GW_ERR_USAGE: `where` (may be NULL) is not json:FILE. */
gw_err gw_live_check(const char *where, const char *owner);

/** Open the file; nothing is in it before gw_live_begin. `every`: steps to a line. GW_ERR_INPUT:
 *  it cannot be written, or is no regular file. */
gw_err gw_live_open(gw_live **out, const char *where, int every);

/** The first step may begin, after step `step`. What an earlier run left in the file goes, unless
 *  this one `resumes` it. `options` is taken over. From here on l may be NULL: nothing happens. */
void gw_live_begin(gw_live *l, json_t *options, int ranks, int64_t step, bool resumes);

/** A step has ended: with `every`, the means of so many are a line. */
void gw_live_step(gw_live *l, const gw_batch_row *row);

/** An epoch has. GW_ERR_IO: this or an earlier line could not be written. */
gw_err gw_live_epoch(gw_live *l, const gw_epoch_row *row);

/** The run is complete. Errors as gw_live_epoch. */
gw_err gw_live_end(gw_live *l);

/** Close the file; of a run that is not complete the last line says so. */
void gw_live_close(gw_live *l);

#endif
