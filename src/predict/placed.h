/** A model, its optimizer and its batch as a layout places them on the ranks: what a run with these
 *  options has, without an exchange of gradients. */
#ifndef GW_PREDICT_PLACED_H
#define GW_PREDICT_PLACED_H

#include "machine/products.h"
#include "mesh/pipeline.h"
#include "optim/optimizer.h"
#include "predict/layout.h"
#include "predict/profile.h"
#include "run/session.h"

/** What all layouts of a command have in common. */
typedef struct gw_place_setup {
    MPI_Comm comm;
    const gw_train_config *c;
    const gw_model_spec *spec;
    const gw_dataset *set; /* the whole batch, on each rank */
    bool polls;            /* the session does */
} gw_place_setup;

typedef struct gw_placed {
    gw_train_config c; /* with the layout's `parallel` */
    gw_mesh mesh;
    gw_pipeline *pipeline; /* NULL: the model is whole, and takes its batch at once */
    gw_model *model;
    gw_optimizer *optimizer;
    gw_products products;
    gw_span rows; /* of this replica, in the batch */
    bool meshed;  /* `mesh` is to be closed */
} gw_placed;

/** The options of a layout. */
gw_parallel gw_layout_options(const gw_layout *l);

/** Collective: open all of it; p is zeroed, and stays where it is.
 *  gw_gemm computes by p->products from now on. `session` says what options go together. */
gw_err gw_placed_open(gw_placed *p, const gw_place_setup *s, const gw_layout *l,
                      const gw_session *session);
/** Collective; also after an error, and on a zeroed one. */
void gw_placed_close(gw_placed *p);

/** What this rank computes in a step. */
gw_load gw_placed_load(const gw_placed *p);

/** Time steps, as gw_layers_time does, which the setup's ranks compute at once, as they would in a
 *  run. Collective over them. */
gw_err gw_placed_time(gw_placed *p, const gw_place_setup *s, gw_layer_times *out);

#endif
