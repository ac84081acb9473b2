/** What one step has to compute, beside what it took: the figures of a roofline chart (S. Williams,
 *  A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
 *  architectures", CACM 2009). Operations and compulsory bytes follow from what the rank holds of
 *  the model. */
#ifndef GW_STEP_WORK_H
#define GW_STEP_WORK_H

#include "step/split.h"

#include <jansson.h>

/** Of one rank's step. */
typedef struct gw_work {
    int n_products;
    gw_product product[GW_PRODUCTS]; /* of a part of the rows: see gw_load */
    double flops, bytes;             /* of all products, in all parts */
    double pointwise_bytes; /* biases and activations, forward and backward, without the loss; NaN:
                               not known of this model */
    double update_bytes;    /* of all parameters once */
} gw_work;

void gw_work_count(gw_work *w, const gw_load *load, int vectors);

typedef struct gw_work_run {
    gw_load load;          /* of a step of the most rows */
    int vectors;           /* of the optimizer's state; above, too */
    double update_flops;   /* of its products: gw_optimizer_flops */
    const gw_split *split; /* where the ceilings and the step's working set are */
    double compute_s;      /* forward and backward pass of such a step; NaN: not measured */
} gw_work_run;

/** For run.json; null: nothing is computed. */
json_t *gw_work_json(const gw_work_run *run);

#endif
