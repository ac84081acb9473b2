#include "prof/record.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Figures of a step: as gw_batch_summary has them, then one that is a mean over all steps. */
enum {
    PHASE = 4,
    SPLIT = PHASE + GW_PHASES,
    LEAST = SPLIT + sizeof(gw_batch_split) / sizeof(double),
    COMM = LEAST + 2, /* a figure per dimension; so have WAITING, BYTES and MESSAGES */
    WAITING = COMM + GW_EXCHANGE_DIMS,
    WIRE = WAITING + GW_EXCHANGE_DIMS,
    LOGICAL,
    BYTES,
    MESSAGES = BYTES + GW_EXCHANGE_DIMS,
    INTERRUPTED = MESSAGES + GW_EXCHANGE_DIMS,
    SUMMARY = INTERRUPTED,
    FIGURES
};
_Static_assert(sizeof((gw_batch_summary *)0)->figure == SUMMARY * sizeof(double), "all figures");

/* A step over all ranks while their rows come in: sums. */
typedef struct step_sums {
    int64_t step;
    bool mesh;
    int ranks, have[FIGURES];
    double figure[FIGURES];
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
    bool mesh;               /* with its columns */
    gw_repeat repeat;        /* after the warm-up */
    gw_steady *steps;        /* allocated whole: memory does not grow, nor run out, during a run */
    int64_t seen, earlier;   /* steps; earlier: of these, read from the file */
    gw_split_source source;  /* the best so far */
    gw_record_rank *sums[2]; /* by rank: over the warm-up, and over what came after; */
    int64_t summed[2];       /* so many steps of this start */
};

gw_err gw_record_open(gw_record **out, int64_t rows, bool mesh, MPI_Comm comm) {
    gw_record *r = NULL;
    gw_err e = gw_alloc(&r, 1, sizeof *r);
    if (e == GW_OK) {
        r->comm = comm;
        r->row_type = MPI_DATATYPE_NULL;
        r->room = rows;
        r->repeat = gw_repeat_of(1);
        gw_batch_table_make(&r->table, mesh, NULL, 0);
        r->mesh = mesh;
        e = gw_alloc_unset(&r->rows, (size_t)rows, sizeof *r->rows);
    }
    GW_THEN(e, gw_comm_place(comm, &r->rank, &r->ranks));
    GW_THEN(e, gw_mpi_check(MPI_Type_contiguous((int)sizeof(gw_batch_row), MPI_BYTE, &r->row_type),
                            "MPI_Type_contiguous"));
    GW_THEN(e, gw_mpi_check(MPI_Type_commit(&r->row_type), "MPI_Type_commit"));
    for (int i = 0; e == GW_OK && i < 2; i++)
        e = gw_alloc(&r->sums[i], (size_t)r->ranks, sizeof **r->sums);
    if (e == GW_OK && r->rank == 0)
        e = gw_steady_open(&r->steps, FIGURES);
    e = gw_agree(comm, e);
    GW_OPENED(e, out, r, gw_record_abandon);
}

void gw_record_repeats(gw_record *r, const gw_repeat of[2]) {
    r->repeat = of[1];
    if (r->steps)
        gw_steady_repeat(r->steps, of[0]);
}

void gw_record_counters(gw_record *r, const char *const *names, int n) {
    gw_batch_table_make(&r->table, r->mesh, names, n);
}

