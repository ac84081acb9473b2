#include "base/io.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MAGIC = 8, HEADER = 16, PIECE = 1 << 16 };
#define BYTE_ORDER_MARK 0x01020304u

struct gw_io {
    bool loading;
    uint32_t version;
    gw_io_memory *memory; /* NULL: a file */
    gw_file *file;        /* saving */
    uLong crc;
    FILE *in;    /* loading */
    size_t at;   /* bytes written or taken so far */
    size_t end;  /* loading: where the fields end */
    uLong alike; /* loading: checksum of what gw_io_alike took */
    char *path;
};

bool gw_io_loading(const gw_io *io) {
    return io->loading;
}

uint32_t gw_io_version(const gw_io *io) {
    return io->version;
}

const char *gw_io_name(const gw_io *io) {
    return io->path;
}

size_t gw_io_left(const gw_io *io) {
    return io->end - io->at;
}

static gw_err io_put(gw_io *io, const void *data, size_t n) {
    gw_io_memory *m = io->memory;
    if (n == 0) /* zlib starts a new checksum if `data` is NULL */
        return GW_OK;
    if (!m) {
        io->crc = crc32_z(io->crc, data, n);
        if (fwrite(data, 1, n, gw_file_stream(io->file)) != n)
            return gw_fail(GW_ERR_IO, "cannot write %s: %s", io->path, strerror(errno));
        io->at += n;
        return GW_OK;
    }
    if (n > m->room - m->bytes) {
        size_t room = m->bytes + n > 2 * m->room ? m->bytes + n : 2 * m->room;
        unsigned char *grown = realloc(m->data, room);
        if (!grown)
            return gw_fail(GW_ERR_NOMEM, "out of memory for %zu bytes of state", room);
        m->data = grown;
        m->room = room;
    }
    memcpy(m->data + m->bytes, data, n);
    m->bytes += n;
    return GW_OK;
}

static gw_err io_damaged(const gw_io *io, const char *why) {
    return gw_fail(GW_ERR_INPUT, "%s: %s", io->path, why);
}

static gw_err io_take(gw_io *io, void *out, size_t n) {
    if (n == 0)
        return GW_OK;
    if (n > io->end - io->at)
        return io_damaged(io, "truncated");
    if (io->memory)
        memcpy(out, io->memory->data + io->at, n);
    else if (fread(out, 1, n, io->in) != n)
        return io_damaged(io, "changed while it was read");
    io->at += n;
    return GW_OK;
}

gw_err gw_io_save(gw_io **out, const char *dir, const char *name, const char *magic,
                  uint32_t version) {
    gw_io *io = NULL;
    GW_TRY(gw_alloc(&io, 1, sizeof *io));
    uint32_t head[2] = {version, BYTE_ORDER_MARK};
    io->version = version;
    if (asprintf(&io->path, "%s/%s", dir, name) < 0)
        io->path = NULL;
    gw_err e =
        io->path ? gw_file_create(&io->file, dir, name) : gw_fail(GW_ERR_NOMEM, "out of memory");
    GW_THEN(e, io_put(io, magic, MAGIC));
    GW_THEN(e, io_put(io, head, sizeof head));
    GW_OPENED(e, out, io, gw_io_abandon);
}

/* Read all up to the end. */
static gw_err io_read_sum(gw_io *io) {
    char *piece = NULL;
    uint32_t stored = 0;
    gw_err e = gw_alloc(&piece, PIECE, 1);
    while (e == GW_OK && io->at < io->end) {
        size_t n = io->end - io->at < PIECE ? io->end - io->at : PIECE;
        e = io_take(io, piece, n);
        if (e == GW_OK)
            io->crc = crc32_z(io->crc, (const Bytef *)piece, n);
    }
    free(piece);
    if (e == GW_OK && fread(&stored, 1, sizeof stored, io->in) != sizeof stored)
        e = io_damaged(io, "changed while it was read");
    if (e == GW_OK && stored != (uint32_t)io->crc)
        e = io_damaged(io, "damaged: its checksum does not match");
    return e;
}

static gw_err io_check(gw_io *io, const char *magic, uint32_t version, size_t limit) {
    char head[HEADER];
    uint32_t found[2];
    GW_TRY(gw_file_open(io->path, &io->in, &io->end));
    size_t bytes = io->end;
    if (bytes < HEADER + sizeof(uint32_t) || fread(head, 1, HEADER, io->in) != HEADER ||
        memcmp(head, magic, MAGIC) != 0)
        return gw_fail(GW_ERR_INPUT, "%s: not a gradwire '%.8s' file", io->path, magic);
    memcpy(found, head + MAGIC, sizeof found);
    if (found[1] != BYTE_ORDER_MARK)
        return io_damaged(io, "written on a machine of another byte order");
    if (found[0] < 1 || found[0] > version)
        return gw_fail(GW_ERR_INPUT, "%s: format version %u, this gradwire reads %s%u", io->path,
                       found[0], version > 1 ? "1 to " : "", version);
    if (bytes > limit)
        return gw_fail(GW_ERR_INPUT, "%s: %zu bytes, but a '%.8s' file has at most %zu", io->path,
                       bytes, magic, limit);
    io->version = found[0];
    io->crc = crc32_z(0, (const Bytef *)head, HEADER);
    io->at = HEADER;
    io->end -= sizeof(uint32_t);
    GW_TRY(io_read_sum(io));
    io->at = HEADER; /* back to the first field */
    return fseek(io->in, HEADER, SEEK_SET) == 0
               ? GW_OK
               : gw_fail(GW_ERR_INPUT, "cannot read %s: %s", io->path, strerror(errno));
}

