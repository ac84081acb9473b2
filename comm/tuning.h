/** Which algorithm to use for which size of span: a table of times, measured on a lane or read from
 * a file, and the choices made from it. */
#ifndef GW_COMM_TUNING_H
#define GW_COMM_TUNING_H

#include "comm/algo.h"

enum { GW_TUNING_SIZES = 8, GW_TUNING_ALGOS = 64 };

typedef struct gw_tuning_row {
    size_t bytes;                   /* float32 bytes of the span */
    double time_s[GW_TUNING_ALGOS]; /* of an allreduce, the slowest rank's; NaN: not measured */
    int chosen;
} gw_tuning_row;

typedef struct gw_tuning {
    int n_algos, n_sizes;
    gw_algo algo[GW_TUNING_ALGOS];      /* of the registry, with their defaults */
    gw_tuning_row row[GW_TUNING_SIZES]; /* in ascending order */
} gw_tuning;

/** First line of a table file. Rows: ranks, the lane's name, its codec, then a gw_tuning_row's. */
#define GW_TUNING_HEADER "ranks,lane,codec,bytes,algorithm,time_s,chosen\n"

/** Measure on `lane`, in about `budget_s` seconds, every algorithm of the registry except `except`
 *  that carries its codec. Choose the fastest for each size: in rounds of all candidates, each in a
 *  new random order, a barrier before each run, by the median of the slowest rank's times. The
 *  lane's residual and ticket do not change. All ranks get the same table. Collective. */
gw_err gw_tuning_measure(gw_tuning *t, gw_lane *lane, const gw_algo_ops *except, double budget_s);

/** Read the rows for `lane` from the text of a table file, which may be anything; `path` is for
 *  messages. GW_ERR_INPUT: malformed, or for another lane, codec or number of ranks. */
gw_err gw_tuning_read(gw_tuning *t, const gw_lane *lane, const gw_algo_ops *except,
                      const char *path, const char *text);

/** Write the rows as in a table file, without its header; free(). */
gw_err gw_tuning_print(const gw_tuning *t, const gw_lane *lane, char **text);

/** Return the index of the algorithm for spans of n floats: that of the size nearest by ratio. */
int gw_tuning_choice(const gw_tuning *t, size_t n);

void gw_tuning_clear(gw_tuning *t);

#endif
