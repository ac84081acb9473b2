/** A model over one flat arena: a chain of units (nn/model_ops.h), here called layers, and a loss
 *  on top (nn/loss.h). The step is exposed layer by layer, so that a trainer can exchange one
 *  layer's gradient while it computes the next. A model may also be a shard of one (nn/shard.h),
 *  whose ranks compute it together; it never sees them, but says what is to be exchanged and where
 *  it lies. Samples pass by microbatches, of which there may be one alone. Shapes: B = local batch,
 *  in/out = a layer's widths, C = classes. */
#ifndef GW_NN_MODEL_H
#define GW_NN_MODEL_H

#include "base/io.h"
#include "nn/shard.h"

#include <stdint.h>

typedef struct gw_model gw_model;

/** Build a model whose activations hold up to `max_batch` samples, parameters initialised
 *  (a pure function of spec: equal on all ranks), each layer in its way. Close frees everything. */
gw_err gw_model_open(gw_model **out, const gw_model_spec *spec, int max_batch);
void gw_model_close(gw_model *m);

/** How much a shard holds at a time. The gradients of outputs are called deltas. */
typedef struct gw_model_room {
    int rows;                 /* at most, of a microbatch */
    int slots[GW_MAX_LAYERS]; /* of each chunk: microbatches whose outputs are held */
    int deltas;               /* microbatches whose deltas are held */
    bool keep;      /* the deltas of all layers, for weights' gradients that come later; else only
                       those that cross a chunk's ends */
    bool recompute; /* of a microbatch in a slot only the chunk's inputs: its outputs are computed
                       again just before the backward pass */
} gw_model_room;

/** gw_model_open for a shard; its parameters are those of the whole model in its place. Layers are
 *  numbered from 0 within it, the tensors' `layer` is the whole model's. A tensor that is empty,
 *  the biases of a narrow layer, is left out. */
gw_err gw_model_open_shard(gw_model **out, const gw_shard *shard, const gw_model_room *room);
const gw_shard *gw_model_shard(const gw_model *m);

const gw_model_spec *gw_model_get_spec(const gw_model *m);
int gw_model_layers(const gw_model *m);
/** Layer l's part of the arena: its tensors, one behind another; of a dense one weights (in,out)
 *  row-major, then biases (out). */
gw_span gw_model_span(const gw_model *m, int l);
/** All layers' spans in order, and their tensors. Owned by the model. */
const gw_span *gw_model_spans(const gw_model *m);
const gw_tensor *gw_model_tensors(const gw_model *m);
int gw_model_tensor_count(const gw_model *m);
size_t gw_model_size(const gw_model *m); /* floats in the arena */
float *gw_model_params(gw_model *m);
float *gw_model_grads(gw_model *m);

/** Use these two arenas of gw_model_size floats from now on. The caller owns them, keeps them while
 *  the model is used, and has put the parameters into `params`. */
void gw_model_lend(gw_model *m, float *params, float *grads);

/** The class of the largest logit (ties: the lowest) of each target of each of the rows of the last
 *  loss. */
const gw_label *gw_model_predictions(const gw_model *m);

/* ---- a step ----
 *
 * Forward, for each layer l of a chunk, upwards:         backward, downwards:
 *
 *   pack, join, once     GW_MOMENT_PARAMETERS              enter
 *   pack, join, unpack   GW_MOMENT_INPUT                   descend_rows
 *   product                                                pack, join, unpack   GW_MOMENT_DELTA
 *   join                 GW_MOMENT_PRODUCT                 arrive
 *   transfer                                               weights, meanwhile or later
 *
 * and behind the last layer of the model loss_tell, join GW_MOMENT_LOSS, loss_join. A join is a
 * collective of the tensor ranks, over a span of the work arena; where none is due its kind is
 * GW_JOIN_NONE, and pack and unpack do nothing. So one walk serves whole layers and both splits. */

/** What is computed from now on is of a batch of `samples`, over all ranks, and is followed by its
 *  backward pass; 0, as at first: it is only evaluated. */
void gw_model_count(gw_model *m, int samples);

/** Rows `first`, .. of the microbatch in slot `slot`, whose deltas are in place `delta`; n may be
 *  0. Which slot and place a microbatch has is the caller's choice, and free when its last gradient
 *  of weights is there. With `keep` and `recompute` a microbatch's outputs go with its place. */
typedef struct gw_micro {
    int slot, delta, first, n;
} gw_micro;

/** One array for all rows that a model computes on, zeroed at first: what other ranks send and get
 *  are spans of it. */
