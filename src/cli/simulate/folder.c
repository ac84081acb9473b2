#include "cli/simulate/simulate.h"

#include "base/json.h"
#include "base/mem.h"
#include "record/recorder.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = 256 /* ranks with rows in batches.csv: a table of thousands helps nobody */ };

static int folder_row_ranks(const gw_sim_play *p) {
    return p->world.ranks < MOST_ROWS ? p->world.ranks : MOST_ROWS;
}

static gw_runfolder_use folder_use(bool overwrite) {
    return overwrite ? GW_RUNFOLDER_REPLACE : GW_RUNFOLDER_NEW;
}

gw_err gw_sim_folder_take(const char *dir, bool overwrite, gw_sim_play *p, gw_claim **claim) {
    GW_TRY(gw_claim_take(claim, dir));
    GW_TRY(gw_runfolder_check(dir, folder_use(overwrite)));
    return gw_alloc(&p->log, (size_t)p->world.ranks * (size_t)p->steps, sizeof *p->log);
}

/* ---- rows ---- */

/* Those of the step, as it was played; epochs.csv has none: nothing was learnt. */
static gw_err folder_write_rows(const gw_sim_play *p, gw_rows *rows) {
    gw_batch_table batches;
    FILE *to;
    gw_batch_table_make(&batches, gw_mesh_divides(&p->script.mesh->shape), NULL, 0);
    GW_TRY(gw_rows_open(rows, &batches.table, &to, NULL));
    for (int step = 0; step < p->steps; step++)
        for (int r = 0; r < folder_row_ranks(p); r++) {
            const gw_sim_step *of = &p->log[(size_t)step * (size_t)p->world.ranks + (size_t)r];
            gw_mesh m;
            gw_mesh_place(&m, &p->script.mesh->shape, r, p->world.ranks);
            gw_batch_row row = gw_batch_row_of(&(gw_batch_parts){
                .rank = r,
                .epoch = 1,
                .place = {m.at[GW_DIM_DATA], m.at[GW_DIM_PIPE], m.at[GW_DIM_TENSOR]},
                .step = step + 1,
                .injected_s = of->cost.phase_s[GW_PHASE_DATA],
                .slept = true,
                .logical_bytes = gw_sim_mesh_share(p->script.mesh, &m)->n * sizeof(float),
                .cost = of->cost,
                .counts = gw_batch_no_counts,
                .split = gw_batch_no_split});
            row.skew_s[GW_DIM_PIPE] = of->bubble_s;
            gw_table_write(&batches.table, to, &row, 1);
        }
    GW_TRY(gw_table_write(&batches.table, to, NULL, 0)); /* whether all could be written */
    GW_TRY(gw_rows_commit(rows, &batches.table));
    GW_TRY(gw_rows_open(rows, &gw_epochs, &to, NULL));
    return gw_rows_commit(rows, &gw_epochs);
}

/* ---- run.json ---- */

/* Means over all ranks, and the steps that count. */
static gw_batch_summary folder_sum_up(const gw_sim_play *p) {
    gw_batch_summary sum = {.batches = p->counted,
                            .kept = {.steps = p->counted, .period = p->counted},
                            .doubt = gw_steady_no_doubt,
                            .interrupted = NAN};
    size_t ranks = (size_t)p->world.ranks, n = ranks * (size_t)sum.batches;
    for (size_t i = 0; i < sizeof sum.figure / sizeof *sum.figure; i++)
        sum.figure[i] = NAN;
    sum.wall_s = sum.wire_bytes = sum.logical_bytes = 0;
    memset(sum.dim_bytes, 0, sizeof sum.dim_bytes);
    memset(sum.dim_messages, 0, sizeof sum.dim_messages);
    memset(sum.phase_s, 0, sizeof sum.phase_s);
    memset(sum.dim_comm_s, 0, sizeof sum.dim_comm_s);
    for (const gw_sim_step *s = p->log + ranks * (size_t)p->steps - n, *end = s + n; s < end; s++) {
        const gw_batch_cost *c = &s->cost;
        sum.wall_s += c->wall_s / (double)n;
        sum.wire_bytes += (double)c->wire_bytes / (double)n;
        for (int phase = 0; phase < GW_PHASES; phase++)
            sum.phase_s[phase] += c->phase_s[phase] / (double)n;
        for (int d = 0; d < GW_DIMS; d++) {
            sum.dim_comm_s[d] += c->dim[d].comm_s / (double)n;
            sum.dim_bytes[d] += (double)c->dim[d].bytes / (double)n;
            sum.dim_messages[d] += (double)c->dim[d].messages / (double)n;
        }
    }
    const int *size = p->script.mesh->shape.size;
    int shares = size[GW_DIM_PIPE] * size[GW_DIM_TENSOR];
    for (const gw_sim_share *of = p->script.mesh->share; of < p->script.mesh->share + shares; of++)
        sum.logical_bytes += (double)(of->n * sizeof(float)) / shares;
    sum.dim_waiting_s[GW_DIM_PIPE] = p->bubble_s;
    return sum;
}

