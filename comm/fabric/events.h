/** Future events, the earliest first: a binary heap of moments that lie in the caller's structs.
 *  Events at the same moment come in the order in which they were put, so that runs repeat. */
#ifndef GW_COMM_FABRIC_EVENTS_H
#define GW_COMM_FABRIC_EVENTS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Zeroed: nothing is scheduled. `of`, in a world: what it belongs to. */
typedef struct gw_event {
    double at; /* in a world, whole ns */
    int place; /* in the heap, from 1; 0: in none */
    enum { GW_EVENT_MESSAGE, GW_EVENT_LINK, GW_EVENT_RANK } of;
} gw_event;

typedef struct gw_events {
    struct gw_event_entry {
        double at;
        uint64_t nth;
        gw_event *of;
    } * x; /* x[1..n] */
    int n, room;
    uint64_t count; /* put so far */
} gw_events;

/** Schedule *e for the moment `at`; if it was scheduled before, move it. GW_ERR_NOMEM. */
gw_err gw_events_put(gw_events *q, gw_event *e, double at);

/** Cancel *e, if it is scheduled. */
void gw_events_drop(gw_events *q, gw_event *e);

/** Remove the earliest event from the heap and return it; NULL: there is none. */
gw_event *gw_events_take(gw_events *q);

/** The same, if it is due by `now`. */
static inline gw_event *gw_events_next(gw_events *q, double now) {
    return q->n > 0 && q->x[1].at <= now ? gw_events_take(q) : NULL;
}

void gw_events_close(gw_events *q);

#endif
