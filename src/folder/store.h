/** Checkpoints on disk: one folder each, which appears whole or not at all.
 *
 *    CKPT_DIR/step-000000001200/             complete: renamed from .step-000000001200.TOKEN.tmp
 * when all that is in it had reached the disk rank-00000.gw ..                    files of
 * base/io.h, one a rank, written by that rank model.gw                            and others, as
 * the caller likes manifest                            written last: a JSON object, then the line
 *                                            "crc32 xxxxxxxx", the CRC-32 of all before that line
 *    CKPT_DIR/step-000000001200.old/         complete, too: on its way out, replaced by another of
 *                                            the same step
 *
 *  The manifest lists every file with its size and the checksum that it ends in (base/io.h), so it
 *  covers every bit but those of files that it does not list; these are never read. `serial` counts
 *  the checkpoints of a folder: the newest is the one written last, and not that of the highest
 *  step, since a run may have resumed from an earlier one.
 *
 *  No MPI in here; one thread of one process at a time may work on a CKPT_DIR. What is read is not
 * trusted: it is GW_ERR_INPUT with the file's name, and takes memory in proportion to the manifest
 * alone, whose size has a limit. A failed write is GW_ERR_IO with the system's reason, and no
 * complete checkpoint is worse for it. */
#ifndef GW_FOLDER_STORE_H
#define GW_FOLDER_STORE_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_STORE_FOLDER   "model.ckpt.d" /* of a run: CKPT_DIR */
#define GW_STORE_MANIFEST "manifest"
#define GW_STORE_SCHEMA   1
enum {
    GW_STORE_PATH = 4096,
    GW_STORE_NAME = 64,           /* of a file, with its terminating 0 */
    GW_STORE_MOST_FILES = 1 << 16 /* of one checkpoint */
};
#define GW_STORE_MOST_BYTES ((size_t)8 << 20) /* of a manifest */

typedef struct gw_store_file {
    char name[GW_STORE_NAME]; /* letters, digits, '.', '_' and '-'; no '.' first */
    uint64_t bytes;
    uint32_t crc32; /* as gw_io_close_with gives it */
} gw_store_file;

typedef struct gw_store_manifest {
    int64_t serial;                   /* set by gw_store_commit */
    char utc[GW_STORE_NAME];          /* when it was written, likewise */
    char gradwire[2 * GW_STORE_NAME]; /* by which version, likewise */
    int64_t step;                     /* optimizer steps done */
    int epoch;                        /* 1.. */
    int64_t batch;                    /* of that epoch, done */
    int ranks;
    json_t *facts;        /* an object, the caller's: options, marks, choices */
    gw_store_file *files; /* any order; one for each rank is a must */
    size_t n_files;
} gw_store_manifest;

/** DIR/NAME. GW_ERR_INPUT: too long. */
gw_err gw_store_path(char out[GW_STORE_PATH], const char *dir, const char *name);

/** The name of a rank's file. */
void gw_store_rank_name(int rank, char name[GW_STORE_NAME]);

/** The version of gradwire that wrote it; NULL: this one. */
const char *gw_store_other(const gw_store_manifest *m);

/** Make ckpt_dir (in a folder that exists) unless it is there, and an empty temporary folder in it,
 *  for all files but the manifest; its path into `temp`. GW_ERR_IO. */
gw_err gw_store_begin(const char *ckpt_dir, int64_t step, char temp[GW_STORE_PATH]);

/** When all files are in `temp`, closed and so on the disk: check that they are there with the
 *  sizes that *m tells, add the manifest, give the folder its name (into `final`), and remove
 *  complete checkpoints but the `keep` (1..) written last. What was there of that step is replaced
 *  and stays until it is. *m remains the caller's.
 *  GW_ERR_IO with final "": there is no new checkpoint, and `temp` is removed. GW_ERR_IO with
 *  `final`: there is, but its name may not have reached the disk, and then no other is removed; or
 *  an older one could not be removed. */
gw_err gw_store_commit(const char *temp, const gw_store_manifest *m, int keep,
                       char final[GW_STORE_PATH]);

/** Give up: remove `temp` ("": nothing to do). What cannot be removed is left for the sweep. */
void gw_store_abandon(const char *temp);

/** Remove the temporary folders that dead processes left in ckpt_dir (see gw_file_sweep: the caller
 *  has ckpt_dir to itself; before the first gw_store_begin). No ckpt_dir, nothing to do.
 * GW_ERR_INPUT: it cannot be read, or a folder not removed. */
gw_err gw_store_sweep(const char *ckpt_dir);

/** The newest complete checkpoint: *m is filled as by gw_store_open, its folder into `path`; GW_OK
 *  with path "" (and *m zeroed): there is none, or no ckpt_dir. Damaged ones come into
 *  skipped[0..room), a line each without the last '\n' ("": none; what does not fit is cut), and
 *  are left as they are. GW_ERR_INPUT: ckpt_dir cannot be read. GW_ERR_NOMEM. */
gw_err gw_store_newest(const char *ckpt_dir, gw_store_manifest *m, char path[GW_STORE_PATH],
                       char *skipped, size_t room);

/** Check the checkpoint in folder `path` to the last bit of every file that it lists, and fill *m
 *  (files by name); gw_store_manifest_free. GW_ERR_INPUT: none, or damaged. */
gw_err gw_store_open(const char *path, gw_store_manifest *m);

/** Whether a folder in ckpt_dir has the name of a checkpoint, be it a damaged one. */
bool gw_store_any(const char *ckpt_dir);

/** Remove all checkpoints, damaged ones and what dead processes left included, and ckpt_dir itself
 *  if nothing else is in it. GW_ERR_IO. */
gw_err gw_store_clear(const char *ckpt_dir);

/** Remove the complete checkpoints that were written after that of `serial`, *removed of them;
 *  damaged ones are left as they are. GW_ERR_INPUT, GW_ERR_IO. */
gw_err gw_store_forget_later(const char *ckpt_dir, int64_t serial, int *removed);

/** The manifest alone, from text[0..len); `where` names it in messages. */
gw_err gw_store_parse(const char *text, size_t len, const char *where, gw_store_manifest *m);

/** The manifest as text, terminated, of *len bytes; free(). All that gw_store_parse would refuse is
 *  refused here. */
gw_err gw_store_print(const gw_store_manifest *m, char **text, size_t *len);

void gw_store_manifest_free(gw_store_manifest *m);

#endif
