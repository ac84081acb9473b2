/** Files that appear whole or not at all: written without a name where the file system supports it
 *  (O_TMPFILE), else as DIR/.NAME.TOKEN.tmp; then fsync and rename. NAME itself is never a partial
 *  file. A killed process may leave the temporary file (with O_TMPFILE only between naming and
 *  renaming it); gw_file_sweep removes it. The folder is opened when the file begins, and the file
 *  stays in that folder. If this process holds the folder (base/hold.h), every commit checks that
 *  it still has its name: GW_ERR_LOST. */
#ifndef GW_BASE_FILE_H
#define GW_BASE_FILE_H

#include "base/err.h"

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct gw_file gw_file;

/** Begin DIR/NAME, a file of this program's own; nothing with that name appears or changes before
 *  the commit, which replaces a file or a symbolic link. GW_ERR_INPUT: something else is there. */
gw_err gw_file_create(gw_file **out, const char *dir, const char *name);

/** Begin the file that a user names, as all options do that name an output. It is the one that
 *  symbolic links lead to, and appears whole as those of gw_file_create. A device, a pipe or
 *  this program's own output (/dev/stdout) is never renamed over: what is written goes there.
 *  GW_ERR_USAGE: `path` names no file. GW_ERR_INPUT: a folder, a pipe that nothing reads, a file
 *  that may not be written. */
gw_err gw_file_create_at(gw_file **out, const char *path);

/** Return the buffered stream to write to; owned by the file. */
FILE *gw_file_stream(gw_file *f);

/** Flush, fsync and give *file its name, replacing an older one. In any case *file is freed and
 *  becomes NULL; if it was NULL, nothing happens. GW_ERR_IO: it could not be written, or somebody
 *  removed or replaced it meanwhile, a part too. */
gw_err gw_file_commit(gw_file **file);

/** Discard what was written; f may be NULL. A part that was marked or resumed is kept, since a
 *  later run may resume it. */
void gw_file_abandon(gw_file *f);

/** A part is a file that survives a killed process: it grows as DIR/NAME.part, and the commit
 *  renames it. It can be resumed from a mark. Replaces an older part. The caller must be the only
 *  process that uses the folder. */
gw_err gw_file_create_part(gw_file **out, const char *dir, const char *name);

/** Flush what was written; *bytes is the length so far. The mark is valid once gw_file_sync is
 *  done. */
gw_err gw_file_mark(gw_file *f, int64_t *bytes);

/** Sync what was flushed to disk. Any thread, also while another writes. */
gw_err gw_file_sync(gw_file *f);

/** Resume DIR/NAME.part, or DIR/NAME if it was committed (it becomes a part again), at the mark
 *  `bytes`, and cut off the rest. GW_ERR_INPUT: neither exists, or it is shorter. The stream can be
 *  read as well and is at the end. */
gw_err gw_file_resume_part(gw_file **out, const char *dir, const char *name, int64_t bytes);

/** Check that gw_file_resume_part, or gw_file_copy_part from there, would find what it needs.
 *  Change nothing. */
gw_err gw_file_part_check(const char *dir, const char *name, int64_t bytes);

/** Begin DIR/NAME.part with the first `bytes` of the file that gw_file_resume_part would resume in
 *  folder `from`, which does not change. */
gw_err gw_file_copy_part(gw_file **out, const char *dir, const char *from, const char *name,
                         int64_t bytes);

/** Open PATH, a regular file of *len bytes, for reading; fclose(). GW_ERR_INPUT: it is no regular
 *  file (a folder, a pipe), or cannot be opened. */
gw_err gw_file_open(const char *path, FILE **in, size_t *len);

/** Remove the temporary files .NAME.TOKEN.tmp of names[0..n) that killed processes left in `dir`.
 *  The caller must be the only user of the folder and have none of them open. GW_ERR_INPUT: the
 *  folder cannot be read, or a file not removed. */
gw_err gw_file_sweep(const char *dir, const char *const names[], size_t n);

/** True if `entry` is a temporary name of `name`: .NAME.TOKEN.tmp, TOKEN in lower-case hexadecimal
 *  digits. */
bool gw_file_left_over(const char *entry, const char *name);

/** Draw a token that is unique among the processes of all hosts. GW_ERR_IO: the system has no
 *  random numbers. */
enum { GW_FILE_TOKEN = 17 /* with its terminating 0 */ };
gw_err gw_file_token(char token[GW_FILE_TOKEN]);

/** Make folder `dir` and its parents unless it exists; *made: this call made it. GW_ERR_INPUT. */
gw_err gw_file_make_folder(const char *dir, bool *made);

/** Open folder `dir`, as gw_hold_open does, to read its names, and to remove and rename with
 *  dirfd(); closedir(). */
gw_err gw_file_list(const char *dir, DIR **folder);

/** Read all of PATH, a text of at most `limit` bytes, into *data, with a zero byte after *len
 *  bytes; free(). GW_ERR_INPUT: it cannot be read, is too long, or has a zero byte itself. */
gw_err gw_file_read(const char *path, size_t limit, char **data, size_t *len);

/** Read the first line of PATH, which may be a file of the kernel, without its end, cut to room - 1
 *  bytes. Return false if it cannot be read. */
bool gw_file_first_line(const char *path, char *out, size_t room);

/** Return the bytes of memory that this process may use: the machine's, or its control group's. */
double gw_file_memory(void);

#endif
