/** A model over one flat arena: a chain of units (nn/model_ops.h), here called layers, and a loss
 *  on top (nn/loss.h). A step is exposed layer by layer, so that a trainer can exchange one layer's
 *  gradient while it computes the next. A model may also be a shard (nn/shard.h), which several
 *  ranks compute together; it does not see them, but says what to exchange and where it lies.
 *  Samples pass in one or more microbatches. Shapes: B = local batch, in/out = a layer's widths,
 *  C = classes. */
#ifndef GW_NN_MODEL_H
#define GW_NN_MODEL_H

#include "base/io.h"
#include "nn/shard.h"

#include <stdint.h>

typedef struct gw_model gw_model;

/** Build a model whose activations hold up to `max_batch` samples. Each layer initialises its
 *  parameters (a pure function of spec: equal on all ranks). Close frees everything. */
gw_err gw_model_open(gw_model **out, const gw_model_spec *spec, int max_batch);
void gw_model_close(gw_model *m);

/** How much a shard holds at a time. The gradients of outputs are called deltas. */
typedef struct gw_model_room {
    int rows;                 /* most rows of a microbatch */
    int slots[GW_MAX_LAYERS]; /* for each chunk: microbatches whose outputs are held */
    int deltas;               /* microbatches whose deltas are held */
    bool keep;      /* hold the deltas of all layers, for weights' gradients that come later; else
                       only those that cross a chunk's ends */
    bool recompute; /* hold only the chunk's inputs of a microbatch in a slot: its outputs are
                       computed again just before the backward pass */
} gw_model_room;

/** gw_model_open without the initialisation: all parameters are 0. */
gw_err gw_model_build(gw_model **out, const gw_model_spec *spec, int max_batch);

/** gw_model_open for a shard; it gets the parameters that the whole model has in its place. Its
 *  layers are numbered from 0, but a tensor's `layer` is the whole model's. An empty tensor, such
 *  as the biases of a narrow layer, is left out. */
gw_err gw_model_open_shard(gw_model **out, const gw_shard *shard, const gw_model_room *room);
const gw_shard *gw_model_shard(const gw_model *m);

const gw_model_spec *gw_model_get_spec(const gw_model *m);
int gw_model_layers(const gw_model *m);
/** Return each layer's part of the arena, in order: its tensors, one behind another; for a dense
 *  layer weights (in,out) row-major, then biases (out). And the tensors. Owned by the model. */
const gw_span *gw_model_spans(const gw_model *m);
const gw_tensor *gw_model_tensors(const gw_model *m);
int gw_model_tensor_count(const gw_model *m);
size_t gw_model_size(const gw_model *m); /* floats in the arena */
float *gw_model_params(gw_model *m);
float *gw_model_grads(gw_model *m);

/** Use these two arenas of gw_model_size floats from now on. The caller owns them, keeps them while
 *  the model is in use, and has put the parameters into `params`. */
void gw_model_lend(gw_model *m, float *params, float *grads);

/** Return the class of the largest logit (ties: the lowest) for each target of each row of the last
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
 * and after the model's last layer loss_tell, join GW_MOMENT_LOSS, loss_join. A join is a
 * collective of the tensor ranks, over a span of the work arena; if none is due, its kind is
 * GW_JOIN_NONE, and pack and unpack do nothing. So one walk serves whole layers and both splits. */

/** Compute from now on for a batch of `samples`, over all ranks, with a backward pass; 0, the
 *  default: only evaluate. */
void gw_model_count(gw_model *m, int samples);

/** n rows from `first` on of the microbatch in slot `slot`, whose deltas are in place `delta`; n
 *  may be 0. The caller chooses slot and place; they are free once the microbatch's last gradient
 *  of weights is there. With `keep` and `recompute` the outputs belong to the place. */
typedef struct gw_micro {
    int slot, delta, first, n;
} gw_micro;

/** Return the one array for all rows that a model computes on, zeroed at first. Spans of it are
 *  sent and received. */
float *gw_model_work(gw_model *m);
size_t gw_model_work_size(const gw_model *m);

/** What crosses a chunk's ends: rows of the width that this rank holds on both sides of the cut. */
typedef enum gw_edge {
    GW_EDGE_INPUT,        /* outputs of the layer below, or the data; the caller puts them there */
    GW_EDGE_OUTPUT,       /* for the layer above; or the logits */
    GW_EDGE_OUTPUT_DELTA, /* from the layer above; empty at the top of the model */
    GW_EDGE_INPUT_DELTA   /* for the layer below; empty at its bottom */
} gw_edge;

