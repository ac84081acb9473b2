/* Writes trace.json from the rings of all ranks. Each rank orders and formats its own events; rank
 * 0 appends the pieces, so its memory does not grow with the ranks. */
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "prof/clock.h"
#include "trace/trace.h"
#include "trace/trace_store.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

enum { TAG = 1, PIECE = 1 << 16, LONGEST = 2048 /* bytes of an event's text */ };

/* Tracks of a rank; those of other threads follow. Numbers are unique over all ranks, since
 * Perfetto takes equal thread numbers of two processes for one thread. */
enum { MAIN = 1, CODEC, REQUESTS, WAITS, PIPELINE, ASIDE, TRACKS_A_RANK = 100 };

/* What to write of an item, in the order of simultaneous events. */
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

/* The line for a trace whose events lie in from .. to. Between two synchronisations the common
 * clock's rate is what these happened to find, which is poor if they are close together, and would
 * change a slice's length. So use this rank's own rate, unless the ends show that its error exceeds
 * that of the clocks. */
static line write_line_of(const gw_sync *sync, uint64_t from, uint64_t to) {
    double first = gw_sync_seconds(sync, from), last = gw_sync_seconds(sync, to);
    double own = gw_clock_seconds(to - from);
    line l = {from + (to - from) / 2, 0.5 * (first + last), gw_clock_seconds(1)};
    double off = fabs(last - first - own);
    if (off > 4 * gw_sync_error(sync) && off < MOST_OFF * own)
        l.tick_s = (last - first) / (double)(to - from);
    return l;
}

/* Nanoseconds of the common clock, rounded, so that touching stretches still touch. */
static uint64_t writer_time_of(const line *l, uint64_t ticks) {
    double since = ticks >= l->at ? (double)(ticks - l->at) : -(double)(l->at - ticks);
    double ns = nearbyint((l->seconds + since * l->tick_s) * 1e9);
    return ns > 0 ? (uint64_t)ns : 0;
}

static const gw_trace_stretch *writer_stretch(int ring, size_t i) {
    return gw_trace_item(&gw_trace_the.ring[ring], i);
}

static bool write_is_batch(const event *e) {
    return writer_stretch((int)e->ring, e->item)->kind == GW_TRACE_BATCH;
}

/* By time; at one instant first what ends, then slices in the order they were recorded, a batch
 * before its phases, then what begins. */
static int write_by_time(const void *a, const void *b) {
    const event *x = a, *y = b;
    if (x->ts != y->ts)
        return x->ts < y->ts ? -1 : 1;
    int late_x = x->shape >= BEGIN, late_y = y->shape >= BEGIN;
    if (!(late_x && late_y) && x->shape != y->shape)
        return x->shape < y->shape ? -1 : 1;
    if (x->ring != y->ring)
        return x->ring < y->ring ? -1 : 1;
    if (x->ring == GW_TRACE_MAIN && write_is_batch(x) != write_is_batch(y))
        return write_is_batch(x) ? -1 : 1;
    if (x->item != y->item)
        return x->item < y->item ? -1 : 1;
    return (x->shape > y->shape) - (x->shape < y->shape);
}

/* Index of the first item of the oldest complete batch. */
static size_t write_first_whole(void) {
    const gw_trace_ring *r = &gw_trace_the.ring[GW_TRACE_MAIN];
    size_t held = gw_trace_held(r), i = 0;
    if (r->seen == held)
        return 0;
    while (i < held && writer_stretch(GW_TRACE_MAIN, i)->kind != GW_TRACE_BATCH)
        i++;
    return i < held ? i + 1 : held;
}

typedef struct list {
    event *events;
    size_t n;
    line clock;
} list;

static void writer_push(list *l, uint64_t ticks, int ring, size_t item, shape as) {
    l->events[l->n++] =
        (event){writer_time_of(&l->clock, ticks), (uint32_t)ring, (uint32_t)item, as};
}

