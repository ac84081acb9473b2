/** What a pipeline is made of, for its files: what a rank holds (pipeline_divide.c), lanes and what
 *  goes over them (pipeline_open.c), the actions of a step (pipeline.c), layers with what tensor
 *  ranks exchange (pipeline_layers.c), evaluation and collection (pipeline_model.c). Nobody else
 *  includes this. */
#ifndef GW_MESH_PIPELINE_PARTS_H
#define GW_MESH_PIPELINE_PARTS_H

#include "comm/collective.h"
#include "comm/lane_parts.h"
#include "comm/runner.h"
#include "mesh/pipeline.h"

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
    gw_runner runner;
    gw_err failed; /* what a poll within a kernel ran into */
    gw_pipeline_now now;
};

/** gw_runner_send, of the rows that are there. */
gw_err gw_pipeline_send(gw_pipeline *p, gw_act act);

/** Microbatches of a step. */
static inline int gw_pipeline_micros(const gw_pipeline *p) {
    return p->now.testing ? GW_PIPELINE_TEST_MICROS : p->options->microbatches;
}

/** Where an action of a chunk keeps them. */
gw_micro gw_pipeline_at(const gw_pipeline *p, gw_act act);

/** Begin arithmetic of a phase; and end it, by when `what` was computed (gw_exec.spend). */
void gw_pipeline_enter(const gw_pipeline *p, gw_phase phase);
void gw_pipeline_leave(const gw_pipeline *p, gw_computed what, int l, size_t n);

/** Poll all that is under way, the exchange of gradients, too, in its phase of the ledger. */
gw_err gw_pipeline_poll(gw_pipeline *p);

/** From now on walk over the hops of a batch of this size. */
void gw_pipeline_run_over(gw_pipeline *p, gw_pipeline_size size);

/** All layers of a chunk forward; the loss is not taken. `first`: parameters are awaited. Of an
 *  action that is not GW_ACT_FORWARD: again, for a chunk that kept its inputs alone. */
gw_err gw_pipeline_forward(gw_pipeline *p, gw_act act, bool first);

/** Where gradients go. */
typedef struct gw_pipeline_onto {
    float *grads;
    bool add, last; /* last: no other microbatch is added after this one */
} gw_pipeline_onto;

/** All layers of a chunk backward. Of GW_ACT_INPUT the weights' gradients come later, by
 *  gw_pipeline_weights. */
gw_err gw_pipeline_backward(gw_pipeline *p, gw_act act, const gw_pipeline_onto *onto);
gw_err gw_pipeline_weights(gw_pipeline *p, gw_act act, const gw_pipeline_onto *onto);

/** The loss of a microbatch, from the logits that `act` has left; `correct` may be NULL. */
gw_err gw_pipeline_loss(gw_pipeline *p, gw_act act, const gw_label *labels, float scale,
                        double *sum, int *correct);

/** Does the chunk hold the first layer of the model; the last one? */
static inline bool gw_pipeline_is_bottom(const gw_pipeline *p, int chunk) {
    return p->at.stage == 0 && chunk == 0;
}

static inline bool gw_pipeline_is_top(const gw_pipeline *p, int chunk) {
    return p->at.stage == p->at.stages - 1 && chunk == p->at.chunks - 1;
}

/** Held layers of a chunk: [*first, *end). */
static inline void gw_pipeline_layers(const gw_pipeline *p, int chunk, int *first, int *end) {
    const gw_shard *s = &p->shard;
    *first = 0;
    while (s->layers[*first].chunk < chunk)
        ++*first;
    *end = *first;
    while (*end < s->n_layers && s->layers[*end].chunk == chunk)
        ++*end;
}

#endif
