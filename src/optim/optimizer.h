/** The optimizer seam: a rule that moves parameters along a gradient, and what it remembers.
 *
 *  To add one: ONE new file src/optim/NAME.c that defines `const gw_optimizer_ops
 *  gw_optimizer_NAME` and ONE line X(NAME) in optimizers.def. Out of tree: a shared object that
 *  exports `gw_optimizer_plugin`, given by path: --optimizer ./libmine.so
 *
 *  A rule names its state: vectors as long as the parameters, zero at first. Besides them, only the
 *  number of updates so far goes from step to step. So checkpoints, merging over meshes, snapshots,
 *  sharding and averages need nothing from the rule. */
#ifndef GW_OPTIM_OPTIMIZER_H
#define GW_OPTIM_OPTIMIZER_H

#include "base/io.h"
#include "base/registry.h"
#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

#define GW_OPTIMIZER_ABI 4
enum { GW_OPTIMIZER_VECTORS = 4 }; /* at most */

/** gw_gemm of nn/gemm.h, or its like: C(m,n) = op(A)(m,k) * op(B)(k,n) + beta * C. */
typedef void gw_optimizer_product(bool ta, bool tb, int m, int n, int k, const float *a, int lda,
                                  const float *b, int ldb, float beta, float *c, int ldc);

/** What a rule moves in one call: n parameters, with their part of each vector. */
typedef struct gw_optimizer_part {
    float *param;
    const float *grad; /* still to be multiplied by `scale` */
    float *state[GW_OPTIMIZER_VECTORS];
    size_t n;
    float lr, scale;
    int64_t step; /* 1..: the number of the update that this is part of */
    /* only for GW_OPTIMIZER_TENSORS, else zeros: */
    int rows, cols; /* the tensor's shape, row-major; a vector has one row */
    float aspect;   /* of a matrix: its layer's outputs / inputs */
    bool head;      /* it belongs to the model's last layer */
    float *work;    /* as many floats as the rule's `work` asks for */
    gw_optimizer_product *product;
} gw_optimizer_part;

enum {
    /* It needs a tensor's shape or a norm over it: a part is a whole tensor, which the rule itself
     * splits over threads. Else elements move independently, and parts may begin and end
     * anywhere. */
    GW_OPTIMIZER_TENSORS = 1,
    GW_OPTIMIZER_PRODUCTS = 2 /* it multiplies matrices, on all threads, by the part's `product` */
};

typedef struct gw_optimizer_ops {
    gw_entry head;
    unsigned traits;
    size_t size; /* bytes of `self`, zeroed at open */
    /** Optional: read the options; `args` outlive self. GW_ERR_USAGE: they do not go together. */
    gw_err (*open)(void *self, const gw_args *args);
    /** Return the names of its vectors, which may depend on the options; ends with NULL. */
    const char *const *(*vectors)(const void *self);
    /** Move the parameters of a part. Several threads may move parts of one update at once. */
    void (*update)(const void *self, const gw_optimizer_part *part);
    /** Optional, for GW_OPTIMIZER_TENSORS: return the floats of `work` for a tensor of this shape;
     *  and the multiplications and additions of its products in an update. */
    size_t (*work)(const void *self, int rows, int cols);
    double (*flops)(const void *self, int rows, int cols, bool head);
    /** Optional. lists: return true if, with these options, an element with a zero gradient does
     *  not move. update_at: move param[at[i]], each index once, by grad[i]. */
    bool (*lists)(const void *self);
    void (*update_at)(const void *self, float *param, const uint32_t *at, const float *grad,
                      size_t n, float lr, float scale);
    /** Return which of its loops these options run: times are kept under that name. NULL: the
     *  rule's name. */
    const char *(*kernel)(const void *self);
    /** The greatest magnitude of a gradient that it can compute with; a larger one would make its
     *  state infinite, and could hold a parameter where it is for ever. 0: any float. */
    float most;
} gw_optimizer_ops;

extern const gw_registry gw_optimizers;

/** What a rule of whole tensors knows about the model. */
typedef struct gw_optimizer_model {
    const gw_tensor
        *tensors; /* they tile the arena and outlive the optimizer; NULL: they are not known */
    int n_tensors;
    int head;         /* tensors from this one on belong to the whole model's last layer */
    bool inputs_rows; /* a matrix has a row for each input of its layer; else for each output */
    gw_optimizer_product *product; /* NULL: none, and rules that multiply are refused */
} gw_optimizer_model;

