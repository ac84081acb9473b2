#include "comm/fabric/events.h"

#include "base/mem.h"

#include <stdlib.h>

typedef struct gw_event_entry entry;

static bool events_before(const entry *a, const entry *b) {
    return a->at < b->at || (a->at == b->at && a->nth < b->nth);
}

static void events_set(gw_events *q, int place, entry e) {
    q->x[place] = e;
    e.of->place = place;
}

/* Move `e` from `place`, which is free, to where it belongs. */
static void events_sift(gw_events *q, int place, entry e) {
    for (; place > 1 && events_before(&e, &q->x[place / 2]); place /= 2)
        events_set(q, place, q->x[place / 2]);
    for (int below; (below = 2 * place) <= q->n; place = below) {
        below += below < q->n && events_before(&q->x[below + 1], &q->x[below]);
        if (!events_before(&q->x[below], &e))
            break;
        events_set(q, place, q->x[below]);
    }
    events_set(q, place, e);
}

gw_err gw_events_put(gw_events *q, gw_event *e, double at) {
    if (q->n + 1 >= q->room)
        GW_TRY(gw_grow(&q->x, &q->room, q->n + 2, sizeof *q->x));
    e->at = at;
    events_sift(q, e->place ? e->place : ++q->n, (entry){at, q->count++, e});
    return GW_OK;
}

void gw_events_drop(gw_events *q, gw_event *e) {
    int place = e->place;
    if (place == 0)
        return;
    entry last = q->x[q->n--];
    if (last.of != e)
        events_sift(q, place, last);
    e->place = 0;
}

gw_event *gw_events_take(gw_events *q) {
    gw_event *first = q->n > 0 ? q->x[1].of : NULL;
    if (first)
        gw_events_drop(q, first);
    return first;
}

void gw_events_close(gw_events *q) {
    free(q->x);
    *q = (gw_events){0};
}
