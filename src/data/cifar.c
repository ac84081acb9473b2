/* CIFAR's binary format (Krizhevsky, "Learning multiple layers of features from tiny images",
 * 2009): colour images of 32 x 32, planes of red, green and blue one behind another. */
#include "data/raw.h"

#include "base/mem.h"
#include "base/text.h"
#include "data/stream.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 32, CHANNELS = 3, PIXELS = CHANNELS * SIDE * SIDE, MOST_FILES = 6 };

static const struct set {
    int labels; /* bytes of a record that hold them, of which the last one counts */
    int classes;
    const char *file[MOST_FILES + 1]; /* the last one is the test set */
} sets[] = {{1,
             10,
             {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
              "data_batch_5.bin", "test_batch.bin"}},
            {2, 100, {"train.bin", "test.bin"}}};

/* The path of a file that is there, with .gz or without. */
static bool cifar_find(char path[PATH_MAX], const char *dir, const char *file) {
    struct stat st;
    static const char *const ends[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        int len = snprintf(path, PATH_MAX, "%s/%s%s", dir, file, ends[i]);
        if (len > 0 && len < PATH_MAX && stat(path, &st) == 0)
            return true;
    }
    return false;
}

/* The set of which a training file is there. */
static const struct set *cifar_set(const char *dir) {
    char path[PATH_MAX];
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (int i = 0; sets[s].file[i + 1]; i++)
            if (cifar_find(path, dir, sets[s].file[i]))
                return &sets[s];
    return NULL;
}

bool gw_cifar_present(const char *dir) {
    return cifar_set(dir) != NULL;
}

/* Room for `n` images. */
static gw_err cifar_grow(gw_raw_part *part, uint32_t *room, uint64_t n, const char *path) {
    if (n > GW_MAX_SAMPLES)
        return gw_fail(GW_ERR_INPUT, "%s: with it there are more than %d images: give fewer", path,
                       GW_MAX_SAMPLES);
    GW_TRY(gw_raw_fits(path, (double)n * (PIXELS + sizeof(gw_label))));
    uint8_t *images = realloc(part->images, (size_t)n * PIXELS);
    part->images = images ? images : part->images;
    gw_label *labels = images ? realloc(part->labels, n * sizeof *labels) : NULL;
    part->labels = labels ? labels : part->labels;
    *room = (uint32_t)n;
    return labels ? GW_OK
                  : gw_fail(GW_ERR_NOMEM, "%s: out of memory for %u images", path, (unsigned)n);
}

/* The records of one file, behind those that are there. */
static gw_err cifar_read_file(gw_raw_part *part, uint32_t *room, const struct set *set,
                              const char *path) {
    gw_stream *stream = NULL;
    uint8_t record[2 + PIXELS];
    size_t want = (size_t)set->labels + PIXELS, got = want;
    uint32_t before = part->n;
    gw_err e = gw_stream_open(&stream, path);
    uint64_t known = e == GW_OK ? gw_stream_known(stream) / want : 0;
    if (known > 0)
        e = cifar_grow(part, room, before + known, path);
    while (e == GW_OK) {
        e = gw_stream_read(stream, record, want, &got);
        if (e != GW_OK || got < want)
            break;
        if (part->n == *room)
            e = cifar_grow(part, room, *room ? 2 * (uint64_t)*room : 1 << 10, path);
        uint8_t label = record[set->labels - 1];
        if (e == GW_OK && label >= set->classes)
            e = gw_fail(GW_ERR_INPUT, "%s: label %d of image %u is out of range: expected 0 to %d",
                        path, label, part->n - before, set->classes - 1);
        if (e == GW_OK) {
            part->labels[part->n] = label;
            memcpy(part->images + (size_t)part->n++ * PIXELS, record + set->labels, PIXELS);
        }
    }
    gw_stream_close(stream);
    if (e == GW_OK && got > 0)
        return gw_fail(GW_ERR_INPUT,
                       "%s: truncated: %zu bytes of image %u, expected %zu: fetch it again", path,
                       got, part->n - before, want);
    if (e == GW_OK && part->n == before)
        return gw_fail(GW_ERR_INPUT, "%s: holds no image: fetch it again", path);
    return e;
}

gw_err gw_cifar_read(gw_raw *raw, const char *dir, bool outline) {
    const struct set *set = cifar_set(dir);
    *raw = (gw_raw){.rows = CHANNELS * SIDE,
                    .cols = SIDE,
                    .channels = CHANNELS,
                    .targets = 1,
                    .classes = set ? set->classes : 0};
    if (!set)
        return gw_fail(GW_ERR_INPUT, "data folder '%s' lacks CIFAR's files", dir);
    gw_text_copy(raw->source, sizeof raw->source, dir);
    gw_err e = GW_OK;
    uint32_t room[2] = {0};
    for (int i = 0; e == GW_OK && set->file[i]; i++) {
        char path[PATH_MAX];
        bool tests = !set->file[i + 1];
        if (!cifar_find(path, dir, set->file[i]))
            e = gw_fail(GW_ERR_INPUT, "data folder '%s' lacks %s (it may also end in .gz)", dir,
                        set->file[i]);
        GW_THEN(e, cifar_read_file(tests ? &raw->test : &raw->train, &room[tests], set, path));
    }
    for (int i = 0; i < 2 && outline; i++) {
        gw_raw_part *part = i ? &raw->test : &raw->train;
        free(part->images);
        free(part->labels);
        part->images = NULL;
        part->labels = NULL;
    }
    if (e != GW_OK)
        gw_raw_free(raw);
    return e;
}