gw_span gw_model_edge(const gw_model *m, int chunk, gw_edge edge, gw_micro at);

/** What the tensor ranks do with a span of their work arenas: sum it; or, where rank t has part
 *  gw_span_part(over, t, ranks), give their parts to all, or get the sums of their parts. */
typedef enum gw_join_kind {
    GW_JOIN_NONE,
    GW_JOIN_ALLREDUCE,
    GW_JOIN_ALLGATHER,
    GW_JOIN_REDUCE_SCATTER
} gw_join_kind;

typedef enum gw_moment {
    GW_MOMENT_PARAMETERS, /* before a step: small parameters that are divided over ranks; exact */
    GW_MOMENT_INPUT,      /* before the product */
    GW_MOMENT_PRODUCT,    /* between product and transfer */
    GW_MOMENT_LOSS,       /* between the halves of the loss; exact: gw_loss_join reads it */
    GW_MOMENT_DELTA       /* before the layer below enters */
} gw_moment;

typedef struct gw_join {
    gw_join_kind kind;
    gw_span over;
} gw_join;

/** Return the join of layer l at a moment, the same on all tensor ranks. Different rows of a
 *  microbatch have disjoint spans; spans for gathering and scattering are in use until the join of
 *  another layer or moment begins. */
gw_join gw_model_join(const gw_model *m, int l, gw_moment moment, gw_micro at);

/** Copy the rows to where the join reads them, and its result to where they belong. */
void gw_model_pack(gw_model *m, int l, gw_moment moment, gw_micro at);
void gw_model_unpack(gw_model *m, int l, gw_moment moment, gw_micro at);

/** Run layer l's forward pass: x W, and what follows it (nn/layer.h). */
void gw_model_product(gw_model *m, int l, gw_micro at);
void gw_model_transfer(gw_model *m, int l, gw_micro at);

/** Compute the loss of the logits against the labels of at.n samples by spec.output, in two halves,
 *  where the model's last layer is held. Return the SUM of the samples' losses (a sample's loss is
 *  the mean over its targets), and leave d(loss)/d(logit) * grad_scale (1 / global batch for the
 *  mean) for the backward pass. *correct (may be NULL) counts right predictions. The same on all
 *  tensor ranks. */
void gw_model_loss_tell(gw_model *m, const gw_label *labels, gw_micro at);
double gw_model_loss_join(gw_model *m, const gw_label *labels, gw_micro at, float grad_scale,
                          int *correct);

/** Layer l's backward pass. enter: through the transfer, with the biases' gradient. descend_rows:
 *  the gradient of the inputs (nothing for the model's first layer). weights: their gradient,
 *  before the next layer descends or, with `keep`, any time until the slot or the place is used
 *  again. Gradients are written (`add`: added) to `grads`, an arena of the shard. */
void gw_model_enter(gw_model *m, int l, gw_micro at, float *grads, bool add);
void gw_model_descend_rows(gw_model *m, int l, gw_micro at);
/** After the join of GW_MOMENT_DELTA: add to the layer's gradient, if gw_model_arrives. */
void gw_model_arrive(gw_model *m, int l, gw_micro at, float *grads);
bool gw_model_arrives(const gw_model *m, int l);
void gw_model_weights(gw_model *m, int l, gw_micro at, float *grads, bool add);

/* ---- files ---- */

/** Write spec and `params`, all parameters of the whole model, to DIR/NAME; another thread may be
 *  training `m`. Return the file's size and checksum as gw_io_close_with does. */
gw_err gw_model_save(gw_model *m, const float *params, const char *dir, const char *name,
                     uint64_t *bytes, uint32_t *crc32);
/** Open a model from such a file. `plugin`: the plugin to load for a plugin's model, whatever name
 *  the file gives; NULL: such a file is refused, because a file must not make code be loaded. */
gw_err gw_model_load(gw_model **out, const char *path, int max_batch, const gw_spec *plugin);

/** Write all tensors of a whole model to `path` as a safetensors file
 *  (https://github.com/huggingface/safetensors), which other programs read by name: tensor I of
 *  layer L, counted from 0, is named "layer.L.I", is float32 and has the shape [rows, cols], a
 *  vector [cols]. GW_ERR_IO. */
gw_err gw_safetensors_write(gw_model *m, const char *path);

#endif
