/** A plan keeps one collective's schedules by span: laid down when a span is first seen, used again
 *  every step. The spans of a run are few (the arena, or its layers), so a list serves. */
#ifndef GW_COMM_PLAN_H
#define GW_COMM_PLAN_H

#include "comm/algo.h"

typedef struct gw_plan {
    const gw_algo *algo;
    gw_verb verb;
    gw_lane *lane;
    float *base;
    int root;
    /* NULL, or what lays a schedule down in the algorithm's place: the same messages */
    gw_err (*lay_down)(void *ctx, gw_schedule *s);
    void *ctx;
    gw_schedule **schedules;
    int n;
} gw_plan;

/** All ranks ask for a plan's spans in the same order. */
gw_err gw_plan_get(gw_plan *plan, gw_span span, gw_schedule **out);

/** Blocking: the collective over base[span]. */
gw_err gw_plan_run(gw_plan *plan, gw_span span);

/** By formula: what the collective over `span` sends, all ranks together. */
gw_cost gw_plan_cost(const gw_plan *plan, gw_span span);

void gw_plan_clear(gw_plan *plan);

#endif
