/** Executors of a paced step (step/paced.h). A step's arithmetic takes messages, so it is done
 *  twice: outside the clock for real, with its messages, which are kept, for a codec's bytes depend
 *  on what it encodes; and in the clock, where arithmetic is slept and the same is sent again. */
#ifndef GW_STEP_EXEC_SLEEP_H
#define GW_STEP_EXEC_SLEEP_H

#include "machine/pacer.h"
#include "mesh/pipeline.h"

typedef struct gw_sleeper {
    gw_pacer *pacer;
    gw_phase phase; /* of the last arithmetic */
    double since_s; /* a wait began */
    struct {
        float *x; /* one message behind another; free() */
        size_t n, room, at;
    } sent; /* those before `at` were sent again */
} gw_sleeper;

/** The executor outside the clock, and the one in the clock. Get it anew for each step: it sets `s`
 *  to the first message. */
gw_exec gw_exec_ahead(gw_sleeper *s);
gw_exec gw_exec_sleep(gw_sleeper *s);

#endif
