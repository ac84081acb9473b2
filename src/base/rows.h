/** Tables (base/table.h) of a run's folder that grow row by row, and that a resumed run continues.
 *  Used by one process; not thread-safe. */
#ifndef GW_BASE_ROWS_H
#define GW_BASE_ROWS_H

#include "base/table.h"

#include <jansson.h>

typedef struct gw_rows gw_rows;

/** Prepare files in folder `dir`. `parts`: they survive a killed process (gw_file_create_part) and
 *  can be marked. */
gw_err gw_rows_new(gw_rows **out, const char *dir, bool parts);

/** With `parts`, before the first file is opened: resume the files in folder `from` (NULL: in dir
 *  itself) at `marks` from gw_rows_mark. `by`: the other version of gradwire that wrote them;
 *  NULL: this one. Changes nothing yet. GW_ERR_INPUT: invalid marks. */
gw_err gw_rows_resume(gw_rows *r, const char *from, const json_t *marks, const char *by);

/** Return whether NAME was marked and can be continued. */
bool gw_rows_continue(const gw_rows *r, const char *name);

/** Check that gw_rows_open can continue the file of table t; changes nothing yet. */
gw_err gw_rows_check(gw_rows *r, const gw_table *t);

/** Begin the file of table t (t->file outlives r) with its header. If it was marked, continue it at
 *  the mark instead: then *kept (may be NULL) is true and *to can also be read from its start.
 *  GW_ERR_INPUT: it cannot be written, is shorter than its mark or missing, or has another header.
 *  A file that folder `from` lacks altogether starts empty; see gw_rows_lack. */
gw_err gw_rows_open(gw_rows *r, const gw_table *t, FILE **to, bool *kept);

/** Before NAME is opened: true if it was marked and has rows after the mark, which opening cuts
 *  off. */
bool gw_rows_beyond(const gw_rows *r, const char *name);

/** True if gw_rows_check or gw_rows_open found that a marked file is missing. */
bool gw_rows_lack(const gw_rows *r);

/** Flush all open files and set *marks, owned by the caller, to their lengths. */
gw_err gw_rows_mark(gw_rows *r, json_t **marks);

/** Sync what was flushed to disk; marks are valid only afterwards. Any thread, also while others
 *  write rows, but not while files are opened, committed or closed. */
gw_err gw_rows_sync(gw_rows *r);

/** Check that the folder is still held (base/hold.h); else GW_ERR_LOST. */
gw_err gw_rows_held(const gw_rows *r);

/** Rename the file of a complete table and close it. */
gw_err gw_rows_commit(gw_rows *r, const gw_table *t);

/** After all other commits: commit the files that were marked but not opened again. */
gw_err gw_rows_finish(gw_rows *r);

/** Abandon open files (gw_file_abandon); r may be NULL. */
void gw_rows_close(gw_rows *r);

#endif