static json_t *folder_comm(const gw_sim_play *p) {
    char algo[128];
    json_t *unmet = json_array();
    snprintf(algo, sizeof algo, p->algo.stands_for ? "%s (modelled as halving:chunk=0)" : "%s",
             p->algo.stands_for ? p->algo.stands_for : p->algo.ops->head.name);
    if (gw_sim_alone(p))
        json_array_append_new(unmet, gw_json_object("option:s value:s what:s why:s", "comm",
                                                    p->strategy.ops->head.name,
                                                    "nothing is exchanged", gw_sim_alone(p)));
    return gw_json_object("strategy:s algorithm:s codec:s error_feedback:b clip:o unmet:o notes:t "
                          "layers:o warning:o",
                          p->strategy.ops->head.name, algo, p->codec.spec, false, json_null(),
                          unmet, p->notes, json_null(), json_null());
}

/* A recorder that is filled in by hand: there is no MPI, no clock and no memory of a rank. */
static gw_err folder_json(const gw_sim_play *p, gw_recorder *r, gw_recorder_report *of,
                          json_t **run) {
    const gw_strategy *s = &p->strategy;
    int ranks = p->world.ranks, replica = ranks / p->script.mesh->shape.size[GW_DIM_DATA];
    gw_host host;
    gw_host_facts(&host);
    r->total.hosts = json_pack("[s]", host.name);
    r->total.summary = folder_sum_up(p);
    r->total.straggler.rank = -1;
    r->total.elapsed_s = r->train_s = p->elapsed_s;
    of->program = "simulate";
    of->started_utc = r->start_utc;
    of->stopped_by = "steps";
    of->statistic = "simulated mean";
    of->seed = p->seed;
    of->parameters = p->script.profile->n;
    of->wire_bytes = p->tally.bytes;
    of->steps = p->steps;
    of->node.nodes = (ranks + p->world.per_host - 1) / p->world.per_host;
    of->node.ranks = ranks < p->world.per_host ? ranks : p->world.per_host;
    of->workers = ranks - replica * s->plan.servers;
    of->threads = 1;
    of->dimensions = gw_recorder_dimensions(&r->total.summary, &p->script.mesh->shape);
    of->bubble_s = gw_mesh_divides(&p->script.mesh->shape) ? p->bubble_s : NAN;
    of->comm = folder_comm(p);
    of->machine = gw_json_object("ranks:i clock:s busy:o", ranks, "virtual",
                                 gw_json_object("before:o during:o", json_null(), json_null()));
    of->results = gw_json_object("ranks:o peak_bytes:o peak_sum_bytes:o", json_null(), json_null(),
                                 json_null());
    return gw_recorder_json(r, of, run);
}

gw_err gw_sim_folder_write(const char *dir, bool overwrite, const gw_sim_play *p,
                           const gw_args *args, const char *command, json_t *simulated) {
    gw_recorder r;
    gw_rows *rows = NULL;
    json_t *run;
    gw_recorder_start(&r, &(gw_recorder_setup){.comm = MPI_COMM_NULL, .out = dir});
    json_t *sources = gw_json_object(
        "phases:s waiting_s:s hidden_s:s memory_s:s wire_bytes:s peak_bytes:s",
        "simulated: computation by the profile; mpi_wait_s is all else of a step", "absent",
        "absent", "absent",
        "simulated: as counted in the schedules' messages, and as the strategy's formula says",
        "absent");
    gw_recorder_report of = {
        .args = args,
        .command = command,
        .more = gw_json_object(
            "mesh:o simulated:o sources:o link:o", gw_sim_mesh_json(p->script.mesh),
            gw_json_add(simulated, "rows_of_ranks:i", folder_row_ranks(p)), sources, json_null())};
    gw_err e = gw_runfolder_clear(dir, folder_use(overwrite));
    GW_THEN(e, gw_rows_new(&rows, dir, false));
    GW_THEN(e, folder_write_rows(p, rows));
    gw_rows_close(rows);
    if (e != GW_OK) {
        json_decref(of.more);
        return e;
    }
    e = folder_json(p, &r, &of, &run);
    json_decref(r.total.hosts);
    return e == GW_OK ? gw_runfolder_write(dir, run) : e;
}
