/** An allreduce of sparse encodings that never touches the arena: the encodings of all ranks are
 *  gathered, and their elements added up to one list. What the ranks have not sent is neither
 *  cleared nor read, nor is what they have: who needs the sum walks over the list. */
#ifndef GW_COMM_SPARSE_SUM_H
#define GW_COMM_SPARSE_SUM_H

#include "comm/schedule.h"

/** The sum over one span. Zero it to begin with. */
typedef struct gw_sparse_sum {
    gw_elements sum;  /* places counted from the arena's start */
    gw_elements *of;  /* a rank each: what it has sent, places counted from the span's start */
    size_t *taken;    /* a rank each: how many of these are added */
    float *value;     /* of a piece of the span; zeros but while it is added up */
    uint64_t *filled; /* a bit for each of them; likewise */
    gw_span span;
    int ranks;
} gw_sparse_sum;

/** Memory for a sum of what so many ranks send. The spans may differ from sum to sum. */
gw_err gw_sparse_sum_open(gw_sparse_sum *t, int ranks);

/** sum = of[0] + of[1] + .., over t->span, which ends below 2^32. */
gw_err gw_sparse_sum_add_up(gw_sparse_sum *t);

/** Lay down on `s`, whose lane's codec must list and whose span ends below 2^32, the messages of an
 *  allreduce by gathersum. As there, what ranks send is added up in their order. The sum is there
 *  when the schedule is complete, until it starts again. `t` must outlive the schedule. */
gw_err gw_sparse_sum_lay_down(gw_sparse_sum *t, gw_schedule *s);

/** Once the schedule is freed. */
void gw_sparse_sum_free(gw_sparse_sum *t);

#endif
