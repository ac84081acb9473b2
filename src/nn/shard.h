/** The part of a model that one rank of a mesh (pipe x tensor) holds, and where it lies in the
 *  arena of the whole model. The pipe coordinate says which layers: a chunk, or several that a
 *  timetable interleaves. The tensor coordinate says which neurons of them:
 *
 *    by columns   W[:,t] and b[t]: from all inputs to a part of the outputs
 *    by rows      W[t,:] and a part of b: from a part of the inputs to a term of all outputs' sums
 *    by both      in a unit of several products: the first by columns, the last by rows
 *
 *  Every parameter has one owner among the ranks of a mesh: their shards tile the whole arena. */
#ifndef GW_NN_SHARD_H
#define GW_NN_SHARD_H

#include "nn/model_ops.h"

#include <stdbool.h>

/** How layers are cut over the tensor ranks: those of even number by columns and those of odd
 *  number by rows, so that outputs are summed behind every second layer alone (Shoeybi et al.,
 *  "Megatron-LM", 2019); or all by columns, with the outputs gathered behind each. */
typedef enum gw_tensor_split { GW_SPLIT_PAIRS, GW_SPLIT_COLUMNS } gw_tensor_split;

/** Contiguous layers of the whole model. */
typedef struct gw_chunk {
    int first, n;
} gw_chunk;

/** Which part of a model a rank holds. */
typedef struct gw_share {
    int tensor, part; /* tensor ranks (1: whole layers), and which of them it is */
    gw_tensor_split split;
    int n_chunks; /* in ascending order */
    gw_chunk chunks[GW_MAX_LAYERS];
} gw_share;

/** All of it. */
gw_share gw_share_whole(const gw_model_spec *spec);

/** Cut layers 0..n-1 of these costs into contiguous parts, none empty, so that the most expensive
 *  part costs least: the slowest stage is a pipeline's pace. Of several such cuts, the one with the
 *  fewest layers in the first part, then in the second, and so on: early stages hold the outputs of
 *  more microbatches. sizes[i] = layers of part i. GW_ERR_INTERNAL: not 1 <= parts <= n, or a cost
 *  that is negative or not finite. */
gw_err gw_partition(const double *cost, int n, int parts, int *sizes);

/** Set the chunks of a stage's share: chunk c of stage s is the model's chunk c * stages + s, and
 *  chunk i of the model has sizes[i] layers (gw_partition). */
void gw_share_stage(gw_share *share, const int *sizes, int stages, int chunks, int stage);

/** A part of a layer's `width` neurons: multiples of 16 of them (but where the layer ends) if there
 *  are 16 for each part, else nearly equal ones; empty only if there are more parts than
 *  neurons. */
gw_span gw_share_part(int width, int part, int parts);

/** rows x cols floats of the whole arena, `stride` from row to row; dense in the shard's own. */
typedef struct gw_block {
    size_t off, own; /* first float, in the whole arena and in the shard's own */
    size_t rows, cols, stride;
} gw_block;

struct gw_shard_layer {
    int number, chunk; /* the layer's in the whole model; the share's */
    int part, parts;   /* of the tensor ranks */
    gw_cut cut;
    gw_span in, out; /* its neurons, among those of the whole layer */
    gw_layer layer;  /* in.n, out.n, and its place in the shard's own arena; what is more is of
                        dense ones */
};

/** What a rank holds of a tensor. */
typedef struct gw_region {
    gw_span rows, cols;
} gw_region;

/** Rows and columns of tensor i that `part` of `parts` tensor ranks holds, by its `cut`; all of one
 *  that has none. May be empty where there are more parts than neurons. */
gw_region gw_unit_region(const gw_unit *u, int i, int part, int parts);

enum { GW_SHARD_BLOCKS = GW_UNIT_TENSORS * GW_MAX_LAYERS }; /* a tensor's part is one */

/** Plain data. */
typedef struct gw_shard {
    gw_model_spec spec;
    gw_share share;
    int n_layers; /* that are held, in ascending order */
    gw_shard_layer layers[GW_MAX_LAYERS];
    int n_blocks; /* none empty; in the order of the shard's own arena, which they tile */
    gw_block blocks[GW_SHARD_BLOCKS];
    size_t size, whole; /* floats: of the shard's own arena, of the whole one */
} gw_shard;

/** GW_ERR_USAGE, the same on all ranks of a mesh: gw_model_spec_check's, or a layer that is too
 *  narrow for so many tensor ranks. GW_ERR_INTERNAL: no such share. */
gw_err gw_shard_of(gw_shard *out, const gw_model_spec *spec, const gw_share *share);

/** The whole unit of a layer that is held, its cuts as this shard has them, of dense ones, too. */
gw_unit gw_shard_unit(const gw_shard *s, const gw_shard_layer *l);

/** Floating-point operations of layer l of the whole model for a sample, forward and backward, in
 *  its products. */
double gw_shard_flops(const gw_model_spec *spec, int l);

/** Do b[0..n), out of a file, perhaps, cut `own` floats in their order out of `whole`? */
bool gw_blocks_sound(const gw_block *b, int n, size_t own, size_t whole);

/** What these blocks have of own[] to its places in whole[]. */
void gw_blocks_scatter(const gw_block *b, int n, const float *own, float *whole);

/** own[0..size) = the shard's floats of whole[0..whole); and back, which leaves the others
 *  alone. */
void gw_shard_gather(const gw_shard *s, const float *whole, float *own);
void gw_shard_scatter(const gw_shard *s, const float *own, float *whole);

#endif
