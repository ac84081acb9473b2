/** A step of overlapped training as two workers: the core, which computes, and the link, which
 *  carries one part of the exchange at a time. Pure arithmetic: layouts (select/layout.h) and the
 *  bound of a step (select/bound.h) say what each part takes, and walk along it. */
#ifndef GW_SELECT_WALK_H
#define GW_SELECT_WALK_H

#include "base/span.h"
#include "select/local.h"

#include <stdbool.h>

enum { GW_WALK_PARTS = 4096 };

/** A part of the arena that is exchanged in one piece. */
typedef struct gw_walk_part {
    gw_span span;
    double before_s;  /* the core is busy with it so long before it can be sent, */
    double beside_s;  /* and so long while it is on its way */
    double wire_s;    /* the link is busy with it, */
    double latency_s; /* and so much later it is there */
    double gather_s;  /* the link's time for its new parameters, once they are updated; see below */
} gw_walk_part;

typedef struct gw_walk {
    gw_local local;
    const gw_span *layers; /* from the first on */
    int n_layers;
    gw_walk_part part[GW_WALK_PARTS]; /* in the order in which they are complete */
    int n_parts;
    bool lazy;     /* a layer is waited for and updated just before the forward pass reads it */
    bool priority; /* of the parts that are ready the link takes the one nearest the input */
    bool gathers;  /* lazy, a part each layer: when its shard is updated the link carries gather_s;
                      the layer above is updated before this one is waited for */
} gw_walk;

/** Cut its layers, which are set, into parts that take no time: buckets of so many floats, or, if
 *  0, a layer each. Returns how many there would be if there were room for all. */
int gw_walk_cut(gw_walk *w, size_t bucket);

typedef struct gw_walked {
    double step_s, waited_s; /* waited_s: of step_s, the core's time without work */
} gw_walked;

/** A period of the steady state, from one backward pass to the next. The backward pass of layer l
 *  takes time in proportion to its floats, twice (the gradient of its weights, and of its input,
 *  which the first layer does not need); a part is complete with the lowest layer in it. Eager: all
 *  parts are there before the update. Lazy: data are read first, then layer after layer waited for,
 *  updated and computed. */
gw_walked gw_walk_step(const gw_walk *w);

#endif
