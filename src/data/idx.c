/* Folders in MNIST's format: four IDX files (LeCun, Cortes, Burges: "The MNIST database", 1998),
 * gzipped or not, with any labels from 0 on. */
#include "data/raw.h"

#include "base/mem.h"
#include "base/text.h"
#include "data/stream.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES = 4 };

/* Images and labels of the training set, then of the test set. */
static const struct {
    const char *stem;
    int dims;
} parts[FILES] = {{"train-images", 3}, {"train-labels", 1}, {"t10k-images", 3}, {"t10k-labels", 1}};

/* One file's content: images (n, rows*cols), or labels with rows = cols = 1, numbers of `wide`
 * bytes, big-endian. */
typedef struct idx_file {
    char path[PATH_MAX];
    gw_stream *stream; /* open after the header until the data is read */
    uint32_t n, rows, cols, wide;
    uint8_t *data;
} idx_file;

static bool idx_find(char *path, size_t cap, const char *dir, int part) {
    static const char *const forms[] = {"%s/%s-idx%d-%s", "%s/%s.idx%d-%s", "%s/%s-idx%d-%s.gz",
                                        "%s/%s.idx%d-%s.gz"};
    static const char *const types[] = {"ubyte", "short", "int"};
    for (size_t t = 0; t < (parts[part].dims == 1 ? sizeof types / sizeof *types : 1); t++)
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            struct stat st;
            int len =
                snprintf(path, cap, forms[i], dir, parts[part].stem, parts[part].dims, types[t]);
            if (len > 0 && (size_t)len < cap && stat(path, &st) == 0)
                return true;
        }
    return false;
}

bool gw_idx_present(const char *dir) {
    char path[PATH_MAX];
    for (int i = 0; i < FILES; i++)
        if (!idx_find(path, sizeof path, dir, i))
            return false;
    return true;
}

static gw_err idx_locate(idx_file files[FILES], const char *dir) {
    struct stat st;
    if (stat(dir, &st) != 0)
        return gw_fail(GW_ERR_INPUT,
                       "data folder '%s': %s: give fashion-mnist, a folder with MNIST's four files "
                       "or synthetic",
                       dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return gw_fail(GW_ERR_INPUT,
                       "data folder '%s' is not a folder: give the folder that holds MNIST's four "
                       "files",
                       dir);
    char lacking[200] = "";
    size_t len = 0;
    for (int i = 0; i < FILES; i++)
        if (!idx_find(files[i].path, sizeof files[i].path, dir, i))
            len += (size_t)snprintf(lacking + len, sizeof lacking - len, "%s%s-idx%d-ubyte",
                                    len ? ", " : "", parts[i].stem, parts[i].dims);
    if (len)
        return gw_fail(GW_ERR_INPUT, "data folder '%s' lacks %s (each may also end in .gz)", dir,
                       lacking);
    return GW_OK;
}

static uint32_t idx_big_endian(const uint8_t *b) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static gw_err idx_short_file(const idx_file *f, uint64_t got, uint64_t want, const char *what) {
    return gw_fail(GW_ERR_INPUT, "%s: truncated: %llu bytes of %s, expected %llu: fetch it again",
                   f->path, (unsigned long long)got, what, (unsigned long long)want);
}

static gw_err idx_read_header(idx_file *f, int dims) {
    uint8_t head[16] = {0};
    size_t want = 4 + 4 * (size_t)dims, got = 0;
    uint32_t expected = 0x0800u + (uint32_t)dims; /* 0x08: unsigned bytes */
    GW_TRY(gw_stream_open(&f->stream, f->path));
    GW_TRY(gw_stream_read(f->stream, head, want, &got));
    /* Types 0x0b and 0x0c are numbers of 2 and 4 bytes, which only labels may be. */
    f->wide = head[2] == 0x08 ? 1 : dims != 1 ? 0 : head[2] == 0x0b ? 2 : head[2] == 0x0c ? 4 : 0;
    if (got >= 4 && (f->wide == 0 || (idx_big_endian(head) & ~0xff00u) != (expected & ~0xff00u)))
        return gw_fail(GW_ERR_INPUT,
                       "%s: magic number 0x%08x, expected 0x%08x (IDX, unsigned bytes, %d "
                       "dimension%s): is it the right file?",
                       f->path, idx_big_endian(head), expected, dims, dims == 1 ? "" : "s");
    if (got < want)
        return idx_short_file(f, got, want, "header");
    f->n = idx_big_endian(head + 4);
    f->rows = dims == 3 ? idx_big_endian(head + 8) : 1;
    f->cols = dims == 3 ? idx_big_endian(head + 12) : 1;
    if (f->n == 0)
        return gw_fail(GW_ERR_INPUT, "%s: holds 0 samples, expected at least 1", f->path);
    if (f->n > GW_MAX_SAMPLES)
        return gw_fail(GW_ERR_INPUT, "%s: its header promises %u samples, at most %d allowed",
                       f->path, f->n, GW_MAX_SAMPLES);
    if (f->rows < 1 || f->rows > GW_MAX_SIDE || f->cols < 1 || f->cols > GW_MAX_SIDE)
        return gw_fail(GW_ERR_INPUT,
                       "%s: its header promises images of %u x %u, expected 1 to %d each way",
                       f->path, f->rows, f->cols, GW_MAX_SIDE);
    /* The file's own size limits its contents: check before allocating memory. */
    uint64_t bytes = (uint64_t)f->n * f->rows * f->cols * f->wide;
    uint64_t most = gw_stream_most(f->stream);
    if (bytes + want > most)
        return gw_fail(GW_ERR_INPUT,
                       "%s: truncated: its header promises %llu bytes of data, but the file holds "
                       "%llu at most: fetch it again",
                       f->path, (unsigned long long)bytes,
                       (unsigned long long)(most > want ? most - want : 0));
    return gw_raw_fits(f->path, (double)bytes);
}

static gw_err idx_read_data(idx_file *f) {
    size_t want = (size_t)f->n * f->rows * f->cols * f->wide, got = 0, more = 0;
    uint8_t beyond;
    GW_TRY(gw_alloc(&f->data, want, 1));
    GW_TRY(gw_stream_read(f->stream, f->data, want, &got));
    if (got < want)
        return idx_short_file(f, got, want, "data");
    GW_TRY(gw_stream_read(f->stream, &beyond, 1, &more)); /* checks gzip's trailer too */
    if (more)
        return gw_fail(GW_ERR_INPUT,
                       "%s: more bytes follow the %u samples that its header promises: fetch it "
                       "again",
                       f->path, f->n);
    gw_stream_close(f->stream);
    f->stream = NULL;
    return GW_OK;
}

static uint32_t idx_label(const idx_file *f, uint32_t i) {
    uint32_t label = 0;
    for (uint32_t b = 0; b < f->wide; b++)
        label = label << 8 | f->data[(size_t)i * f->wide + b];
    return label;
}

/* As many as the training labels tell; what no training sample shows nobody can learn. */
static gw_err idx_check_classes(const idx_file f[FILES], int *classes) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < f[1].n; i++)
        largest = idx_label(&f[1], i) > largest ? idx_label(&f[1], i) : largest;
    if (largest >= GW_MAX_CLASSES)
        return gw_fail(GW_ERR_INPUT, "%s: a label is %u: expected 0 to %d", f[1].path, largest,
                       GW_MAX_CLASSES - 1);
    if (largest == 0)
        return gw_fail(GW_ERR_INPUT, "%s: all labels are 0, expected at least two classes",
                       f[1].path);
    for (uint32_t i = 0; i < f[3].n; i++)
        if (idx_label(&f[3], i) > largest)
            return gw_fail(GW_ERR_INPUT,
                           "%s: label %u of sample %u is out of range: expected 0 to %u (the "
                           "training set's classes)",
                           f[3].path, idx_label(&f[3], i), i, largest);
    *classes = (int)largest + 1;
    return GW_OK;
}

