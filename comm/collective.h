/** A collective and its schedules, one a span: laid down when a span is first seen, used again
 *  every step. The spans of a run are few (the arena, or its layers), so a list serves. */
#ifndef GW_COMM_COLLECTIVE_H
#define GW_COMM_COLLECTIVE_H

#include "comm/algo.h"

typedef struct gw_collective {
    const gw_algo *algo;
    gw_verb verb;
    gw_lane *lane;
    float *base;
    int root;
    /* NULL, or what lays a schedule down in the algorithm's place: the same messages */
    gw_err (*lay_down)(void *ctx, gw_schedule *s);
    void *ctx;
    gw_schedule **schedules;
    int n, room;
} gw_collective;

/** All ranks ask for its spans in the same order. */
gw_err gw_collective_get(gw_collective *c, gw_span span, gw_schedule **out);

/** Blocking: the collective over base[span]. */
gw_err gw_collective_run(gw_collective *c, gw_span span);

/** By formula: what the collective over `span` sends, all ranks together. */
gw_cost gw_collective_cost(const gw_collective *c, gw_span span);

void gw_collective_clear(gw_collective *c);

#endif
