/** State on disk or in memory: ONE routine of an object both saves and loads, so the two cannot
 * drift apart. A file is: 8 bytes magic, u32 version, u32 byte-order mark, fields, u32 CRC-32 of
 * all before. A field is: u32 name length, name, u64 data length, data. Host byte order, refused
 * elsewhere. */
#ifndef GW_BASE_IO_H
#define GW_BASE_IO_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_io gw_io;

/** Begin DIR/NAME for saving (see base/file.h), or check PATH for loading: first magic and version,
 *  then its size against `limit` (bytes), then the checksum of the whole, which is read piece by
 *  piece: no size that a file claims or has makes it take memory. `magic` has 8 characters.
 * Loading: GW_ERR_INPUT on anything that is not such a whole file. */
gw_err gw_io_save(gw_io **out, const char *dir, const char *name, const char *magic,
                  uint32_t version);
gw_err gw_io_load(gw_io **out, const char *path, const char *magic, uint32_t version, size_t limit);

/** State in memory, for a moment: no file, so neither magic nor checksum. */
typedef struct gw_io_memory {
    unsigned char *data; /* zeroed before the first use; free() it in the end */
    size_t bytes, room;
} gw_io_memory;

/** Begin saving to *m, in place of what it holds, or loading from it; *m must outlive the io. */
gw_err gw_io_keep(gw_io **out, gw_io_memory *m);
gw_err gw_io_recall(gw_io **out, gw_io_memory *m);

bool gw_io_loading(const gw_io *io);

/** What messages call it: the file's path, or that it is memory. Valid as long as io. */
const char *gw_io_name(const gw_io *io);

/** Save or load `bytes` bytes at `data` as field `name`; loading wants that very field next, with
 *  that very size. */
gw_err gw_io_field(gw_io *io, const char *name, void *data, size_t bytes);

/** gw_io_field of what is the same on all ranks. Loading, who has the ranks' files has to see that
 * it is: by gw_io_alike_sum, the CRC-32 of all such fields taken so far. */
gw_err gw_io_alike(gw_io *io, const char *name, void *data, size_t bytes);
uint32_t gw_io_alike_sum(const gw_io *io);

/** Loading: bytes not yet taken, fields' names and sizes included: no field can be larger. */
size_t gw_io_left(const gw_io *io);

/** Saving: commit. Loading: all fields must have been taken. Frees io in any case. */
gw_err gw_io_close(gw_io *io);

/** The same of a file being saved, and what gw_io_check wants to know of it: its size, and the
 *  checksum that it ends in. (The CRC-32 of a file with its own CRC-32 at the end is the same for
 *  all such files, and so tells nothing.) */
gw_err gw_io_close_with(gw_io *io, uint64_t *bytes, uint32_t *crc32);

/** Check, piece by piece, that PATH is a whole file of this kind, whatever its magic, and the very
 *  one that was closed with these figures. GW_ERR_INPUT. */
gw_err gw_io_check(const char *path, uint64_t bytes, uint32_t crc32);

/** gw_io_close where what was done with `io` ended well (`done` is GW_OK), else gw_io_abandon and
 *  that error. */
gw_err gw_io_end(gw_io *io, gw_err done);

/** Give up: a file being saved leaves no trace. io may be NULL. */
void gw_io_abandon(gw_io *io);

#endif