float *gw_model_work(gw_model *m);
size_t gw_model_work_size(const gw_model *m);

/** What crosses a chunk's ends, rows of the width that this rank holds on both sides of the cut. */
typedef enum gw_edge {
    GW_EDGE_INPUT,        /* the outputs of the layer below, or the data, put there by the caller */
    GW_EDGE_OUTPUT,       /* for the layer above; the logits */
    GW_EDGE_OUTPUT_DELTA, /* from the layer above; empty at the top of the model */
    GW_EDGE_INPUT_DELTA   /* for the layer below; empty at its bottom */
} gw_edge;

gw_span gw_model_edge(const gw_model *m, int chunk, gw_edge edge, gw_micro at);

/** What the tensor ranks do with a span of their work arenas: sum it; or, part t of
 *  gw_span_part(over, t, ranks) being rank t's, give theirs to all, or get the sum of theirs. */
typedef enum gw_join_kind {
    GW_JOIN_NONE,
    GW_JOIN_ALLREDUCE,
    GW_JOIN_ALLGATHER,
    GW_JOIN_REDUCE_SCATTER
} gw_join_kind;

typedef enum gw_moment {
    GW_MOMENT_PARAMETERS, /* before a step: small ones that ranks have parts of; exact */
    GW_MOMENT_INPUT,      /* before the product */
    GW_MOMENT_PRODUCT,    /* between product and transfer */
    GW_MOMENT_LOSS,       /* between the halves of the loss; exact: gw_loss_join reads it */
    GW_MOMENT_DELTA       /* before the layer below enters */
} gw_moment;

typedef struct gw_join {
    gw_join_kind kind;
    gw_span over;
} gw_join;

/** The join of layer l at a moment, the same on all tensor ranks. Runs of a microbatch's rows have
 *  spans apart from each other's; gathered and scattered ones are in use until the join of another
 *  layer or moment begins. */
gw_join gw_model_join(const gw_model *m, int l, gw_moment moment, gw_micro at);

/** Copy the rows to where the join takes them from, and its result to where they belong. */
void gw_model_pack(gw_model *m, int l, gw_moment moment, gw_micro at);
void gw_model_unpack(gw_model *m, int l, gw_moment moment, gw_micro at);

/** Layer l's forward pass: x W, and what follows it (nn/layer.h). */
void gw_model_product(gw_model *m, int l, gw_micro at);
void gw_model_transfer(gw_model *m, int l, gw_micro at);

/** The loss of the logits against the labels of at.n samples by spec.output, in two halves, where
 *  the model's last layer is held: the SUM of the samples' losses, a sample's being the mean over
 *  its targets, and d(loss)/d(logit) * grad_scale (1 / global batch for the mean) for the backward
 *  pass. *correct (may be NULL) counts right predictions. The same
 *  on all tensor ranks. */
void gw_model_loss_tell(gw_model *m, const gw_label *labels, gw_micro at);
double gw_model_loss_join(gw_model *m, const gw_label *labels, gw_micro at, float grad_scale,
                          int *correct);

/** Layer l's backward pass: through the transfer, with the biases' gradient; the gradient of the
 *  inputs (nothing for the model's first layer); and that of the weights, before the next layer
 *  descends or, with `keep`, any time until the slot or the place is used again. Gradients are
 *  written to `grads`, an arena of the shard, or (`add`) added to it. */
void gw_model_enter(gw_model *m, int l, gw_micro at, float *grads, bool add);
void gw_model_descend_rows(gw_model *m, int l, gw_micro at);
/** Behind the join of GW_MOMENT_DELTA; adds to the layer's gradient, if gw_model_arrives. */
void gw_model_arrive(gw_model *m, int l, gw_micro at, float *grads);
bool gw_model_arrives(const gw_model *m, int l);
void gw_model_weights(gw_model *m, int l, gw_micro at, float *grads, bool add);

/* ---- files ---- */

/** Write spec and `params`, all of the whole model's, which another thread may be training, to
 *  DIR/NAME. Returns the file's size and checksum as gw_io_close_with does. */
gw_err gw_model_save(gw_model *m, const float *params, const char *dir, const char *name,
                     uint64_t *bytes, uint32_t *crc32);
/** Open a model from such a file. `plugin`: the one to load for the file of a plugin's model,
 *  whatever name it has there; NULL: such a file is refused, for a file must not have code loaded.
 */
gw_err gw_model_load(gw_model **out, const char *path, int max_batch, const gw_spec *plugin);

#endif
