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
 *  these lines that share, and the first flow of a line has all of its rate. Lines over the same
 *  links have the same rate: they are one bundle. That rate is the level of one of the links, which
 *  holds the bundle. A link serves all lines that it holds equally. So it counts the bytes that it
 *  has served to each of them, and a flow ends when this count reaches the flow's own mark. The
 *  order of these marks never changes, whatever the level does, so only the end of the flow with
 *  the lowest mark is an event (the virtual time of A. Demers, S. Keshav, S. Shenker, "Analysis and
 *  simulation of a fair queueing algorithm", SIGCOMM 1989). */
#ifndef GW_COMM_FABRIC_FLOWS_H
#define GW_COMM_FABRIC_FLOWS_H

#include "comm/fabric/events.h"
#include "comm/fabric/hash.h"
#include "comm/fabric/network.h"

typedef struct gw_flow {
    gw_event due; /* the caller's */
    double bytes;
    struct gw_flow *next;
} gw_flow;

/** A link of a bundle, and the bundle's place in the link's list. */
typedef struct gw_bundle_link {
    int link, place;
} gw_bundle_link;

typedef struct gw_bundle {
    gw_hashed same;         /* by its links */
    struct gw_bundle *next; /* of those that nothing holds yet */
    struct gw_line *lines;  /* busy ones, */
    int busy;               /* so many */
    int hold;               /* the link whose level is their rate; -1: none */
    int links;
    gw_bundle_link at[];
} gw_bundle;

typedef struct gw_line {
    gw_event due;   /* when its first flow ends: what its link has served then; not held: bytes */
    gw_hashed same; /* by its ends */
    int from, to;
    double latency_s; /* of the way */
    gw_bundle *of;
    struct gw_line *next, **at; /* busy: of its bundle's; what points to it */
    gw_flow *first, *last;
} gw_line;

/** What a link knows of a bundle. */
typedef struct gw_link_share {
    gw_bundle *of;
    int busy, other; /* its lines; its other link, if it has two; -1: it has not */
} gw_link_share;

typedef struct gw_link {
    gw_event due;    /* when the first flow that it holds ends */
    double capacity; /* bytes a ns */
    gw_events held;  /* lines */
    double served;   /* bytes each of them until `since`, from when it held none */
    int64_t since;
    gw_link_share *bundle;
    int n, room, lines; /* bundles; all their busy lines */
    bool queued, touched, changed;
} gw_link;

typedef struct gw_flows {
    gw_events events;
    gw_link *link;
    double *level; /* [link]: bytes a ns */
    int n;
    int64_t now;
    int *queue, head, queued; /* links whose level is to be computed */
    int *touched, n_touched;  /* links that may have another flow that ends first */
    gw_bundle *loose;         /* held by no link yet */
    double narrowest;         /* of all capacities */
    int *with, room;          /* how many links have so many busy lines, */
    int most;                 /* which is the most of all links */
    int busy, wide;           /* links with busy lines; those that are not the narrowest ones */
    gw_hash lines, bundles;
} gw_flows;

/** With so many links, the capacities of which are the caller's to set. */
gw_err gw_flows_open(gw_flows *f, int links);
void gw_flows_close(gw_flows *f);

/** The line between two ends; NULL: there is none yet. */
gw_line *gw_flows_line(const gw_flows *f, const int ends[2]);
/** Add the line between two ends, which takes `way`. *out is the table's. GW_ERR_NOMEM. */
gw_err gw_flows_add(gw_flows *f, const int ends[2], const gw_route *way, gw_line **out);

/** Begin a flow of `bytes` at `now`, ns; it waits for those that began on the line before it.
 *  *x is the caller's, and must stay until gw_flows_end returns it. GW_ERR_NOMEM. */
gw_err gw_flows_begin(gw_flows *f, gw_line *b, gw_flow *x, double bytes, int64_t now);

/** The event `due` of a link has come: the last byte of *out is sent. */
gw_err gw_flows_end(gw_flows *f, gw_link *of, int64_t now, gw_flow **out);

/** What began and ended until `now` is all: see to it that flows end at their times.
 *  GW_ERR_INTERNAL: levels go round without an end. */
gw_err gw_flows_settle(gw_flows *f, int64_t now);

#endif
