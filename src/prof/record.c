#include "prof/record.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Figures of a step, as gw_batch_summary has them. */
enum {
    KEY = 0x5eed,
    PHASE = 4,
    SPLIT = PHASE + GW_PHASES,
    FIGURES = SPLIT + sizeof(gw_batch_split) / sizeof(double)
};
_Static_assert(sizeof((gw_batch_summary *)0)->figure == FIGURES * sizeof(double), "all figures");

/* A step over all ranks, as the summary needs it. */
typedef struct step_figures {
    int64_t at;                       /* how many came before it */
    float figure[FIGURES];            /* NaN: not known */
    double wire_bytes, logical_bytes; /* means over the ranks */
} step_figures;

/* The same while its ranks' rows come in: sums, but for the longest wall. */
typedef struct step_sums {
    int64_t step;
    int ranks, have[FIGURES];
    double wall_s, figure[FIGURES], wire_bytes, logical_bytes;
    gw_split_source source; /* the best of them */
} step_sums;

struct gw_record {
    MPI_Comm comm;
    int rank, ranks;
    MPI_Datatype row_type;
    gw_batch_row *rows;
    int64_t held, room;

    /* Rank 0: */
    gw_rows *files; /* NULL: no file is wanted */
    FILE *to;
    gw_batch_table table;
    step_figures *steps;               /* a uniform sample of `seen`, at most GW_RECORD_STEPS */
    int64_t steps_held, seen, earlier; /* earlier: of `seen`, read from the file */
    gw_split_source source;            /* the best so far */
    float *scratch;                    /* GW_RECORD_STEPS values, for a median */
    gw_record_rank *sums[2];           /* by rank: over the warm-up, and over what came after; */
    int64_t summed[2];                 /* so many steps of this start */
};

static gw_err make_type(gw_record *r) {
    GW_MPI(MPI_Type_contiguous((int)sizeof(gw_batch_row), MPI_BYTE, &r->row_type));
    GW_MPI(MPI_Type_commit(&r->row_type));
    return GW_OK;
}

/* For all that are ever kept: so a run's memory does not grow, nor run out, while it goes on. */
static gw_err room_for_steps(gw_record *r) {
    GW_TRY(gw_alloc(&r->steps, GW_RECORD_STEPS, sizeof *r->steps));
    return gw_alloc(&r->scratch, GW_RECORD_STEPS, sizeof *r->scratch);
}

gw_err gw_record_open(gw_record **out, int64_t rows, MPI_Comm comm) {
    gw_record *r = NULL;
    gw_err e = gw_alloc(&r, 1, sizeof *r);
    if (e == GW_OK) {
        r->comm = comm;
        r->row_type = MPI_DATATYPE_NULL;
        r->room = rows;
        gw_batch_table_make(&r->table, NULL, 0);
        e = gw_alloc(&r->rows, (size_t)rows, sizeof *r->rows);
    }
    GW_THEN(e, gw_mpi_check(MPI_Comm_rank(comm, &r->rank), "MPI_Comm_rank"));
    GW_THEN(e, gw_mpi_check(MPI_Comm_size(comm, &r->ranks), "MPI_Comm_size"));
    GW_THEN(e, make_type(r));
    for (int i = 0; e == GW_OK && i < 2; i++)
        e = gw_alloc(&r->sums[i], (size_t)r->ranks, sizeof **r->sums);
    if (e == GW_OK && r->rank == 0)
        e = room_for_steps(r);
    e = gw_agree(comm, e);
    if (e != GW_OK) {
        gw_record_abandon(r);
        return e;
    }
    *out = r;
    return GW_OK;
}

void gw_record_counters(gw_record *r, const char *const *names, int n) {
    gw_batch_table_make(&r->table, names, n);
}

const char *gw_record_counter(const gw_record *r, int i) {
    return GW_BATCH_COLUMNS + i < r->table.table.columns ? r->table.counter[i] : NULL;
}

gw_err gw_record_push(gw_record *r, const gw_batch_row *row) {
    if (r->held == r->room)
        return gw_fail(GW_ERR_INTERNAL, "batches.csv: %lld rows between two flushes, room for %lld",
                       (long long)r->held + 1, (long long)r->room);
    r->rows[r->held++] = *row;
    return GW_OK;
}

gw_batch_row *gw_record_rows(gw_record *r, int64_t *n) {
    *n = r->held;
    return r->rows;
}

/* Keep the next step, while there is room; then in place of one drawn out of all so far, or not. */
static void keep_step(gw_record *r, const step_figures *s) {
    uint64_t at = (uint64_t)r->seen++;
    if (at < GW_RECORD_STEPS)
        r->steps_held++;
    else
        at = gw_rng_u64(KEY, at) % (at + 1);
    if (at < GW_RECORD_STEPS)
        r->steps[at] = *s;
}

