/** What is to happen, the earliest first: a binary heap of moments that lie in structs of the
 *  caller's. Of equal ones the one that was put first comes first, so that runs repeat. */
#ifndef GW_COMM_FABRIC_EVENTS_H
#define GW_COMM_FABRIC_EVENTS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Zeroed: nothing is to happen. Of a world: whose it is. */
typedef struct gw_event {
    double at; /* a world's are whole ns */
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

/** The earliest, which is in the heap no more; NULL: there is none. */
gw_event *gw_events_take(gw_events *q);

/** The same, if it is to happen until `now`. */
static inline gw_event *gw_events_next(gw_events *q, double now) {
    return q->n > 0 && q->x[1].at <= now ? gw_events_take(q) : NULL;
}

void gw_events_close(gw_events *q);

#endif