static void write_push_main(list *l, size_t first) {
    for (size_t i = first; i < gw_trace_held(&gw_trace_the.ring[GW_TRACE_MAIN]); i++) {
        const gw_trace_stretch *s = writer_stretch(GW_TRACE_MAIN, i);
        writer_push(l, s->start, GW_TRACE_MAIN, i, SLICE);
        if (s->kind == GW_PHASE_ENCODE || s->kind == GW_PHASE_DECODE)
            writer_push(l, s->start, GW_TRACE_MAIN, i, CODEC_SLICE);
    }
}

/* When an item began, which each has first. */
static uint64_t write_start(int ring, size_t i) {
    const uint64_t *at = gw_trace_item(&gw_trace_the.ring[ring], i);
    return *at;
}

/* A ring's items that did not begin before `from`. */
static void write_push_ring(list *l, int ring, shape as, uint64_t from) {
    for (size_t i = 0; i < gw_trace_held(&gw_trace_the.ring[ring]); i++)
        if (write_start(ring, i) >= from)
            writer_push(l, write_start(ring, i), ring, i, as);
}

static void write_push_exchanges(list *l) {
    for (size_t i = 0; i < gw_trace_held(&gw_trace_the.ring[GW_TRACE_EXCHANGES]); i++) {
        const gw_trace_exchange *x = gw_trace_item(&gw_trace_the.ring[GW_TRACE_EXCHANGES], i);
        writer_push(l, x->start, GW_TRACE_EXCHANGES, i, BEGIN);
        uint64_t begin = l->events[l->n - 1].ts;
        writer_push(l, x->end, GW_TRACE_EXCHANGES, i, END);
        if (l->events[l->n - 1].ts == begin)
            l->events[l->n - 1].shape = END_AT_ONCE;
    }
}

/* Covers the first to the last instant in the rings. */
static line write_clock_of_rings(const gw_sync *sync) {
    uint64_t from = UINT64_MAX, to = 0;
    for (int r = 0; r < GW_TRACE_RINGS; r++)
        for (size_t i = 0; i < gw_trace_held(&gw_trace_the.ring[r]); i++) {
            uint64_t at = write_start(r, i);
            from = at < from ? at : from;
            to = at > to ? at : to;
        }
    return from < to ? write_line_of(sync, from, to)
                     : write_line_of(sync, gw_clock_ticks(), gw_clock_ticks());
}

/* This rank's events in order; free(). */
static gw_err writer_collect(list *l, const gw_sync *sync) {
    size_t most = 0, held[GW_TRACE_RINGS], first = write_first_whole();
    for (int i = 0; i < GW_TRACE_RINGS; i++) {
        held[i] = gw_trace_held(&gw_trace_the.ring[i]);
        most += (i == GW_TRACE_MAIN || i == GW_TRACE_EXCHANGES ? 2 : 1) * held[i];
    }
    GW_TRY(gw_alloc(&l->events, most, sizeof *l->events));
    l->clock = write_clock_of_rings(sync);
    write_push_main(l, first);
    write_push_ring(l, GW_TRACE_FLIGHTS, SLICE, 0);
    write_push_ring(l, GW_TRACE_ASIDE, SLICE, 0);
    write_push_ring(l, GW_TRACE_ACTIONS, SLICE, 0);
    write_push_exchanges(l);
    write_push_ring(l, GW_TRACE_WAITS, SLICE, 0);
    if (first < held[GW_TRACE_MAIN]) /* counters of the batches shown */
        write_push_ring(l, GW_TRACE_FIGURES, FIGURES, write_start(GW_TRACE_MAIN, first));
    qsort(l->events, l->n, sizeof *l->events, write_by_time);
    return GW_OK;
}

static void writer_flush(out *o) {
    if (o->failed == GW_OK && o->to)
        fwrite(o->text, 1, o->len, o->to); /* the stream keeps the error */
    else if (o->failed == GW_OK && o->len > 0)
        o->failed =
            gw_mpi_check(MPI_Send(o->text, (int)o->len, MPI_CHAR, 0, TAG, o->comm), "MPI_Send");
    o->len = 0;
}

__attribute__((format(printf, 2, 3))) static void write_put(out *o, const char *fmt, ...) {
    if (PIECE - o->len < LONGEST)
        writer_flush(o);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(o->text + o->len, PIECE - o->len, fmt, args);
    va_end(args);
    o->len += (size_t)n;
}

