#include "prof/trace.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/wait.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include <inttypes.h>
#include <stdlib.h>

enum { TAG = 1, CHUNK = 8192 };

/* What an event shows; phases are themselves. */
enum { BATCH = GW_PHASES, FLIGHT };

typedef struct event {
    uint64_t start, end; /* ticks; on the way to rank 0: ns since time 0 */
    int64_t step;        /* of a batch */
    int64_t kind;
} event;

/* The last `room` of `seen` events; written by one thread at a time. */
typedef struct ring {
    event *events;
    size_t room;
    uint64_t seen;
} ring;

static struct {
    ring main, flight;
    int64_t step;
    uint64_t ticks0, ns0; /* one instant in both clocks */
    uint64_t zero_ns;     /* CLOCK_MONOTONIC at time 0 */
} trace;

static void ring_add(ring *r, event e) {
    r->events[r->seen++ % r->room] = e;
}

static size_t ring_held(const ring *r) {
    return r->seen < r->room ? (size_t)r->seen : r->room;
}

static void add_slice(gw_phase phase, uint64_t start, uint64_t end) {
    ring_add(&trace.main, (event){start, end, 0, phase});
}

static void add_batch(uint64_t start, uint64_t end) {
    ring_add(&trace.main, (event){start, end, trace.step++, BATCH});
}

static void add_flight(uint64_t start, uint64_t end) {
    ring_add(&trace.flight, (event){start, end, 0, FLIGHT});
}

static const gw_ledger_sink sink = {.slice = add_slice, .batch = add_batch, .flight = add_flight};

/* Time 0: when the first rank of this host left a barrier over all. */
static gw_err agree_on_zero(MPI_Comm comm) {
    MPI_Comm host;
    GW_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    GW_TRY(gw_barrier(comm));
    gw_clock_anchor(&trace.ticks0, &trace.ns0);
    GW_TRY(gw_allreduce(&trace.ns0, &trace.zero_ns, 1, MPI_UINT64_T, MPI_MIN, host));
    GW_MPI(MPI_Comm_free(&host));
    return GW_OK;
}

gw_err gw_trace_open(size_t events, MPI_Comm comm) {
    gw_trace_close();
    gw_err e = events > 0 ? GW_OK : gw_fail(GW_ERR_USAGE, "a trace needs room for an event");
    if (e == GW_OK)
        e = gw_alloc(&trace.main.events, events, sizeof(event));
    if (e == GW_OK)
        e = gw_alloc(&trace.flight.events, events, sizeof(event));
    trace.main.room = trace.flight.room = events;
    trace.step = 1;
    e = gw_agree(comm, e);
    if (e == GW_OK)
        e = agree_on_zero(comm);
    if (e != GW_OK) {
        gw_trace_close();
        return e;
    }
    gw_ledger_listen(&sink);
    return GW_OK;
}

void gw_trace_step(int64_t step) {
    trace.step = step;
}

void gw_trace_close(void) {
    if (trace.main.events)
        gw_ledger_unlisten(&sink);
    free(trace.main.events);
    free(trace.flight.events);
    trace.main = trace.flight = (ring){0};
}

/* Nanoseconds since time 0. The rate comes from the whole trace: finer than the calibration. */
static uint64_t since_zero(uint64_t ticks, double ns_per_tick) {
    double ns = (double)(ticks - trace.ticks0) * ns_per_tick;
    return trace.ns0 - trace.zero_ns + (uint64_t)(ns > 0 ? ns : 0);
}

/* Chronological, outer events first. */
static int by_start(const void *a, const void *b) {
    const event *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end > y->end ? -1 : 1;
    return (y->kind == BATCH) - (x->kind == BATCH);
}

/* This rank's events, ready to write; free(). */
static gw_err collect(event **out, uint64_t *count) {
    uint64_t ticks1, ns1;
    gw_clock_anchor(&ticks1, &ns1);
    double ns_per_tick = (double)(ns1 - trace.ns0) / (double)(ticks1 - trace.ticks0);
    const ring *rings[] = {&trace.main, &trace.flight};
    size_t n = ring_held(&trace.main) + ring_held(&trace.flight);
    event *all = NULL;
    GW_TRY(gw_alloc(&all, n, sizeof *all));
    size_t k = 0;
    for (int r = 0; r < 2; r++)
        for (size_t i = 0; i < ring_held(rings[r]); i++) {
            event e = rings[r]->events[i];
            e.start = since_zero(e.start, ns_per_tick);
            e.end = since_zero(e.end, ns_per_tick);
            all[k++] = e;
        }
    qsort(all, n, sizeof *all, by_start);
    *out = all;
    *count = n;
    return GW_OK;
}

/* "12.345" of 12345 ns: the format counts microseconds; decimal keeps sums of parts exact. */
#define US        "%" PRIu64 ".%03" PRIu64
#define US_OF(ns) (ns) / 1000, (ns) % 1000

static void write_event(FILE *to, int rank, const event *e) {
    fprintf(to, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":" US ",\"dur\":" US, rank,
            e->kind == FLIGHT, US_OF(e->start), US_OF(e->end - e->start));
    if (e->kind == BATCH)
        fprintf(to,
                ",\"name\":\"step %" PRId64 "\",\"cat\":\"batch\",\"args\":{\"step\":%" PRId64 "}}",
                e->step, e->step);
    else if (e->kind == FLIGHT)
        fprintf(to, ",\"name\":\"in flight\",\"cat\":\"communication\"}");
    else
        fprintf(to, ",\"name\":\"%s\",\"cat\":\"phase\"}", gw_phase_name((gw_phase)e->kind));
}

