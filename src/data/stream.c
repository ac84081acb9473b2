#include "data/stream.h"

#include "base/mem.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { INPUT_BYTES = 1 << 16 };

struct gw_stream {
    FILE *file;
    const char *path;
    uint64_t size; /* of the file */
    bool packed;   /* gzip */
    bool begun;    /* inflateInit2 was called */
    bool ended;    /* checked the last member's trailer */
    z_stream z;
    unsigned char input[INPUT_BYTES];
};

static gw_err stream_refill(gw_stream *s) {
    s->z.next_in = s->input;
    s->z.avail_in = (unsigned)fread(s->input, 1, INPUT_BYTES, s->file);
    if (s->z.avail_in == 0 && ferror(s->file))
        return gw_fail(GW_ERR_INPUT, "%s: cannot be read: %s", s->path, strerror(errno));
    return GW_OK;
}

static gw_err stream_begin(gw_stream *s) {
    GW_TRY(stream_refill(s));
    s->packed = s->z.avail_in >= 2 && s->input[0] == 0x1f && s->input[1] == 0x8b;
    if (!s->packed)
        return GW_OK;
    if (inflateInit2(&s->z, 15 + 16) != Z_OK) /* 32 KiB window, gzip wrapping only */
        return gw_fail(GW_ERR_NOMEM, "%s: out of memory to inflate it", s->path);
    s->begun = true;
    return GW_OK;
}

gw_err gw_stream_open(gw_stream **out, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0)
        return gw_fail(GW_ERR_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return gw_fail(GW_ERR_INPUT, "%s: not a regular file", path);
    FILE *file = fopen(path, "rb");
    if (!file)
        return gw_fail(GW_ERR_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    gw_stream *s = NULL;
    gw_err e = gw_alloc(&s, 1, sizeof *s);
    if (e != GW_OK) {
        fclose(file);
        return e;
    }
    s->file = file;
    s->path = path;
    s->size = (uint64_t)st.st_size;
    e = stream_begin(s);
    GW_OPENED(e, out, s, gw_stream_close);
}

void gw_stream_close(gw_stream *s) {
    if (!s)
        return;
    if (s->begun)
        inflateEnd(&s->z);
    fclose(s->file);
    free(s);
}

uint64_t gw_stream_most(const gw_stream *s) {
    /* deflate spends at least two bits on 258 bytes: a factor of 1032 (zlib's technical notes) */
    return s->packed ? s->size * 1032 : s->size;
}

uint64_t gw_stream_known(const gw_stream *s) {
    return s->packed ? 0 : s->size;
}

static gw_err stream_read_plain(gw_stream *s, unsigned char *dst, size_t want, size_t *got) {
    size_t n = s->z.avail_in < want ? s->z.avail_in : want; /* what stream_begin() peeked at */
    memcpy(dst, s->z.next_in, n);
    s->z.next_in += n;
    s->z.avail_in -= (unsigned)n;
    if (n < want)
        n += fread(dst + n, 1, want - n, s->file);
    if (n < want && ferror(s->file))
        return gw_fail(GW_ERR_INPUT, "%s: cannot be read: %s", s->path, strerror(errno));
    *got = n;
    return GW_OK;
}

/* After a valid member only another member may follow. */
static gw_err stream_next_member(gw_stream *s) {
    if (s->z.avail_in == 0)
        GW_TRY(stream_refill(s));
    if (s->z.avail_in == 0) {
        s->ended = true;
        return GW_OK;
    }
    if (s->z.next_in[0] != 0x1f)
        return gw_fail(GW_ERR_INPUT,
                       "%s: other bytes follow the compressed data (the first is 0x%02x): fetch "
                       "the file again",
                       s->path, s->z.next_in[0]);
    inflateReset(&s->z);
    return GW_OK;
}

static gw_err stream_inflate(gw_stream *s) {
    if (s->z.avail_in == 0)
        GW_TRY(stream_refill(s));
    if (s->z.avail_in == 0)
        return gw_fail(GW_ERR_INPUT,
                       "%s: truncated: the compressed data ends early, after %llu bytes: fetch "
                       "the file again",
                       s->path, (unsigned long long)s->size);
    int rc = inflate(&s->z, Z_NO_FLUSH);
    if (rc == Z_STREAM_END)
        return stream_next_member(s);
    if (rc == Z_MEM_ERROR)
        return gw_fail(GW_ERR_NOMEM, "%s: out of memory to inflate it", s->path);
    if (rc != Z_OK)
        return gw_fail(GW_ERR_INPUT,
                       "%s: the compressed data is damaged (%s): fetch the file again", s->path,
                       s->z.msg ? s->z.msg : "not gzip");
    return GW_OK;
}

gw_err gw_stream_read(gw_stream *s, void *dst, size_t want, size_t *got) {
    if (!s->packed)
        return stream_read_plain(s, dst, want, got);
    size_t have = 0;
    while (have < want && !s->ended) {
        size_t room = want - have < (1u << 30) ? want - have : 1u << 30; /* avail_out: 32 bits */
        s->z.next_out = (unsigned char *)dst + have;
        s->z.avail_out = (unsigned)room;
        GW_TRY(stream_inflate(s));
        have += room - s->z.avail_out;
    }
    *got = have;
    return GW_OK;
}
