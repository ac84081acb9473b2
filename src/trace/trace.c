#include "trace/trace.h"

#include "base/mem.h"
#include "base/text.h"
#include "prof/ledger.h"
#include "trace/trace_store.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024 }; /* exchanges in flight that can be told apart */

gw_trace_store gw_trace_the;

/* Other threads read the step in which they start an exchange. */
static atomic_int_fast64_t next_step;

/* Exchanges in flight: they go to the ring once complete, so none there lacks an end. Guarded by
 * the ledger's lock, like everything in `exchange` and `aside`. */
static gw_trace_exchange trace_in_flight[MOST];
static int n_flying;

/* What the main thread waits for; start 0: nothing. */
static gw_trace_exchange waiting;

static gw_trace_ring *trace_ring(int which) {
    return &gw_trace_the.ring[which];
}

static void trace_add(int which, const void *item) {
    gw_trace_ring *r = trace_ring(which);
    memcpy((char *)r->items + r->seen++ % r->room * r->size, item, r->size);
}

size_t gw_trace_held(const gw_trace_ring *r) {
    return r->seen < r->room ? (size_t)r->seen : r->room;
}

const void *gw_trace_item(const gw_trace_ring *r, size_t i) {
    uint64_t at = r->seen - gw_trace_held(r) + i;
    return (const char *)r->items + at % r->room * r->size;
}

/* NULL: it is empty. */
static void *trace_last_of(int which) {
    gw_trace_ring *r = trace_ring(which);
    return r->seen ? (char *)r->items + (r->seen - 1) % r->room * r->size : NULL;
}

/* ---- from the ledger ---- */

/* Join touching stretches of one phase: a region that only waits splits many. */
static void trace_add_slice(gw_phase phase, uint64_t start, uint64_t end) {
    gw_trace_stretch *last = trace_last_of(GW_TRACE_MAIN);
    if (last && last->kind == (int32_t)phase && last->end == start)
        last->end = end;
    else
        trace_add(GW_TRACE_MAIN, &(gw_trace_stretch){start, end, 0, (int32_t)phase, 0});
}

static void trace_add_batch(uint64_t start, uint64_t end) {
    int64_t step = atomic_load(&next_step);
    trace_add(GW_TRACE_MAIN, &(gw_trace_stretch){start, end, step, GW_TRACE_BATCH, 0});
    atomic_store(&next_step, step + 1);
}

static void trace_add_flight(uint64_t start, uint64_t end) {
    trace_add(GW_TRACE_FLIGHTS, &(gw_trace_stretch){start, end, 0, 0, 0});
}

static void trace_add_action(const gw_action *a, uint64_t start, uint64_t end) {
    trace_add(GW_TRACE_ACTIONS, &(gw_trace_action){start, end, *a});
}

static void trace_add_aside(gw_phase phase, uint64_t start, uint64_t end) {
    static _Thread_local int track = -1;
    if (track < 0)
        track = gw_trace_the.threads < GW_TRACE_THREADS ? gw_trace_the.threads++ : GW_TRACE_THREADS;
    if (track < GW_TRACE_THREADS)
        trace_add(GW_TRACE_ASIDE, &(gw_trace_stretch){start, end, 0, (int32_t)phase, track});
    else
        trace_ring(GW_TRACE_ASIDE)->lost++;
}

static void trace_start(const gw_exchange *x, uint64_t now) {
    int64_t step = gw_ledger_counts() ? atomic_load(&next_step) : 0;
    if (n_flying < MOST)
        trace_in_flight[n_flying++] = (gw_trace_exchange){now, 0, step, *x};
    else
        trace_ring(GW_TRACE_EXCHANGES)->lost++;
}

/* Ignores an exchange that started before the trace was opened. */
static void trace_done(const gw_exchange *x, uint64_t now) {
    int i = 0;
    while (i < n_flying && (trace_in_flight[i].what.schedule != x->schedule ||
                            trace_in_flight[i].what.lane != x->lane))
        i++;
    if (i == n_flying)
        return;
    trace_in_flight[i].end = now;
    trace_add(GW_TRACE_EXCHANGES, &trace_in_flight[i]);
    memmove(trace_in_flight + i, trace_in_flight + i + 1,
            (size_t)(--n_flying - i) * sizeof *trace_in_flight);
}

