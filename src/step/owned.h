/** Which parts of the arena this rank updates: there its optimizer's state is the valid one. */
#ifndef GW_STEP_OWNED_H
#define GW_STEP_OWNED_H

#include "base/span.h"
#include "nn/model.h"

/** As many as spans are finished in a step; zeroed before the first use. */
typedef struct gw_owned {
    gw_span span[GW_MAX_LAYERS];
    int n;
} gw_owned;

/** This rank has updated s, of an arena of `size` floats. A strategy that hands out more different
 *  spans than there are layers owns all. */
static inline void gw_owned_add(gw_owned *o, gw_span s, size_t size) {
    if (s.n == 0)
        return;
    for (int i = 0; i < o->n; i++)
        if (o->span[i].off <= s.off && gw_span_end(s) <= gw_span_end(o->span[i]))
            return;
    if (o->n == GW_MAX_LAYERS) {
        s = (gw_span){0, size};
        o->n = 0;
    }
    o->span[o->n++] = s;
}

#endif
