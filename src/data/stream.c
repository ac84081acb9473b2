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
    bool ended;    /* checked the last member's trailer */
    z_stream z;
    unsigned char input[INPUT_BYTES];
};

static gw_err stream_unreadable(const gw_stream *s) {
    return gw_fail(GW_ERR_INPUT, "%s: cannot be read: %s", s->path, strerror(errno));
}

static gw_err stream_refill(gw_stream *s) {
    s->z.next_in = s->input;
    s->z.avail_in = (unsigned)fread(s->input, 1, INPUT_BYTES, s->file);
    return s->z.avail_in == 0 && ferror(s->file) ? stream_unreadable(s) : GW_OK;
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
    e = stream_refill(s);
    s->packed = s->z.avail_in >= 2 && s->input[0] == 0x1f && s->input[1] == 0x8b;
    if (e == GW_OK && s->packed && inflateInit2(&s->z, 15 + 16) != Z_OK) /* gzip, 32 KiB window */
        e = gw_fail(GW_ERR_NOMEM, "%s: out of memory to inflate it", path);
    GW_OPENED(e, out, s, gw_stream_close);
}

void gw_stream_close(gw_stream *s) {
    if (!s)
        return;
    inflateEnd(&s->z); /* does nothing unless inflateInit2 was called */
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

gw_err gw_stream_read(gw_stream *s, void *dst, size_t want, size_t *got) {
    if (!s->packed) {
        size_t n = s->z.avail_in < want ? s->z.avail_in : want; /* read when it was opened */
        memcpy(dst, s->z.next_in, n);
        s->z.next_in += n;
        s->z.avail_in -= (unsigned)n;
        if (n < want)
            n += fread((unsigned char *)dst + n, 1, want - n, s->file);
        *got = n;
        return n == want || !ferror(s->file) ? GW_OK : stream_unreadable(s);
    }
    size_t have = 0;
    while (have < want && !s->ended) {
        size_t room = want - have < (1u << 30) ? want - have : 1u << 30; /* avail_out: 32 bits */
        s->z.next_out = (unsigned char *)dst + have;
        s->z.avail_out = (unsigned)room;
        if (s->z.avail_in == 0)
            GW_TRY(stream_refill(s));
        if (s->z.avail_in == 0)
            return gw_fail(GW_ERR_INPUT,
                           "%s: truncated: the compressed data ends early, after %llu bytes: fetch "
                           "the file again",
                           s->path, (unsigned long long)s->size);
        int rc = inflate(&s->z, Z_NO_FLUSH);
        if (rc == Z_MEM_ERROR)
            return gw_fail(GW_ERR_NOMEM, "%s: out of memory to inflate it", s->path);
        if (rc != Z_OK && rc != Z_STREAM_END)
            return gw_fail(GW_ERR_INPUT,
                           "%s: the compressed data is damaged (%s): fetch the file again", s->path,
                           s->z.msg ? s->z.msg : "not gzip");
        have += room - s->z.avail_out;
        if (rc == Z_OK)
            continue;
        /* After a valid member only another member may follow. */
        if (s->z.avail_in == 0)
            GW_TRY(stream_refill(s));
        s->ended = s->z.avail_in == 0;
        if (!s->ended && s->z.next_in[0] != 0x1f)
            return gw_fail(GW_ERR_INPUT,
                           "%s: other bytes follow the compressed data (the first is 0x%02x): "
                           "fetch the file again",
                           s->path, s->z.next_in[0]);
        inflateReset(&s->z);
    }
    *got = have;
    return GW_OK;
}
