#include "data/cifar.h"

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

static const struct set *cifar_set(const char *dir) {
    char path[PATH_MAX];
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        if (cifar_find(path, dir, sets[s].file[0]))
            return &sets[s];
    return NULL;
}

bool gw_cifar_present(const char *dir) {
    return cifar_set(dir) != NULL;
}

static gw_err cifar_grow(gw_raw_part *part, uint32_t *room) {
    uint32_t more = *room ? 2 * *room : 1 << 10;
    uint8_t *images = realloc(part->images, (size_t)more * PIXELS);
    part->images = images ? images : part->images;
    gw_label *labels = images ? realloc(part->labels, more * sizeof *labels) : NULL;
    part->labels = labels ? labels : part->labels;
    *room = more;
    return labels ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory: %u images", more);
}

/* The records of one file, behind those that are there. */
static gw_err cifar_read_file(gw_raw_part *part, uint32_t *room, const struct set *set,
                              const char *path) {
    gw_stream *stream = NULL;
    uint8_t record[2 + PIXELS];
    size_t want = (size_t)set->labels + PIXELS, got = want;
    gw_err e = gw_stream_open(&stream, path);
    while (e == GW_OK) {
        GW_THEN(e, gw_stream_read(stream, record, want, &got));
        if (e != GW_OK || got < want)
            break;
        uint8_t label = record[set->labels - 1];
        if (label >= set->classes)
            e = gw_fail(GW_ERR_INPUT, "%s: label %d of image %u is out of range: expected 0 to %d",
                        path, label, part->n, set->classes - 1);
        if (e == GW_OK && part->n == *room)
            e = cifar_grow(part, room);
        if (e != GW_OK)
            break;
        part->labels[part->n] = label;
        memcpy(part->images + (size_t)part->n++ * PIXELS, record + set->labels, PIXELS);
    }
    gw_stream_close(stream);
    if (e == GW_OK && got > 0)
        return gw_fail(GW_ERR_INPUT,
                       "%s: truncated: ends within a record of %zu bytes: fetch it again", path,
                       want);
    return e;
}

static gw_err cifar_read_all(gw_raw *raw, const struct set *set, const char *dir) {
    char path[PATH_MAX];
    uint32_t room[2] = {0};
    for (int i = 0; set->file[i]; i++) {
        bool tests = !set->file[i + 1];
        gw_raw_part *part = tests ? &raw->test : &raw->train;
        if (!cifar_find(path, dir, set->file[i]))
            return gw_fail(GW_ERR_INPUT, "data folder '%s' lacks %s (it may also end in .gz)", dir,
                           set->file[i]);
        GW_TRY(cifar_read_file(part, &room[tests], set, path));
        if (part->n == 0)
            return gw_fail(GW_ERR_INPUT, "%s: holds no image", path);
    }
    return GW_OK;
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
    gw_err e = cifar_read_all(raw, set, dir);
    for (int i = 0; i < 2 && (e != GW_OK || outline); i++) {
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