gw_err gw_io_check(const char *path, uint64_t bytes, uint32_t crc32) {
    gw_io *io = NULL;
    GW_TRY(gw_alloc(&io, 1, sizeof *io));
    io->path = strdup(path);
    gw_err e = io->path ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
    GW_THEN(e, gw_file_open(path, &io->in, &io->end));
    if (e == GW_OK && io->end != bytes)
        e = gw_fail(GW_ERR_INPUT, "%s: damaged: %zu bytes, not %llu", path, io->end,
                    (unsigned long long)bytes);
    if (e == GW_OK && bytes < HEADER + sizeof(uint32_t))
        e = gw_fail(GW_ERR_INPUT, "%s: damaged: %zu bytes, fewer than its header and checksum",
                    path, io->end);
    io->end -= sizeof(uint32_t);
    GW_THEN(e, io_read_sum(io));
    if (e == GW_OK && (uint32_t)io->crc != crc32)
        e = gw_fail(GW_ERR_INPUT, "%s: not the file that was written: checksum %08x, not %08x",
                    path, (uint32_t)io->crc, crc32);
    gw_io_abandon(io);
    return e;
}

gw_err gw_io_load(gw_io **out, const char *path, const char *magic, uint32_t version,
                  size_t limit) {
    gw_io *io = NULL;
    GW_TRY(gw_alloc(&io, 1, sizeof *io));
    io->loading = true;
    io->path = strdup(path);
    gw_err e =
        io->path ? io_check(io, magic, version, limit) : gw_fail(GW_ERR_NOMEM, "out of memory");
    GW_OPENED(e, out, io, gw_io_abandon);
}

static gw_err io_open_memory(gw_io **out, gw_io_memory *m, bool loading) {
    gw_io *io = NULL;
    GW_TRY(gw_alloc(&io, 1, sizeof *io));
    io->loading = loading;
    io->memory = m;
    io->end = m->bytes;
    io->path = strdup("state in memory");
    gw_err e = io->path ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
    GW_OPENED(e, out, io, gw_io_abandon);
}

gw_err gw_io_keep(gw_io **out, gw_io_memory *m) {
    m->bytes = 0;
    return io_open_memory(out, m, false);
}

gw_err gw_io_recall(gw_io **out, gw_io_memory *m) {
    return io_open_memory(out, m, true);
}

gw_err gw_io_field(gw_io *io, const char *name, void *data, size_t bytes) {
    uint32_t name_len = (uint32_t)strlen(name);
    uint64_t size = bytes;
    if (!io->loading) {
        GW_TRY(io_put(io, &name_len, sizeof name_len));
        GW_TRY(io_put(io, name, name_len));
        GW_TRY(io_put(io, &size, sizeof size));
        return io_put(io, data, bytes);
    }
    uint32_t got_len = 0;
    char got[64];
    GW_TRY(io_take(io, &got_len, sizeof got_len));
    if (got_len >= sizeof got)
        return io_damaged(io, "damaged: a field name is too long");
    GW_TRY(io_take(io, got, got_len));
    got[got_len] = '\0';
    GW_TRY(io_take(io, &size, sizeof size));
    if (got_len != name_len || memcmp(got, name, name_len) != 0 || size != bytes) {
        char plain[sizeof got];
        gw_text_plain(plain, sizeof plain, got);
        return gw_fail(GW_ERR_INPUT, "%s: holds '%s' of %llu bytes where '%s' of %zu is expected",
                       io->path, plain, (unsigned long long)size, name, bytes);
    }
    return io_take(io, data, bytes);
}

gw_err gw_io_alike(gw_io *io, const char *name, void *data, size_t bytes) {
    GW_TRY(gw_io_field(io, name, data, bytes));
    if (io->loading && bytes > 0)
        io->alike = crc32_z(io->alike, data, bytes);
    return GW_OK;
}

uint32_t gw_io_alike_sum(const gw_io *io) {
    return (uint32_t)io->alike;
}

static gw_err io_finish_file(gw_io *io, uint64_t *bytes, uint32_t *crc32) {
    *crc32 = (uint32_t)io->crc;
    GW_TRY(io_put(io, crc32, sizeof *crc32));
    *bytes = io->at;
    return gw_file_commit(&io->file);
}

gw_err gw_io_close_with(gw_io *io, uint64_t *bytes, uint32_t *crc32) {
    gw_err e = io_finish_file(io, bytes, crc32);
    gw_io_abandon(io);
    return e;
}

gw_err gw_io_close(gw_io *io) {
    gw_err e = GW_OK;
    if (io->file) {
        uint64_t bytes;
        uint32_t crc;
        e = io_finish_file(io, &bytes, &crc);
    } else if (io->loading && io->at != io->end) {
        e = io_damaged(io, "holds more than this gradwire knows");
    }
    gw_io_abandon(io);
    return e;
}

gw_err gw_io_end(gw_io *io, gw_err done) {
    if (done == GW_OK)
        return gw_io_close(io);
    gw_io_abandon(io);
    return done;
}

void gw_io_abandon(gw_io *io) {
    if (!io)
        return;
    gw_file_abandon(io->file);
    if (io->in)
        fclose(io->in);
    free(io->path);
    free(io);
}
