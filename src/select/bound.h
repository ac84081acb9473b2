/** The bound of a step: the least time that a mode of communication allows on this machine, from
 *  measured parts. docs/measurement.md has the definitions. Pure arithmetic; select/bound_measure.h
 *  measures the parts.
 *
 *  Let computation = data + forward + backward + update + other, without any exchange, + codec.
 *
 *  blocking  computation + wire
 *  eager     a walk along the step (select/walk.h): a bucket can start when the backward pass has
 *            completed it, the link serves buckets one after the other, the step ends when the last
 *            has arrived and the update is done
 *  lazy      the same, each layer waited for in the next forward pass; buckets go in the order in
 *            which they become complete
 *  priority  lazy, of the complete buckets the one nearest the input first
 *  sharded   lazy: each layer's reduce-scatter like a bucket, its allgather when its shard is
 *            updated, half of the wire's time each
 *  delayed   max(computation + transport, wire)
 *
 *  In all but the first the transport's own time on the computing core is computation, too. (A
 *  blocking exchange contains it: nobody computes meanwhile.) */
#ifndef GW_SELECT_BOUND_H
#define GW_SELECT_BOUND_H

#include "select/walk.h"

#include <jansson.h>
#include <stddef.h>

typedef enum gw_bound_mode {
    GW_BOUND_BLOCKING,
    GW_BOUND_EAGER,
    GW_BOUND_LAZY,
    GW_BOUND_PRIORITY,
    GW_BOUND_SHARDED,
    GW_BOUND_DELAYED,
    GW_BOUND_MODES
} gw_bound_mode;

/** "blocking", "eager", ... Static string. */
const char *gw_bound_name(gw_bound_mode mode);

/** Measured; seconds of one step on the slowest rank. */
typedef struct gw_bound_parts {
    gw_local local;     /* without exchange */
    double codec_s;     /* encoding, decoding and summing, all parts together */
    double wire_s;      /* the exchange alone, less codec_s */
    double transport_s; /* of the computing core, moving messages; NaN: not measured, and then the
                           bound leaves it out */
    const gw_span *layers;
    int n_layers;
    size_t bucket;       /* floats; 0: a layer each */
    double update_share; /* sharded: what of the update a rank does; else 1 */
} gw_bound_parts;

/** Computation and codec: what the core has to do whatever the mode. */
static inline double gw_bound_computation(const gw_bound_parts *p) {
    return gw_local_sum(&p->local) + p->codec_s;
}

/** The bound of that mode, seconds. */
double gw_bound_step(const gw_bound_parts *p, gw_bound_mode mode);

/** The parts, and the bounds of all modes by name. */
json_t *gw_bound_json(const gw_bound_parts *p);

#endif
