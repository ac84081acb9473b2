#include "prof/waits.h"

#include "base/mem.h"
#include "mpi/collect.h"
#include "mpi/wait.h"
#include "prof/arrival.h"
#include "prof/clock.h"
#include "prof/tempo.h"

#include <math.h>
#include <stdlib.h>

enum { PIPE = 1 }; /* of the dimensions */

/* Over some of the recorded steps. */
typedef struct waits_sums {
    double *caused_s;   /* by rank: what this one waited for it; NaN: not known of some step */
    uint64_t last, had; /* exchanges: this rank was last, somebody was */
} waits_sums;

struct gw_waits {
    MPI_Comm comm, along[GW_EXCHANGE_DIMS];
    int *ranks_of[GW_EXCHANGE_DIMS]; /* their numbers in `comm`; NULL: nobody lies along it */
    int rank, ranks, rows;
    gw_sync *sync;
    gw_rows *files;     /* NULL: no collectives.csv is wanted */
    FILE *to;           /* rank 0 */
    waits_sums sums[2]; /* the steps of the warm-up; those after it */
    uint64_t dropped;
    double *waiting_s; /* for each row, between two flushes, and for each dimension of it */
};

gw_err gw_waits_open(gw_waits **out, gw_rows *files, int rows, const MPI_Comm *along,
                     MPI_Comm comm) {
    gw_waits *w = NULL;
    GW_TRY(gw_agree(comm, gw_alloc(&w, 1, sizeof *w)));
    w->comm = comm;
    w->rows = rows;
    w->files = files;
    gw_err e = gw_comm_place(comm, &w->rank, &w->ranks);
    for (int d = 0; e == GW_OK && d < (along ? GW_EXCHANGE_DIMS : 1); d++) {
        int size = 0;
        w->along[d] = along ? along[d] : comm;
        e = gw_comm_place(w->along[d], NULL, &size);
        GW_THEN(e, gw_alloc(&w->ranks_of[d], (size_t)size, sizeof *w->ranks_of[d]));
        GW_THEN(e, gw_mpi_check(
                       MPI_Allgather(&w->rank, 1, MPI_INT, w->ranks_of[d], 1, MPI_INT, w->along[d]),
                       "MPI_Allgather"));
    }
    for (int i = 0; i < 2; i++)
        GW_THEN(e, gw_alloc(&w->sums[i].caused_s, (size_t)w->ranks, sizeof(double)));
    GW_THEN(e, gw_alloc(&w->waiting_s, (size_t)rows * GW_EXCHANGE_DIMS, sizeof *w->waiting_s));
    if (e == GW_OK && files && w->rank == 0)
        e = gw_rows_open(files, &gw_waits_collectives, &w->to, NULL);
    GW_THEN(e, gw_exchange_log_open(rows));
    e = gw_agree(comm, e);
    GW_THEN(e, gw_sync_open(&w->sync, NULL, comm));
    GW_OPENED(e, out, w, gw_waits_abandon);
}

const gw_sync *gw_waits_sync(const gw_waits *w) {
    return w->sync;
}

/* ---- a flush ---- */

static waits_sums *waits_sums_of(gw_waits *w, int64_t step) {
    return &w->sums[step > GW_RECORD_WARMUP];
}

/* Ask all ranks along a dimension for the arrivals there that are not known yet. */
static gw_err waits_resolve(gw_waits *w, const gw_exchange_view *v, int dim) {
    size_t n = 0;
    MPI_Comm comm = w->along[dim];
    gw_arrival *all = NULL;
    GW_TRY(gw_agree(comm, gw_alloc(&all, (size_t)v->n_entries, sizeof *all)));
    for (int i = 0; i < v->n_entries; i++) {
        const gw_exchange_entry *e = &v->entries[i];
        if (!e->resolved && e->x.dim == dim)
            all[n++] =
                (gw_arrival){.x = e->x, .id = i, .mine_s = gw_sync_seconds(w->sync, e->start)};
    }
    gw_err e = gw_arrivals_resolve(all, n, comm);
    double error_s = gw_sync_error(w->sync);
    for (size_t i = 0; e == GW_OK && i < n; i++) {
        const gw_arrival *a = &all[i];
        gw_exchange_entry *to = &v->entries[a->id];
        if (!a->known)
            continue;
        to->resolved = true;
        to->first_s = a->first_s;
        to->latest_s = a->latest_s;
        /* A hop's time shows where somebody was blocked for it before both ends were there. */
        double hop_s = gw_sync_seconds(w->sync, to->done) - to->latest_s;
        if (to->step > 0 && dim == PIPE && to->done && to->block && hop_s > 0 &&
            gw_sync_seconds(w->sync, to->block) <= to->latest_s)
            gw_tempo_hop(to->x.name, hop_s);
        bool told = a->latest_s - a->first_s > error_s;
        to->last_rank = told ? w->ranks_of[dim][a->last_rank] : -1;
        if (to->step > 0 && to->last_rank >= 0) {
            waits_sums *sums = waits_sums_of(w, to->step);
            sums->had++;
            sums->last += to->last_rank == w->rank;
        }
    }
    free(all);
    return e;
}