/** An open optimizer. Others may read it, and restore `state` and `updates` from a copy. */
typedef struct gw_optimizer {
    const gw_optimizer_ops *ops;
    gw_args *args; /* NULL: those of the optimizer that it is like */
    void *self;
    size_t n;
    gw_optimizer_model model;
    float *work;
    const char *const *names; /* of the vectors; ends with NULL */
    gw_vectors state;
    int tracked;     /* tensors of the model that are running means */
    int64_t updates; /* so far */
    bool begins;     /* the next call is the first of another one */
} gw_optimizer;

typedef struct gw_optimizer_setup {
    const gw_spec *spec;    /* NULL: sgd */
    const gw_args *command; /* its --momentum and --weight-decay, if the user gave them, are
                               options of the rule; NULL: none */
    bool corrected;         /* the exchange applies --momentum, and the rule does not */
    size_t n;               /* floats of the arena; 0: only check the options */
    gw_optimizer_model model;
} gw_optimizer_setup;

/** Open a rule. GW_ERR_USAGE: no such rule or option, a value out of range, or an option given
 *  twice. GW_ERR_UNSUPPORTED: the rule multiplies matrices, and there is no product.
 *  gw_optimizer_close takes NULL. */
gw_err gw_optimizer_open(gw_optimizer **out, const gw_optimizer_setup *setup);
/** Open the same rule with the same options for n other floats: for the same n with the same
 *  tensors, else with none known. `of` outlives it. */
gw_err gw_optimizer_like(gw_optimizer **out, const gw_optimizer *of, size_t n);
void gw_optimizer_close(gw_optimizer *o);

/** Begin a new update: all calls that move anything from now on. Without one, it does not count. */
void gw_optimizer_begin(gw_optimizer *o);

/** Update param[s] from grad[s] (both arenas of n floats). A tensor that tracks moves by a tenth of
 *  its gradient, whatever the rule and rate. OpenMP threads split the span, unless the rule moves
 *  whole tensors: then s consists of whole tensors. Before the first gw_optimizer_begin it counts
 *  as the first update. */
void gw_optimizer_update(gw_optimizer *o, float *param, const float *grad, gw_span s, float lr,
                         float scale);
/** The same, with param[0] and grad[0] the first of s. */
void gw_optimizer_update_here(gw_optimizer *o, float *param, const float *grad, gw_span s, float lr,
                              float scale);

/** For a rule of whole tensors: run `pass` over all elements of a part, one piece per thread. `by`
 *  is passed on to it. */
void gw_optimizer_split(const void *self, const gw_optimizer_part *part,
                        void (*pass)(const void *self, const gw_optimizer_part *piece, float by),
                        float by);

/** Return how many floats from the beginning of s make one call: `most`, or less at its end; for a
 *  rule that moves whole tensors, one tensor. */
size_t gw_optimizer_piece(const gw_optimizer *o, gw_span s, size_t most);

/** Return true if an update does not change a parameter with a zero gradient. Then
 *  gw_optimizer_update_at() moves param[at[i]], each index once, along grad[i]. */
bool gw_optimizer_lists(const gw_optimizer *o);
void gw_optimizer_update_at(gw_optimizer *o, float *param, const uint32_t *at, const float *grad,
                            size_t n, float lr, float scale);

/** Return how many threads split a span of n floats: 1, or all. */
int gw_optimizer_threads(size_t n);

/** Return the multiplications and additions of its products in an update of all known tensors. */
double gw_optimizer_flops(const gw_optimizer *o);

/** As in the ops. */
const char *gw_optimizer_kernel(const gw_optimizer *o);
static inline bool gw_optimizer_whole(const gw_optimizer *o) {
    return o->ops->traits & GW_OPTIMIZER_TENSORS;
}

/** True if it has no state and moves each element alone: param -= lr * (grad + decay * param). */
static inline bool gw_optimizer_plain(const gw_optimizer *o) {
    return o->state.count == 0 && !gw_optimizer_whole(o);
}

/** Save or load all of the state. */
gw_err gw_optimizer_state(gw_optimizer *o, gw_io *io);

#endif
