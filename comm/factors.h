/** The common part of strategies that send factors in place of each layer's matrix
 *  (compress/lowrank.h): P (rows x rank) and R (cols x rank), in two allreduces over one buffer.
 *  Vectors, and matrices that factors would not make smaller, go unchanged with the first one. */
#ifndef GW_COMM_FACTORS_H
#define GW_COMM_FACTORS_H

#include "comm/strategy.h"
#include "compress/lowrank.h"

/** A matrix whose factors travel. */
typedef struct gw_factors_matrix {
    gw_lowrank l;
    const gw_tensor *tensor;
    uint64_t key;
} gw_factors_matrix;

/** A tensor that travels unchanged. */
typedef struct gw_factors_piece {
    const gw_tensor *tensor;
    gw_span span; /* of the arena */
    size_t to;    /* offset in `flat` */
    size_t nth;   /* floats of all pieces before it */
} gw_factors_piece;

/** What one finish() exchanges. */
typedef struct gw_factors_group {
    gw_span span;          /* of the arena */
    gw_span first, second; /* of `flat`: pieces, then each matrix's P; each matrix's R */
    gw_factors_matrix *matrices;
    gw_factors_piece *pieces;
    int n_matrices, n_pieces;
    int64_t steps;
} gw_factors_group;

typedef struct gw_factors_setup {
    uint64_t stream; /* of the seed, for initial vectors */
    bool feedback;   /* add to the next gradient what was not sent, */
    float keep;      /* and this part of what was sent: a momentum */
    bool cold;       /* start each step from random vectors, not from the last R */
    bool alone;      /* work on one rank, too, where nothing is sent; else it has no groups */
} gw_factors_setup;

/** Valid when zeroed or opened. */
typedef struct gw_factors {
    const gw_env *env;
    gw_factors_setup setup;
    int rank;                    /* of the factors */
    float *flat;                 /* what is reduced */
    gw_collective sum;           /* over it */
    gw_factors_matrix *matrices; /* in the order of the arena, as are pieces and groups */
    gw_factors_piece *pieces;
    gw_factors_group *groups;
    int n_groups;
    size_t whole; /* floats of all pieces */
} gw_factors;

/** Open with the rank of the strategy's option GW_FACTORS_RANK. GW_ERR_UNSUPPORTED: shapes are not
 *  known, or there is a mix of codecs. Close also after an open that failed. Collective. */
gw_err gw_factors_open(gw_factors *f, const gw_env *env, const gw_factors_setup *setup);
void gw_factors_close(void *p);

/** Sum what is sent of a span of finish(). Then each matrix's q is R, and each piece's sum lies in
 *  `flat`. Collective. */
gw_err gw_factors_sum(gw_factors *f, gw_span s, gw_factors_group **out);
/** End the step: in env->grad each matrix becomes p q^T, each piece its sum in `flat`. */
void gw_factors_hand_out(const gw_factors *f, gw_factors_group *g);

/** For `state` and `cost`, or as hooks, like gw_factors_close: p is the gw_factors. */
gw_err gw_factors_state(void *p, gw_io *io);
gw_cost gw_factors_cost(const void *p, int64_t exchange, int64_t *period);

/** For `plan`: refuse lossy codecs. */
const char *gw_factors_plan(gw_strategy_plan *p);

#define GW_FACTORS_RANK(most_often)                                                                \
    { "rank", GW_OPT_INT, most_often, 1, GW_LOWRANK_MOST, NULL, "R", "rank of a matrix's factors" }
#define GW_FACTORS_FORMULA                                                                         \
    "one allreduce of R * rows per matrix + all else, one of R * cols per matrix"
/* The greatest gradient: products with factors, summed over a matrix, stay far below 2^128. */
#define GW_FACTORS_MOST 0x1p80f

#endif
