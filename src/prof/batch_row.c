#include "prof/batch_row.h"

#include <math.h>
#include <string.h>

const gw_batch_counts gw_batch_no_counts = {
    NAN, NAN, NAN, {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN}};
const gw_batch_split gw_batch_no_split = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
_Static_assert(GW_COUNTERS == 8, "each counter has a NaN");

gw_batch_row gw_batch_row_of(const gw_batch_parts *p) {
    const gw_batch_counts *counts = &p->counts;
    const gw_batch_cost *cost = &p->cost;
    const double *t = cost->phase_s;
    double may_sleep =
        t[GW_PHASE_MPI_WAIT] + t[GW_PHASE_MPI_POLL] + t[GW_PHASE_MPI_POST] + t[GW_PHASE_CHECKPOINT];
    double off_cpu = cost->wall_s - cost->cpu_s - may_sleep;
    bool interrupted = cost->nivcsw > 0 || off_cpu > 0.02 * cost->wall_s;
    gw_batch_row row = {.rank = p->rank,
                        .epoch = p->epoch,
                        .step = p->step,
                        .place = p->place,
                        .samples = p->samples,
                        .injected_s = p->injected_s,
                        .loss = p->samples ? p->loss_sum / p->samples : NAN,
                        .cost = p->cost,
                        .split = p->split,
                        .wait_skew_s = NAN,
                        .skew_s = {NAN, NAN, NAN},
                        .transfer_s = NAN,
                        .clock_err_s = NAN,
                        .logical_bytes = p->logical_bytes,
                        .interrupted = p->slept || cost->nivcsw < 0 ? -1 : interrupted};
    bool modelled = !isnan(p->split.memory_twin_s) || !isnan(p->split.memory_model_lo_s);
    row.split.core_ctr_s = counts->core_s;
    row.split.memory_ctr_s = counts->memory_s;
    row.split.memory_codec_ctr_s = counts->memory_codec_s;
    row.source = !isnan(counts->memory_s) ? GW_SPLIT_CTR
                 : modelled               ? GW_SPLIT_TWIN_MODEL
                                          : GW_SPLIT_NONE;
    memcpy(row.counter, counts->counter, sizeof row.counter);
    return row;
}

void gw_batch_row_wait(gw_batch_row *row, const gw_batch_wait *wait) {
    double all_s = row->cost.phase_s[GW_PHASE_MPI_WAIT], waiting_s = 0;
    for (int d = 0; d < GW_EXCHANGE_DIMS; d++) {
        waiting_s += wait->waiting_s[d];
        row->skew_s[d] = isnan(all_s) ? NAN : wait->waiting_s[d];
    }
    row->cost.start_s = wait->start_s;
    row->wait_skew_s = isnan(all_s) ? NAN : waiting_s;
    row->transfer_s = all_s - waiting_s;
    row->clock_err_s = wait->clock_err_s;
}

/* ---- the table ---- */

static const char *const sources[] = {
    [GW_SPLIT_NONE] = "", [GW_SPLIT_TWIN_MODEL] = "twin+model", [GW_SPLIT_CTR] = "ctr", NULL};

/* Eleven digits hold a clock tick in a batch of seconds, so a reader can check the sums. */
#define CELL(name, form, field) GW_COLUMN(gw_batch_row, name, form, field)
#define TIME(name, field)       GW_COLUMN_REAL(gw_batch_row, name, field, 11)
#define PHASE(name, phase)      TIME(name, cost.phase_s[GW_PHASE_##phase])

static const gw_column columns[] = {
    CELL("rank", INT, rank),
    CELL("epoch", INT, epoch),
    CELL("step", I64, step),
    CELL("samples", INT, samples),
    GW_COLUMN_REAL(gw_batch_row, "loss", loss, 9),
    TIME("t_start_s", cost.start_s),
    TIME("wall_s", cost.wall_s),
    PHASE("data_s", DATA),
    PHASE("forward_s", FORWARD),
    PHASE("backward_s", BACKWARD),
    PHASE("recompute_s", RECOMPUTE),
    PHASE("update_s", UPDATE),
    TIME("core_ctr_s", split.core_ctr_s),
    TIME("memory_ctr_s", split.memory_ctr_s),
    TIME("core_twin_s", split.core_twin_s),
    TIME("memory_twin_s", split.memory_twin_s),
    TIME("core_model_lo_s", split.core_model_lo_s),
    TIME("core_model_hi_s", split.core_model_hi_s),
    TIME("memory_model_lo_s", split.memory_model_lo_s),
    TIME("memory_model_hi_s", split.memory_model_hi_s),
    PHASE("encode_s", ENCODE),
    PHASE("decode_s", DECODE),
    TIME("memory_codec_ctr_s", split.memory_codec_ctr_s),
    TIME("memory_codec_twin_s", split.memory_codec_twin_s),
    PHASE("mpi_post_s", MPI_POST),
    PHASE("mpi_poll_s", MPI_POLL),
    PHASE("mpi_wait_s", MPI_WAIT),
    TIME("wait_skew_s", wait_skew_s),
    TIME("transfer_s", transfer_s),
    PHASE("checkpoint_s", CHECKPOINT),
    PHASE("other_s", OTHER),
    TIME("inflight_s", cost.inflight_s),
    TIME("injected_s", injected_s),
    CELL("logical_bytes", U64, logical_bytes),
    CELL("wire_bytes", U64, cost.wire_bytes),
    CELL("messages", U64, cost.messages),
    CELL("collectives", U64, cost.collectives),
    TIME("cpu_s", cost.cpu_s),
    CELL("nivcsw", COUNT, cost.nivcsw),
    CELL("minflt", COUNT, cost.minflt),
    TIME("clock_err_s", clock_err_s),
    GW_COLUMN_NAME(gw_batch_row, "source", source, sources),
    CELL("interrupted", COUNT, interrupted),
};
_Static_assert(sizeof columns / sizeof *columns == GW_BATCH_COLUMNS, "the columns of the table");
_Static_assert(GW_PHASES == 12, "every phase has a column");

#define DIM(name, d)                                                                               \
    TIME(name "_comm_s", cost.dim[d].comm_s), TIME(name "_skew_s", skew_s[d]),                     \
        CELL(name "_bytes", U64, cost.dim[d].bytes),                                               \
        CELL(name "_messages", U64, cost.dim[d].messages)

static const gw_column of_mesh[] = {CELL("replica", INT, place.replica),
                                    CELL("stage", INT, place.stage),
                                    CELL("shard", INT, place.shard),
                                    DIM("data", 0),
                                    DIM("pipe", 1),
                                    DIM("tensor", 2)};
_Static_assert(sizeof of_mesh / sizeof *of_mesh == GW_MESH_COLUMNS, "the columns of a mesh");

void gw_batch_table_make(gw_batch_table *t, bool mesh, const char *const *counter, int n) {
    t->fixed = GW_BATCH_COLUMNS + (mesh ? GW_MESH_COLUMNS : 0);
    t->table = (gw_table){GW_BATCHES, sizeof(gw_batch_row), t->fixed + n, t->column};
    memcpy(t->column, columns, sizeof columns);
    if (mesh)
        memcpy(t->column + GW_BATCH_COLUMNS, of_mesh, sizeof of_mesh);
    for (int i = 0; i < n; i++) {
        gw_column column = GW_COLUMN_REAL(gw_batch_row, t->counter[i], counter, 15);
        column.at += (size_t)i * sizeof(double);
        snprintf(t->counter[i], GW_COUNTER_NAME, "%s", counter[i]);
        t->column[t->fixed + i] = column;
    }
}
