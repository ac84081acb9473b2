#include "prof/sync.h"

#include "base/mem.h"
#include "mpi/wait.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 256, ROUNDS = 32, TAG = 1, READS = 64, RUNS = 10 };

struct gw_sync {
    MPI_Comm comm, host; /* host: the ranks that read one counter; its rank 0 speaks for it */
    int rank, on_host, hosts;
    int *leaders; /* rank 0: of the other hosts, hosts - 1 ranks of comm */
    uint64_t (*ticks)(void);
    uint64_t zero; /* rank 0: the common clock's start */
    double resolution_s;
    gw_sync_point points[POINTS];
    int n;
    double error_s;
};

/* ---- between two looks ---- */

static double sync_ticks_after(uint64_t ticks, uint64_t from) {
    return ticks >= from ? (double)(ticks - from) : -(double)(from - ticks);
}

double gw_sync_interpolate(const gw_sync_point *at, int n, double tick_s, uint64_t ticks) {
    int i = 0,
        end = n - 2; /* the stretch at[i], at[i + 1] that `ticks` lies in, or is nearest to */
    while (i < end) {
        int mid = (i + end + 1) / 2;
        if (at[mid].ticks <= ticks)
            i = mid;
        else
            end = mid - 1;
    }
    if (n > 1 && at[i + 1].ticks > at[i].ticks)
        tick_s =
            (at[i + 1].seconds - at[i].seconds) / sync_ticks_after(at[i + 1].ticks, at[i].ticks);
    return at[i].seconds + sync_ticks_after(ticks, at[i].ticks) * tick_s;
}

double gw_sync_seconds(const gw_sync *s, uint64_t ticks) {
    return gw_sync_interpolate(s->points, s->n, gw_clock_seconds(1), ticks);
}

double gw_sync_error(const gw_sync *s) {
    return s->error_s;
}

/* ---- a look ---- */

/* Rank 0's clock is the common one. */
static double sync_common_at(const gw_sync *s, uint64_t ticks) {
    return gw_clock_seconds(ticks - s->zero);
}

/* Rank 0: tell host after host the time as often as it asks. */
static gw_err sync_answer(const gw_sync *s) {
    for (int h = 0; h < s->hosts - 1; h++)
        for (int i = 0; i < ROUNDS; i++) {
            GW_TRY(gw_message(NULL, 0, s->leaders[h], TAG, false, s->comm));
            double now = sync_common_at(s, s->ticks());
            GW_TRY(gw_message(&now, sizeof now, s->leaders[h], TAG, true, s->comm));
        }
    return GW_OK;
}

static gw_err sync_ask(const gw_sync *s, gw_sync_point *best) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        double then;
        uint64_t before = s->ticks();
        GW_TRY(gw_message(NULL, 0, 0, TAG, true, s->comm));
        GW_TRY(gw_message(&then, sizeof then, 0, TAG, false, s->comm));
        uint64_t trip = s->ticks() - before;
        if (trip >= least)
            continue;
        least = trip;
        *best = (gw_sync_point){before + trip / 2, then, 0.5 * gw_clock_seconds(trip)};
    }
    return GW_OK;
}

gw_err gw_sync_again(gw_sync *s) {
    gw_sync_point p = {0};
    if (s->rank == 0) {
        GW_TRY(sync_answer(s));
        p.ticks = s->ticks();
        p.seconds = sync_common_at(s, p.ticks);
    } else if (s->on_host == 0) {
        GW_TRY(sync_ask(s, &p));
    }
    GW_TRY(gw_bcast(&p, (int)sizeof p, MPI_BYTE, 0, s->host));
    p.error_s += s->resolution_s;
    if (s->n == POINTS) { /* every second look goes, but the first and the last two stay */
        s->n = 0;
        for (int i = 0; i < POINTS; i++)
            if (i % 2 == 0 || i >= POINTS - 2)
                s->points[s->n++] = s->points[i];
    }
    double before_s = s->n > 0 ? s->points[s->n - 1].error_s : 0;
    s->points[s->n++] = p;
    double worst = fmax(p.error_s, before_s);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &worst, 1, MPI_DOUBLE, MPI_MAX, s->comm));
    /* Two hosts that are not rank 0's each have an error of their own. */
    s->error_s = s->hosts > 2 ? 2 * worst : worst;
    return GW_OK;
}

/* ---- opening ---- */

/* Rank 0 learns who speaks for the other hosts. */
static gw_err sync_open_hosts(gw_sync *s, bool apart, MPI_Comm comm) {
    int ranks, *leads = NULL;
    GW_TRY(gw_comm_dup(comm, &s->comm));
    GW_TRY(gw_comm_place(s->comm, &s->rank, &ranks));
    if (apart)
        GW_MPI(MPI_Comm_split(s->comm, s->rank, 0, &s->host));
    else
        GW_MPI(MPI_Comm_split_type(s->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &s->host));
    GW_TRY(gw_comm_place(s->host, &s->on_host, NULL));
    int lead = s->on_host == 0;
    GW_TRY(gw_allreduce(&lead, &s->hosts, 1, MPI_INT, MPI_SUM, s->comm));
    gw_err e = s->rank == 0 ? gw_alloc(&s->leaders, (size_t)s->hosts, sizeof(int)) : GW_OK;
    if (e == GW_OK && s->rank == 0)
        e = gw_alloc(&leads, (size_t)ranks, sizeof *leads);
    e = gw_agree(s->comm, e);
    GW_THEN(e, gw_mpi_check(MPI_Gather(&lead, 1, MPI_INT, leads, 1, MPI_INT, 0, s->comm),
                            "MPI_Gather"));
    for (int r = 1, h = 0; e == GW_OK && leads && r < ranks; r++)
        if (leads[r])
            s->leaders[h++] = r;
    free(leads);
    return e;
}

gw_err gw_sync_open(gw_sync **out, const gw_sync_setup *setup, MPI_Comm comm) {
    gw_sync *s = NULL;
    GW_TRY(gw_agree(comm, gw_alloc(&s, 1, sizeof *s)));
    s->comm = s->host = MPI_COMM_NULL;
    s->ticks = setup && setup->ticks ? setup->ticks : gw_clock_ticks;
    s->zero = gw_ledger_zero();
    s->resolution_s = 1; /* what a reading takes: closer together two instants are one */
    for (int run = 0; run < RUNS; run++) {
        uint64_t start = s->ticks();
        for (int i = 0; i < READS - 1; i++)
            s->ticks();
        s->resolution_s = fmin(s->resolution_s, gw_clock_seconds(s->ticks() - start) / READS);
    }
    gw_err e = sync_open_hosts(s, setup && setup->apart, comm);
    GW_THEN(e, gw_sync_again(s));
    GW_OPENED(e, out, s, gw_sync_close);
}

void gw_sync_close(gw_sync *s) {
    if (!s)
        return;
    if (s->host != MPI_COMM_NULL)
        MPI_Comm_free(&s->host);
    if (s->comm != MPI_COMM_NULL)
        MPI_Comm_free(&s->comm);
    free(s->leaders);
    free(s);
}
