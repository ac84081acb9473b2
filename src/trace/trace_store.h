/** What trace.c keeps while batches run and trace_write.c writes to a file. */
#ifndef GW_TRACE_TRACE_STORE_H
#define GW_TRACE_TRACE_STORE_H

#include "prof/batch_row.h"

#include <stddef.h>
#include <stdint.h>

/** Kind of a main thread's stretch, besides the phases. */
enum { GW_TRACE_BATCH = GW_PHASES };

/** Times are ticks of prof/clock.h. */
typedef struct gw_trace_stretch {
    uint64_t start, end;
    int64_t step; /* of a batch: its number, 0: of no step */
    int32_t kind; /* gw_phase or GW_TRACE_BATCH */
    int32_t track;
} gw_trace_stretch;

/** Of an exchange: in flight, or waited for. */
typedef struct gw_trace_exchange {
    uint64_t start, end;
    int64_t step; /* in which it started; 0: between steps */
    gw_exchange what;
} gw_trace_exchange;

/** Of a pipeline's step. */
typedef struct gw_trace_action {
    uint64_t start, end;
    gw_action what;
} gw_trace_action;

/** Of a batch; NaN: absent. */
typedef struct gw_trace_figures {
    uint64_t at; /* when the batch began */
    double wire_bytes;
    double share_ctr, share_twin, share_model_lo, share_model_hi; /* memory-bound, of computation */
    double counter[GW_COUNTERS];
} gw_trace_figures;

enum {
    GW_TRACE_MAIN,      /* gw_trace_stretch: phases, each batch after its own */
    GW_TRACE_FLIGHTS,   /* gw_trace_stretch: requests in flight */
    GW_TRACE_ASIDE,     /* gw_trace_stretch: codec runs of other threads */
    GW_TRACE_EXCHANGES, /* gw_trace_exchange: in flight */
    GW_TRACE_WAITS,     /* gw_trace_exchange: the main thread waits for it */
    GW_TRACE_FIGURES,   /* gw_trace_figures */
    GW_TRACE_ACTIONS,   /* gw_trace_action */
    GW_TRACE_RINGS
};

/** Threads, besides the main one, whose codec runs are kept: track 0, 1, .. by first appearance. */
enum { GW_TRACE_THREADS = 8 };

/** The last `room` of `seen` items, in the order they ended. */
typedef struct gw_trace_ring {
    void *items; /* NULL: no trace is open */
    size_t size, room;
    uint64_t seen, lost; /* lost: dropped before the ring */
} gw_trace_ring;

typedef struct gw_trace_store {
    gw_trace_ring ring[GW_TRACE_RINGS];
    int threads; /* tracks of GW_TRACE_ASIDE in use */
    char counter[GW_COUNTERS][GW_COUNTER_NAME];
    int counters;
} gw_trace_store;

/** The trace of this process. */
extern gw_trace_store gw_trace_the;

/** Number of items in a ring, and the i-th of them, oldest first. */
size_t gw_trace_held(const gw_trace_ring *r);
const void *gw_trace_item(const gw_trace_ring *r, size_t i);

/** Stop listening while writing, whose own messages would move the rings; then continue. */
void gw_trace_pause(void);
void gw_trace_resume(void);

#endif
