/** Flows that share links, as fluids do: each has the rate that max-min fairness gives it (D.
 *  Bertsekas, R. Gallager, "Data Networks", 1992, section 6.5). Of link l with capacity C and flows
 *  f, level s(l) solves
 *      sum over f of min(s(l), least s(k) of the other links k of f) = C,
 *  or is infinite if all of them are held back elsewhere; the rate of f is the least s of its
 *  links. The lowest level is right as soon as it is computed, then the next one, and so on: so
 *  levels are computed until none changes, and only those of links that a change reaches (A.
 *  Charny, D. Clark, R. Jain, "Congestion control with explicit rate indication", ICC 1995).
 *
 *  Flows from one end to another are sent one behind another, as by one TCP connection: so it is
 *  these queues that share, and the first flow of a queue has all of its rate. */
#ifndef GW_COMM_FABRIC_FLOWS_H
#define GW_COMM_FABRIC_FLOWS_H

#include "comm/fabric/network.h"

#include "comm/fabric/events.h"

/** A link of a line, and the line's place in the link's list. */
typedef struct gw_line_link {
    int link, place;
} gw_line_link;

typedef struct gw_line {
    struct gw_line *next; /* of those with the same hash */
    int from, to;
    struct gw_flow *first, *last; /* of its flows */
    double served, rate;          /* bytes from the beginning until `since`; a ns then */
    int64_t since;
    int links;
    gw_line_link at[];
} gw_line;

typedef struct gw_flow {
    gw_event due; /* when its last byte is sent, once it is the first of its line */
    gw_line *of;
    double until; /* what `served` is then */
    struct gw_flow *next;
} gw_flow;

typedef struct gw_link {
    double capacity, level; /* bytes a ns */
    gw_line **line;
    int n, room;
    bool queued, touched;
} gw_link;

typedef struct gw_flows {
    gw_events events;
    gw_link *link;
    int n;
    int *queue, head, queued; /* links whose level is to be computed */
    int *touched, n_touched;  /* links with flows whose rate may have changed */
    struct {
        gw_line **chain;
        int size, n;
    } lines; /* by their ends */
} gw_flows;

/** With so many links, the capacities of which are the caller's to set. */
gw_err gw_flows_open(gw_flows *f, int links);
void gw_flows_close(gw_flows *f);

/** A flow of `bytes` begins between two ends, whose way is always the same. */
gw_err gw_flows_begin(gw_flows *f, gw_flow *x, const int ends[2], const gw_route *way, double bytes,
                      int64_t now);

/** The event x->due has come: its last byte is sent. */
gw_err gw_flows_end(gw_flows *f, gw_flow *x, int64_t now);

/** What began and ended until `now` is all: see to it that flows are due at their times.
 *  GW_ERR_INTERNAL: levels go round without an end. */
gw_err gw_flows_settle(gw_flows *f, int64_t now);

#endif
