/** What benchmarks of collectives have in common: algorithms over codecs, each a cell, for spans of
 *  several sizes; what they carry is known data, and their results are checked. */
#ifndef GW_CLI_BENCH_BENCH_GRID_H
#define GW_CLI_BENCH_BENCH_GRID_H

#include "cli/bench/bench.h"
#include "comm/timing.h"

enum { GW_GRID_CELLS = GW_TIMED_MOST };

/** A codec's lane with its buffer, which the algorithms that carry the codec share: those that add
 *  its encodings, or those that decode each. */
typedef struct gw_grid_wire {
    gw_codec codec;
    bool apart;    /* each encoding is decoded on its own */
    gw_lane *lane; /* NULL: no cell can run over it */
    float *base;   /* the lane's */
    /* What the codec may change in an element of a result, beyond rounding: 0 for lossless ones,
     * else 3 P e with e the largest error that encoding once makes on the ranks' data and its
     * partial sums (docs/benchmarks.md says why). */
    double bound;
} gw_grid_wire;

typedef struct gw_grid_cell {
    gw_spec spec; /* of the algorithm */
    gw_grid_wire *wire;
    bool mpi; /* MPI's own blocking call, which has no algorithm and no schedule */
    gw_algo algo;
    gw_timed timed;
    char *refused;      /* why it was last; NULL: it was not */
    bool never;         /* refused whatever the size: it cannot carry the codec on these ranks */
    uint64_t wrong;     /* elements of the present size: on this rank, then over all */
    gw_codings codings; /* of this rank */
    uint64_t encoded;   /* floats in all sizes so far, over all ranks */
    double wire_bytes;  /* that a rank hands to MPI in one exchange of the present size: the mean */
} gw_grid_cell;

typedef struct gw_grid {
    gw_bench_sizes sizes;
    const gw_spec *algos, *codecs; /* the first of each; algos NULL: none are listed */
    gw_verb verb;
    uint64_t seed;
    gw_grid_wire wire[2 * GW_SPEC_ITEMS + 1];
    gw_grid_cell cell[GW_GRID_CELLS];
    int wires, n;
    uint64_t wrong;              /* in all */
    const gw_bench_place *place; /* once it is open */
    /* The known data. x_r[i] = table_r[i mod period] of normal random numbers: tables stay in a
     * cache, so filling and checking every repetition disturbs the timing little; the period is a
     * prime, so that a part that lands in the wrong place is seen. */
    float *each;         /* (ranks, period): the table of each rank */
    double *sum, *slack; /* (period): of all ranks; what rounding may change in that sum */
} gw_grid;

/** The options sizes, algos, compress and seed of `args`, which outlive it. Free with gw_grid_free
 *  in any case. */
gw_err gw_grid_read(gw_grid *g, const gw_args *args);

/** Another cell; no communication. A refusal is kept in it. */
gw_err gw_grid_add(gw_grid *g, gw_spec algo, const gw_spec *codec, bool mpi);

/** Collective: the data, then lanes and buffers. A codec that cannot work on these ranks is a
 *  refusal of its cells. */
gw_err gw_grid_open(gw_grid *g, const gw_bench_place *place);

/** Collective: lay down a cell over the first n floats, in place of what was laid down before. A
 *  refusal is kept, on all ranks alike. */
gw_err gw_grid_lay(gw_grid *g, gw_grid_cell *c, size_t n);

/** True: there is something to run. */
bool gw_grid_ready(const gw_grid_cell *c);

/** Put the known data into the first n floats, for an exchange of a number of its own. */
void gw_grid_fill(gw_grid *g, gw_grid_cell *c, size_t n);

/** Run a cell once; *s: how long this rank took, from a start together. `polls`: start it and poll
 *  until it is complete, else blocking. */
gw_err gw_grid_run(gw_grid *g, gw_grid_cell *c, bool polls, size_t n, double *s);

/** Collective: run a cell once, not timed, to count what its ranks hand to MPI. */
gw_err gw_grid_weigh(gw_grid *g, gw_grid_cell *c, size_t n);

/** Count what is wrong in its result. */
void gw_grid_check(gw_grid *g, gw_grid_cell *c, size_t n);

/** Collective: for each size, lay down all cells but those that `skips` (NULL: none), `measure`
 *  them, put their wrong elements together, and `report` on rank 0. *own: as gw_cli_parallel has
 *  it. */
gw_err gw_grid_sizes(gw_grid *g, bool (*skips)(const gw_grid_cell *c), gw_err (*measure)(size_t n),
                     gw_err (*report)(size_t bytes), bool *own);

/** The cell's codec, and where it encoded nothing, "(not encoded here)"; in `text` then. */
enum { GW_GRID_LABEL = 160 };
const char *gw_grid_codec(const gw_grid_cell *c, char text[GW_GRID_LABEL]);

/** Rank 0, at the end: print which cells were refused, or encoded nothing, and why, and keep it in
 *  `facts`; of `each` cells in a row that differ in other things the first. */
void gw_grid_tell(const gw_grid *g, int each, json_t *facts);

/** GW_ERR_INTERNAL: there were wrong elements. The runner asks it of a benchmark that has a grid,
 *  and closes and frees it. */
gw_err gw_grid_verdict(const gw_grid *g);

void gw_grid_close(gw_grid *g); /* collective */
void gw_grid_free(gw_grid *g);

#endif
