/** Steps, counted by the spans that pass: one is over when spans of n floats in all have passed, be
 *  it the whole arena at once or layer by layer. */
#ifndef GW_COMM_STEPS_H
#define GW_COMM_STEPS_H

#include "base/span.h"

#include <stdint.h>

typedef struct gw_steps {
    size_t n, seen; /* floats of a step, and of the present one so far */
    int64_t done;   /* whole steps */
} gw_steps;

/** Each span of a step passes once; true: that was the last one. */
static inline int gw_steps_pass(gw_steps *c, gw_span s) {
    c->seen += s.n;
    if (c->seen < c->n || s.n == 0)
        return 0;
    c->seen = 0;
    c->done++;
    return 1;
}

#endif
