/** State on disk or in memory: one routine of an object saves and loads, so that the two cannot
 *  differ. A file is: 8 bytes magic, u32 version, u32 byte-order mark, fields, u32 CRC-32 of
 *  everything before. A field is: u32 name length, name, u64 data length, data. Host byte order;
 *  hosts with another order refuse the file. */
#ifndef GW_BASE_IO_H
#define GW_BASE_IO_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_io gw_io;

/** Begin DIR/NAME for saving (see base/file.h), or check PATH for loading: magic and version (1 to
 *  `version`; gw_io_version returns it), then the size against `limit` (bytes), then the checksum.
 *  It reads the file piece by piece, so no size that a file has or claims can exhaust memory.
 *  `magic` has 8 characters. Loading: GW_ERR_INPUT for anything but a whole file of this kind. */
gw_err gw_io_save(gw_io **out, const char *dir, const char *name, const char *magic,
                  uint32_t version);
gw_err gw_io_load(gw_io **out, const char *path, const char *magic, uint32_t version, size_t limit);

/** Short-lived state in memory: not a file, so without magic and checksum. */
typedef struct gw_io_memory {
    unsigned char *data; /* zero it before the first use; free() it at the end */
    size_t bytes, room;
} gw_io_memory;

/** Begin saving to *m, replacing its contents, or loading from it; *m must outlive the io. */
gw_err gw_io_keep(gw_io **out, gw_io_memory *m);
gw_err gw_io_recall(gw_io **out, gw_io_memory *m);

bool gw_io_loading(const gw_io *io);
uint32_t gw_io_version(const gw_io *io); /* of a file */

/** Return a name for messages: the file's path, or words for memory. Valid as long as io. */
const char *gw_io_name(const gw_io *io);

/** Save or load `bytes` bytes at `data` as field `name`. Loading fails unless the next field has
 *  this name and size. */
gw_err gw_io_field(gw_io *io, const char *name, void *data, size_t bytes);

/** gw_io_field for data that is equal on all ranks. When loading the ranks' files, compare
 *  gw_io_alike_sum, the CRC-32 of all such fields so far, over the ranks. */
gw_err gw_io_alike(gw_io *io, const char *name, void *data, size_t bytes);
uint32_t gw_io_alike_sum(const gw_io *io);

/** Loading: return the bytes left, with fields' names and sizes; no field can be larger. */
size_t gw_io_left(const gw_io *io);

/** Saving: commit. Loading: fails if fields are left. Always frees io. */
gw_err gw_io_close(gw_io *io);

/** The same for a file being saved; return its size and the checksum at its end, for gw_io_check.
 *  (The CRC-32 of a file that includes its own CRC-32 is a constant and tells nothing.) */
gw_err gw_io_close_with(gw_io *io, uint64_t *bytes, uint32_t *crc32);

/** Check, piece by piece, that PATH is a whole file of this kind, with any magic, and that it was
 *  closed with these values. GW_ERR_INPUT. */
gw_err gw_io_check(const char *path, uint64_t bytes, uint32_t crc32);

/** gw_io_close if `done` is GW_OK, else gw_io_abandon and return `done`. */
gw_err gw_io_end(gw_io *io, gw_err done);

/** Give up: a file being saved leaves no trace. io may be NULL. */
void gw_io_abandon(gw_io *io);

#endif