static void add_to_rank(gw_record *r, const gw_batch_row *row, int rank) {
    const double *t = row->cost.phase_s;
    gw_record_rank *sum = &r->sums[row->step > GW_RECORD_WARMUP][rank];
    sum->wall_s += row->cost.wall_s;
    sum->compute_s += t[GW_PHASE_FORWARD] + t[GW_PHASE_BACKWARD] + t[GW_PHASE_UPDATE];
    sum->waiting_s += row->wait_skew_s;
    sum->transfer_s += row->transfer_s;
}

void gw_record_ranks(const gw_record *r, bool warm, gw_record_rank *out) {
    double n = (double)(r->summed[1] + (warm ? 0 : r->summed[0]));
    for (int i = 0; i < r->ranks; i++) {
        gw_record_rank a = warm ? (gw_record_rank){0} : r->sums[0][i], b = r->sums[1][i];
        /* Without steps 0/0: NaN. */
        out[i] =
            (gw_record_rank){(a.wall_s + b.wall_s) / n, (a.compute_s + b.compute_s) / n,
                             (a.waiting_s + b.waiting_s) / n, (a.transfer_s + b.transfer_s) / n};
    }
}

/* A split is the mean over the ranks that have it, the rest over all. */
static void record_add(step_sums *s, const gw_batch_row *row) {
    const gw_batch_cost *c = &row->cost;
    double figure[FIGURES] = {c->wall_s, c->inflight_s, row->wait_skew_s, row->transfer_s};
    memcpy(figure + PHASE, c->phase_s, sizeof c->phase_s);
    memcpy(figure + SPLIT, &row->split, sizeof row->split);
    s->ranks++;
    s->wall_s = fmax(s->wall_s, c->wall_s);
    s->wire_bytes += c->wire_bytes == GW_UNCOUNTED ? NAN : (double)c->wire_bytes;
    s->logical_bytes += (double)row->logical_bytes;
    s->source = row->source > s->source ? row->source : s->source;
    for (int k = 0; k < FIGURES; k++)
        if (k < SPLIT || !isnan(figure[k])) {
            s->figure[k] += figure[k];
            s->have[k]++;
        }
}

/* All rows of a step are there. */
static void end_step(gw_record *r, const step_sums *s) {
    step_figures f = {.at = r->seen,
                      .wire_bytes = s->wire_bytes / s->ranks,
                      .logical_bytes = s->logical_bytes / s->ranks};
    for (int k = 0; k < FIGURES; k++)
        f.figure[k] = s->have[k] ? (float)(s->figure[k] / s->have[k]) : NAN;
    f.figure[0] = (float)s->wall_s;
    keep_step(r, &f);
    r->source = s->source > r->source ? s->source : r->source;
}

/* Steps of an earlier start on another number of ranks are no measurement of this one's. */
static void end_kept(gw_record *r, const step_sums *s) {
    if (s->ranks == r->ranks)
        end_step(r, s);
    r->earlier = r->seen;
}

static gw_err read_kept(gw_record *r) {
    gw_batch_row row;
    step_sums s = {0};
    gw_table_reader in = {.table = &r->table.table, .in = r->to, .path = GW_BATCHES};
    rewind(r->to);
    for (bool more = true;;) {
        GW_TRY(gw_table_read(&in, &row, &more));
        if (s.ranks && (!more || row.step != s.step))
            end_kept(r, &s);
        if (!more)
            break;
        if (row.step < 1 || (s.ranks && row.step != s.step && row.step - 1 != s.step))
            return gw_fail(GW_ERR_INPUT, GW_BATCHES ", line %lld: step %lld follows step %lld",
                           (long long)in.line, (long long)row.step, (long long)s.step);
        if (row.step != s.step)
            s = (step_sums){.step = row.step};
        record_add(&s, &row);
    }
    return fseeko(r->to, 0, SEEK_END) == 0 ? GW_OK : gw_fail(GW_ERR_IO, "cannot read " GW_BATCHES);
}

gw_err gw_record_check(const gw_record *r, gw_rows *files) {
    return gw_rows_check(files, &r->table.table);
}

static gw_err record_begin(gw_record *r, gw_rows *files) {
    bool kept;
    GW_TRY(gw_rows_open(files, &r->table.table, &r->to, &kept));
    r->files = files;
    return kept ? read_kept(r) : GW_OK;
}

gw_err gw_record_begin(gw_record *r, gw_rows *files) {
    return gw_agree(r->comm, r->rank == 0 && files ? record_begin(r, files) : GW_OK);
}

