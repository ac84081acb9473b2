/** Files that appear whole or not at all: written without a name where the file system can
 *  (O_TMPFILE), else as DIR/.NAME.PID.tmp; fsync, then rename. NAME itself is never half a file. A
 *  process that is killed may leave the temporary one (with O_TMPFILE only if it is killed between
 *  giving the name and the rename); gw_file_sweep removes it. */
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

/** Remove what killed processes left in `dir` of names[0..n): files called .NAME.PID.tmp of which
 * no process PID lives on this host, or PID is this process; so call it before gw_file_create. A
 * run that writes the same files there from another host is taken for dead. GW_ERR_INPUT: the
 * folder cannot be read, or a file not removed. */
gw_err gw_file_sweep(const char *dir, const char *const names[], size_t n);

/** Read all of PATH (at most `limit` bytes) into *data, zero-terminated behind *len bytes; free().
 */
gw_err gw_file_read(const char *path, size_t limit, char **data, size_t *len);

#endif
