/** What a step takes as each layout places the model: played (play/play.h) with parts that were
 *  measured on the actual ranks, all at once. The parts are what a rank computes of each layer, in
 *  the microbatches and on the parts of tensors that it has; the links between the ranks; and what
 *  adding floats takes. */
#ifndef GW_PREDICT_LAYOUT_PLAY_H
#define GW_PREDICT_LAYOUT_PLAY_H

#include "play/play.h"
#include "predict/placed.h"

/** A step: the sum of the four parts, each a mean over the ranks and the steps played. */
typedef struct gw_layout_forecast {
    const gw_layout *of;
    double measured_s; /* the caller's; NaN: not measured */
    double step_s, compute_s;
    double bubble_s, tensor_s, exchange_s; /* for hops; what tensor ranks sum; gradients */
    double sent[GW_DIMS];                  /* bytes of a step, all ranks together */
    double activation_bytes;               /* memory, on the rank that takes most of it */
} gw_layout_forecast;

typedef struct gw_layout_plays {
    const gw_place_setup *place;
    const gw_session *session;
    bool oversubscribed;  /* the node runs more threads than cores */
    gw_sim_play play;     /* filled: what all layouts have in common; its world was measured */
    gw_codec_price price; /* filled: of adding floats */
    gw_network *network;  /* filled: of play.world */
} gw_layout_plays;

/** Before MPI starts: GW_ERR_UNSUPPORTED, with the reason: the session's strategy or algorithm
 *  cannot be played. gw_layouts_release, also after an error. */
gw_err gw_layouts_prepare(gw_layout_plays *s);

/** Collective: out[i] of layout[i], which outlives it; the same on all ranks. Errors of
 *  gw_placed_open, gw_predict_links and gw_sim_play_run. */
gw_err gw_layouts_predict(gw_layout_plays *s, const gw_layout *layout, int n,
                          gw_layout_forecast *out);
void gw_layouts_release(gw_layout_plays *s);

#endif
