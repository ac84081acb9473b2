/** Sums of arenas in memory that the ranks of a node share. */
#ifndef GW_COMM_SUM_H
#define GW_COMM_SUM_H

#include "base/span.h"

#include <stdint.h>

/** to[j][0..len) = rows[0] + rows[1] + ... + rows[n-1], each times its weight, added in that order,
 *  for each j < n_to. weights NULL: all are 1. A `to` may be one of the rows; otherwise nothing
 *  overlaps. One pass: each row is read once, each `to` written once. most[r], unless `most` is
 *  NULL: gw_norm_greatest of row r before. */
void gw_sum_rows(float *const *rows, const float *weights, int n, float *const *to, int n_to,
                 size_t len, uint32_t *most);

/** Return part `i` of `parts` of `s`, as gw_span_part, but cut at cache lines of an arena that
 * begins on one, so that no two ranks write to the same line. Parts of small spans may be empty. */
gw_span gw_sum_part(gw_span s, int i, int parts);

#endif
