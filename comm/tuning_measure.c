#include "comm/tuning.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "comm/lane_parts.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 15, HOPELESS = 8 /* times slower than the best: not measured again */ };

static const size_t wanted[] = {4 << 10, 64 << 10, 1 << 20, 8 << 20};
enum { WANTED = sizeof wanted / sizeof *wanted };

typedef struct probe {
    gw_tuning *t;
    gw_lane *lane;
    float *scratch;                         /* as long as the largest span */
    double spent_s, budget_s;               /* by the reduced times: the same on all ranks */
    gw_schedule *schedule[GW_TUNING_ALGOS]; /* for the size at hand; NULL: out */
    double runs[GW_TUNING_ALGOS][MOST_ROUNDS];
    uint64_t rounds; /* so far: each has an order of its own, the same on all ranks */
} probe;

/* Largest value over the ranks. */
static gw_err largest(const gw_lane *lane, double *x, int n) {
    return gw_allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_MAX, lane->comm);
}

/* ---- who takes part ---- */

static gw_err several_nodes(const gw_lane *lane, bool *out) {
    double most_here = lane->shared ? gw_shared_size(lane->shared) : 1;
    GW_TRY(largest(lane, &most_here, 1));
    *out = most_here > 1 && most_here < lane->size;
    return GW_OK;
}

static gw_err gather_candidates(gw_tuning *t, const gw_lane *lane, const gw_algo_ops *except) {
    bool nodes;
    GW_TRY(several_nodes(lane, &nodes));
    for (const gw_entry *const *e = gw_algos.entries; *e; e++) {
        bool layered = strcmp((*e)->name, "hier") == 0; /* on one node the same as shm */
        if (*e == &except->head || (layered && !nodes) || t->n_algos == GW_TUNING_ALGOS)
            continue;
        gw_err err = gw_algo_open(&t->algo[t->n_algos], (*e)->name, lane->codec);
        if (err == GW_OK)
            t->n_algos++;
        else if (err != GW_ERR_UNSUPPORTED)
            return err;
    }
    return GW_OK;
}

/* ---- one size ---- */

static gw_err lay_down_one(probe *p, int a, gw_span span) {
    gw_schedule *s = NULL;
    GW_TRY(gw_schedule_new(&s, p->lane, p->scratch, span));
    gw_err e = gw_algo_lay_down(&p->t->algo[a], s, GW_ALLREDUCE, 0);
    if (e == GW_OK) {
        p->schedule[a] = s;
        return GW_OK;
    }
    gw_schedule_free(s);
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e; /* on all ranks alike */
}

/* What one rank could not lay down, none runs. */
static gw_err lay_down_all(probe *p, gw_span span) {
    gw_err e = GW_OK;
    for (int a = 0; e == GW_OK && a < p->t->n_algos; a++)
        e = lay_down_one(p, a, span);
    double failed = e != GW_OK;
    GW_TRY(largest(p->lane, &failed, 1));
    return failed > 0 ? gw_agree(p->lane->comm, e) : GW_OK;
}

static void free_all(probe *p) {
    for (int a = 0; a < p->t->n_algos; a++) {
        gw_schedule_free(p->schedule[a]);
        p->schedule[a] = NULL;
    }
}

gw_err gw_tuning_time(gw_schedule *s, double *time_s) {
    gw_span span = gw_schedule_span(s);
    float *x = gw_schedule_base(s) + span.off;
    for (size_t i = 0; i < span.n; i++)
        x[i] = (float)((int)(i % 251) - 125);
    GW_TRY(gw_barrier(gw_schedule_lane(s)->comm));
    double start = MPI_Wtime();
    GW_TRY(gw_schedule_run(s));
    *time_s = MPI_Wtime() - start;
    return GW_OK;
}

/* One run of each that is `in`, in an order drawn anew; the slowest rank's times. */
static gw_err one_round(probe *p, const bool *in, double *time_s) {
    uint32_t order[GW_TUNING_ALGOS], n = 0;
    for (int a = 0; a < p->t->n_algos; a++) {
        time_s[a] = 0;
        if (in[a])
            order[n++] = (uint32_t)a;
    }
    gw_rng_shuffle(gw_rng_key(p->lane->seed, p->rounds++), order, n);
    for (uint32_t i = 0; i < n; i++)
        GW_TRY(gw_tuning_time(p->schedule[order[i]], &time_s[order[i]]));
    GW_TRY(largest(p->lane, time_s, p->t->n_algos));
    for (uint32_t i = 0; i < n; i++)
        p->spent_s += time_s[order[i]];
    return GW_OK;
}

static int fastest(const gw_tuning_row *row, int n) {
    int best = -1;
    for (int a = 0; a < n; a++)
        if (!isnan(row->time_s[a]) && (best < 0 || row->time_s[a] < row->time_s[best]))
            best = a;
    return best;
}

