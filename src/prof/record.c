#include "prof/record.h"

#include "base/mem.h"
#include "base/rng.h"
#include "prof/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = 0x5eed, SPLITS = sizeof(gw_batch_split) / sizeof(double) };

static const char name[] = GW_BATCHES;

/* A step over all ranks, as the summary needs it. */
typedef struct step_figures {
    int64_t at; /* how many came before it */
    float wall_s, inflight_s, waiting_s, transfer_s, phase_s[GW_PHASES];
    float split[SPLITS];              /* of a gw_batch_split; NaN: no rank has it */
    double wire_bytes, logical_bytes; /* means over the ranks */
} step_figures;

/* The same while its ranks' rows come in: sums, but for the longest wall. */
typedef struct step_sums {
    int64_t step;
    int ranks, have[SPLITS];
    double wall_s, inflight_s, waiting_s, transfer_s, phase_s[GW_PHASES], split[SPLITS];
    double wire_bytes, logical_bytes;
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
    char counter[GW_COUNTERS][GW_COUNTER_NAME];
    int counters;
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
        e = gw_alloc(&r->rows, (size_t)rows, sizeof *r->rows);
    }
    if (e == GW_OK)
        e = gw_mpi_check(MPI_Comm_rank(comm, &r->rank), "MPI_Comm_rank");
    if (e == GW_OK)
        e = gw_mpi_check(MPI_Comm_size(comm, &r->ranks), "MPI_Comm_size");
    if (e == GW_OK)
        e = make_type(r);
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
    for (r->counters = 0; r->counters < n; r->counters++)
        snprintf(r->counter[r->counters], GW_COUNTER_NAME, "%s", names[r->counters]);
}

const char *gw_record_counter(const gw_record *r, int i) {
    return i < r->counters ? r->counter[i] : NULL;
}