/* Rank 0: write the gathered rows, step by step. Rank i's rows are all[at[i]..at[i + 1]). */
static gw_err write_steps(gw_record *r, const gw_batch_row *all, const int *count, const int *at) {
    for (int i = 0; i < count[0]; i++) {
        step_sums s = {.step = all[i].step};
        for (int rank = 0; rank < r->ranks; rank++) {
            const gw_batch_row *row = &all[at[rank] + i];
            if (count[rank] != count[0] || row->step != s.step)
                return gw_fail(GW_ERR_INTERNAL, "batches.csv: the ranks recorded different steps");
            gw_table_write(&r->table.table, r->to, row, 1);
            record_add(&s, row);
            add_to_rank(r, row, rank);
        }
        r->summed[s.step > GW_RECORD_WARMUP]++;
        end_step(r, &s);
    }
    return gw_table_write(&r->table.table, r->to, NULL, 0);
}

/* Rank 0 makes room for what the ranks hold; others: count and at stay NULL. */
static gw_err gather_room(gw_record *r, const int *count, int *at, gw_batch_row **all) {
    size_t total = 0;
    for (int i = 0; i < r->ranks; i++) {
        if (total > INT32_MAX)
            return gw_fail(GW_ERR_INTERNAL, "batches.csv: too many rows at once; flush earlier");
        at[i] = (int)total;
        total += (size_t)count[i];
    }
    return gw_alloc(all, total, sizeof **all);
}

static gw_err record_flush(gw_record *r, int *count, int *at, gw_batch_row **all) {
    int mine = (int)r->held;
    GW_MPI(MPI_Gather(&mine, 1, MPI_INT, count, 1, MPI_INT, 0, r->comm));
    gw_err e = r->rank == 0 ? gather_room(r, count, at, all) : GW_OK;
    GW_TRY(gw_agree(r->comm, e));
    GW_MPI(MPI_Gatherv(r->rows, mine, r->row_type, *all, count, at, r->row_type, 0, r->comm));
    e = r->rank == 0 ? write_steps(r, *all, count, at) : GW_OK;
    GW_TRY(gw_agree(r->comm, e));
    r->held = 0;
    return GW_OK;
}

gw_err gw_record_flush(gw_record *r) {
    int *count = NULL, *at = NULL;
    gw_batch_row *all = NULL;
    size_t ranks = r->rank == 0 ? (size_t)r->ranks : 0;
    gw_err e = r->held <= INT32_MAX ? GW_OK : gw_fail(GW_ERR_INTERNAL, "too many rows at once");
    GW_THEN(e, gw_alloc(&count, ranks, sizeof *count));
    GW_THEN(e, gw_alloc(&at, ranks, sizeof *at));
    e = gw_agree(r->comm, e);
    GW_THEN(e, record_flush(r, count, at, &all));
    free(count);
    free(at);
    free(all);
    return e;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median of figure k of the kept steps from the `warmup`th on, where it is known; NaN: nowhere. */
static double record_median(const gw_record *r, int64_t warmup, int k) {
    int64_t n = 0;
    float *x = r->scratch;
    for (int64_t i = 0; i < r->steps_held; i++) {
        x[n] = r->steps[i].figure[k];
        n += r->steps[i].at >= warmup && !isnan(x[n]);
    }
    if (n == 0)
        return NAN;
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : 0.5 * ((double)x[n / 2 - 1] + x[n / 2]);
}

void gw_record_summary(const gw_record *r, int64_t warmup, gw_batch_summary *out) {
    *out = (gw_batch_summary){.earlier = r->earlier, .split = gw_batch_no_split};
    double wire = 0, logical = 0;
    for (int64_t i = 0; i < r->steps_held; i++)
        if (r->steps[i].at >= warmup) {
            out->batches++;
            wire += r->steps[i].wire_bytes;
            logical += r->steps[i].logical_bytes;
        }
    if (out->batches == 0)
        return;
    for (int k = 0; k < FIGURES; k++)
        out->figure[k] = record_median(r, warmup, k);
    out->source = r->source;
    out->wire_bytes = wire / (double)out->batches;
    out->logical_bytes = logical / (double)out->batches;
}

gw_err gw_record_close(gw_record *r) {
    gw_err e = gw_record_flush(r);
    if (e == GW_OK && r->files)
        e = gw_rows_commit(r->files, &r->table.table);
    e = gw_agree(r->comm, e);
    gw_record_abandon(r);
    return e;
}

void gw_record_abandon(gw_record *r) {
    if (!r)
        return;
    if (r->row_type != MPI_DATATYPE_NULL)
        MPI_Type_free(&r->row_type);
    free(r->rows);
    free(r->steps);
    free(r->scratch);
    free(r->sums[0]);
    free(r->sums[1]);
    free(r);
}
