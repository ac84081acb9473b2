/** How the learning rate goes over a run: a climb over the first `warmup` steps, then a factor that
 *  a schedule of the registry gives each step. It is a function of the step's number alone, so a
 *  run that resumes has the same rates. */
#ifndef GW_OPTIM_LR_H
#define GW_OPTIM_LR_H

#include "base/registry.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct gw_lr_ops {
    gw_entry head;
    /** Of step `at` = 0, 1, .. of `steps` after the climb, in [0, 1]. */
    double (*factor)(const gw_args *args, int64_t at, int64_t steps);
    bool ends; /* it depends on `steps` */
} gw_lr_ops;

/** For `gradwire list`; not to be extended by plugins. */
extern const gw_registry gw_lr_schedules;

typedef struct gw_lr gw_lr;

/** By `spec` (NULL: constant), and `command`, whose --lr-warmup, if the user gave it, is the
 *  schedule's warmup; NULL: none. GW_ERR_USAGE: as the registry and its options have it, or a
 *  warm-up given twice. Close takes NULL. */
gw_err gw_lr_open(gw_lr **out, const gw_spec *spec, const gw_args *command);
void gw_lr_close(gw_lr *s);

/** Where it ends, in a run of `steps` steps; 0: it has no end, or is NULL. */
int64_t gw_lr_end(const gw_lr *s, int64_t steps);

/** Its options. */
const gw_args *gw_lr_args(const gw_lr *s);

/** Return the step from which on all rates of a run of `steps` are 0; 0: the last one is not. */
int64_t gw_lr_zero(const gw_lr *s, int64_t steps);

/** The rate of step 1, 2, .. of a run of `steps`: over the climb from `from` to `full` (P. Goyal et
 *  al., "Accurate, large minibatch SGD", 2017), then a part of `full`. */
double gw_lr_rate(const gw_lr *s, double from, double full, int64_t step, int64_t steps);

#endif
