/** How a model may lie on the ranks (mpi/mesh.h), and what a step takes then: as the cost model of
 *  codecs does (select/forecast.h), out of measured parts. Pure arithmetic; select/layout_survey.h
 *  measures the parts.
 *
 *  The stages of a replica walk along the timetable in the simulator of comm/timetable.h. An action
 *  takes its computation, measured on what the rank holds with the rows of a microbatch, and the
 *  sums over tensor ranks; a hop takes its message. Behind its last action a stage exchanges
 *  gradients and updates its parameters. */
#ifndef GW_SELECT_LAYOUT_H
#define GW_SELECT_LAYOUT_H

#include "comm/timetable.h"
#include "mpi/mesh.h"
#include "nn/shard.h"

enum { GW_LAYOUTS = 2048, GW_LAYOUT_MICROS = 32, GW_LAYOUT_TEXT = 96 };

typedef struct gw_layout {
    gw_mesh_shape shape; /* data known */
    gw_tensor_split split;
    const gw_spec *timetable; /* NULL: the default one */
    int micro;
} gw_layout;

/** What layouts are to be listed: each mesh of `ranks` ranks, or `shape` alone; with each
 *  timetable and number of microbatches. */
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
gw_err gw_layouts_list(const gw_layout_space *s, gw_layout *out, int *n);

/** Ranks that hold neither layers nor neurons apart, and take the batch at once. */
bool gw_layout_plain(const gw_layout *l);

/** "pipe=2,data=2", as --mesh takes it: the outermost first, what is 1 left out. */
void gw_layout_mesh(const gw_layout *l, char out[GW_LAYOUT_TEXT]);

/** Of a stage: seconds behind its last action of a step. */
typedef struct gw_layout_stage {
    double exchange_s; /* of gradients, as far as the backward pass does not hide it */
    double update_s;
} gw_layout_stage;

/** What a layout's step is made of, on the slowest rank that holds it. Plain data. */
typedef struct gw_layout_price {
    int chunks;                     /* of a stage */
    bool cuts;                      /* backward passes leave the weights' gradients for later */
    gw_run_cost run[GW_MAX_LAYERS]; /* by chunk * stages + stage */
    gw_layout_stage stage[GW_MAX_LAYERS];
    double activation_bytes; /* memory, on the rank that takes most of it */
    double sent[GW_DIMS];    /* bytes of a step, all ranks together */
    bool link;               /* sums over tensor ranks cross one, which works beside them */
} gw_layout_price;

/** A step: the sum of the four parts, each a mean over the stages. */
typedef struct gw_layout_forecast {
    double step_s, compute_s, bubble_s, tensor_s, exchange_s;
} gw_layout_forecast;

/** Over a link, the sum of a delta travels while the weights' gradient of the same microbatch is
 *  computed; within a node it is the ranks' own copying. `t` must be that of the layout: its
 *  timetable, stages and microbatches. GW_ERR_NOMEM. */
gw_err gw_layout_predict(const gw_layout_price *p, const gw_timetable *t, gw_layout_forecast *out);

#endif
