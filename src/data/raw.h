/** A whole data set in one process's memory: made by a reader or a generator, distributed to the
 *  ranks by data.c. */
#ifndef GW_DATA_RAW_H
#define GW_DATA_RAW_H

#include "base/args.h"
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

/* ---- its makers ----
 *
 * Files are untrusted: every size is checked against the file's own size and the other files'
 * headers before memory is allocated, and data is read to its end so that gzip's CRC-32 is checked.
 */

/** True if `dir` holds all four files of MNIST's format. */
bool gw_idx_present(const char *dir);

/** Read the folder: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
 *  t10k-labels-idx1-ubyte (labels: or -short, -int, numbers of 2 and 4 bytes), also with a dot
 *  before idx and with .gz at the end; if several exist, the first in this order: plain, plain with
 *  the dot, .gz, .gz with the dot. Fills train, test, rows, cols, classes (largest training label
 *  + 1) and source; free with gw_raw_free. `outline`: headers and labels only, images stay NULL.
 *  Any thread.
 *  GW_ERR_INPUT: a folder or file that cannot be used; *raw is then empty. */
gw_err gw_idx_read(gw_raw *raw, const char *dir, bool outline);

/** True if `dir` holds the files of CIFAR-10 or CIFAR-100. */
bool gw_cifar_present(const char *dir);

/** Read them: data_batch_1.bin to data_batch_5.bin and test_batch.bin, or train.bin and test.bin,
 *  whose fine labels are taken; each may also end in .gz. raw->rows are those of all planes; free
 *  with gw_raw_free. Any thread. `outline`: images and labels stay NULL. GW_ERR_INPUT: a file that
 *  cannot be used. */
gw_err gw_cifar_read(gw_raw *raw, const char *dir, bool outline);

/** Read the file, gzipped or not. Its last tenth is the test set. Each part is cut into windows of
 *  `context` characters: 1 x context tokens, whose labels are the characters one further. A token
 *  is a character's place among all those of the file, in ascending order, or, with `bytes`, a
 *  byte's value. raw->source is `path`; free with gw_raw_free. Any thread. `outline`: images and
 *  labels stay NULL.
 *  GW_ERR_USAGE: a context below 1. GW_ERR_INPUT: a file that cannot be read, or is too short. */
gw_err gw_text_set_read(gw_raw *raw, const char *path, bool bytes, int context, bool outline);

/** The options of "synthetic[:name=value,...]". */
extern const gw_opt gw_synthetic_opts[];

/** Generate the set that `text` ("synthetic[:name=value,...]") describes: classes of equal size in
 *  random order, 1 x features. The bytes are a pure function of it, whatever the number of
 *  threads. raw->source is the spec with every option; free with gw_raw_free. Any
 *  thread. `outline`: without samples, images and labels stay NULL. GW_ERR_USAGE: options that are
 *  out of range or do not fit together. */
gw_err gw_synthetic_make(gw_raw *raw, const char *text, bool outline);

#endif
