/** A row of epochs.csv. */
#ifndef GW_FOLDER_EPOCHS_H
#define GW_FOLDER_EPOCHS_H

#include "base/table.h"
#include "nn/metrics.h"

/** What is known at the end of an epoch: a row of epochs.csv. */
typedef struct gw_epoch_row {
    int epoch;
    int64_t step;
    double train_loss;
    double validation_loss, validation_accuracy; /* NaN: no validation set */
    double test_loss, test_accuracy;
    double elapsed_s, train_s; /* since the first step; of that inside batches */
    double test_s;             /* evaluating the test set took; the slowest rank's */
    uint64_t wire_bytes;       /* over all ranks and steps; GW_UNCOUNTED: not measured */
    uint32_t replica_hash;
    /* No columns: */
    double test_forward_s;  /* of test_s; NaN: not told apart */
    gw_class_metrics macro; /* of the test set, means over its classes; NaN: not tested */
} gw_epoch_row;

/** epochs.csv: rows are gw_epoch_row. */
extern const gw_table gw_epochs;

#endif