static double *waits_of(gw_waits *w, int64_t row, int dim) {
    return &w->waiting_s[row * GW_EXCHANGE_DIMS + dim];
}

/* Stretches of one exchange and row follow each other. A wait below the clocks' error cannot be
 * told from none. Returns where the next begin. */
static int waits_split(gw_waits *w, const gw_exchange_view *v, const gw_batch_row *rows, int at) {
    const gw_exchange_stretch *first = &v->stretches[at];
    gw_exchange_entry *e = &v->entries[first->entry];
    double waiting_s = 0, all_s = 0, *row_s = waits_of(w, first->row, e->x.dim);
    for (; at < v->n_stretches; at++) {
        const gw_exchange_stretch *s = &v->stretches[at];
        if (s->entry != first->entry || s->row != first->row)
            break;
        /* The share before the last arrival is in ticks of our own, so that before and after add
         * up to the stretch whatever the clocks' rates. */
        double from = gw_sync_seconds(w->sync, s->start), to = gw_sync_seconds(w->sync, s->end);
        double share = to > from ? (e->latest_s - from) / (to - from) : 0;
        double took_s = gw_clock_seconds(s->end - s->start);
        all_s += took_s;
        waiting_s += e->resolved ? fmin(fmax(share, 0), 1) * took_s : 0;
    }
    if (!e->resolved) {
        *row_s = NAN;
        return at;
    }
    if (waiting_s <= gw_sync_error(w->sync))
        waiting_s = 0;
    *row_s += waiting_s;
    e->waiting_s += waiting_s;
    e->transfer_s += all_s - waiting_s;
    if (e->last_rank >= 0)
        waits_sums_of(w, rows[first->row].step)->caused_s[e->last_rank] += waiting_s;
    return at;
}

static void waits_fill(gw_waits *w, const gw_exchange_view *v, gw_batch_row *rows, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < GW_EXCHANGE_DIMS; d++)
            *waits_of(w, i, d) = i >= v->rows || v->lost[i] ? NAN : 0;
    for (int at = 0; at < v->n_stretches;)
        at = waits_split(w, v, rows, at);
    for (int64_t i = 0; i < n; i++) {
        gw_batch_wait wait = {.start_s = gw_sync_seconds(w->sync, rows[i].cost.start_ticks),
                              .clock_err_s = w->ranks > 1 ? gw_sync_error(w->sync) : NAN};
        for (int d = 0; d < GW_EXCHANGE_DIMS; d++)
            wait.waiting_s[d] = *waits_of(w, i, d);
        gw_batch_row_wait(&rows[i], &wait);
        for (int r = 0; isnan(rows[i].wait_skew_s) && r < w->ranks; r++)
            waits_sums_of(w, rows[i].step)->caused_s[r] = NAN;
    }
}

/* ---- collectives.csv ---- */

typedef struct row {
    int rank;
    int64_t step;
    char lane[16];
    int dim, schedule;
    uint64_t run, off, n;
    double start_s, block_s, unblock_s, done_s, waiting_s, transfer_s, skew_s;
    long last_rank;
} row;

static const gw_column columns[] = {
    GW_COLUMN(row, "rank", INT, rank),
    GW_COLUMN(row, "step", I64, step),
    GW_COLUMN(row, "lane", TEXT, lane),
    GW_COLUMN_NAME(row, "dimension", dim, gw_dim_names),
    GW_COLUMN(row, "schedule", INT, schedule),
    GW_COLUMN(row, "run", U64, run),
    GW_COLUMN(row, "offset", U64, off),
    GW_COLUMN(row, "elements", U64, n),
    GW_COLUMN_REAL(row, "start_s", start_s, 11),
    GW_COLUMN_REAL(row, "block_s", block_s, 11),
    GW_COLUMN_REAL(row, "unblock_s", unblock_s, 11),
    GW_COLUMN_REAL(row, "done_s", done_s, 11),
    GW_COLUMN_REAL(row, "waiting_s", waiting_s, 11),
    GW_COLUMN_REAL(row, "transfer_s", transfer_s, 11),
    GW_COLUMN(row, "last_rank", COUNT, last_rank),
    GW_COLUMN_REAL(row, "skew_s", skew_s, 11),
};
const gw_table gw_waits_collectives = GW_TABLE("collectives.csv", row, columns);