const char *gw_record_counter(const gw_record *r, int i) {
    return r->table.fixed + i < r->table.table.columns ? r->table.counter[i] : NULL;
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

void gw_record_ranks(const gw_record *r, bool warm, gw_record_rank *out) {
    double n = (double)(r->summed[1] + (warm ? 0 : r->summed[0]));
    for (int i = 0; i < r->ranks; i++) {
        gw_record_rank a = warm ? (gw_record_rank){0} : r->sums[0][i], b = r->sums[1][i];
        /* Without steps 0/0: NaN. */
        out[i] =
            (gw_record_rank){(a.wall_s + b.wall_s) / n,       (a.compute_s + b.compute_s) / n,
                             (a.waiting_s + b.waiting_s) / n, (a.transfer_s + b.transfer_s) / n,
                             (a.own_s + b.own_s) / n,         (a.passes_s + b.passes_s) / n};
    }
}

static double record_known(double a, double b) {
    return (isnan(a) ? 0 : a) + (isnan(b) ? 0 : b);
}

static double record_counted(uint64_t n) {
    return n == GW_UNCOUNTED ? NAN : (double)n;
}

/* A split is the mean over the ranks that have it, the rest over all. */
static void record_add(step_sums *s, const gw_batch_row *row) {
    const gw_batch_cost *c = &row->cost;
    const gw_batch_split *split = &row->split;
    double figure[FIGURES] = {c->wall_s, c->inflight_s, row->wait_skew_s, row->transfer_s};
    memcpy(figure + PHASE, c->phase_s, sizeof c->phase_s);
    memcpy(figure + SPLIT, split, sizeof *split);
    figure[LEAST] = record_known(split->core_twin_s, split->core_model_lo_s);
    figure[LEAST + 1] = record_known(split->memory_twin_s, split->memory_model_lo_s);
    for (int d = 0; d < GW_EXCHANGE_DIMS; d++) {
        figure[COMM + d] = s->mesh ? c->dim[d].comm_s : NAN;
        figure[WAITING + d] = s->mesh ? row->skew_s[d] : NAN;
        figure[BYTES + d] = s->mesh ? record_counted(c->dim[d].bytes) : NAN;
        figure[MESSAGES + d] = s->mesh ? record_counted(c->dim[d].messages) : NAN;
    }
    figure[WIRE] = record_counted(c->wire_bytes);
    figure[LOGICAL] = (double)row->logical_bytes;
    figure[INTERRUPTED] = row->interrupted < 0 ? NAN : (double)row->interrupted;
    s->ranks++;
    s->source = row->source > s->source ? row->source : s->source;
    for (int k = 0; k < FIGURES; k++)
        if (k < SPLIT || k >= LEAST || !isnan(figure[k])) {
            s->figure[k] += figure[k];
            s->have[k]++;
        }
}

/* All rows of a step are there. */
static void record_end_step(gw_record *r, const step_sums *s) {
    double figure[FIGURES];
    for (int k = 0; k < FIGURES; k++)
        figure[k] = s->have[k] ? s->figure[k] / s->have[k] : NAN;
    if (figure[INTERRUPTED] > 0)
        figure[INTERRUPTED] = 1;
    gw_steady_add(r->steps, figure);
    if (++r->seen == 2 * GW_RECORD_WARMUP + 1) {
        gw_steady_forget(r->steps, GW_RECORD_WARMUP);
        gw_steady_repeat(r->steps, r->repeat);
    }
    r->source = s->source > r->source ? s->source : r->source;
}

static gw_err record_read_kept(gw_record *r) {
    gw_batch_row row;
    step_sums s = {.mesh = r->mesh};
    gw_table_reader in = {.table = &r->table.table, .in = r->to, .path = GW_BATCHES};
    rewind(r->to);
    for (bool more = true;;) {
        GW_TRY(gw_table_read(&in, &row, &more));
        if (s.ranks && (!more || row.step != s.step)) {
            /* Steps on another number of ranks are no measurement of this one's. */
            if (s.ranks == r->ranks)
                record_end_step(r, &s);
            r->earlier = r->seen;
        }
        if (!more)
            break;
        if (row.step < 1 || (s.ranks && row.step != s.step && row.step - 1 != s.step))
            return gw_fail(GW_ERR_INPUT, GW_BATCHES ", line %lld: step %lld follows step %lld",
                           (long long)in.line, (long long)row.step, (long long)s.step);
        if (isnan(row.cost.wall_s))
            return gw_fail(GW_ERR_INPUT, GW_BATCHES ", line %lld: lacks wall_s",
                           (long long)in.line);
        if (row.step != s.step)
            s = (step_sums){.step = row.step, .mesh = r->mesh};
        record_add(&s, &row);
    }
    return fseeko(r->to, 0, SEEK_END) == 0 ? GW_OK : gw_fail(GW_ERR_IO, "cannot read " GW_BATCHES);
}

gw_err gw_record_check(const gw_record *r, gw_rows *files) {
    return gw_rows_check(files, &r->table.table);
}

gw_err gw_record_begin(gw_record *r, gw_rows *files) {
    gw_err e = GW_OK;
    bool kept = false;
    if (r->rank == 0 && files) {
        e = gw_rows_open(files, &r->table.table, &r->to, &kept);
        r->files = e == GW_OK ? files : NULL;
    }
    if (e == GW_OK && kept)
        e = record_read_kept(r);
    return gw_agree(r->comm, e);
}

/* Rank 0: write the gathered rows, step by step. Rank i's rows are all[at[i]..at[i + 1]). */
static gw_err record_write_steps(gw_record *r, const gw_batch_row *all, const int *count,
                                 const int *at) {
    for (int i = 0; i < count[0]; i++) {
        step_sums s = {.step = all[i].step, .mesh = r->mesh};
        for (int rank = 0; rank < r->ranks; rank++) {
            const gw_batch_row *row = &all[at[rank] + i];
            if (count[rank] != count[0] || row->step != s.step)
                return gw_fail(GW_ERR_INTERNAL, "batches.csv: the ranks recorded different steps");
            gw_table_write(&r->table.table, r->to, row, 1);
            record_add(&s, row);
            const double *t = row->cost.phase_s;
            gw_record_rank *sum = &r->sums[row->step > GW_RECORD_WARMUP][rank];
            sum->wall_s += row->cost.wall_s;
            sum->compute_s += gw_phases_computation(t);
            sum->passes_s += gw_phases_computation(t) - t[GW_PHASE_UPDATE];
            sum->waiting_s += row->wait_skew_s;
            sum->transfer_s += row->transfer_s;
            sum->own_s += row->cost.wall_s - t[GW_PHASE_MPI_POST] - t[GW_PHASE_MPI_POLL] -
                          t[GW_PHASE_MPI_WAIT];
        }
        r->summed[s.step > GW_RECORD_WARMUP]++;
        record_end_step(r, &s);
    }
    GW_TRY(gw_table_write(&r->table.table, r->to, NULL, 0));
    return r->files ? gw_rows_held(r->files) : GW_OK;
}

gw_err gw_record_flush(gw_record *r) {
    int *count = NULL, *at = NULL, mine = (int)r->held; /* count, at: by rank; rank 0's */
    gw_batch_row *all = NULL;
    size_t ranks = r->rank == 0 ? (size_t)r->ranks : 0, total = 0;
    gw_err e = r->held <= INT32_MAX ? GW_OK : gw_fail(GW_ERR_INTERNAL, "too many rows at once");
    GW_THEN(e, gw_alloc(&count, ranks, sizeof *count));
    GW_THEN(e, gw_alloc(&at, ranks, sizeof *at));
    e = gw_agree(r->comm, e);
    GW_THEN(e, gw_gather(&mine, count, (int)sizeof mine, r->comm));
    for (size_t i = 0; e == GW_OK && i < ranks && total <= INT32_MAX; i++) {
        at[i] = (int)total;
        total += (size_t)count[i];
    }
    GW_THEN(e, gw_agree(r->comm, total <= INT32_MAX
                                     ? gw_alloc(&all, total, sizeof *all)
                                     : gw_fail(GW_ERR_INTERNAL, "batches.csv: too many rows at "
                                                                "once; flush earlier")));
    GW_THEN(e, gw_gatherv(r->rows, mine, all, count, at, r->row_type, r->comm));
    GW_THEN(e, gw_agree(r->comm, r->rank == 0 ? record_write_steps(r, all, count, at) : GW_OK));
    if (e == GW_OK)
        r->held = 0;
    free(count);
    free(at);
    free(all);
    return e;
}

void gw_record_summary(const gw_record *r, gw_batch_summary *out) {
    double steady[FIGURES], plain[FIGURES];
    *out = (gw_batch_summary){
        .earlier = r->earlier, .split = gw_batch_no_split, .doubt = gw_steady_no_doubt};
    if (r->seen == 0)
        return;
    out->kept = gw_steady_means(r->steps, steady, plain);
    out->batches = gw_steady_steps(r->steps);
    memcpy(out->figure, steady, sizeof out->figure);
    out->source = r->source;
    out->doubt = gw_steady_look(r->steps);
    out->interrupted = plain[INTERRUPTED];
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
    gw_steady_free(r->steps);
    free(r->sums[0]);
    free(r->sums[1]);
    free(r);
}
