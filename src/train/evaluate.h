/** Loss and accuracy of a model on a data set, each rank on its part. */
#ifndef GW_TRAIN_EVALUATE_H
#define GW_TRAIN_EVALUATE_H

#include "data/data.h"
#include "mesh/pipeline.h"
#include "nn/metrics.h"

/** An evaluation that takes longer than this is given up when a signal asks the run to end: batch
 *  systems wait about 30 s before they kill. Ranks that hold a model together never give it up:
 *  they would have to agree on it first. */
#define GW_EVALUATE_GRACE_S 2.0

typedef struct gw_evaluation {
    double loss, accuracy; /* means over the whole set; NaN for an empty one, or with `signal` */
    int signal;            /* that made a rank give up; 0: none */
    double seconds;   /* of the slowest rank, samples fetched and waiting for stages included */
    double forward_s; /* likewise, of that the forward passes; NaN: ranks hold the model together */
} gw_evaluation;

/** Who evaluates, and how. */
typedef struct gw_evaluator {
    gw_model *model;
    gw_pipeline *pipeline; /* the walk over it */
    int chunk;       /* samples a pass: at most the model's max_batch, or the pipeline's rows */
    int part, parts; /* which part of the set the ranks of this pipeline, or this rank, take */
    MPI_Comm comm;   /* all ranks */
} gw_evaluator;

/** Collective. `confusion` (may be NULL): (classes, classes), overwritten with the counts over all
 *  ranks. The set must be readable by every rank in full (test and validation sets are). */
gw_err gw_evaluate(const gw_evaluator *by, const gw_dataset *set, int64_t *confusion,
                   gw_evaluation *out);

#endif
