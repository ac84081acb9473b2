/** An allreduce of sparse encodings that never touches the arena: it gathers the encodings of all
 *  ranks, and adds their elements to one list. Arena elements are neither cleared nor read, whether
 *  sent or not: who needs the sum walks over the list. */
#ifndef GW_COMM_SCHEDULE_SPARSE_SUM_H
#define GW_COMM_SCHEDULE_SPARSE_SUM_H

#include "comm/schedule/schedule.h"

/** The sum over one span. Zero it to begin with. */
typedef struct gw_sparse_sum {
    gw_elements sum;  /* places counted from the arena's start */
    gw_elements *of;  /* per rank: what it has sent, places counted from the span's start */
    size_t *taken;    /* per rank: how many of these are added */
    float *value;     /* values of a piece of the span; zeros except while adding up */
    uint64_t *filled; /* a bit for each value; likewise */
    gw_span span;
    int ranks;
} gw_sparse_sum;

/** Allocate memory for sums over so many ranks. The spans may differ from sum to sum. */
gw_err gw_sparse_sum_open(gw_sparse_sum *t, int ranks);

/** sum = of[0] + of[1] + .., over t->span, which ends below 2^32. */
gw_err gw_sparse_sum_add_up(gw_sparse_sum *t);

/** Lay down the messages of an allreduce by gathersum on `s`. The codec of its lane must list, and
 *  its span end below 2^32. As there, contributions are added in the order of ranks. The sum is
 *  valid from the schedule's end until its next start. `t` must outlive the schedule. */
gw_err gw_sparse_sum_lay_down(gw_sparse_sum *t, gw_schedule *s);

/** Free, after the schedule is freed. */
void gw_sparse_sum_free(gw_sparse_sum *t);

#endif
