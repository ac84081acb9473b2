#include "compress/frame.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

enum {
    MAGIC_AT = 0,
    VERSION_AT = 4,
    TAG_AT = 8,
    CRC_AT = 12,
    N_AT = 16,
    LENGTH_AT = 24,
    VERSION = 1
};

static const char magic[4] = {'G', 'W', 'F', 'R'};

static void frame_put(unsigned char *at, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t frame_get(const unsigned char *at, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)at[i] << 8 * i;
    return v;
}

static uint32_t frame_checksum(const unsigned char *frame, size_t len) {
    uLong crc = crc32_z(0, frame, CRC_AT);
    return (uint32_t)crc32_z(crc, frame + N_AT, GW_FRAME_BYTES - N_AT + len);
}

void gw_frame_seal(void *frame, uint32_t tag, uint64_t n, uint64_t len) {
    unsigned char *f = frame;
    memcpy(f + MAGIC_AT, magic, sizeof magic);
    frame_put(f + VERSION_AT, VERSION, 4);
    frame_put(f + TAG_AT, tag, 4);
    frame_put(f + N_AT, n, 8);
    frame_put(f + LENGTH_AT, len, 8);
    frame_put(f + CRC_AT, frame_checksum(f, (size_t)len), 4);
}

static gw_err frame_expect(const char *codec, const char *field, uint64_t found,
                           uint64_t expected) {
    if (found == expected)
        return GW_OK;
    return gw_fail(GW_ERR_CORRUPT,
                   "codec %s: a frame's %s is 0x%" PRIx64 ", expected 0x%" PRIx64
                   ": it was damaged on its way, or the ranks do not run alike",
                   codec, field, found, expected);
}

gw_err gw_frame_check(const void *in, size_t bytes, const char *codec, uint32_t tag, uint64_t n,
                      size_t *len) {
    const unsigned char *f = in;
    if (bytes < GW_FRAME_BYTES)
        return gw_fail(GW_ERR_CORRUPT,
                       "codec %s: a frame of %zu bytes, expected at least %d: it was cut off",
                       codec, bytes, GW_FRAME_BYTES);
    GW_TRY(frame_expect(codec, "magic", frame_get(f + MAGIC_AT, 4),
                        frame_get((const unsigned char *)magic, 4)));
    GW_TRY(frame_expect(codec, "version", frame_get(f + VERSION_AT, 4), VERSION));
    GW_TRY(frame_expect(codec, "codec tag", frame_get(f + TAG_AT, 4), tag));
    GW_TRY(frame_expect(codec, "count of floats", frame_get(f + N_AT, 8), n));
    GW_TRY(frame_expect(codec, "length", frame_get(f + LENGTH_AT, 8), bytes - GW_FRAME_BYTES));
    GW_TRY(frame_expect(codec, "checksum", frame_get(f + CRC_AT, 4),
                        frame_checksum(f, bytes - GW_FRAME_BYTES)));
    *len = bytes - GW_FRAME_BYTES;
    return GW_OK;
}