/* "12.345" for 12345 ns: the format counts microseconds, and decimals keep sums of parts exact. */
#define US        "%" PRIu64 ".%03" PRIu64
#define US_OF(ns) (ns) / 1000, (ns) % 1000

static void write_put_head(out *o, const char *ph, int rank, int track, uint64_t ts) {
    write_put(o, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":" US, ph, rank,
              rank * TRACKS_A_RANK + track, US_OF(ts));
}

/* "gradients [0,+1024)", quoted. */
static void write_put_exchange_name(out *o, const gw_exchange *x) {
    char lane[32], text[64];
    snprintf(lane, sizeof lane, "lane %d", x->lane);
    gw_text_plain(text, sizeof text, x->name ? x->name : lane);
    write_put(o, ",\"name\":\"%s [%zu,+%zu)\"", text, x->off, x->n);
}

static void write_put_exchange_args(out *o, const gw_trace_exchange *x) {
    write_put(o,
              ",\"args\":{\"lane\":%d,\"schedule\":%d,\"run\":%" PRIu64
              ",\"bytes\":%zu,\"dimension\":\"%s\"",
              x->what.lane, x->what.schedule, x->what.run, x->what.n * sizeof(float),
              gw_dim_names[x->what.dim]);
    if (x->step > 0)
        write_put(o, ",\"step\":%" PRId64, x->step);
    write_put(o, "}}");
}

/* An async track is a schedule, since its runs follow each other, and a rank, since ids are unique
 * per file. */
static void write_put_async(out *o, int rank, const event *e, int *open) {
    const gw_trace_exchange *x = gw_trace_item(&gw_trace_the.ring[e->ring], e->item);
    bool begin = e->shape == BEGIN;
    write_put_head(o, begin ? "b" : "e", rank, REQUESTS, e->ts);
    uint64_t id = (uint64_t)(rank + 1) << 48 | (uint64_t)x->what.lane << 32;
    write_put(o, ",\"id\":\"0x%" PRIx64 "\",\"cat\":\"exchange\"", id | (uint32_t)x->what.schedule);
    write_put_exchange_name(o, &x->what);
    if (begin)
        write_put_exchange_args(o, x);
    else
        write_put(o, "}");
    *open += begin ? 1 : -1;
    write_put_head(o, "C", rank, MAIN, e->ts);
    write_put(o, ",\"name\":\"exchanges\",\"args\":{\"in flight\":%d}}", *open);
}

static void write_put_wait(out *o, int rank, const event *e, const line *clock) {
    const gw_trace_exchange *x = gw_trace_item(&gw_trace_the.ring[e->ring], e->item);
    write_put_head(o, "X", rank, WAITS, e->ts);
    write_put(o, ",\"dur\":" US ",\"cat\":\"wait\"", US_OF(writer_time_of(clock, x->end) - e->ts));
    write_put_exchange_name(o, &x->what);
    write_put_exchange_args(o, x);
}

static void write_put_action(out *o, int rank, const event *e, const line *clock) {
    const gw_trace_action *a = gw_trace_item(&gw_trace_the.ring[e->ring], e->item);
    write_put_head(o, "X", rank, PIPELINE, e->ts);
    write_put(o,
              ",\"dur\":" US ",\"cat\":\"action\",\"name\":\"%c%d\",\"args\":{\"chunk\":%d,"
              "\"microbatch\":%d}}",
              US_OF(writer_time_of(clock, a->end) - e->ts), a->what.letter, a->what.micro,
              a->what.chunk, a->what.micro);
}

static void write_put_slice(out *o, int rank, const event *e, const line *clock) {
    const gw_trace_stretch *s = writer_stretch((int)e->ring, e->item);
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
    write_put_head(o, "X", rank, track, e->ts);
    write_put(o, ",\"dur\":" US, US_OF(writer_time_of(clock, s->end) - e->ts));
    if (!main || s->kind != GW_TRACE_BATCH)
        write_put(o, ",\"cat\":\"%s\",\"name\":\"%s\"}", cat, name);
    else if (s->step > 0)
        write_put(
            o, ",\"cat\":\"batch\",\"name\":\"step %" PRId64 "\",\"args\":{\"step\":%" PRId64 "}}",
            s->step, s->step);
    else
        write_put(o, ",\"cat\":\"between\",\"name\":\"between steps\"}");
}

