/** Files that appear whole or not at all: written without a name where the file system can
 *  (O_TMPFILE), else under a temporary one; fsync, then rename. A killed run leaves nothing. */
#ifndef GW_BASE_FILE_H
#define GW_BASE_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdio.h>

typedef struct gw_file gw_file;

/** Begin DIR/NAME; nothing by that name is seen or touched until the commit. */
gw_err gw_file_create(gw_file **out, const char *dir, const char *name);

/** Buffered stream to write to; owned by the file. */
FILE *gw_file_stream(gw_file *f);

/** Flush, fsync and give the file its name, replacing an older one. Frees f in any case. */
gw_err gw_file_commit(gw_file *f);

/** Throw away what was written; f may be NULL. */
void gw_file_abandon(gw_file *f);

/** Open PATH, a regular file of *len bytes, for reading; fclose(). GW_ERR_INPUT: it is none (a
 * folder, a pipe), or cannot be opened. */
gw_err gw_file_open(const char *path, FILE **in, size_t *len);

/** Read all of PATH (at most `limit` bytes) into *data, zero-terminated behind *len bytes; free().
 */
gw_err gw_file_read(const char *path, size_t limit, char **data, size_t *len);

#endif
