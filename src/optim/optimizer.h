/** The optimizer seam: a rule that moves parameters along a gradient, and what it remembers.
 *
 *  To add one: ONE new file src/optim/NAME.c that defines `const gw_optimizer_ops
 *  gw_optimizer_NAME` and ONE line X(NAME) in optimizers.def. Out of tree: a shared object that
 *  exports `gw_optimizer_plugin`, given by path: --optimizer ./libmine.so
 *
 *  A rule names its state: vectors of as many floats as there are parameters, zero at first. They
 *  and the number of updates so far are all that it carries from step to step. So checkpoints,
 *  merging over meshes, snapshots, sharding and averages need nothing from the rule. */
#ifndef GW_OPTIM_OPTIMIZER_H
#define GW_OPTIM_OPTIMIZER_H

#include "base/io.h"
#include "base/registry.h"
#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

#define GW_OPTIMIZER_ABI 3
enum { GW_OPTIMIZER_VECTORS = 4 }; /* at most */

/** gw_gemm of nn/gemm.h, or what does the same: C(m,n) = op(A)(m,k) * op(B)(k,n) + beta * C. */
typedef void gw_optimizer_product(bool ta, bool tb, int m, int n, int k, const float *a, int lda,
                                  const float *b, int ldb, float beta, float *c, int ldc);

/** What a rule moves in one call: n parameters, with their part of each vector. */
typedef struct gw_optimizer_part {
    float *param;
    const float *grad; /* lacks the factor `scale` */
    float *state[GW_OPTIMIZER_VECTORS];
    size_t n;
    float lr, scale;
    int64_t step; /* 1..: the update that this is a part of */
    /* of GW_OPTIMIZER_TENSORS alone, else zeros: */
    int rows, cols; /* the tensor's shape, row-major; a vector has one row */
    float aspect;   /* of a matrix: outputs of its layer by inputs */
    bool head;      /* it is of the model's last layer */
    float *work;    /* as many floats as the rule's `work` asks for */
    gw_optimizer_product *product;
} gw_optimizer_part;

enum {
    /* It needs a tensor's shape or a norm over it: a part is a whole tensor, which the rule splits
     * over threads itself. Else each element moves by itself, and parts may begin and end
     * anywhere. */
    GW_OPTIMIZER_TENSORS = 1,
    GW_OPTIMIZER_PRODUCTS = 2 /* it multiplies matrices, on all threads, by the part's `product` */
};

typedef struct gw_optimizer_ops {
    gw_entry head;
    unsigned traits;
    size_t size; /* bytes of `self`, zeroed at open */
    /** Read the options; `args` outlive self. GW_ERR_USAGE: they do not go together. Optional. */
    gw_err (*open)(void *self, const gw_args *args);
    /** The names of its vectors, which may depend on the options; ends with NULL. */
    const char *const *(*vectors)(const void *self);
    /** Move the parameters of a part. Several threads may move parts of one update at once. */
    void (*update)(const void *self, const gw_optimizer_part *part);
    /** Of GW_OPTIMIZER_TENSORS, optional: floats of `work` for a tensor of this shape; and the
     *  multiplications and additions of its products in an update. */
    size_t (*work)(const void *self, int rows, int cols);
    double (*flops)(const void *self, int rows, int cols, bool head);
    /** Optional: param[at[i]], each index once, by grad[i], where an element whose gradient is zero
     *  stays as it is. `lists` tells whether that is so with these options. */
    bool (*lists)(const void *self);
    void (*update_at)(const void *self, float *param, const uint32_t *at, const float *grad,
                      size_t n, float lr, float scale);
    /** Which of its loops these options run, for times that are kept by name; NULL: the rule's
     *  name. */
    const char *(*kernel)(const void *self);
} gw_optimizer_ops;

extern const gw_registry gw_optimizers;