static void write_put_figure(out *o, int rank, uint64_t ts, const char *name, const char *unit,
                             double x) {
    char text[64];
    if (!isfinite(x))
        return;
    write_put_head(o, "C", rank, MAIN, ts);
    gw_text_plain(text, sizeof text, name);
    write_put(o, ",\"name\":\"%s\",\"args\":{\"%s\":%.15g}}", text, unit, x);
}

static void write_put_figures(out *o, int rank, const event *e) {
    const gw_trace_store *t = &gw_trace_the;
    const gw_trace_figures *f = gw_trace_item(&t->ring[e->ring], e->item);
    static const char share[] = "memory-bound share";
    write_put_figure(o, rank, e->ts, "wire", "bytes", f->wire_bytes);
    write_put_figure(o, rank, e->ts, share, "ctr", f->share_ctr);
    write_put_figure(o, rank, e->ts, share, "twin", f->share_twin);
    write_put_figure(o, rank, e->ts, share, "model_lo", f->share_model_lo);
    write_put_figure(o, rank, e->ts, share, "model_hi", f->share_model_hi);
    for (int i = 0; i < t->counters; i++)
        write_put_figure(o, rank, e->ts, t->counter[i], "count", f->counter[i]);
}

static void write_put_track(out *o, int rank, int track, const char *name) {
    int tid = rank * TRACKS_A_RANK + track;
    write_put(
        o,
        ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
        "\"%s\"}},\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,\"args\":{"
        "\"sort_index\":%d}}",
        rank, tid, name, rank, tid, track);
}

static void write_put_names(out *o, int rank) {
    static const char *const tracks[] = {[MAIN] = "computation",
                                         [CODEC] = "codec",
                                         [REQUESTS] = "communication in flight",
                                         [WAITS] = "waiting for an exchange",
                                         [PIPELINE] = "pipeline"};
    int main = rank * TRACKS_A_RANK + MAIN;
    write_put(
        o,
        "%s\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
        "\"rank %d\"}},\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":%d,"
        "\"args\":{\"sort_index\":%d}}",
        rank == 0 ? "" : ",", rank, main, rank, rank, main, rank);
    for (int t = MAIN; t <= PIPELINE; t++)
        if (t != PIPELINE || gw_trace_the.ring[GW_TRACE_ACTIONS].seen > 0)
            write_put_track(o, rank, t, tracks[t]);
    for (int i = 0; i < gw_trace_the.threads; i++) {
        char name[32];
        snprintf(name, sizeof name, "codec, thread %d", i + 1);
        write_put_track(o, rank, ASIDE + i, name);
    }
}

static void write_put_rank(out *o, int rank, const list *l) {
    int open = 0;
    write_put_names(o, rank);
    for (size_t i = 0; i < l->n; i++) {
        const event *e = &l->events[i];
        if (e->ring == GW_TRACE_EXCHANGES)
            write_put_async(o, rank, e, &open);
        else if (e->ring == GW_TRACE_WAITS)
            write_put_wait(o, rank, e, &l->clock);
        else if (e->ring == GW_TRACE_FIGURES)
            write_put_figures(o, rank, e);
        else if (e->ring == GW_TRACE_ACTIONS)
            write_put_action(o, rank, e, &l->clock);
        else
            write_put_slice(o, rank, e, &l->clock);
    }
    writer_flush(o);
}

/* Events that each ring dropped: dropped[rank][ring]. */
static void write_put_tail(FILE *to, const uint64_t (*dropped)[GW_TRACE_RINGS], int ranks,
                           double error_s) {
    static const char *const names[GW_TRACE_RINGS] = {"slices", "flights", "aside",  "exchanges",
                                                      "waits",  "figures", "actions"};
    fprintf(to,
            "\n],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"format\":\"gradwire trace\","
            "\"version\":2,\"clock\":\"%s\",\"zero\":\"the start of rank 0's ledger\","
            "\"clock_error_s\":%.9g",
            gw_clock_name(), error_s);
    for (int r = 0; r < GW_TRACE_RINGS; r++) {
        fprintf(to, ",\n\"room_%s\":%zu,\"dropped_%s\":[", names[r], gw_trace_the.ring[r].room,
                names[r]);
        for (int i = 0; i < ranks; i++)
            fprintf(to, "%s%" PRIu64, i ? "," : "", dropped[i][r]);
        fputc(']', to);
    }
    fprintf(to, "}}\n");
}

