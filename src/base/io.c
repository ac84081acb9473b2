#include "base/io.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MAGIC = 8, HEADER = 16 };
#define BYTE_ORDER_MARK 0x01020304u
#define LARGEST_FILE    ((size_t)1 << 36)

struct gw_io {
    gw_file *file; /* saving */
    uLong crc;
    char *data; /* loading */
    size_t at, end;
    char *path;
};

bool gw_io_loading(const gw_io *io) {
    return io->file == NULL;
}

static gw_err put(gw_io *io, const void *data, size_t n) {
    if (n == 0) /* zlib would take a NULL `data` for the start of a new checksum */
        return GW_OK;
    io->crc = crc32_z(io->crc, data, n);
    if (fwrite(data, 1, n, gw_file_stream(io->file)) != n)
        return gw_fail(GW_ERR_IO, "write failed: is the disk full?");
    return GW_OK;
}

static gw_err damaged(const gw_io *io, const char *why) {
    return gw_fail(GW_ERR_INPUT, "%s: %s", io->path, why);
}

static gw_err take(gw_io *io, void *out, size_t n) {
    if (n > io->end - io->at)
        return damaged(io, "truncated");
    memcpy(out, io->data + io->at, n);
    io->at += n;
    return GW_OK;
}

gw_err gw_io_save(gw_io **out, const char *dir, const char *name, const char *magic,
                  uint32_t version) {
    gw_io *io = NULL;
    GW_TRY(gw_alloc(&io, 1, sizeof *io));
    uint32_t head[2] = {version, BYTE_ORDER_MARK};
    gw_err e = gw_file_create(&io->file, dir, name);
    if (e == GW_OK)
        e = put(io, magic, MAGIC);
    if (e == GW_OK)
        e = put(io, head, sizeof head);
    if (e != GW_OK) {
        gw_io_abandon(io);
        return e;
    }
    *out = io;
    return GW_OK;
}

static gw_err check_header(gw_io *io, const char *magic, uint32_t version) {
    if (io->end < HEADER + 4 || memcmp(io->data, magic, MAGIC) != 0)
        return gw_fail(GW_ERR_INPUT, "%s: not a gradwire '%.8s' file", io->path, magic);
    uint32_t found[2], crc;
    memcpy(found, io->data + MAGIC, sizeof found);
    if (found[1] != BYTE_ORDER_MARK)
        return damaged(io, "written on a machine of another byte order");
    if (found[0] != version)
        return gw_fail(GW_ERR_INPUT, "%s: format version %u, this gradwire reads %u", io->path,
                       found[0], version);
    io->end -= sizeof crc;
    memcpy(&crc, io->data + io->end, sizeof crc);
    if (crc != (uint32_t)crc32_z(0, (const Bytef *)io->data, io->end))
        return damaged(io, "damaged: its checksum does not match");
    io->at = HEADER;
    return GW_OK;
}

gw_err gw_io_load(gw_io **out, const char *path, const char *magic, uint32_t version) {
    gw_io *io = NULL;
    GW_TRY(gw_alloc(&io, 1, sizeof *io));
    io->path = strdup(path);
    gw_err e = io->path ? gw_file_read(path, LARGEST_FILE, &io->data, &io->end)
                        : gw_fail(GW_ERR_NOMEM, "out of memory");
    if (e == GW_OK)
        e = check_header(io, magic, version);
    if (e != GW_OK) {
        gw_io_abandon(io);
        return e;
    }
    *out = io;
    return GW_OK;
}

gw_err gw_io_field(gw_io *io, const char *name, void *data, size_t bytes) {
    uint32_t name_len = (uint32_t)strlen(name);
    uint64_t size = bytes;
    if (io->file) {
        GW_TRY(put(io, &name_len, sizeof name_len));
        GW_TRY(put(io, name, name_len));
        GW_TRY(put(io, &size, sizeof size));
        return put(io, data, bytes);
    }
    uint32_t got_len = 0;
    char got[64];
    GW_TRY(take(io, &got_len, sizeof got_len));
    if (got_len >= sizeof got)
        return damaged(io, "damaged: a field name is too long");
    GW_TRY(take(io, got, got_len));
    got[got_len] = '\0';
    GW_TRY(take(io, &size, sizeof size));
    if (strcmp(got, name) != 0 || size != bytes)
        return gw_fail(GW_ERR_INPUT, "%s: holds '%s' of %llu bytes where '%s' of %zu is expected",
                       io->path, got, (unsigned long long)size, name, bytes);
    return take(io, data, bytes);
}

gw_err gw_io_close(gw_io *io) {
    gw_err e = GW_OK;
    if (io->file) {
        uint32_t crc = (uint32_t)io->crc;
        e = put(io, &crc, sizeof crc);
        if (e == GW_OK) {
            gw_file *f = io->file;
            io->file = NULL;
            e = gw_file_commit(f);
        }
    } else if (io->at != io->end) {
        e = damaged(io, "holds more than this gradwire knows");
    }
    gw_io_abandon(io);
    return e;
}

void gw_io_abandon(gw_io *io) {
    if (!io)
        return;
    gw_file_abandon(io->file);
    free(io->data);
    free(io->path);
    free(io);
}
