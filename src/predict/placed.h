/** A model, its optimizer and its batch as options of a mesh place them on the ranks: what a run
 *  with these options has, without an exchange of gradients. */
#ifndef GW_PREDICT_PLACED_H
#define GW_PREDICT_PLACED_H

#include "mesh/pipeline.h"
#include "optim/optimizer.h"
#include "predict/profile.h"
#include "run/session.h"

/** A batch of random samples, the same for all that ask: samples `rows` of it. */
gw_err gw_batch_open(gw_dataset *out, const gw_model_spec *spec, gw_span rows, uint64_t seed);
void gw_batch_close(gw_dataset *s);

/** What all placed models of a command have in common. */
typedef struct gw_place_setup {
    MPI_Comm comm;
    const gw_train_config *c;
    gw_model_spec spec;
    const gw_dataset *set; /* the whole batch, on each rank, out of which a step gathers; NULL: a
                              rank's samples lie in its model's input */
} gw_place_setup;

typedef struct gw_placed {
    MPI_Comm comm;
    gw_train_config c; /* with `parallel` as it was opened */
    gw_mesh mesh;
    gw_pipeline *pipeline; /* NULL: the model is whole, and takes its batch at once */
    gw_model *model;
    gw_optimizer *optimizer;
    const gw_dataset *set; /* the setup's */
    gw_span rows;          /* of this replica, in the batch; none on a server */
    int global;            /* rows of the batch */
    uint32_t *idx;         /* of these rows in `set` */
    gw_label *labels;      /* theirs, or room for them */
    bool meshed;           /* `mesh` is to be closed */
} gw_placed;

/** Collective: open all of it; p is zeroed, and stays where it is. `o` NULL: the whole model on
 *  each rank that serves no others. `session` says what options go together. */
gw_err gw_placed_open(gw_placed *p, const gw_place_setup *s, const gw_parallel *o,
                      const gw_session *session);
/** Collective where there is a mesh; also after an error, and on a zeroed one. */
void gw_placed_close(gw_placed *p);

/** The steps of an open one, for gw_layers_time. */
gw_layer_job gw_placed_layers(const gw_placed *p);

#endif
