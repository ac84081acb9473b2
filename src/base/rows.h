/** The tables (base/table.h) of a run's folder that grow row by row, and that a run which is started
 *  again goes on with. One process has them; not thread-safe. */
#ifndef GW_BASE_ROWS_H
#define GW_BASE_ROWS_H

#include "base/table.h"

#include <jansson.h>

typedef struct gw_rows gw_rows;

/** Files in folder `dir`. `parts`: they outlive a killed process (gw_file_create_part), and can be
 *  marked. */
gw_err gw_rows_new(gw_rows **out, const char *dir, bool parts);

/** Before the first is opened, with `parts`: go on from what lies in folder `from` (NULL: in dir
 *  itself) as it was when gw_rows_mark gave `marks`. Nothing is changed yet. GW_ERR_INPUT: they
 *  cannot be that. */
gw_err gw_rows_resume(gw_rows *r, const char *from, const json_t *marks);

/** Whether gw_rows_open can go on with the table's file; nothing is changed or cut off yet. */
gw_err gw_rows_check(gw_rows *r, const gw_table *t);

/** Begin the table's file (t->file stays) with its header; or, if it was marked, go on behind the
 *  mark: *kept (may be NULL) is true then, and *to can be read from its start, too. GW_ERR_INPUT: it
 *  cannot be written, is not there up to its mark, or has another header. What folder `from` lacks
 *  altogether begins anew; see gw_rows_lack. */
gw_err gw_rows_open(gw_rows *r, const gw_table *t, FILE **to, bool *kept);

/** Before NAME is opened: whether it was marked and has rows behind the mark, which are to be cut
 *  off. */
bool gw_rows_beyond(const gw_rows *r, const char *name);

/** Whether a file that was marked was not there to go on with, as gw_rows_check or gw_rows_open
 *  found. */
bool gw_rows_lack(const gw_rows *r);

/** Flush all that are open; *marks: their lengths, the caller's. */
gw_err gw_rows_mark(gw_rows *r, json_t **marks);

/** Marks hold only when this is done: what was flushed reaches the disk. On any thread, while
 * others write rows, but not while files are opened, committed or closed. */
gw_err gw_rows_sync(gw_rows *r);

/** The table is whole: give its file its name, and close it. */
gw_err gw_rows_commit(gw_rows *r, const gw_table *t);

/** When all others are whole, so are files that were marked once and that nobody opened again. */
gw_err gw_rows_finish(gw_rows *r);

/** Abandon what is still open (gw_file_abandon); r may be NULL. */
void gw_rows_close(gw_rows *r);

#endif
