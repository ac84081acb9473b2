/* A folder of IDX files, plain or gzipped: read or refused, and nothing allocated because a header
 * claims it.
 *
 * An input's first byte: bits 0 and 1 what is done, 2 and 3 to which file, 4 to 7 which of the four
 * files are gzipped. The rest is, by what is done:
 *   0     the file
 *   1     the file before it is gzipped
 *   2, 3  damage to files that are right, behind and before gzip: 2 bytes each, bits 6 and 7 of the
 *         first name the file, 0 to 5 the place, and the second is flipped there */
#include "harness.h"

#include "data/raw.h"

#include <string.h>
#include <zlib.h>

enum { ROOM = GW_FUZZ_BYTES + 128, FILES = GW_FUZZ_FILES };

static const char *const names[FILES] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
static gw_fuzz_folder folder;

typedef struct bytes {
    uint8_t at[ROOM];
    size_t n;
} bytes;

#define IMAGES                                                                                     \
    "\0\0\10\3\0\0\0\4\0\0\0\2\0\0\0\2"                                                            \
    "0123456789abcdef"
#define LABELS                                                                                     \
    "\0\0\10\1\0\0\0\4"                                                                            \
    "\0\1\2\0"

/* Four images of 2 x 2, three classes. */
static bytes right(int file) {
    bytes b = {.n = file % 2 ? sizeof LABELS - 1 : sizeof IMAGES - 1};
    memcpy(b.at, file % 2 ? LABELS : IMAGES, b.n);
    return b;
}

static void pack(bytes *b) {
    bytes packed = {.n = 0};
    z_stream z = {.next_in = b->at, .avail_in = (unsigned)b->n, .next_out = packed.at};
    z.avail_out = sizeof packed.at;
    MUST(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 1, Z_DEFAULT_STRATEGY) == Z_OK);
    MUST(deflate(&z, Z_FINISH) == Z_STREAM_END);
    packed.n = sizeof packed.at - z.avail_out;
    deflateEnd(&z);
    *b = packed;
}

static void damage(bytes *b, int file, const uint8_t *data, size_t size) {
    for (size_t i = 0; i + 2 <= size; i += 2)
        if (data[i] >> 6 == file)
            b->at[(data[i] & 63) % b->n] ^= data[i + 1];
}

static void write_file(int file, uint8_t head, const uint8_t *data, size_t size) {
    bytes b = right(file);
    int what = head & 3;
    bool packed = head >> (4 + file) & 1, named = (head >> 2 & 3) == file;
    if (what <= 1 && named) {
        memcpy(b.at, data, size);
        b.n = size;
        packed = what == 1;
    } else if (what == 3) {
        damage(&b, file, data, size);
    }
    if (packed)
        pack(&b);
    if (what == 2)
        damage(&b, file, data, size);
    gw_fuzz_folder_put(&folder, file, b.at, b.n);
}

static void check_part(const gw_raw *raw, const gw_raw_part *part) {
    size_t pixels = (size_t)raw->rows * (size_t)raw->cols;
    unsigned sum = 0;
    MUST(part->n >= 1 && part->n <= GW_MAX_SAMPLES);
    for (size_t i = 0; i < part->n * pixels; i++)
        sum += part->images[i]; /* that they are there */
    MUST(sum <= 255 * part->n * pixels);
    for (uint32_t i = 0; i < part->n; i++)
        MUST(part->labels[i] < raw->classes);
}

static void check(gw_raw *raw) {
    char hash[32];
    MUST(raw->rows >= 1 && raw->rows <= GW_MAX_SIDE && raw->cols >= 1 && raw->cols <= GW_MAX_SIDE);
    MUST(raw->classes >= 2 && raw->classes <= 256);
    check_part(raw, &raw->train);
    check_part(raw, &raw->test);
    gw_raw_hash(raw, hash);
    uint32_t n = raw->train.n;
    gw_err e = gw_raw_split(raw, 0.5, 1);
    gw_fuzz_answer(e);
    MUST(e != GW_OK || (raw->validation.n == n / 2 && raw->train.n == n - n / 2));
}

static void open_folder(const char *spec) {
    (void)spec;
    gw_fuzz_folder_open(&folder, names, FILES);
}

static void close_folder(void) {
    gw_fuzz_folder_close(&folder);
}

static void one(const uint8_t *data, size_t size) {
    gw_raw raw, outline;
    if (size < 1 || size > GW_FUZZ_BYTES)
        return;
    for (int i = 0; i < FILES; i++)
        write_file(i, data[0], data + 1, size - 1);
    gw_fuzz_forget();
    gw_err e = gw_idx_read(&raw, folder.path, false);
    gw_fuzz_answer(e);
    gw_fuzz_forget();
    gw_err o = gw_idx_read(&outline, folder.path, true);
    gw_fuzz_answer(o);
    if (e == GW_OK) { /* a file that can be read has headers that can be read */
        MUST(o == GW_OK && outline.train.n == raw.train.n && outline.test.n == raw.test.n);
        MUST(outline.rows == raw.rows && outline.cols == raw.cols);
        MUST(outline.classes == raw.classes);
        check(&raw);
    }
    gw_raw_free(&raw);
    gw_raw_free(&outline);
}

static const char *const words[] = {"\x1f\x8b\x08",     "\10\3", "\10\1", "\xff\xff\xff\xff",
                                    "\x7f\xff\xff\xff", NULL};

const gw_fuzz_target gw_fuzz_idx = {.name = "idx",
                                    .mutations = 20000,
                                    .words = words,
                                    .open = open_folder,
                                    .close = close_folder,
                                    .one = one};
