/** How a model may lie on the ranks (mpi/mesh.h): what there is to choose among, and what a step
 *  takes then: played (play/play.h) with parts that were measured on the actual ranks, all at once.
 *  The parts are what a rank computes of each layer, in the microbatches and on the parts of
 *  tensors that it has; the links between the ranks; and what adding floats takes. */
#ifndef GW_PREDICT_LAYOUT_H
#define GW_PREDICT_LAYOUT_H

#include "play/play.h"
#include "predict/placed.h"

enum { GW_LAYOUTS = 2048, GW_LAYOUT_MICROS = 32, GW_LAYOUT_TEXT = 96 };

/** What layouts are to be listed: options for each mesh of `ranks` ranks, or of `shape` alone, with
 *  each timetable and number of microbatches. */
typedef struct gw_layout_space {
    const gw_model_spec *spec;
    int ranks, batch;           /* global */
    const gw_mesh_shape *shape; /* data may be 0: what is left; NULL: all */
    const gw_spec *timetables;  /* the first of a list */
    int micros[GW_LAYOUT_MICROS], n_micros;
    bool whole; /* tensors stay whole */
} gw_layout_space;

/** out[0..*n), at most GW_LAYOUTS: those that the ranks, the layers, their neurons, the batch and
 *  the timetable allow. With a single stage microbatches gain nothing, so it takes only the fewest,
 *  and no timetable. Errors are those of a timetable that does not exist. */
gw_err gw_layouts_list(const gw_layout_space *s, gw_parallel *out, int *n);

/** Ranks that hold neither layers nor neurons apart, and take the batch at once. */
bool gw_layout_plain(const gw_parallel *l);

/** "pipe=2,data=2", as --mesh takes it: the outermost first, what is 1 left out. */
void gw_layout_mesh(const gw_parallel *l, char out[GW_LAYOUT_TEXT]);

/** A step: the sum of the four parts, each a mean over the ranks and the steps played. */
typedef struct gw_layout_forecast {
    const gw_parallel *of;
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
} gw_layout_plays;

/** Before MPI starts: GW_ERR_UNSUPPORTED, with the reason: the strategy or algorithm of `comm`
 *  cannot be played. gw_sim_play_close s->play, also after an error. */
gw_err gw_layouts_prepare(gw_layout_plays *s, const gw_spec *comm);

/** Collective: out[i] of layout[i], which outlives it; the same on all ranks. Errors of
 *  gw_placed_open, gw_predict_links and gw_sim_play_run. */
gw_err gw_layouts_predict(gw_layout_plays *s, const gw_parallel *layout, int n,
                          gw_layout_forecast *out);

#endif
