/** Known data for the benchmarks of collectives, and the count of wrong elements against it.
 *
 *  x_r[i] = table_r[i mod period] of normal random numbers: tables stay in a cache, so filling and
 *  checking every repetition disturbs the timing little; the period is a prime, so that a part
 *  that lands in the wrong place is seen. */
#ifndef GW_CLI_BENCH_BENCH_VERIFY_H
#define GW_CLI_BENCH_BENCH_VERIFY_H

#include "comm/algo.h"

typedef struct gw_bench_data {
    gw_verb verb;
    int rank, ranks;
    float *each;   /* (ranks, period): the table of each rank */
    double *sum;   /* (period): of all ranks */
    double *slack; /* (period): what rounding may change in that sum */
} gw_bench_data;

enum { GW_BENCH_ROOT = 0 }; /* of reduce and bcast */

/** Tables for `ranks` ranks; the same on all of them. Safe to close when zeroed. */
gw_err gw_bench_data_open(gw_bench_data *d, gw_verb verb, int rank, int ranks, uint64_t seed);
void gw_bench_data_close(gw_bench_data *d);

/** What a codec may change in an element of the result, beyond rounding: 0 for lossless ones, else
 *  3 P e with e the largest error that encoding once makes on the ranks' data and its partial sums
 *  (docs/benchmarks.md says why). */
gw_err gw_bench_data_bound(const gw_bench_data *d, const gw_codec *codec, double *bound);

/** x[0..n) = this rank's contribution. */
void gw_bench_data_fill(const gw_bench_data *d, float *x, size_t n);

/** How many elements that this rank must hold after the collective over y[0..n) are further from
 *  the reference than rounding and `bound` allow, or not numbers. */
uint64_t gw_bench_data_wrong(const gw_bench_data *d, const float *y, size_t n, double bound);

#endif