/* ---- from the ranks to the file ---- */

/* What rank 0 needs to write; all NULL elsewhere. */
typedef struct writer {
    gw_file *file;
    uint64_t (*dropped)[GW_TRACE_RINGS];
    double error_s; /* of the common clock */
} writer;

static gw_err writer_open(writer *w, const char *dir, MPI_Comm comm) {
    int ranks;
    GW_MPI(MPI_Comm_size(comm, &ranks));
    GW_TRY(gw_alloc(&w->dropped, (size_t)ranks, sizeof *w->dropped));
    return gw_file_create(&w->file, dir, "trace.json");
}

/* Receive a rank's pieces until an empty one. */
static gw_err writer_receive(out *o, int rank, MPI_Comm comm) {
    for (int n = 1; n > 0;) {
        MPI_Status status;
        GW_MPI(MPI_Recv(o->text, PIECE, MPI_CHAR, rank, TAG, comm, &status));
        GW_MPI(MPI_Get_count(&status, MPI_CHAR, &n));
        fwrite(o->text, 1, (size_t)n, o->to);
    }
    return GW_OK;
}

static gw_err write_all(writer *w, const list *mine, out *o, MPI_Comm comm) {
    int ranks;
    GW_MPI(MPI_Comm_size(comm, &ranks));
    o->to = gw_file_stream(w->file);
    fprintf(o->to, "{\"traceEvents\":[");
    write_put_rank(o, 0, mine);
    for (int rank = 1; rank < ranks; rank++)
        GW_TRY(writer_receive(o, rank, comm));
    write_put_tail(o->to, (const uint64_t(*)[GW_TRACE_RINGS])w->dropped, ranks, w->error_s);
    if (ferror(o->to))
        return gw_fail(GW_ERR_IO, "cannot write trace.json: is the disk full?");
    return gw_file_commit(&w->file);
}

static gw_err writer_exchange(writer *w, int rank, const list *mine, out *o, MPI_Comm comm) {
    uint64_t dropped[GW_TRACE_RINGS];
    for (int i = 0; i < GW_TRACE_RINGS; i++) {
        const gw_trace_ring *r = &gw_trace_the.ring[i];
        dropped[i] = r->seen - gw_trace_held(r) + r->lost;
    }
    dropped[GW_TRACE_MAIN] += write_first_whole();
    GW_MPI(MPI_Gather(dropped, GW_TRACE_RINGS, MPI_UINT64_T, w->dropped, GW_TRACE_RINGS,
                      MPI_UINT64_T, 0, comm));
    if (rank == 0)
        return write_all(w, mine, o, comm);
    write_put_rank(o, rank, mine);
    GW_TRY(o->failed);
    GW_MPI(MPI_Send(NULL, 0, MPI_CHAR, 0, TAG, comm));
    return GW_OK;
}

gw_err gw_trace_write(const char *dir, const gw_sync *sync, MPI_Comm comm) {
    int rank;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    list mine = {0};
    writer w = {.error_s = gw_sync_error(sync)};
    out o = {.comm = comm};
    bool listens = gw_trace_the.ring[GW_TRACE_MAIN].items != NULL;
    if (listens)
        gw_trace_pause();
    gw_err e = listens ? writer_collect(&mine, sync) : gw_fail(GW_ERR_INTERNAL, "no trace is open");
    GW_THEN(e, gw_alloc(&o.text, PIECE, 1));
    if (e == GW_OK && rank == 0)
        e = writer_open(&w, dir, comm);
    e = gw_agree(comm, e);
    GW_THEN(e, gw_agree(comm, writer_exchange(&w, rank, &mine, &o, comm)));
    gw_file_abandon(w.file);
    free(w.dropped);
    free(o.text);
    free(mine.events);
    if (listens)
        gw_trace_resume();
    return e;
}
