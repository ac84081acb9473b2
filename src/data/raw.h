/** A whole data set in one process's memory: made by a reader or a generator, distributed to the
 *  ranks by data.c. */
#ifndef GW_DATA_RAW_H
#define GW_DATA_RAW_H

#include "base/err.h"
#include "base/label.h"

#include <stdbool.h>

enum {
    GW_MAX_SIDE = 4096,      /* rows and columns of a stored image */
    GW_MAX_PIXELS = 1 << 24, /* inputs of a sample after resizing */
    GW_MAX_SAMPLES = 1 << 28
};

typedef struct gw_raw_part {
    uint32_t n;
    uint8_t *images;  /* (n, rows*cols) */
    gw_label *labels; /* (n, targets) */
} gw_raw_part;

typedef struct gw_raw {
    gw_raw_part train, validation, test;
    int rows, cols, classes; /* rows: of all planes of a colour image, one behind another */
    int channels;            /* planes */
    int targets;             /* labels of a sample: 1, or of a text one a position */
    bool tokens;             /* bytes are numbers of words, not shades */
    char source[256];        /* folder, or the generator with all its options */
} gw_raw;

/** Free the parts and clear *raw. */
void gw_raw_free(gw_raw *raw);

/** Before `bytes` of a data set are read or made. GW_ERR_INPUT: they are more than this machine's
 *  memory, or than what this group of processes may have of it. `name`: what the message calls
 *  the set. */
gw_err gw_raw_fits(const char *name, double bytes);

/** "crc32:xxxxxxxx" of training images, training labels, test images, test labels, in that order.
 *  Take it before the split. */
void gw_raw_hash(const gw_raw *raw, char hash[32]);

/** Keep the first `train` training and `test` test samples; 0: all. `name`: what messages call the
 *  set. GW_ERR_USAGE: there are fewer. */
gw_err gw_raw_limit(gw_raw *raw, int64_t train, int64_t test, const char *name);

/** *out: the floor(fraction * n) of n training samples that a split holds out. GW_ERR_USAGE: a
 *  part would be empty. */
gw_err gw_raw_apart(uint32_t n, double fraction, uint32_t *out);

/** Move floor(fraction * train.n) training samples, chosen by `seed`, to raw->validation; both
 *  parts keep the order of the file. GW_ERR_USAGE: a part would be empty. */
gw_err gw_raw_split(gw_raw *raw, double fraction, uint64_t seed);

#endif
