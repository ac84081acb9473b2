/** Counts steps by the spans that pass: a step is over when spans of n floats in all have passed,
 *  the whole arena at once or layer by layer. */
#ifndef GW_COMM_STEPS_H
#define GW_COMM_STEPS_H

#include "base/io.h"
#include "base/span.h"

#include <stdint.h>

typedef struct gw_steps {
    size_t n, seen; /* floats of a step, and of the present one so far */
    int64_t done;   /* whole steps */
} gw_steps;

/** Pass a span, once per step; return true if it was the step's last. */
static inline int gw_steps_pass(gw_steps *c, gw_span s) {
    c->seen += s.n;
    if (c->seen < c->n || s.n == 0)
        return 0;
    c->seen = 0;
    c->done++;
    return 1;
}

/** Save or load the number of steps done and, unless NULL, after how many of them replicas last
 *  agreed; the same on all ranks (gw_io_alike). GW_ERR_INPUT: numbers that no run has.
 */
static inline gw_err gw_steps_state(gw_steps *c, int64_t *agreed, gw_io *io) {
    int64_t none = 0, *at = agreed ? agreed : &none;
    GW_TRY(gw_io_alike(io, "steps", &c->done, sizeof c->done));
    if (agreed)
        GW_TRY(gw_io_alike(io, "agreed", agreed, sizeof *agreed));
    if (c->done >= 0 && *at >= 0 && *at <= c->done)
        return GW_OK;
    return gw_fail(GW_ERR_INPUT, "%s: %lld steps done, replicas agreed after %lld", gw_io_name(io),
                   (long long)c->done, (long long)*at);
}

#endif
