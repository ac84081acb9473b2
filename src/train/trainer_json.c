/* run.json, and algo.csv beside it. */
#include "train/trainer_parts.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/version.h"
#include "folder/history.h"
#include "folder/report.h"
#include "machine/host.h"
#include "nn/gemm.h"
#include "prof/clock.h"
#include "select/chooser.h"
#include "train/restart.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *data_facts(const gw_trainer *t) {
    const gw_data *d = t->data;
    const gw_data_spec *of = &t->c->data;
    return gw_json_object(
        "name:s source:s hash:s features:i image:o classes:i train:I validation:I test:I limit:u "
        "limit_test:u replicate:I",
        d->name, d->source, d->hash, gw_dataset_features(&d->train),
        json_pack("[i, i]", d->train.to_rows, d->train.to_cols), d->classes,
        (int64_t)d->train.n_global, (int64_t)d->validation.n_global, (int64_t)d->test.n_global,
        of->limit ? (uint64_t)of->limit : UINT64_MAX,
        of->limit_test ? (uint64_t)of->limit_test : UINT64_MAX, of->replicate);
}

static json_t *machine_facts(const gw_trainer *t, json_t *host_names) {
    gw_host h;
    gw_host_facts(&h);
    return gw_json_object(
        "hosts:o cpu:s cpus_online:i cpus_usable:i cores_usable:i memory_bytes:I ranks:i workers:i "
        "nodes:i ranks_on_this_node:i threads_per_rank:i helper_threads_per_rank:i "
        "oversubscribed:b busy:o gemm:s gemm_warning:t clock:s",
        host_names, h.cpu_model, h.cpus_online, h.cpus_usable, h.cores_usable, h.memory, t->ranks,
        gw_trainer_workers(t), t->nodes, t->node_ranks, t->c->threads, gw_inside_know(t->g).helpers,
        t->oversubscribed, gw_busy_run_json(&t->result->before, &t->result->during),
        gw_gemm_library(), gw_gemm_warning(), gw_clock_name());
}

/* What of a step goes along each dimension of a mesh; null: there is none. */
static json_t *run_dimensions(const gw_trainer *t) {
    const gw_batch_summary *b = &t->result->summary;
    if (!gw_mesh_divides(&t->mesh.shape))
        return json_null();
    json_t *all = json_object();
    for (int d = 0; d < GW_DIMS; d++)
        json_object_set_new(all, gw_dim_names[d],
                            gw_json_object("ranks:i comm_s:f waiting_s:f bytes:f messages:f",
                                           t->mesh.shape.size[d], b->dim_comm_s[d],
                                           b->dim_waiting_s[d], b->dim_bytes[d],
                                           b->dim_messages[d]));
    return all;
}

/* MPI does not say what its own collectives send: those of gradients, or of tensor ranks. */
static const char *run_wire_source(const gw_trainer *t) {
    bool mesh = gw_mesh_divides(&t->mesh.shape), one = t->mesh.shape.size[GW_DIM_DATA] == 1;
    bool data = !(mesh && one) && gw_inside_know(t->g).ordered;
    bool tensor = t->pipeline && gw_pipeline_sums_by_mpi(t->pipeline);
    return !data && !tensor ? "measured: bytes handed to MPI"
           : !mesh          ? "modelled: what the bandwidth-optimal collective sends"
           : !tensor        ? "modelled: what the bandwidth-optimal collective sends (data)"
           : !data          ? "modelled: what the bandwidth-optimal collective sends (tensor)"
                   : "modelled: what the bandwidth-optimal collective sends (data, tensor)";
}

/* Which figures were observed and which follow from a formula. */
static json_t *run_sources(const gw_trainer *t) {
    char memory[1024];
    snprintf(memory, sizeof memory, "%s%s",
             t->result->summary.source == GW_SPLIT_TWIN_MODEL
                 ? "modelled: times against cache-resident twins, products as an interval "
                   "(twin+model); counters "
                 : "",
             gw_memory_source(t->memory));
    char resident[256] = "measured: VmHWM, set back at each change of phase";
    if (*t->resident.why)
        snprintf(resident, sizeof resident,
                 "measured: getrusage, the total alone: phases cannot be told apart (%s)",
                 t->resident.why);
    static const char form[] =
        "phases:s waiting_s:s hidden_s:s memory_s:s wire_bytes:s peak_bytes:s";
    if (t->c->profile == GW_PROFILE_OFF)
        return gw_json_object(form, "absent", "absent", "absent", "absent", "absent", resident);
    return gw_json_object(form, "measured: exclusive timers, MPI by PMPI",
                          "measured: blocked before the last rank's arrival, on a common clock",
                          "upper bound: computation while a message was in flight", memory,
                          run_wire_source(t), resident);
}