static gw_err idx_widen(gw_raw_part *out, const idx_file *images, const idx_file *labels) {
    out->n = images->n;
    GW_TRY(gw_alloc(&out->labels, out->n, sizeof *out->labels));
    for (uint32_t i = 0; i < out->n; i++)
        out->labels[i] = (gw_label)idx_label(labels, i);
    return GW_OK;
}

gw_err gw_idx_read(gw_raw *raw, const char *dir, bool outline) {
    *raw = (gw_raw){0};
    idx_file *files = NULL;
    int classes = 0;
    GW_TRY(gw_alloc(&files, FILES, sizeof *files));
    gw_err e = idx_locate(files, dir);
    /* Labels first: they are small and show a wrong folder as well as the images do. */
    static const int order[FILES] = {1, 3, 2, 0};
    for (int i = 0; i < FILES; i++)
        GW_THEN(e, idx_read_header(&files[order[i]], parts[order[i]].dims));
    /* Check the headers against each other before allocating memory: in a .gz a flipped bit of a
     * count may promise a thousand times the file's size and still look possible. */
    for (const idx_file *f = files; e == GW_OK && f < files + FILES; f += 2)
        if (f[0].n != f[1].n)
            e = gw_fail(GW_ERR_INPUT, "%s holds %u images, but %s holds %u labels: they must match",
                        f[0].path, f[0].n, f[1].path, f[1].n);
    if (e == GW_OK && (files[0].rows != files[2].rows || files[0].cols != files[2].cols))
        e = gw_fail(GW_ERR_INPUT, "%s holds images of %u x %u, but %s of %u x %u: they must match",
                    files[2].path, files[2].rows, files[2].cols, files[0].path, files[0].rows,
                    files[0].cols);
    for (int i = 0; i < FILES; i++)
        if (!outline || parts[order[i]].dims == 1)
            GW_THEN(e, idx_read_data(&files[order[i]]));
    GW_THEN(e, idx_check_classes(files, &classes));
    GW_THEN(e, idx_widen(&raw->train, &files[0], &files[1]));
    GW_THEN(e, idx_widen(&raw->test, &files[2], &files[3]));
    if (e == GW_OK) {
        raw->train.images = files[0].data;
        raw->test.images = files[2].data;
        files[0].data = files[2].data = NULL;
        raw->targets = raw->channels = 1;
        raw->rows = (int)files[0].rows;
        raw->cols = (int)files[0].cols;
        raw->classes = classes;
        gw_text_copy(raw->source, sizeof raw->source, dir);
    }
    for (int i = 0; i < FILES; i++) {
        gw_stream_close(files[i].stream);
        free(files[i].data);
    }
    free(files);
    if (e != GW_OK)
        gw_raw_free(raw);
    return e;
}
