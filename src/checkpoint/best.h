/** The best epoch of a run so far, by its validation loss, and with --save-model best its model,
 *  which rank 0 keeps beside the one in training. Both are in every checkpoint. */
#ifndef GW_CHECKPOINT_BEST_H
#define GW_CHECKPOINT_BEST_H

#include "base/err.h"
#include "base/spec.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define GW_BEST_FILE "best.gw" /* in a checkpoint: a model file */
#define GW_BEST_FACT "best"    /* in its facts */

/** Figures are the same on all ranks. */
typedef struct gw_best {
    int epoch; /* 1..; 0: no epoch has a validation loss yet */
    double validation_loss, validation_accuracy, test_accuracy;
    float *params; /* of the whole model, n of them; NULL: not kept */
    size_t n;
} gw_best;

/** An epoch has ended with these figures; `params`: of the whole model (read where b->params is
 *  kept). True if it is the best now: its loss is less than that of all before, so of equal ones
 *  the earliest stays. */
bool gw_best_offer(gw_best *b, const gw_best *epoch, const float *params);

/** The figures; null: there is no best epoch. New. */
json_t *gw_best_json(const gw_best *b);

/** The figures of a checkpoint's facts into *b; epoch 0 where it has none. GW_ERR_INPUT: they
 *  cannot be, `from` names the checkpoint. */
gw_err gw_best_read(gw_best *b, const json_t *facts, const char *from);

/** Its model, out of the checkpoint in folder `from`, into b->params; `plugin` as in gw_model_load.
 *  GW_ERR_INPUT: damaged, or another model's. */
gw_err gw_best_load(gw_best *b, const char *from, const gw_spec *plugin);

#endif
