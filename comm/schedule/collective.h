/** A collective and its schedules, one per span: laid down when a span first appears, used again
 *  every step. A run has few spans (the arena, or its layers), so a list is enough. */
#ifndef GW_COMM_SCHEDULE_COLLECTIVE_H
#define GW_COMM_SCHEDULE_COLLECTIVE_H

#include "comm/algo.h"

typedef struct gw_collective {
    const gw_algo *algo;
    gw_verb verb;
    gw_lane *lane;
    float *base;
    int root;
    /* NULL, or a function that lays a schedule down in place of the algorithm: the same messages */
    gw_err (*lay_down)(void *ctx, gw_schedule *s);
    void *ctx;
    gw_schedule **schedules;
    int n, room;
} gw_collective;

/** Find the span's schedule, or lay it down. All ranks ask for spans in the same order. */
gw_err gw_collective_get(gw_collective *c, gw_span span, gw_schedule **out);

/** Run the collective over base[span], blocking. */
gw_err gw_collective_run(gw_collective *c, gw_span span);

/** Return what the collective over `span` sends, all ranks together, by formula. */
gw_cost gw_collective_cost(const gw_collective *c, gw_span span);

void gw_collective_clear(gw_collective *c);

#endif