/* More rounds of all that are not hopeless; the median of each. */
static gw_err more_rounds(probe *p, gw_tuning_row *row, double share_s) {
    int algos = p->t->n_algos, best = fastest(row, algos);
    bool in[GW_TUNING_ALGOS];
    double each_s = 0, once[GW_TUNING_ALGOS];
    for (int a = 0; a < algos; a++) {
        in[a] = row->time_s[a] <= HOPELESS * row->time_s[best]; /* false for NaN */
        each_s += in[a] ? row->time_s[a] : 0;
    }
    double fit = share_s / each_s;
    int rounds = fit > MOST_ROUNDS ? MOST_ROUNDS : fit > 0 ? (int)fit : 0;
    for (int k = 0; k < rounds; k++) {
        GW_TRY(one_round(p, in, once));
        for (int a = 0; a < algos; a++)
            p->runs[a][k] = once[a];
    }
    for (int a = 0; a < algos && rounds > 0; a++)
        if (in[a])
            row->time_s[a] = gw_stats_median(p->runs[a], rounds);
    return GW_OK;
}

static gw_err one_size(probe *p, gw_tuning_row *row, int sizes_left) {
    size_t n = row->bytes / sizeof(float);
    bool in[GW_TUNING_ALGOS];
    GW_TRY(lay_down_all(p, (gw_span){0, n}));
    for (int a = 0; a < p->t->n_algos; a++)
        in[a] = p->schedule[a];
    if (p->t->n_sizes == 0) { /* connections are made, pages touched */
        GW_TRY(one_round(p, in, row->time_s));
        p->spent_s = 0;
    }
    GW_TRY(one_round(p, in, row->time_s)); /* tells how many more are worth it */
    for (int a = 0; a < p->t->n_algos; a++)
        if (!in[a])
            row->time_s[a] = NAN;
    if (fastest(row, p->t->n_algos) < 0)
        return gw_fail(GW_ERR_UNSUPPORTED, "algo=auto: no algorithm carries codec %s here",
                       p->lane->codec->name);
    double left_s = p->budget_s - p->spent_s;
    GW_TRY(more_rounds(p, row, left_s / sizes_left));
    row->chosen = fastest(row, p->t->n_algos);
    return GW_OK;
}

/* Would a first run of each at this size, were time linear in bytes, break the budget? */
static bool too_slow(const probe *p, size_t bytes) {
    if (p->t->n_sizes == 0)
        return false;
    const gw_tuning_row *last = &p->t->row[p->t->n_sizes - 1];
    double sum = 0;
    for (int a = 0; a < p->t->n_algos; a++)
        sum += isnan(last->time_s[a]) ? 0 : last->time_s[a];
    return p->spent_s + sum * (double)bytes / (double)last->bytes > p->budget_s;
}

static int choose_sizes(size_t arena, size_t sizes[WANTED]) {
    int n = 0;
    while (n < WANTED && wanted[n] <= arena) {
        sizes[n] = wanted[n];
        n++;
    }
    if (n == 0 || (n < WANTED && arena >= 2 * sizes[n - 1]))
        sizes[n++] = arena; /* the whole arena is what is reduced most */
    return n;
}

static gw_err all_sizes(probe *p) {
    size_t sizes[WANTED], arena = p->lane->n * sizeof(float);
    int n = choose_sizes(arena, sizes);
    GW_TRY(gw_lane_floats(p->lane, sizes[n - 1] / sizeof(float), &p->scratch));
    for (int i = 0; i < n && !too_slow(p, sizes[i]); i++) {
        gw_tuning_row *row = &p->t->row[i];
        row->bytes = sizes[i];
        gw_err e = one_size(p, row, n - i);
        free_all(p);
        GW_TRY(e);
        p->t->n_sizes++;
    }
    return GW_OK;
}

gw_err gw_tuning_measure(gw_tuning *t, gw_lane *lane, const gw_algo_ops *except, double budget_s) {
    float *residual = NULL;
    probe *p = NULL;
    *t = (gw_tuning){0};
    gw_err e = gw_alloc(&p, 1, sizeof *p);
    if (e == GW_OK && lane->residual)
        e = gw_alloc(&residual, lane->n, sizeof *residual);
    if (e == GW_OK)
        e = gather_candidates(t, lane, except);
    e = gw_agree(lane->comm, e);
    if (e == GW_OK) {
        *p = (probe){.t = t, .lane = lane, .budget_s = budget_s};
        if (residual)
            memcpy(residual, lane->residual, lane->n * sizeof *residual);
        e = all_sizes(p);
        if (residual)
            memcpy(lane->residual, residual, lane->n * sizeof *residual);
    }
    free(residual);
    free(p);
    if (e != GW_OK)
        gw_tuning_clear(t);
    return e;
}