static json_t *run_results(const gw_trainer *t, json_t *tempo) {
    const gw_train_result *r = t->result;
    const gw_epoch_row *last = &r->last;
    char hash[16];
    json_t *peak, *sum;
    gw_report_steps of = {.summary = &r->summary,
                          .split = r->split,
                          .flagged = r->flagged,
                          .dimensions = run_dimensions(t),
                          .bubble_s = r->bubble_s};
    snprintf(hash, sizeof hash, "%08x", last->replica_hash);
    gw_ranks_memory_json(t->by_rank, t->ranks, &peak, &sum);
    return gw_json_object(
        "steps:I stopped_by:s train_loss:f validation_loss:f validation_accuracy:f test_loss:f "
        "test_accuracy:f precision:f recall:f f1:f test_s:f test_samples_per_s:f test_forward_s:f "
        "best:o elapsed_s:f train_s:f wire_bytes:u traffic:o replica_hash:s summary:o "
        "simulated:o peak_bytes:o peak_sum_bytes:o ranks:o straggler:o exchanges_dropped:I "
        "paired:o checks:o",
        r->steps, r->stopped_by, last->train_loss, last->validation_loss, last->validation_accuracy,
        last->test_loss, last->test_accuracy, last->macro.precision, last->macro.recall,
        last->macro.f1, last->test_s, (double)t->data->test.n_global / last->test_s,
        last->test_forward_s, gw_best_json(&r->best), r->elapsed_s, r->train_s, last->wire_bytes,
        gw_report_traffic(t->c->profile, &r->traffic), hash, gw_report_summary(&of), tempo, peak,
        sum, gw_ranks_json(t->by_rank, t->ranks), gw_report_straggler(&r->straggler), r->dropped,
        gw_paired_json(&r->paired), gw_checks_json(&t->checked));
}

/* null: not asked for. */
static json_t *run_overhead(const gw_train_config *c, const gw_train_result *r) {
    bool asked = c->overhead != 0 && c->profile != GW_PROFILE_OFF;
    return asked ? gw_overhead_json(r->overhead) : json_null();
}

/* Phases are means over the ranks, of which servers compute nothing. Where each holds another part
 * of the model it is rank 0's work, beside its time. */
static gw_work_run work_of(const gw_trainer *t) {
    const double *phase = t->result->summary.phase_s;
    int workers = gw_trainer_workers(t);
    double passes_s = gw_phases_computation(phase) - phase[GW_PHASE_UPDATE];
    double compute_s = passes_s * t->ranks / workers;
    if (gw_mesh_divides(&t->mesh.shape))
        compute_s = t->by_rank[0].step.passes_s;
    if (t->c->pace > 0) /* it was slept */
        compute_s = NAN;
    return (gw_work_run){.load = gw_trainer_load(t, (t->global_batch + workers - 1) / workers),
                         .momentum = t->gauging.twins.momentum > 0,
                         .split = &t->split,
                         .compute_s = compute_s};
}

static gw_err write_json(const gw_trainer *t, json_t *host_names, json_t *tempo) {
    const gw_train_config *c = t->c;
    const gw_train_result *r = t->result;
    json_t *interruptions = NULL;
    GW_TRY(gw_history_read(c->out, &interruptions));
    gw_work_run work = work_of(t);
    json_t *run = gw_json_object(
        "schema:i program:s version:s commit:s command:s started_utc:s options:o seed:I "
        "parameters:I mesh:o data:o comm:o backend:o mpi:o machine:o link:o ceilings:o gemm:o "
        "work:o bound:o papi:o paced:o sources:o forecast:o overhead:o checkpoints:o resumed:o "
        "interruptions:o results:o",
        GW_RUN_SCHEMA, "train", GW_VERSION, GW_COMMIT, c->command, t->started_utc,
        gw_report_options(c->args), c->seed, r->parameters, gw_pipeline_json(t->pipeline),
        data_facts(t), gw_inside_json(t->g, t->codec_rows, t->warning),
        gw_naive_json(t->stepper.naive, gw_trainer_parameters(t)), gw_report_mpi(),
        machine_facts(t, host_names), gw_link_cost_json(&r->link_cost), gw_gauge_json(&t->gauge),
        c->naive.on ? json_null() : gw_products_json(&t->products),
        c->naive.on ? json_null() : gw_work_json(&work), gw_bound_run_json(&t->bound),
        gw_memory_papi_json(t->memory), gw_pacer_json(t->stepper.pacer, r->late_s, r->outside_s),
        run_sources(t), t->choice ? gw_chooser_json(t->choice) : json_null(), run_overhead(c, r),
        gw_checkpoints_json(c, r), gw_resumed_json(&t->resume, t->start_utc, r->summary.earlier),
        interruptions, run_results(t, tempo));
    if (!run)
        return gw_fail(GW_ERR_INTERNAL, "run.json: a text in it is not UTF-8");
    if (t->told)
        gw_restart_keep(run, t->told);
    gw_file *file = NULL;
    gw_err e = gw_file_create(&file, c->out, "run.json");
    if (e == GW_OK)
        return gw_json_commit(file, run, JSON_INDENT(2) | JSON_REAL_PRECISION(9), "run.json");
    json_decref(run);
    return e;
}

gw_err gw_trainer_write(const gw_trainer *t) {
    json_t *names = NULL, *tempo = NULL;
    GW_TRY(gw_naive_collect(t->stepper.naive));
    GW_TRY(gw_report_hosts(&names, t->comm));
    gw_err e = gw_pipeline_tempo_json(t->pipeline, &tempo, t->comm);
    if (e != GW_OK)
        json_decref(names);
    else if (names) { /* rank 0 */
        e = gw_inside_write_choices(t->g, t->c->out);
        gw_err late = write_json(t, names, tempo);
        e = e == GW_OK ? late : e;
    }
    return gw_agree(t->comm, e);
}
