/** Loss and accuracy of a model on a data set, each rank on its part. */
#ifndef GW_TRAIN_EVALUATE_H
#define GW_TRAIN_EVALUATE_H

#include "data/data.h"
#include "nn/metrics.h"
#include "nn/model.h"

typedef struct gw_evaluation {
    double loss, accuracy; /* means over the whole set; NaN for an empty one */
} gw_evaluation;

/** Collective. `chunk`: samples a pass, at most the model's max_batch. `confusion` (may be NULL):
 *  (classes, classes), overwritten with the counts over all ranks. The set must be readable by
 *  every rank in full (test and validation sets are). */
gw_err gw_evaluate(gw_model *model, const gw_dataset *set, int chunk, MPI_Comm comm,
                   int64_t *confusion, gw_evaluation *out);

#endif
