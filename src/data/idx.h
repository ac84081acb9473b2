/** Folders in MNIST's format: four IDX files (LeCun, Cortes, Burges: "The MNIST database", 1998),
 *  gzipped or not, with any labels from 0 on. Files are untrusted: every size is checked against
 *  the file's own size and the other files' headers before memory is allocated, and data is read to
 *  its end so that gzip's CRC-32 is checked. */
#ifndef GW_DATA_IDX_H
#define GW_DATA_IDX_H

#include "data/raw.h"

#include <stdbool.h>

/** True if `dir` holds all four files. */
bool gw_idx_present(const char *dir);

/** Read the folder: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
 *  t10k-labels-idx1-ubyte (labels: or -short, -int, numbers of 2 and 4 bytes), also with a dot
 *  before idx and with .gz at the end; if several exist, the first in this order: plain, plain with
 *  the dot, .gz, .gz with the dot. Fills train, test, rows, cols, classes (largest training label
 *  + 1) and source; free with gw_raw_free. `outline`: headers and labels only, images stay NULL.
 *  Any thread.
 *  GW_ERR_INPUT: a folder or file that cannot be used; *raw is then empty. */
gw_err gw_idx_read(gw_raw *raw, const char *dir, bool outline);

#endif
