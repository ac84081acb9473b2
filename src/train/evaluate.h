/** Loss and accuracy of a model on a data set, each rank on its part. */
#ifndef GW_TRAIN_EVALUATE_H
#define GW_TRAIN_EVALUATE_H

#include "data/data.h"
#include "nn/metrics.h"
#include "nn/model.h"

/** An evaluation that takes longer than this is given up when a signal asks the run to end: batch
 *  systems wait about 30 s before they kill. */
#define GW_EVALUATE_GRACE_S 2.0

typedef struct gw_evaluation {
    double loss, accuracy; /* means over the whole set; NaN for an empty one, or with `signal` */
    int signal;            /* that made a rank give up; 0: none */
} gw_evaluation;

/** Collective. `chunk`: samples a pass, at most the model's max_batch. `confusion` (may be NULL):
 *  (classes, classes), overwritten with the counts over all ranks. The set must be readable by
 *  every rank in full (test and validation sets are). */
gw_err gw_evaluate(gw_model *model, const gw_dataset *set, int chunk, MPI_Comm comm,
                   int64_t *confusion, gw_evaluation *out);

#endif