gw_err gw_record_push(gw_record *r, const gw_batch_row *row) {
    if (r->held == r->room)
        return gw_fail(GW_ERR_INTERNAL, "batches.csv: %lld rows between two flushes, room for %lld",
                       (long long)r->held + 1, (long long)r->room);
    r->rows[r->held] = *row;
    r->rows[r->held++].rank = r->rank;
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

static void add_to_step(step_sums *s, const gw_batch_row *row) {
    const gw_batch_cost *c = &row->cost;
    double split[SPLITS];
    s->ranks++;
    s->wall_s = fmax(s->wall_s, c->wall_s);
    s->inflight_s += c->inflight_s;
    s->waiting_s += row->wait_skew_s;
    s->transfer_s += row->transfer_s;
    for (int p = 0; p < GW_PHASES; p++)
        s->phase_s[p] += c->phase_s[p];
    s->wire_bytes += c->wire_bytes == GW_UNCOUNTED ? NAN : (double)c->wire_bytes;
    s->logical_bytes += (double)row->logical_bytes;
    s->source = row->source > s->source ? row->source : s->source;
    memcpy(split, &row->split, sizeof split);
    for (int k = 0; k < SPLITS; k++)
        if (!isnan(split[k])) {
            s->split[k] += split[k];
            s->have[k]++;
        }
}

/* All rows of a step are there: means over its ranks, of a split over those that have it. */
static void end_step(gw_record *r, const step_sums *s) {
    double n = s->ranks;
    step_figures f = {.at = r->seen,
                      .wall_s = (float)s->wall_s,
                      .inflight_s = (float)(s->inflight_s / n),
                      .waiting_s = (float)(s->waiting_s / n),
                      .transfer_s = (float)(s->transfer_s / n),
                      .wire_bytes = s->wire_bytes / n,
                      .logical_bytes = s->logical_bytes / n};
    for (int p = 0; p < GW_PHASES; p++)
        f.phase_s[p] = (float)(s->phase_s[p] / n);
    for (int k = 0; k < SPLITS; k++)
        f.split[k] = s->have[k] ? (float)(s->split[k] / s->have[k]) : NAN;
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
    gw_columns_reader in = {.in = r->to, .name = name, .counters = r->counters};
    rewind(r->to);
    for (bool more = true;;) {
        GW_TRY(gw_columns_read(&in, &row, &more));
        if (s.ranks && (!more || row.step != s.step))
            end_kept(r, &s);
        if (!more)
            break;
        if (row.step < 1 || (s.ranks && row.step != s.step && row.step - 1 != s.step))
            return gw_fail(GW_ERR_INPUT, "%s: line %lld: step %lld follows step %lld", name,
                           (long long)in.line, (long long)row.step, (long long)s.step);
        if (row.step != s.step)
            s = (step_sums){.step = row.step};
        add_to_step(&s, &row);
    }
    return fseeko(r->to, 0, SEEK_END) == 0 ? GW_OK : gw_fail(GW_ERR_IO, "cannot read %s", name);
}

static void header_of(const gw_record *r, char header[GW_COLUMNS_LINE]) {
    gw_columns_header(header, (const char(*)[GW_COUNTER_NAME])r->counter, r->counters);
}

gw_err gw_record_check(const gw_record *r, gw_rows *files) {
    char header[GW_COLUMNS_LINE];
    header_of(r, header);
    return gw_rows_check(files, name, header);
}

static gw_err begin(gw_record *r, gw_rows *files) {
    char header[GW_COLUMNS_LINE];
    bool kept;
    header_of(r, header);
    GW_TRY(gw_rows_open(files, name, header, &r->to, &kept));
    r->files = files;
    return kept ? read_kept(r) : GW_OK;
}

gw_err gw_record_begin(gw_record *r, gw_rows *files) {
    return gw_agree(r->comm, r->rank == 0 && files ? begin(r, files) : GW_OK);
}

/* Rank 0: write the gathered rows, step by step. Rank i's rows are all[at[i]..at[i + 1]). */
static gw_err write_steps(gw_record *r, const gw_batch_row *all, const int *count, const int *at) {
    for (int i = 0; i < count[0]; i++) {
        step_sums s = {.step = all[i].step};
        for (int rank = 0; rank < r->ranks; rank++) {
            const gw_batch_row *row = &all[at[rank] + i];
            if (count[rank] != count[0] || row->step != s.step)
                return gw_fail(GW_ERR_INTERNAL, "batches.csv: the ranks recorded different steps");
            if (r->to)
                gw_columns_row(r->to, row, r->counters);
            add_to_step(&s, row);
            add_to_rank(r, row, rank);
        }
        r->summed[s.step > GW_RECORD_WARMUP]++;
        end_step(r, &s);
    }
    if (r->to && ferror(r->to))
        return gw_fail(GW_ERR_IO, "cannot write batches.csv: is the disk full?");
    return GW_OK;
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

static gw_err flush(gw_record *r, int *count, int *at, gw_batch_row **all) {
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
    if (e == GW_OK)
        e = gw_alloc(&count, ranks, sizeof *count);
    if (e == GW_OK)
        e = gw_alloc(&at, ranks, sizeof *at);
    e = gw_agree(r->comm, e);
    if (e == GW_OK)
        e = flush(r, count, at, &all);
    free(count);
    free(at);
    free(all);
    return e;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median of the float at byte `offset` of the kept steps from the `warmup`th on, where it is known;
 * NaN: nowhere. */
static double median(const gw_record *r, int64_t warmup, size_t offset) {
    int64_t n = 0;
    float *x = r->scratch;
    for (int64_t i = 0; i < r->steps_held; i++) {
        memcpy(&x[n], (const char *)&r->steps[i] + offset, sizeof *x);
        n += r->steps[i].at >= warmup && !isnan(x[n]);
    }
    if (n == 0)
        return NAN;
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : 0.5 * ((double)x[n / 2 - 1] + x[n / 2]);
}

void gw_record_summary(const gw_record *r, int64_t warmup, gw_batch_summary *out) {
    double split[SPLITS];
    *out = (gw_batch_summary){.earlier = r->earlier, .split = gw_batch_row_blank().split};
    double wire = 0, logical = 0;
    for (int64_t i = 0; i < r->steps_held; i++)
        if (r->steps[i].at >= warmup) {
            out->batches++;
            wire += r->steps[i].wire_bytes;
            logical += r->steps[i].logical_bytes;
        }
    if (out->batches == 0)
        return;
    out->wall_s = median(r, warmup, offsetof(step_figures, wall_s));
    out->inflight_s = median(r, warmup, offsetof(step_figures, inflight_s));
    out->waiting_s = median(r, warmup, offsetof(step_figures, waiting_s));
    out->transfer_s = median(r, warmup, offsetof(step_figures, transfer_s));
    for (size_t p = 0; p < GW_PHASES; p++)
        out->phase_s[p] = median(r, warmup, offsetof(step_figures, phase_s) + p * sizeof(float));
    for (size_t k = 0; k < SPLITS; k++)
        split[k] = median(r, warmup, offsetof(step_figures, split) + k * sizeof(float));
    memcpy(&out->split, split, sizeof out->split);
    out->source = r->source;
    out->wire_bytes = wire / (double)out->batches;
    out->logical_bytes = logical / (double)out->batches;
}

gw_err gw_record_close(gw_record *r) {
    gw_err e = gw_record_flush(r);
    if (e == GW_OK && r->files)
        e = gw_rows_commit(r->files, name);
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