static void trace_add_exchange(gw_exchange_event event, const gw_exchange *x, uint64_t now) {
    switch (event) {
    case GW_EXCHANGE_START: trace_start(x, now); break;
    case GW_EXCHANGE_DONE: trace_done(x, now); break;
    case GW_EXCHANGE_BLOCK: {
        int64_t step = gw_ledger_counting() ? atomic_load(&next_step) : 0;
        waiting = (gw_trace_exchange){now, 0, step, *x};
        break;
    }
    case GW_EXCHANGE_UNBLOCK:
        if (waiting.start == 0)
            break;
        waiting.end = now;
        trace_add(GW_TRACE_WAITS, &waiting);
        waiting.start = 0;
        break;
    }
}

static const gw_ledger_sink trace_sink = {.slice = trace_add_slice,
                                          .batch = trace_add_batch,
                                          .flight = trace_add_flight,
                                          .exchange = trace_add_exchange,
                                          .aside = trace_add_aside,
                                          .action = trace_add_action};

/* ---- from the trainer ---- */

void gw_trace_step(int64_t step) {
    atomic_store(&next_step, step);
}

void gw_trace_counters(const gw_record *record) {
    gw_trace_store *t = &gw_trace_the;
    const char *name = gw_record_counter(record, 0);
    for (t->counters = 0; name; name = gw_record_counter(record, ++t->counters))
        gw_text_copy(t->counter[t->counters], GW_COUNTER_NAME, name);
}

void gw_trace_row(const gw_batch_row *row) {
    const gw_trace_stretch *batch = trace_last_of(GW_TRACE_MAIN);
    if (!batch)
        return;
    const double *phase = row->cost.phase_s;
    double compute = gw_phases_computation(phase);
    double per = compute > 0 ? 1 / compute : NAN;
    gw_trace_figures f = {.at = batch->start,
                          .wire_bytes = (double)row->cost.wire_bytes,
                          .share_ctr = row->split.memory_ctr_s * per,
                          .share_twin = row->split.memory_twin_s * per,
                          .share_model_lo = row->split.memory_model_lo_s * per,
                          .share_model_hi = row->split.memory_model_hi_s * per};
    memcpy(f.counter, row->counter, sizeof f.counter);
    trace_add(GW_TRACE_FIGURES, &f);
}

static gw_err trace_make_rings(size_t events) {
    static const struct {
        size_t size, part; /* bytes of an item; room for events / part items */
    } kinds[GW_TRACE_RINGS] = {[GW_TRACE_MAIN] = {sizeof(gw_trace_stretch), 1},
                               [GW_TRACE_FLIGHTS] = {sizeof(gw_trace_stretch), 1},
                               [GW_TRACE_ASIDE] = {sizeof(gw_trace_stretch), 4},
                               [GW_TRACE_EXCHANGES] = {sizeof(gw_trace_exchange), 4},
                               [GW_TRACE_WAITS] = {sizeof(gw_trace_exchange), 4},
                               [GW_TRACE_FIGURES] = {sizeof(gw_trace_figures), 8},
                               [GW_TRACE_ACTIONS] = {sizeof(gw_trace_action), 4}};
    if (events == 0)
        return gw_fail(GW_ERR_USAGE, "a trace needs room for an event");
    for (int i = 0; i < GW_TRACE_RINGS; i++) {
        size_t part = events / kinds[i].part, room = part > 0 ? part : 1;
        *trace_ring(i) = (gw_trace_ring){.size = kinds[i].size, .room = room};
        GW_TRY(gw_alloc(&trace_ring(i)->items, room, kinds[i].size));
    }
    return GW_OK;
}

gw_err gw_trace_open(size_t events, MPI_Comm comm) {
    gw_trace_close();
    gw_err e = gw_agree(comm, trace_make_rings(events));
    if (e != GW_OK) {
        gw_trace_close();
        return e;
    }
    gw_trace_step(1);
    gw_trace_resume();
    return GW_OK;
}

void gw_trace_pause(void) {
    gw_ledger_unlisten(&trace_sink);
}

void gw_trace_resume(void) {
    gw_ledger_listen(&trace_sink);
}

void gw_trace_close(void) {
    gw_trace_store *t = &gw_trace_the;
    if (t->ring[GW_TRACE_MAIN].items)
        gw_trace_pause();
    for (int i = 0; i < GW_TRACE_RINGS; i++)
        free(trace_ring(i)->items);
    int threads = t->threads; /* their tracks stay */
    memset(t, 0, sizeof *t);
    t->threads = threads;
    n_flying = 0;
    waiting.start = 0;
}
