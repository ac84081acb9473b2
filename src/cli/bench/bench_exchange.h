/** One way to carry out a collective, ready to be timed: an algorithm of ours over a codec, or the
 *  MPI library's own blocking call. */
#ifndef GW_CLI_BENCH_BENCH_EXCHANGE_H
#define GW_CLI_BENCH_BENCH_EXCHANGE_H

#include "cli/bench/bench_kit.h"
#include "cli/bench/bench_verify.h"
#include "comm/plan.h"

/** A codec's lane with its buffer, which all algorithms that carry the codec share. */
typedef struct gw_bench_wire {
    const char *spec;
    gw_codec codec;
    gw_lane *lane;
    float *base;  /* the lane's */
    double bound; /* of gw_bench_data_bound */
} gw_bench_wire;

typedef enum gw_bench_how { GW_BENCH_BLOCKING, GW_BENCH_POLLED } gw_bench_how;

typedef struct gw_bench_exchange {
    const char *spec; /* of the algorithm */
    gw_bench_wire *wire;
    bool mpi; /* MPI's own blocking call; the following are not used then */
    gw_algo algo;
    gw_schedule *schedule; /* of the present size; NULL: refused */
    char *refused;         /* why it was last; NULL: it was not */
    bool never;            /* refused whatever the size: it cannot carry the codec */
} gw_bench_exchange;

/** Collective: lane and buffer of `n` floats. */
gw_err gw_bench_wire_open(gw_bench_wire *w, const gw_bench_place *place, size_t n, uint64_t seed);
void gw_bench_wire_close(gw_bench_wire *w); /* collective */

/** Look up x->spec for the codec; no communication. A refusal is kept in `refused`. */
gw_err gw_bench_exchange_open(gw_bench_exchange *x, gw_verb verb);
void gw_bench_exchange_close(gw_bench_exchange *x);

/** Collective: lay down `verb` over the first n floats, in place of what was laid down before. A
 *  refusal is kept in `refused`, on all ranks alike. */
gw_err gw_bench_exchange_lay(gw_bench_exchange *x, const gw_bench_place *place, gw_verb verb,
                             size_t n);

/** True: there is something to run. */
bool gw_bench_exchange_ready(const gw_bench_exchange *x);

/** Rank 0, at the end: print that it was refused and why, and add that to the array `to`; nothing
 *  if it was not. */
void gw_bench_exchange_tell(const gw_bench_exchange *x, json_t *to);

/** Run it once. */
gw_err gw_bench_exchange_run(const gw_bench_exchange *x, gw_verb verb, gw_bench_how how, size_t n);

#endif
