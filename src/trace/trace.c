/* Keeps the timeline while batches run, and writes trace.json from the rings of all ranks. Each
 * rank orders and formats its own events; rank 0 appends the pieces, so its memory does not grow
 * with the ranks. */
#include "trace/trace.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Kind of a main thread's stretch, besides the phases. */
enum { GW_TRACE_BATCH = GW_PHASES };

/* Times are ticks of prof/clock.h. */
typedef struct stretch {
    uint64_t start, end;
    int64_t step; /* of a batch: its number, 0: of no step */
    int32_t kind; /* gw_phase or GW_TRACE_BATCH */
    int32_t track;
} stretch;

/* A stretch in which an exchange was in flight, or waited for. */
typedef struct exchange {
    uint64_t start, end;
    int64_t step; /* in which it started; 0: between steps */
    gw_exchange what;
} exchange;

/* An action of a pipeline's step. */
typedef struct action {
    uint64_t start, end;
    gw_action what;
} action;

/* A batch's figures; NaN: absent. */
typedef struct figures {
    uint64_t at; /* when the batch began */
    double wire_bytes;
    double share_ctr, share_twin, share_model_lo, share_model_hi; /* memory-bound, of computation */
    double counter[GW_COUNTERS];
} figures;

enum {
    GW_TRACE_MAIN,      /* stretch: phases, each batch after its own */
    GW_TRACE_FLIGHTS,   /* stretch: requests in flight */
    GW_TRACE_ASIDE,     /* stretch: codec runs of other threads */
    GW_TRACE_EXCHANGES, /* exchange: in flight */
    GW_TRACE_WAITS,     /* exchange: the main thread waits for it */
    GW_TRACE_FIGURES,   /* figures */
    GW_TRACE_ACTIONS,   /* action */
    GW_TRACE_RINGS
};

/* Threads, besides the main one, whose codec runs are kept: track 0, 1, .. by first appearance. */
enum { GW_TRACE_THREADS = 8 };

/* The last `room` of `seen` items, in the order they ended. */
typedef struct ring {
    void *items; /* NULL: no trace is open */
    size_t size, room;
    uint64_t seen, lost; /* lost: dropped before the ring */
} ring;

typedef struct store {
    ring ring[GW_TRACE_RINGS];
    int threads; /* tracks of GW_TRACE_ASIDE in use */
    char counter[GW_COUNTERS][GW_COUNTER_NAME];
    int counters;
} store;

enum { MOST = 1024 }; /* exchanges in flight that can be told apart */

static store trace; /* of this process */

/* Other threads read the step in which they start an exchange. */
static atomic_int_fast64_t next_step;

/* Exchanges in flight: they go to the ring once complete, so none there lacks an end. Guarded by
 * the ledger's lock, like everything in `exchange` and `aside`. */
static exchange trace_in_flight[MOST];
static int n_flying;

/* What the main thread waits for; start 0: nothing. */
static exchange waiting;

static void trace_add(int which, const void *item) {
    ring *r = &trace.ring[which];
    memcpy((char *)r->items + r->seen++ % r->room * r->size, item, r->size);
}

/* Items in a ring, and the i-th of them, oldest first. */
static size_t trace_held(const ring *r) {
    return r->seen < r->room ? (size_t)r->seen : r->room;
}

static const void *trace_item(const ring *r, size_t i) {
    uint64_t at = r->seen - trace_held(r) + i;
    return (const char *)r->items + at % r->room * r->size;
}

/* The main thread's last stretch; NULL: there is none. */
static stretch *trace_last(void) {
    const ring *r = &trace.ring[GW_TRACE_MAIN];
    return r->seen ? (stretch *)r->items + (r->seen - 1) % r->room : NULL;
}

/* ---- from the ledger ---- */

/* Join touching stretches of one phase: a region that only waits splits many. */
static void trace_add_slice(gw_phase phase, uint64_t start, uint64_t end) {
    stretch *last = trace_last();
    if (last && last->kind == (int32_t)phase && last->end == start)
        last->end = end;
    else
        trace_add(GW_TRACE_MAIN, &(stretch){start, end, 0, (int32_t)phase, 0});
}

