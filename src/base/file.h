/** Files that appear whole or not at all: written without a name where the file system can
 *  (O_TMPFILE), else as DIR/.NAME.PID.tmp; fsync, then rename. NAME itself is never half a file. A
 *  process that is killed may leave the temporary one (with O_TMPFILE only if it is killed between
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

/** Buffered stream to write to; owned by the file. */
FILE *gw_file_stream(gw_file *f);

/** Flush, fsync and give the file its name, replacing an older one. Frees f in any case. */
gw_err gw_file_commit(gw_file *f);

/** Throw away what was written; f may be NULL. A part that was marked or resumed is kept as it is:
 *  somebody may go on with it. */
void gw_file_abandon(gw_file *f);

/** A part is a file that outlives a killed process: it grows as DIR/NAME.part, and the commit gives
 *  it its name. Who kept a mark of it can go on from there. One process at a time: GW_ERR_INPUT if
 *  another one on this host is writing it. An older part is replaced. */
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

/** GW_ERR_INPUT: another process has DIR/NAME.part open as its part. GW_OK: none has, or there is
 * no such file, or its file system knows no locks. */
gw_err gw_file_part_free(const char *dir, const char *name);

/** Begin DIR/NAME.part with the first `bytes` of what gw_file_resume_part would take from folder
 *  `from`, where nothing changes. */
gw_err gw_file_copy_part(gw_file **out, const char *dir, const char *from, const char *name,
                         int64_t bytes);

/** Open PATH, a regular file of *len bytes, for reading; fclose(). GW_ERR_INPUT: it is none (a
 * folder, a pipe), or cannot be opened. */
gw_err gw_file_open(const char *path, FILE **in, size_t *len);

/** Remove what killed processes left in `dir` of names[0..n): files called .NAME.PID.tmp of which
 * no process PID lives on this host, or PID is this process; so call it before gw_file_create. A
 * run that writes the same files there from another host is taken for dead. GW_ERR_INPUT: the
 * folder cannot be read, or a file not removed. */
gw_err gw_file_sweep(const char *dir, const char *const names[], size_t n);

/** Whether `entry` is what a killed process left of `name`: .NAME.PID.tmp, as gw_file_sweep takes
 * it. */
bool gw_file_left_over(const char *entry, const char *name);

/** Have the names in folder `dir` reach the disk. GW_ERR_IO. */
gw_err gw_file_sync_folder(const char *dir);

/** Read all of PATH (at most `limit` bytes) into *data, zero-terminated behind *len bytes; free().
 */
gw_err gw_file_read(const char *path, size_t limit, char **data, size_t *len);

/** When PATH (relative to the open folder `folder`, or to AT_FDCWD) was last written, nanoseconds
 * since 1970 by the file system's clock; 0: there is no such file. */
int64_t gw_file_written_ns(int folder, const char *path);

#endif