static double waits_at(const gw_waits *w, uint64_t ticks) {
    return ticks ? gw_sync_seconds(w->sync, ticks) : NAN;
}

/* The finished exchanges of recorded batches. */
static gw_err waits_write(gw_waits *w, const gw_exchange_view *v) {
    row *rows = NULL;
    int n = 0;
    GW_TRY(gw_agree(w->comm, gw_alloc(&rows, (size_t)v->n_entries, sizeof *rows)));
    for (int i = 0; i < v->n_entries; i++) {
        const gw_exchange_entry *e = &v->entries[i];
        if (!v->finished[i] || e->step <= 0)
            continue;
        rows[n] = (row){.rank = w->rank,
                        .step = e->step,
                        .dim = e->x.dim,
                        .schedule = e->x.schedule,
                        .run = e->x.run,
                        .off = e->x.off,
                        .n = e->x.n,
                        .start_s = waits_at(w, e->start),
                        .block_s = waits_at(w, e->block),
                        .unblock_s = waits_at(w, e->unblock),
                        .done_s = waits_at(w, e->done),
                        .waiting_s = e->resolved ? e->waiting_s : NAN,
                        .transfer_s = e->resolved ? e->transfer_s : NAN,
                        .skew_s = e->resolved ? e->latest_s - e->first_s : NAN,
                        .last_rank = e->resolved ? e->last_rank : -1};
        snprintf(rows[n++].lane, sizeof rows->lane, "%s", e->x.name ? e->x.name : "");
    }
    gw_err e = gw_collect_rows(&gw_waits_collectives, w->to, rows, n, w->comm);
    free(rows);
    return e;
}

gw_err gw_waits_flush(gw_waits *w, gw_batch_row *rows, int64_t n, int *room) {
    GW_TRY(gw_sync_again(w->sync));
    gw_exchange_view v = gw_exchange_log_view();
    for (int d = 0; d < GW_EXCHANGE_DIMS; d++)
        if (w->ranks_of[d])
            GW_TRY(waits_resolve(w, &v, d));
    waits_fill(w, &v, rows, n);
    w->dropped = v.dropped;
    if (w->files)
        GW_TRY(waits_write(w, &v));
    *room = gw_exchange_log_room();
    gw_exchange_log_clear(false);
    return gw_allreduce(MPI_IN_PLACE, room, 1, MPI_INT, MPI_MIN, w->comm);
}

/* ---- the end ---- */

gw_err gw_waits_totals(const gw_waits *w, bool warm, gw_waits_rank *ranks, uint64_t *dropped) {
    const waits_sums *cold = &w->sums[0], *rest = &w->sums[1];
    double last = (double)(rest->last + (warm ? 0 : cold->last)),
           had = (double)(rest->had + (warm ? 0 : cold->had));
    for (int r = 0; r < w->ranks; r++) /* each rank's own share, and what it waited for each */
        ranks[r].caused_s = rest->caused_s[r] + (warm ? 0 : cold->caused_s[r]);
    for (int r = 0; r < w->ranks; r++)
        ranks[r].last = r == w->rank ? last / had : 0; /* 0/0: NaN */
    GW_TRY(gw_allreduce(MPI_IN_PLACE, ranks, 2 * w->ranks, MPI_DOUBLE, MPI_SUM, w->comm));
    return gw_allreduce(&w->dropped, dropped, 1, MPI_UINT64_T, MPI_SUM, w->comm);
}

gw_err gw_waits_close(gw_waits *w) {
    gw_err e = GW_OK;
    if (w->to)
        e = gw_rows_commit(w->files, &gw_waits_collectives);
    e = gw_agree(w->comm, e);
    gw_waits_abandon(w);
    return e;
}

void gw_waits_abandon(gw_waits *w) {
    if (!w)
        return;
    gw_exchange_log_close();
    gw_sync_close(w->sync);
    for (int d = 0; d < GW_EXCHANGE_DIMS; d++)
        free(w->ranks_of[d]);
    for (int i = 0; i < 2; i++)
        free(w->sums[i].caused_s);
    free(w->waiting_s);
    free(w);
}