static void trace_add_batch(uint64_t start, uint64_t end) {
    int64_t step = atomic_load(&next_step);
    trace_add(GW_TRACE_MAIN, &(stretch){start, end, step, GW_TRACE_BATCH, 0});
    atomic_store(&next_step, step + 1);
}

static void trace_add_flight(uint64_t start, uint64_t end) {
    trace_add(GW_TRACE_FLIGHTS, &(stretch){start, end, 0, 0, 0});
}

static void trace_add_action(const gw_action *a, uint64_t start, uint64_t end) {
    trace_add(GW_TRACE_ACTIONS, &(action){start, end, *a});
}

static void trace_add_aside(gw_phase phase, uint64_t start, uint64_t end) {
    static _Thread_local int track = -1;
    if (track < 0)
        track = trace.threads < GW_TRACE_THREADS ? trace.threads++ : GW_TRACE_THREADS;
    if (track < GW_TRACE_THREADS)
        trace_add(GW_TRACE_ASIDE, &(stretch){start, end, 0, (int32_t)phase, track});
    else
        trace.ring[GW_TRACE_ASIDE].lost++;
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
    case GW_EXCHANGE_START: {
        int64_t step = gw_ledger_counts() ? atomic_load(&next_step) : 0;
        if (n_flying < MOST)
            trace_in_flight[n_flying++] = (exchange){now, 0, step, *x};
        else
            trace.ring[GW_TRACE_EXCHANGES].lost++;
        break;
    }
    case GW_EXCHANGE_DONE: trace_done(x, now); break;
    case GW_EXCHANGE_BLOCK: {
        int64_t step = gw_ledger_counting() ? atomic_load(&next_step) : 0;
        waiting = (exchange){now, 0, step, *x};
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
    store *t = &trace;
    const char *name = gw_record_counter(record, 0);
    for (t->counters = 0; name; name = gw_record_counter(record, ++t->counters))
        gw_text_copy(t->counter[t->counters], GW_COUNTER_NAME, name);
}

void gw_trace_row(const gw_batch_row *row) {
    const stretch *batch = trace_last();
    if (!batch)
        return;
    const double *phase = row->cost.phase_s;
    double compute = gw_phases_computation(phase);
    double per = compute > 0 ? 1 / compute : NAN;
    figures f = {.at = batch->start,
                 .wire_bytes = (double)row->cost.wire_bytes,
                 .share_ctr = row->split.memory_ctr_s * per,
                 .share_twin = row->split.memory_twin_s * per,
                 .share_model_lo = row->split.memory_model_lo_s * per,
                 .share_model_hi = row->split.memory_model_hi_s * per};
    memcpy(f.counter, row->counter, sizeof f.counter);
    trace_add(GW_TRACE_FIGURES, &f);
}

gw_err gw_trace_open(size_t events, MPI_Comm comm) {
    static const struct {
        size_t size, part; /* bytes of an item; room for events / part items */
    } kinds[GW_TRACE_RINGS] = {
        [GW_TRACE_MAIN] = {sizeof(stretch), 1},   [GW_TRACE_FLIGHTS] = {sizeof(stretch), 1},
        [GW_TRACE_ASIDE] = {sizeof(stretch), 4},  [GW_TRACE_EXCHANGES] = {sizeof(exchange), 4},
        [GW_TRACE_WAITS] = {sizeof(exchange), 4}, [GW_TRACE_FIGURES] = {sizeof(figures), 8},
        [GW_TRACE_ACTIONS] = {sizeof(action), 4}};
    gw_trace_close();
    gw_err e = events > 0 ? GW_OK : gw_fail(GW_ERR_USAGE, "a trace needs room for an event");
    for (int i = 0; e == GW_OK && i < GW_TRACE_RINGS; i++) {
        size_t part = events / kinds[i].part, room = part > 0 ? part : 1;
        trace.ring[i] = (ring){.size = kinds[i].size, .room = room};
        e = gw_alloc(&trace.ring[i].items, room, kinds[i].size);
    }
    e = gw_agree(comm, e);
    if (e != GW_OK) {
        gw_trace_close();
        return e;
    }
    gw_trace_step(1);
    gw_ledger_listen(&trace_sink);
    return GW_OK;
}

void gw_trace_close(void) {
    store *t = &trace;
    if (t->ring[GW_TRACE_MAIN].items)
        gw_ledger_unlisten(&trace_sink);
    for (int i = 0; i < GW_TRACE_RINGS; i++)
        free(trace.ring[i].items);
    int threads = t->threads; /* their tracks stay */
    memset(t, 0, sizeof *t);
    t->threads = threads;
    n_flying = 0;
    waiting.start = 0;
}

/* ---- the file: events in order ---- */

enum { TAG = 1, PIECE = 1 << 16, LONGEST = 2048 /* bytes of an event's text */ };

/* Tracks of a rank; those of other threads follow. Numbers are unique over all ranks, since
 * Perfetto takes equal thread numbers of two processes for one thread. */
enum { MAIN = 1, CODEC, REQUESTS, WAITS, PIPELINE, ASIDE, TRACKS_A_RANK = 100 };

/* The parts of an item that are written, in the order of simultaneous events. */
typedef enum shape { END, SLICE, CODEC_SLICE, FIGURES, BEGIN, END_AT_ONCE } shape;

typedef struct event {
    uint64_t ts;
    uint32_t ring, item;
    shape shape;
} event;

/* Text for rank 0's file. */
typedef struct out {
    char *text; /* PIECE bytes */
    size_t len;
    FILE *to;      /* rank 0; elsewhere NULL */
    MPI_Comm comm; /* elsewhere */
    gw_err failed;
} out;

#define MOST_OFF 2e-4 /* relative error of a clock's rate */

/* A straight line from this rank's clock to the common one. */
typedef struct line {
    uint64_t at; /* ticks */
    double seconds, tick_s;
} line;

/* Nanoseconds of the common clock, rounded, so that touching stretches still touch. */
static uint64_t trace_time_of(const line *l, uint64_t ticks) {
    double since = ticks >= l->at ? (double)(ticks - l->at) : -(double)(l->at - ticks);
    double ns = nearbyint((l->seconds + since * l->tick_s) * 1e9);
    return ns > 0 ? (uint64_t)ns : 0;
}

static const stretch *trace_stretch(int which, size_t i) {
    return trace_item(&trace.ring[which], i);
}

static bool trace_is_batch(const event *e) {
    return trace_stretch((int)e->ring, e->item)->kind == GW_TRACE_BATCH;
}

/* By time; at one instant first what ends, then slices in the order they were recorded, a batch
 * before its phases, then what begins. */
static int trace_by_time(const void *a, const void *b) {
    const event *x = a, *y = b;
    if (x->ts != y->ts)
        return x->ts < y->ts ? -1 : 1;
    int late_x = x->shape >= BEGIN, late_y = y->shape >= BEGIN;
    if (!(late_x && late_y) && x->shape != y->shape)
        return x->shape < y->shape ? -1 : 1;
    if (x->ring != y->ring)
        return x->ring < y->ring ? -1 : 1;
    if (x->ring == GW_TRACE_MAIN && trace_is_batch(x) != trace_is_batch(y))
        return trace_is_batch(x) ? -1 : 1;
    if (x->item != y->item)
        return x->item < y->item ? -1 : 1;
    return (x->shape > y->shape) - (x->shape < y->shape);
}

/* Index of the first item of the oldest complete batch. */
static size_t trace_first_whole(void) {
    const ring *r = &trace.ring[GW_TRACE_MAIN];
    size_t held = trace_held(r), i = 0;
    if (r->seen == held)
        return 0;
    while (i < held && trace_stretch(GW_TRACE_MAIN, i)->kind != GW_TRACE_BATCH)
        i++;
    return i < held ? i + 1 : held;
}

typedef struct list {
    event *events;
    size_t n;
    line clock;
} list;

static void trace_push(list *l, uint64_t ticks, int which, size_t item, shape as) {
    l->events[l->n++] =
        (event){trace_time_of(&l->clock, ticks), (uint32_t)which, (uint32_t)item, as};
}

/* When an item began, which each has first. */
static uint64_t trace_began(int which, size_t i) {
    const uint64_t *at = trace_item(&trace.ring[which], i);
    return *at;
}

/* A ring's items that did not begin before `from`. */
static void trace_push_ring(list *l, int which, shape as, uint64_t from) {
    for (size_t i = 0; i < trace_held(&trace.ring[which]); i++)
        if (trace_began(which, i) >= from)
            trace_push(l, trace_began(which, i), which, i, as);
}

/* The line for a trace, over the first to the last instant in the rings. Between two
 * synchronisations the common clock's rate is what these happened to find, which is poor if they
 * are close together, and would change a slice's length. So use this rank's own rate, unless the
 * ends show that its error exceeds that of the clocks. */
static line trace_clock_of_rings(const gw_sync *sync) {
    uint64_t from = UINT64_MAX, to = 0;
    for (int r = 0; r < GW_TRACE_RINGS; r++)
        for (size_t i = 0; i < trace_held(&trace.ring[r]); i++) {
            uint64_t at = trace_began(r, i);
            from = at < from ? at : from;
            to = at > to ? at : to;
        }
    if (from >= to)
        from = to = gw_clock_ticks();
    double first = gw_sync_seconds(sync, from), last = gw_sync_seconds(sync, to);
    double own = gw_clock_seconds(to - from), off = fabs(last - first - own);
    line l = {from + (to - from) / 2, 0.5 * (first + last), gw_clock_seconds(1)};
    if (off > 4 * gw_sync_error(sync) && off < MOST_OFF * own)
        l.tick_s = (last - first) / (double)(to - from);
    return l;
}

/* This rank's events in order; free(). */
static gw_err trace_collect(list *l, const gw_sync *sync) {
    size_t most = 0, held[GW_TRACE_RINGS], first = trace_first_whole();
    for (int i = 0; i < GW_TRACE_RINGS; i++) {
        held[i] = trace_held(&trace.ring[i]);
        most += (i == GW_TRACE_MAIN || i == GW_TRACE_EXCHANGES ? 2 : 1) * held[i];
    }
    GW_TRY(gw_alloc(&l->events, most, sizeof *l->events));
    l->clock = trace_clock_of_rings(sync);
    for (size_t i = first; i < held[GW_TRACE_MAIN]; i++) {
        const stretch *s = trace_stretch(GW_TRACE_MAIN, i);
        trace_push(l, s->start, GW_TRACE_MAIN, i, SLICE);
        if (s->kind == GW_PHASE_ENCODE || s->kind == GW_PHASE_DECODE)
            trace_push(l, s->start, GW_TRACE_MAIN, i, CODEC_SLICE);
    }
    trace_push_ring(l, GW_TRACE_FLIGHTS, SLICE, 0);
    trace_push_ring(l, GW_TRACE_ASIDE, SLICE, 0);
    trace_push_ring(l, GW_TRACE_ACTIONS, SLICE, 0);
    for (size_t i = 0; i < held[GW_TRACE_EXCHANGES]; i++) {
        const exchange *x = trace_item(&trace.ring[GW_TRACE_EXCHANGES], i);
        trace_push(l, x->start, GW_TRACE_EXCHANGES, i, BEGIN);
        uint64_t begin = l->events[l->n - 1].ts;
        trace_push(l, x->end, GW_TRACE_EXCHANGES, i, END);
        if (l->events[l->n - 1].ts == begin)
            l->events[l->n - 1].shape = END_AT_ONCE;
    }
    trace_push_ring(l, GW_TRACE_WAITS, SLICE, 0);
    if (first < held[GW_TRACE_MAIN]) /* counters of the batches shown */
        trace_push_ring(l, GW_TRACE_FIGURES, FIGURES, trace_began(GW_TRACE_MAIN, first));
    qsort(l->events, l->n, sizeof *l->events, trace_by_time);
    return GW_OK;
}

static void trace_flush(out *o) {
    if (o->failed == GW_OK && o->to)
        fwrite(o->text, 1, o->len, o->to); /* the stream keeps the error */
    else if (o->failed == GW_OK && o->len > 0)
        o->failed =
            gw_mpi_check(MPI_Send(o->text, (int)o->len, MPI_CHAR, 0, TAG, o->comm), "MPI_Send");
    o->len = 0;
}

__attribute__((format(printf, 2, 3))) static void trace_put(out *o, const char *fmt, ...) {
    if (PIECE - o->len < LONGEST)
        trace_flush(o);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(o->text + o->len, PIECE - o->len, fmt, args);
    va_end(args);
    o->len += (size_t)n;
}

/* "12.345" for 12345 ns: the format counts microseconds, and decimals keep sums of parts exact. */
#define US        "%" PRIu64 ".%03" PRIu64
#define US_OF(ns) (ns) / 1000, (ns) % 1000

static void trace_put_head(out *o, const char *ph, int rank, int track, uint64_t ts) {
    trace_put(o, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":" US, ph, rank,
              rank * TRACKS_A_RANK + track, US_OF(ts));
}

/* "gradients [0,+1024)", quoted. */
static void trace_put_exchange_name(out *o, const gw_exchange *x) {
    char lane[32], text[64];
    snprintf(lane, sizeof lane, "lane %d", x->lane);
    gw_text_plain(text, sizeof text, x->name ? x->name : lane);
    trace_put(o, ",\"name\":\"%s [%zu,+%zu)\"", text, x->off, x->n);
}

static void trace_put_exchange_args(out *o, const exchange *x) {
    trace_put(o,
              ",\"args\":{\"lane\":%d,\"schedule\":%d,\"run\":%" PRIu64
              ",\"bytes\":%zu,\"dimension\":\"%s\"",
              x->what.lane, x->what.schedule, x->what.run, x->what.n * sizeof(float),
              gw_dim_names[x->what.dim]);
    if (x->step > 0)
        trace_put(o, ",\"step\":%" PRId64, x->step);
    trace_put(o, "}}");
}

/* An async track is a schedule, since its runs follow each other, and a rank, since ids are unique
 * per file. */
static void trace_put_async(out *o, int rank, const event *e, int *open) {
    const exchange *x = trace_item(&trace.ring[e->ring], e->item);
    bool begin = e->shape == BEGIN;
    trace_put_head(o, begin ? "b" : "e", rank, REQUESTS, e->ts);
    uint64_t id = (uint64_t)(rank + 1) << 48 | (uint64_t)x->what.lane << 32;
    trace_put(o, ",\"id\":\"0x%" PRIx64 "\",\"cat\":\"exchange\"", id | (uint32_t)x->what.schedule);
    trace_put_exchange_name(o, &x->what);
    if (begin)
        trace_put_exchange_args(o, x);
    else
        trace_put(o, "}");
    *open += begin ? 1 : -1;
    trace_put_head(o, "C", rank, MAIN, e->ts);
    trace_put(o, ",\"name\":\"exchanges\",\"args\":{\"in flight\":%d}}", *open);
}

static void trace_put_wait(out *o, int rank, const event *e, const line *clock) {
    const exchange *x = trace_item(&trace.ring[e->ring], e->item);
    trace_put_head(o, "X", rank, WAITS, e->ts);
    trace_put(o, ",\"dur\":" US ",\"cat\":\"wait\"", US_OF(trace_time_of(clock, x->end) - e->ts));
    trace_put_exchange_name(o, &x->what);
    trace_put_exchange_args(o, x);
}

static void trace_put_action(out *o, int rank, const event *e, const line *clock) {
    const action *a = trace_item(&trace.ring[e->ring], e->item);
    trace_put_head(o, "X", rank, PIPELINE, e->ts);
    trace_put(o,
              ",\"dur\":" US ",\"cat\":\"action\",\"name\":\"%c%d\",\"args\":{\"chunk\":%d,"
              "\"microbatch\":%d}}",
              US_OF(trace_time_of(clock, a->end) - e->ts), a->what.letter, a->what.micro,
              a->what.chunk, a->what.micro);
}

static void trace_put_slice(out *o, int rank, const event *e, const line *clock) {
    const stretch *s = trace_stretch((int)e->ring, e->item);
    bool main = e->ring == GW_TRACE_MAIN;
    const char *cat = "phase", *name = s->kind < GW_PHASES ? gw_phase_name((gw_phase)s->kind) : "";
    int track = MAIN;
    if (e->shape == CODEC_SLICE) {
        track = CODEC;
        cat = "codec";
    } else if (e->ring == GW_TRACE_FLIGHTS) {
        track = REQUESTS;
        cat = "requests";
        name = "requests in flight";
    } else if (!main) {
        track = ASIDE + s->track;
        cat = "aside";
    }
    trace_put_head(o, "X", rank, track, e->ts);
    trace_put(o, ",\"dur\":" US, US_OF(trace_time_of(clock, s->end) - e->ts));
    if (!main || s->kind != GW_TRACE_BATCH)
        trace_put(o, ",\"cat\":\"%s\",\"name\":\"%s\"}", cat, name);
    else if (s->step > 0)
        trace_put(
            o, ",\"cat\":\"batch\",\"name\":\"step %" PRId64 "\",\"args\":{\"step\":%" PRId64 "}}",
            s->step, s->step);
    else
        trace_put(o, ",\"cat\":\"between\",\"name\":\"between steps\"}");
}

static void trace_put_figure(out *o, int rank, uint64_t ts, const char *name, const char *unit,
                             double x) {
    char text[64];
    if (!isfinite(x))
        return;
    trace_put_head(o, "C", rank, MAIN, ts);
    gw_text_plain(text, sizeof text, name);
    trace_put(o, ",\"name\":\"%s\",\"args\":{\"%s\":%.15g}}", text, unit, x);
}

static void trace_put_figures(out *o, int rank, const event *e) {
    const store *t = &trace;
    const figures *f = trace_item(&t->ring[e->ring], e->item);
    static const char share[] = "memory-bound share";
    trace_put_figure(o, rank, e->ts, "wire", "bytes", f->wire_bytes);
    trace_put_figure(o, rank, e->ts, share, "ctr", f->share_ctr);
    trace_put_figure(o, rank, e->ts, share, "twin", f->share_twin);
    trace_put_figure(o, rank, e->ts, share, "model_lo", f->share_model_lo);
    trace_put_figure(o, rank, e->ts, share, "model_hi", f->share_model_hi);
    for (int i = 0; i < t->counters; i++)
        trace_put_figure(o, rank, e->ts, t->counter[i], "count", f->counter[i]);
}

static void trace_put_track(out *o, int rank, int track, const char *name) {
    int tid = rank * TRACKS_A_RANK + track;
    trace_put(
        o,
        ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
        "\"%s\"}},\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,\"args\":{"
        "\"sort_index\":%d}}",
        rank, tid, name, rank, tid, track);
}

static void trace_put_names(out *o, int rank) {
    static const char *const tracks[] = {[MAIN] = "computation",
                                         [CODEC] = "codec",
                                         [REQUESTS] = "communication in flight",
                                         [WAITS] = "waiting for an exchange",
                                         [PIPELINE] = "pipeline"};
    int main = rank * TRACKS_A_RANK + MAIN;
    trace_put(
        o,
        "%s\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
        "\"rank %d\"}},\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":%d,"
        "\"args\":{\"sort_index\":%d}}",
        rank == 0 ? "" : ",", rank, main, rank, rank, main, rank);
    for (int t = MAIN; t <= PIPELINE; t++)
        if (t != PIPELINE || trace.ring[GW_TRACE_ACTIONS].seen > 0)
            trace_put_track(o, rank, t, tracks[t]);
    for (int i = 0; i < trace.threads; i++) {
        char name[32];
        snprintf(name, sizeof name, "codec, thread %d", i + 1);
        trace_put_track(o, rank, ASIDE + i, name);
    }
}

static void trace_put_rank(out *o, int rank, const list *l) {
    int open = 0;
    trace_put_names(o, rank);
    for (size_t i = 0; i < l->n; i++) {
        const event *e = &l->events[i];
        if (e->ring == GW_TRACE_EXCHANGES)
            trace_put_async(o, rank, e, &open);
        else if (e->ring == GW_TRACE_WAITS)
            trace_put_wait(o, rank, e, &l->clock);
        else if (e->ring == GW_TRACE_FIGURES)
            trace_put_figures(o, rank, e);
        else if (e->ring == GW_TRACE_ACTIONS)
            trace_put_action(o, rank, e, &l->clock);
        else
            trace_put_slice(o, rank, e, &l->clock);
    }
    trace_flush(o);
}

/* Events that each ring dropped: dropped[rank][ring]. */
static void trace_put_tail(FILE *to, const uint64_t (*dropped)[GW_TRACE_RINGS], int ranks,
                           double error_s) {
    static const char *const names[GW_TRACE_RINGS] = {"slices", "flights", "aside",  "exchanges",
                                                      "waits",  "figures", "actions"};
    fprintf(to,
            "\n],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"format\":\"gradwire trace\","
            "\"version\":2,\"clock\":\"%s\",\"zero\":\"the start of rank 0's ledger\","
            "\"clock_error_s\":%.9g",
            gw_clock_name(), error_s);
    for (int r = 0; r < GW_TRACE_RINGS; r++) {
        fprintf(to, ",\n\"room_%s\":%zu,\"dropped_%s\":[", names[r], trace.ring[r].room, names[r]);
        for (int i = 0; i < ranks; i++)
            fprintf(to, "%s%" PRIu64, i ? "," : "", dropped[i][r]);
        fputc(']', to);
    }
    fprintf(to, "}}\n");
}

/* ---- from the ranks to the file ---- */

/* Rank 0 writes by these; all are NULL elsewhere. */
typedef struct writer {
    gw_file *file;
    uint64_t (*dropped)[GW_TRACE_RINGS];
    double error_s; /* of the common clock */
} writer;

/* Each rank's pieces go to rank 0, and into the file; an empty one is the last. */
static gw_err trace_exchange_pieces(writer *w, int rank, const list *mine, out *o, MPI_Comm comm) {
    uint64_t dropped[GW_TRACE_RINGS];
    int ranks;
    for (int i = 0; i < GW_TRACE_RINGS; i++) {
        const ring *r = &trace.ring[i];
        dropped[i] = r->seen - trace_held(r) + r->lost;
    }
    dropped[GW_TRACE_MAIN] += trace_first_whole();
    GW_MPI(MPI_Comm_size(comm, &ranks));
    GW_MPI(MPI_Gather(dropped, GW_TRACE_RINGS, MPI_UINT64_T, w->dropped, GW_TRACE_RINGS,
                      MPI_UINT64_T, 0, comm));
    if (rank != 0) {
        trace_put_rank(o, rank, mine);
        GW_TRY(o->failed);
        GW_MPI(MPI_Send(NULL, 0, MPI_CHAR, 0, TAG, comm));
        return GW_OK;
    }
    o->to = gw_file_stream(w->file);
    fprintf(o->to, "{\"traceEvents\":[");
    trace_put_rank(o, 0, mine);
    for (int from = 1; from < ranks; from++)
        for (int n = 1; n > 0;) {
            MPI_Status status;
            GW_MPI(MPI_Recv(o->text, PIECE, MPI_CHAR, from, TAG, comm, &status));
            GW_MPI(MPI_Get_count(&status, MPI_CHAR, &n));
            fwrite(o->text, 1, (size_t)n, o->to);
        }
    trace_put_tail(o->to, (const uint64_t(*)[GW_TRACE_RINGS])w->dropped, ranks, w->error_s);
    if (ferror(o->to))
        return gw_fail(GW_ERR_IO, "cannot write trace.json: is the disk full?");
    return gw_file_commit(&w->file);
}

gw_err gw_trace_write(const char *dir, const gw_sync *sync, MPI_Comm comm) {
    int rank, ranks;
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    list mine = {0};
    writer w = {.error_s = gw_sync_error(sync)};
    out o = {.comm = comm};
    bool listens = trace.ring[GW_TRACE_MAIN].items != NULL;
    if (listens)
        gw_ledger_unlisten(&trace_sink);
    gw_err e = listens ? trace_collect(&mine, sync) : gw_fail(GW_ERR_INTERNAL, "no trace is open");
    GW_THEN(e, gw_alloc(&o.text, PIECE, 1));
    if (rank == 0) {
        GW_THEN(e, gw_alloc(&w.dropped, (size_t)ranks, sizeof *w.dropped));
        GW_THEN(e, gw_file_create(&w.file, dir, "trace.json"));
    }
    e = gw_agree(comm, e);
    GW_THEN(e, gw_agree(comm, trace_exchange_pieces(&w, rank, &mine, &o, comm)));
    gw_file_abandon(w.file);
    free(w.dropped);
    free(o.text);
    free(mine.events);
    if (listens)
        gw_ledger_listen(&trace_sink);
    return e;
}
