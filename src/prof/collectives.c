#include "prof/collectives.h"

#include "base/mem.h"
#include "mpi/wait.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { CHUNK = 2048, NAME = 16, TAG = 2 };

typedef struct row {
    char lane[NAME];
    int64_t step;
    uint64_t run, off, n;
    int schedule, last_rank;                                                   /* -1: blank */
    double start_s, block_s, unblock_s, done_s, waiting_s, transfer_s, skew_s; /* NaN: blank */
} row;

gw_err gw_collectives_open(FILE **to, gw_rows *files) {
    return gw_rows_open(files, GW_COLLECTIVES, GW_COLLECTIVES_HEADER, to, NULL);
}

static double seconds(const gw_sync *sync, uint64_t ticks) {
    return ticks ? gw_sync_seconds(sync, ticks) : NAN;
}

static row row_of(const gw_exchange_entry *e, const gw_sync *sync) {
    row r = {.step = e->step,
             .run = e->x.run,
             .off = e->x.off,
             .n = e->x.n,
             .schedule = e->x.schedule,
             .last_rank = e->resolved ? e->last_rank : -1,
             .start_s = seconds(sync, e->start),
             .block_s = seconds(sync, e->block),
             .unblock_s = seconds(sync, e->unblock),
             .done_s = seconds(sync, e->done),
             .waiting_s = e->resolved ? e->waiting_s : NAN,
             .transfer_s = e->resolved ? e->transfer_s : NAN,
             .skew_s = e->resolved ? e->latest_s - e->first_s : NAN};
    snprintf(r.lane, sizeof r.lane, "%s", e->x.name ? e->x.name : "");
    return r;
}

/* A figure that is missing is blank, never 0. */
static void real(FILE *to, double x) {
    if (!isnan(x))
        fprintf(to, "%.11g", x);
    fputc(',', to);
}

static void print(FILE *to, int rank, const row *r) {
    fprintf(to, "%d,%" PRId64 ",%s,%d,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", rank, r->step, r->lane,
            r->schedule, r->run, r->off, r->n);
    const double times[] = {r->start_s, r->block_s,   r->unblock_s,
                            r->done_s,  r->waiting_s, r->transfer_s};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        real(to, times[i]);
    if (r->last_rank >= 0)
        fprintf(to, "%d", r->last_rank);
    fputc(',', to);
    if (!isnan(r->skew_s))
        fprintf(to, "%.11g", r->skew_s);
    fputc('\n', to);
}

static bool listed(const gw_exchange_view *v, int i) {
    return v->finished[i] && v->entries[i].step > 0;
}

/* The next chunk of the rows that v has from entry *at on. */
static int fill(row *chunk, const gw_exchange_view *v, const gw_sync *sync, int *at) {
    int n = 0;
    for (; *at < v->n_entries && n < CHUNK; ++*at)
        if (listed(v, *at))
            chunk[n++] = row_of(&v->entries[*at], sync);
    return n;
}

static gw_err move(row *chunk, int n, int peer, bool send, MPI_Comm comm) {
    MPI_Request request;
    int bytes = n * (int)sizeof *chunk;
    GW_MPI(send ? MPI_Isend(chunk, bytes, MPI_BYTE, peer, TAG, comm, &request)
                : MPI_Irecv(chunk, bytes, MPI_BYTE, peer, TAG, comm, &request));
    return gw_wait(&request);
}

static gw_err send_rows(row *chunk, const gw_exchange_view *v, const gw_sync *sync, MPI_Comm comm) {
    for (int at = 0, n; (n = fill(chunk, v, sync, &at)) > 0;)
        GW_TRY(move(chunk, n, 0, true, comm));
    return GW_OK;
}

static gw_err write_rows(FILE *to, row *chunk, const gw_exchange_view *v, const gw_sync *sync,
                         const int *count, int ranks, MPI_Comm comm) {
    for (int at = 0, n; (n = fill(chunk, v, sync, &at)) > 0;)
        for (int i = 0; i < n; i++)
            print(to, 0, &chunk[i]);
    for (int r = 1; r < ranks; r++)
        for (int left = count[r]; left > 0;) {
            int n = left < CHUNK ? left : CHUNK;
            GW_TRY(move(chunk, n, r, false, comm));
            for (int i = 0; i < n; i++)
                print(to, r, &chunk[i]);
            left -= n;
        }
    return ferror(to) ? gw_fail(GW_ERR_IO, "cannot write collectives.csv: is the disk full?")
                      : GW_OK;
}

gw_err gw_collectives_write(FILE *to, const gw_exchange_view *v, const gw_sync *sync,
                            MPI_Comm comm) {
    int rank, ranks, mine = 0, *count = NULL;
    row *chunk = NULL;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    GW_MPI(MPI_Comm_size(comm, &ranks));
    for (int i = 0; i < v->n_entries; i++)
        mine += listed(v, i);
    gw_err e = gw_alloc(&chunk, CHUNK, sizeof *chunk);
    if (e == GW_OK)
        e = gw_alloc(&count, (size_t)ranks, sizeof *count);
    e = gw_agree(comm, e);
    if (e == GW_OK)
        e = gw_mpi_check(MPI_Gather(&mine, 1, MPI_INT, count, 1, MPI_INT, 0, comm), "MPI_Gather");
    if (e == GW_OK)
        e = rank > 0 ? send_rows(chunk, v, sync, comm)
                     : write_rows(to, chunk, v, sync, count, ranks, comm);
    e = gw_agree(comm, e);
    free(chunk);
    free(count);
    return e;
}
