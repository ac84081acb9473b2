/** A plan keeps one collective's schedules by span: laid down when a span is first seen, used again
 *  every step. The spans of a run are few (the arena, or its layers), so a list serves. */
#ifndef GW_COMM_PLAN_H
#define GW_COMM_PLAN_H

#include "comm/algo.h"

typedef enum gw_verb { GW_ALLREDUCE, GW_REDUCE, GW_BCAST } gw_verb;

typedef struct gw_plan {
    const gw_algo *algo;
    gw_verb verb;
    gw_lane *lane;
    float *base;
    int root;
    gw_schedule **schedules;
    int n;
} gw_plan;

/** All ranks ask for a plan's spans in the same order. */
gw_err gw_plan_get(gw_plan *plan, gw_span span, gw_schedule **out);

/** Blocking: the collective over base[span]. */
gw_err gw_plan_run(gw_plan *plan, gw_span span);

void gw_plan_clear(gw_plan *plan);

#endif