/** What a rule of whole tensors knows of the model. */
typedef struct gw_optimizer_model {
    const gw_tensor
        *tensors; /* which tile the arena, and outlive the optimizer; none known: NULL */
    int n_tensors;
    int head;         /* tensors from this one on are of the whole model's last layer */
    bool inputs_rows; /* a matrix has a row for each input of its layer; else for each output */
    gw_optimizer_product *product; /* NULL: none, and rules that multiply are refused */
} gw_optimizer_model;

/** An opened one. Others read it, and may put back `state` and `updates`, which they have kept. */
typedef struct gw_optimizer {
    const gw_optimizer_ops *ops;
    gw_args *args; /* NULL: those of the one that it is like */
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
    const gw_args *command; /* whose --momentum and --weight-decay, if the user gave them, are
                               options of the rule; NULL: none */
    bool corrected;         /* the exchange applies --momentum, and the rule does not */
    size_t n;               /* floats of the arena; 0: only what the words say is looked at */
    gw_optimizer_model model;
} gw_optimizer_setup;

/** GW_ERR_USAGE: no such rule or option, a value out of range, or an option that is given twice.
 *  GW_ERR_UNSUPPORTED: the rule multiplies matrices, and there is no product. gw_optimizer_close
 *  takes NULL. */
gw_err gw_optimizer_open(gw_optimizer **out, const gw_optimizer_setup *setup);
/** The same rule and options, for n other floats: as many, with the same tensors; else of no known
 *  ones. `of` outlives it. */
gw_err gw_optimizer_like(gw_optimizer **out, const gw_optimizer *of, size_t n);
void gw_optimizer_close(gw_optimizer *o);

/** What is moved from now on, in as many calls as it takes, is a new update; perhaps nothing is. */
void gw_optimizer_begin(gw_optimizer *o);

/** Update param[s] from grad[s] (both arenas of n floats). A tensor that tracks moves by a tenth of
 *  its gradient, whatever rule and rate. OpenMP threads split the span, unless
 *  the rule moves whole tensors: then s consists of such. Before the first gw_optimizer_begin it
 *  counts as the first update. */
void gw_optimizer_update(gw_optimizer *o, float *param, const float *grad, gw_span s, float lr,
                         float scale);
/** The same where param[0] and grad[0] are the first of s. */
void gw_optimizer_update_here(gw_optimizer *o, float *param, const float *grad, gw_span s, float lr,
                              float scale);

/** For a rule of whole tensors: run `pass` over all elements of a part, in pieces of which each
 *  thread has one. `by`: what the caller wants to tell it. */
void gw_optimizer_split(const void *self, const gw_optimizer_part *part,
                        void (*pass)(const void *self, const gw_optimizer_part *piece, float by),
                        float by);

/** Floats from the beginning of s that make one call: `most`, or less at its end; of a rule that
 *  moves whole tensors, one of them. */
size_t gw_optimizer_piece(const gw_optimizer *o, gw_span s, size_t most);

/** True if an update does not change a parameter with a zero gradient. Then
 *  gw_optimizer_update_at() moves param[at[i]], each index once, along grad[i]. */
bool gw_optimizer_lists(const gw_optimizer *o);
void gw_optimizer_update_at(gw_optimizer *o, float *param, const uint32_t *at, const float *grad,
                            size_t n, float lr, float scale);

/** Threads that split a span of n floats: 1, or all. */
int gw_optimizer_threads(size_t n);

/** Multiplications and additions of its products in an update of all that it knows. */
double gw_optimizer_flops(const gw_optimizer *o);

/** As the ops have it. */
const char *gw_optimizer_kernel(const gw_optimizer *o);
static inline bool gw_optimizer_whole(const gw_optimizer *o) {
    return o->ops->traits & GW_OPTIMIZER_TENSORS;
}

/** It keeps nothing, and moves each element by itself: param -= lr * (grad + decay * param). */
static inline bool gw_optimizer_plain(const gw_optimizer *o) {
    return o->state.count == 0 && !gw_optimizer_whole(o);
}

/** Save or load all of the state. */
gw_err gw_optimizer_state(gw_optimizer *o, gw_io *io);

#endif
