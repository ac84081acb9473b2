/** How a model may lie on the ranks (mpi/mesh.h): what there is to choose among. Pure arithmetic;
 *  predict/layout_play.h predicts what a step takes then. */
#ifndef GW_PREDICT_LAYOUT_H
#define GW_PREDICT_LAYOUT_H

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

#endif
