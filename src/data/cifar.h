/** CIFAR's binary format (Krizhevsky, "Learning multiple layers of features from tiny images",
 *  2009): colour images of 32 x 32, planes of red, green and blue one behind another. */
#ifndef GW_DATA_CIFAR_H
#define GW_DATA_CIFAR_H

#include "data/raw.h"

#include <stdbool.h>

/** True if `dir` holds the files of CIFAR-10 or CIFAR-100. */
bool gw_cifar_present(const char *dir);

/** Read them: data_batch_1.bin to data_batch_5.bin and test_batch.bin, or train.bin and test.bin,
 *  whose fine labels are taken; each may also end in .gz. raw->rows are those of all planes; free
 *  with gw_raw_free. Any thread. `outline`: images and labels stay NULL. GW_ERR_INPUT: a file that
 *  cannot be used. */
gw_err gw_cifar_read(gw_raw *raw, const char *dir, bool outline);

#endif
