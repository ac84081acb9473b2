/** What a pipeline is made of, for its files: what a rank holds (pipeline_divide.c), lanes and what
 *  goes over them (pipeline_open.c), a step (pipeline.c) and its kernels, which the walk calls
 *  (pipeline_kernels.c), evaluation and collection (pipeline_model.c). Nobody else includes
 *  this. */
#ifndef GW_MESH_PIPELINE_PARTS_H
#define GW_MESH_PIPELINE_PARTS_H

#include "comm/schedule/collective.h"
#include "mesh/pipeline.h"
#include "mesh/walk.h"

/** What tensor ranks exchange: outputs, with the codec of activations; deltas, with theirs; the
 *  halves of the loss, exact. The first two are hops', too. */
typedef enum gw_pipeline_way {
    GW_PIPELINE_ACTIVATIONS = GW_HOP_ACTIVATION,
    GW_PIPELINE_DELTAS = GW_HOP_DELTA,
    GW_PIPELINE_EXACT,
    GW_PIPELINE_WAYS
} gw_pipeline_way;

_Static_assert(GW_PIPELINE_CODECS == 2 * GW_PIPELINE_WAYS, "each way has two codecs");

enum {
    GW_PIPELINE_VERBS = GW_JOIN_REDUCE_SCATTER + 1,
    GW_PIPELINE_TEST_MICROS = 2 /* calls of gw_pipeline_test under way: one travels meanwhile */
};

/** The steps of a run have two sizes, its last batches being shorter; an evaluation has its own. */
typedef enum gw_pipeline_size {
    GW_PIPELINE_FULL,
    GW_PIPELINE_LAST,
    GW_PIPELINE_TEST,
    GW_PIPELINE_SIZES
} gw_pipeline_size;

/** Where this rank is among the stages. */
typedef struct gw_pipeline_place {
    int stages, stage, chunks; /* chunks: of this stage */
    int sizes[GW_MAX_LAYERS];  /* layers of each run */
} gw_pipeline_place;

/** A step under way. */
typedef struct gw_pipeline_now {
    int local;    /* samples */
    bool testing; /* an evaluation: no codecs, nothing is kept */
    int tested;   /* calls of gw_pipeline_test so far */
    gw_exec exec;
    const gw_pipeline_job *job;
    double loss;  /* so far */
    float *grads; /* NULL: no backward pass has begun */
    bool add;     /* to what lies there */
    bool told;    /* the loss was */
} gw_pipeline_now;

struct gw_pipeline {
    const gw_parallel *options;
    const char *cut; /* instead of one that would be measured; NULL: none */
    gw_codec hop_codec[GW_PIPELINE_WAYS], join_codec[GW_PIPELINE_WAYS];
    gw_algo algo[GW_PIPELINE_WAYS]; /* of joins */
    gw_codings codings[GW_PIPELINE_EXACT];
    char note[256];
    /* once it is divided: */
    const gw_mesh *mesh; /* NULL: the model is whole */
    gw_timetable *timetable;
    gw_pipeline_place at;
    gw_shard shard;
    gw_model_room room;
    gw_pipeline_rows rows;
    /* once it is open: */
    gw_model *model;
    gw_pipeline_hooks hooks;
    gw_lane *hop_lane[GW_PIPELINE_WAYS];  /* NULL: one stage */
    gw_lane *join_lane[GW_PIPELINE_WAYS]; /* NULL: one tensor rank */
    gw_collective join[GW_PIPELINE_WAYS][GW_PIPELINE_VERBS];
    gw_hops *hops[GW_PIPELINE_SIZES]; /* NULL: no such */
    gw_walk walk;
    gw_err failed; /* what a poll within a kernel ran into */
    gw_pipeline_now now;
};

/** The model's side of the walk; what begins and ends with an action is pipeline.c's. */
extern const gw_walk_ops gw_pipeline_kernels;
gw_err gw_pipeline_next(void *pipeline, gw_act act);
gw_err gw_pipeline_begin(void *pipeline, gw_act act);
void gw_pipeline_end(void *pipeline, gw_act act);

/** Microbatches of a step. */
static inline int gw_pipeline_micros(const gw_pipeline *p) {
    return p->now.testing ? GW_PIPELINE_TEST_MICROS : p->options->microbatches;
}

/** The rows of microbatch `micro` among those of this rank's local batch; and where an action of a
 *  chunk keeps them. */
gw_span gw_pipeline_part(const gw_pipeline *p, int micro);
gw_micro gw_pipeline_at(const gw_pipeline *p, gw_act act);

/** Begin arithmetic of a phase; and end it, by when `what` was computed (gw_exec.spend). */
void gw_pipeline_enter(const gw_pipeline *p, gw_phase phase);
void gw_pipeline_leave(const gw_pipeline *p, gw_computed what, int l, size_t n);

/** Poll all that is under way, the exchange of gradients, too, in its phase of the ledger. `within`
 *  a kernel. */
gw_err gw_pipeline_poll(gw_pipeline *p, bool within);

/** From now on walk over the hops of a batch of this size. */
void gw_pipeline_run_over(gw_pipeline *p, gw_pipeline_size size);

/** The loss of a microbatch, from the logits that `act` has left; `correct` may be NULL. */
gw_err gw_pipeline_loss(gw_pipeline *p, gw_act act, const gw_label *labels, float scale,
                        double *sum, int *correct);

#endif
