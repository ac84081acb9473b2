/** Files that appear whole or not at all: written without a name where the file system can
 *  (O_TMPFILE), else as DIR/.NAME.TOKEN.tmp; fsync, then rename. NAME itself is never half a file.
 * A process that is killed may leave the temporary one (with O_TMPFILE only if it is killed between
 *  giving the name and the rename); gw_file_sweep removes it. */
#ifndef GW_BASE_FILE_H
#define GW_BASE_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct gw_file gw_file;

/** Begin DIR/NAME; nothing by that name is seen or touched until the commit. */
gw_err gw_file_create(gw_file **out, const char *dir, const char *name);

/** The same with folder and name in one path. GW_ERR_USAGE: it names no file. */
gw_err gw_file_create_at(gw_file **out, const char *path);

/** Buffered stream to write to; owned by the file. */
FILE *gw_file_stream(gw_file *f);

/** Flush, fsync and give the file its name, replacing an older one. Frees f in any case. */
gw_err gw_file_commit(gw_file *f);

/** Throw away what was written; f may be NULL. A part that was marked or resumed is kept as it is:
 *  somebody may go on with it. */
void gw_file_abandon(gw_file *f);

/** A part is a file that outlives a killed process: it grows as DIR/NAME.part, and the commit gives
 *  it its name. Who kept a mark of it can go on from there. One process at a time: whoever calls
 *  this has the folder to itself. An older part is replaced. */
gw_err gw_file_create_part(gw_file **out, const char *dir, const char *name);

/** Flush what was written; *bytes: the length so far, to which the mark holds when gw_file_sync is
 *  done. */
gw_err gw_file_mark(gw_file *f, int64_t *bytes);

/** What was flushed reaches the disk. On any thread, while another writes. */
gw_err gw_file_sync(gw_file *f);

/** Go on behind the mark `bytes` of DIR/NAME.part, or of DIR/NAME (which becomes a part again) if
 * it was committed; what came after the mark is cut off. GW_ERR_INPUT: there is neither, or it is
 *  shorter than that. The stream can be read, too, and stands at the end. */
gw_err gw_file_resume_part(gw_file **out, const char *dir, const char *name, int64_t bytes);

/** Whether gw_file_resume_part, or gw_file_copy_part from there, would find what it needs; nothing
 *  is changed. */
gw_err gw_file_part_check(const char *dir, const char *name, int64_t bytes);

/** Begin DIR/NAME.part with the first `bytes` of what gw_file_resume_part would take from folder
 *  `from`, where nothing changes. */
gw_err gw_file_copy_part(gw_file **out, const char *dir, const char *from, const char *name,
                         int64_t bytes);

/** Open PATH, a regular file of *len bytes, for reading; fclose(). GW_ERR_INPUT: it is none (a
 * folder, a pipe), or cannot be opened. */
gw_err gw_file_open(const char *path, FILE **in, size_t *len);

/** Remove what killed processes left in `dir` of names[0..n): files called .NAME.TOKEN.tmp. For a
 * caller who has the folder to itself and has none of them open. GW_ERR_INPUT: the folder cannot be
 * read, or a file not removed. */
gw_err gw_file_sweep(const char *dir, const char *const names[], size_t n);

/** Whether `entry` is a temporary name of `name`: .NAME.TOKEN.tmp, of lower-case hexadecimal
 * digits.
 */
bool gw_file_left_over(const char *entry, const char *name);

/** What no other temporary name has, of any process on any host. GW_ERR_IO: the system has no
 * random numbers. */
enum { GW_FILE_TOKEN = 17 /* with its terminating 0 */ };
gw_err gw_file_token(char token[GW_FILE_TOKEN]);

/** Have the names in folder `dir` reach the disk. GW_ERR_IO. */
gw_err gw_file_sync_folder(const char *dir);

/** Read all of PATH (at most `limit` bytes) into *data, zero-terminated behind *len bytes; free().
 */
gw_err gw_file_read(const char *path, size_t limit, char **data, size_t *len);

#endif
