/** What each layer of a step takes on these ranks, without any exchange: as a profile
 *  (play/profile.h), which can be replayed, simulated and predicted from. */
#ifndef GW_PREDICT_PROFILE_H
#define GW_PREDICT_PROFILE_H

#include "mesh/pipeline.h"
#include "optim/optimizer.h"
#include "play/profile.h"

typedef struct gw_layer_job {
    gw_model *model;   /* its gradients are overwritten */
    gw_pipeline *walk; /* over what this rank holds of a model; NULL: it holds all */
    const gw_optimizer *optimizer;
    gw_pipeline_job pass; /* the samples of each step; its products go in pieces if a run's do */
    /** Before each step, not timed: choose its samples. NULL: all steps take the same. */
    void (*next)(void *ctx, gw_pipeline_job *pass);
    void *ctx;
    MPI_Comm comm;
    int warmup, least, most; /* steps */
    double enough_s;         /* of timed steps: no more than `least` are needed then */
    bool shortest;           /* times are typical of undisturbed steps, not medians */
} gw_layer_job;

/** Medians over the steps, or gw_stats_typical of them, on the slowest rank that holds the layer or
 *  a part of it. Layers are numbered as in the whole model. */
typedef struct gw_layer_times {
    int steps;
    double data_s, forward_s[GW_MAX_LAYERS]; /* the loss is a part of the last layer's */
    double input_s[GW_MAX_LAYERS], weights_s[GW_MAX_LAYERS];
    double moved_s[GW_MAX_LAYERS]; /* the update of its parameters */
    double update_s;               /* of all that a rank holds */
    double other_s;                /* of a step, in none of these */
    double step_s;                 /* of a whole step */
    double spread[2]; /* the shortest step and the 95th percentile, as multiples of that */
    double loss;      /* of the last step, summed over this rank's samples */
} gw_layer_times;

/** Seconds of a step on the slowest rank: all parts together. */
double gw_layers_sum(const gw_layer_times *t);

/** Describe the parts by phase, for JSON; the caller's. */
json_t *gw_layers_json(const gw_layer_times *t);

static inline double gw_layer_backward_s(const gw_layer_times *t, int l) {
    return t->input_s[l] + t->weights_s[l];
}

/** Time steps at rate 0, without messages, which leave parameters and optimizer as they are; steps
 *  begin together, as an exchange would make them. Starts the ledger anew. Collective. */
gw_err gw_layers_time(const gw_layer_job *job, gw_layer_times *out);

/** What the profile says beside the times. */
typedef struct gw_layers_about {
    const gw_model_spec *spec;
    const float *grads;        /* of a step, for deviations; NULL: these are 1 */
    const char *name, *layers; /* of the model; "--layers" of a perceptron, else NULL */
    int threads, batch;
    bool columns; /* tensor ranks cut all layers by columns, else by columns and rows in turn */
} gw_layers_about;

/** The profile of all layers, whose document bench layers writes; gw_step_profile_free it. Where
 *  ranks hold parts of a model, times are those of what a rank holds. */
gw_err gw_layers_profile(const gw_layers_about *of, const gw_layer_times *t, gw_step_profile *out);

#endif
