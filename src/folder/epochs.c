#include "folder/epochs.h"

static const gw_column columns[] = {
    GW_COLUMN(gw_epoch_row, "epoch", INT, epoch),
    GW_COLUMN(gw_epoch_row, "step", I64, step),
    GW_COLUMN_REAL(gw_epoch_row, "train_loss", train_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "validation_loss", validation_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "validation_accuracy", validation_accuracy, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_loss", test_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_accuracy", test_accuracy, 9),
    GW_COLUMN_REAL(gw_epoch_row, "elapsed_s", elapsed_s, 9),
    GW_COLUMN_REAL(gw_epoch_row, "train_s", train_s, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_s", test_s, 9),
    GW_COLUMN(gw_epoch_row, "wire_bytes", U64, wire_bytes),
    GW_COLUMN(gw_epoch_row, "replica_hash", HASH, replica_hash),
};
const gw_table gw_epochs = GW_TABLE("epochs.csv", gw_epoch_row, columns);
