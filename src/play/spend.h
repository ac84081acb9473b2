/** Who executes a step under virtual time: kernels compute, and the clock of their rank goes on by
 *  what they take on a free core. */
#ifndef GW_PLAY_SPEND_H
#define GW_PLAY_SPEND_H

#include "play/profile.h"
#include "step/step.h"

struct gw_fabric;

/** What the kernels of a step take; plain data. */
typedef struct gw_step_times {
    double of[GW_COMPUTED_UPDATE][GW_MAX_LAYERS]; /* seconds per sample, by layer held here */
    double update_s;                              /* per parameter */
} gw_step_times;

typedef struct gw_spender {
    gw_exec exec; /* of this rank; its ctx is the spender */
    const struct gw_fabric *fabric;
    gw_step_times times;
    double speed; /* times as fast as they say */
    int pieces;   /* pieces that the present kernel has computed, without the last */
    void (*poll)(void *of);
    void *of;
} gw_spender;

/** Make `s->exec`. The other members but poll and of are set. */
void gw_spender_open(gw_spender *s);

/** Return the times of what this rank holds of the model, by a profile that has a group for each of
 *  its layers with parameters. GW_ERR_INPUT: it is another model's. */
gw_err gw_profile_times(gw_step_times *out, const gw_step_profile *of, const gw_model *model);

#endif