static void write_names(FILE *to, int rank) {
    static const char *const threads[] = {"computation", "communication in flight"};
    fprintf(to,
            "%s\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,"
            "\"args\":{\"name\":\"rank %d\"}},\n"
            "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":0,"
            "\"args\":{\"sort_index\":%d}}",
            rank == 0 ? "" : ",", rank, rank, rank, rank);
    for (int t = 0; t < 2; t++)
        fprintf(to,
                ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,"
                "\"args\":{\"name\":\"%s\"}}",
                rank, t, threads[t]);
}

/* heads: per rank the number of events and how many of each ring were dropped. */
static void write_tail(FILE *to, const uint64_t (*heads)[3], int ranks) {
    fprintf(
        to,
        "\n],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"clock\":\"%s\","
        "\"zero\":\"the first rank of a host to leave a common barrier; ranks of one host share "
        "the clock, hosts differ by the barrier's skew\",\n\"dropped_slices\":[",
        gw_clock_name());
    for (int i = 0; i < ranks; i++)
        fprintf(to, "%s%" PRIu64, i ? "," : "", heads[i][1]);
    fprintf(to, "],\n\"dropped_flights\":[");
    for (int i = 0; i < ranks; i++)
        fprintf(to, "%s%" PRIu64, i ? "," : "", heads[i][2]);
    fprintf(to, "]}}\n");
}

static gw_err send_events(const event *mine, uint64_t count, MPI_Comm comm) {
    for (uint64_t at = 0; at < count; at += CHUNK) {
        uint64_t n = count - at < CHUNK ? count - at : CHUNK;
        GW_MPI(MPI_Send(mine + at, (int)(n * sizeof *mine), MPI_BYTE, 0, TAG, comm));
    }
    return GW_OK;
}

/* Rank 0, chunk by chunk, so that its memory does not grow with the ranks. */
static gw_err write_all(FILE *to, const event *mine, const uint64_t (*heads)[3], event *chunk,
                        MPI_Comm comm) {
    int ranks;
    GW_MPI(MPI_Comm_size(comm, &ranks));
    fprintf(to, "{\"traceEvents\":[");
    for (int rank = 0; rank < ranks; rank++)
        write_names(to, rank);
    for (uint64_t i = 0; i < heads[0][0]; i++)
        write_event(to, 0, &mine[i]);
    for (int rank = 1; rank < ranks; rank++)
        for (uint64_t left = heads[rank][0]; left > 0;) {
            uint64_t n = left < CHUNK ? left : CHUNK;
            GW_MPI(MPI_Recv(chunk, (int)(n * sizeof *chunk), MPI_BYTE, rank, TAG, comm,
                            MPI_STATUS_IGNORE));
            for (uint64_t i = 0; i < n; i++)
                write_event(to, rank, &chunk[i]);
            left -= n;
        }
    write_tail(to, heads, ranks);
    return ferror(to) ? gw_fail(GW_ERR_IO, "cannot write trace.json: is the disk full?") : GW_OK;
}

/* What rank 0 needs to write; all NULL elsewhere. */
typedef struct writer {
    gw_file *file;
    uint64_t (*heads)[3];
    event *chunk;
} writer;

static gw_err writer_open(writer *w, const char *dir, MPI_Comm comm) {
    int ranks;
    GW_MPI(MPI_Comm_size(comm, &ranks));
    GW_TRY(gw_alloc(&w->heads, (size_t)ranks, sizeof *w->heads));
    GW_TRY(gw_alloc(&w->chunk, CHUNK, sizeof *w->chunk));
    return gw_file_create(&w->file, dir, "trace.json");
}

static gw_err exchange(writer *w, int rank, const event *mine, uint64_t count, MPI_Comm comm) {
    const uint64_t head[3] = {count, trace.main.seen - ring_held(&trace.main),
                              trace.flight.seen - ring_held(&trace.flight)};
    GW_MPI(MPI_Gather(head, 3, MPI_UINT64_T, w->heads, 3, MPI_UINT64_T, 0, comm));
    if (rank != 0)
        return send_events(mine, count, comm);
    GW_TRY(
        write_all(gw_file_stream(w->file), mine, (const uint64_t(*)[3])w->heads, w->chunk, comm));
    gw_file *file = w->file;
    w->file = NULL;
    return gw_file_commit(file);
}

gw_err gw_trace_write(const char *dir, MPI_Comm comm) {
    int rank;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    event *mine = NULL;
    uint64_t count = 0;
    writer w = {0};
    gw_err e =
        trace.main.events ? collect(&mine, &count) : gw_fail(GW_ERR_INTERNAL, "no trace is open");
    if (e == GW_OK && rank == 0)
        e = writer_open(&w, dir, comm);
    e = gw_agree(comm, e);
    if (e == GW_OK)
        e = gw_agree(comm, exchange(&w, rank, mine, count, comm));
    gw_file_abandon(w.file);
    free(w.heads);
    free(w.chunk);
    free(mine);
    return e;
}
