/* run.json, and algo.csv beside it. */
#include "train/trainer_parts.h"

#include "base/json.h"
#include "nn/gemm.h"
#include "optim/lr.h"
#include "select/chooser.h"
#include "train/restart.h"

#include <jansson.h>
#include <math.h>

static json_t *data_facts(const gw_trainer *t) {
    const gw_data *d = t->data;
    const gw_data_spec *of = &t->c->data;
    return gw_json_object(
        "name:s source:s hash:s features:i image:o channels:i classes:i train:I validation:I "
        "test:I limit:u limit_test:u replicate:I partition:o",
        d->name, d->source, d->hash, gw_dataset_features(&d->train),
        json_pack("[i, i]", d->train.to_rows / d->train.channels, d->train.to_cols),
        d->train.channels, d->classes, (int64_t)d->train.n_global, (int64_t)d->validation.n_global,
        (int64_t)d->test.n_global, of->limit ? (uint64_t)of->limit : UINT64_MAX,
        of->limit_test ? (uint64_t)of->limit_test : UINT64_MAX, of->replicate,
        gw_divided_json(&d->divided));
}

/* MPI does not say what its own collectives send: those of gradients, or of tensor ranks. */
static const char *run_wire_source(const gw_trainer *t) {
    bool mesh = gw_mesh_divides(&t->mesh.shape), one = t->mesh.shape.size[GW_DIM_DATA] == 1;
    bool data = !(mesh && one) && gw_inside_know(t->g).ordered;
    bool tensor = t->part.pipeline && gw_pipeline_sums_by_mpi(t->part.pipeline);
    return !data && !tensor ? "measured: bytes handed to MPI"
           : !mesh          ? "modelled: what the bandwidth-optimal collective sends"
           : !tensor        ? "modelled: what the bandwidth-optimal collective sends (data)"
           : !data          ? "modelled: what the bandwidth-optimal collective sends (tensor)"
                   : "modelled: what the bandwidth-optimal collective sends (data, tensor)";
}

/* Where figures come from. */
typedef struct run_sources {
    char memory[1024], resident[256];
} run_sources;

static void run_find_sources(const gw_trainer *t, run_sources *s) {
    snprintf(s->memory, sizeof s->memory, "%s%s",
             t->rec.total.summary.source == GW_SPLIT_TWIN_MODEL
                 ? "modelled: times against cache-resident twins, products as an interval "
                   "(twin+model); counters "
                 : "",
             gw_memory_source(t->measures.memory));
    snprintf(s->resident, sizeof s->resident, "measured: VmHWM, set back at each change of phase");
    if (*t->rec.resident.why)
        snprintf(s->resident, sizeof s->resident,
                 "measured: getrusage, the total alone: phases cannot be told apart (%s)",
                 t->rec.resident.why);
}

/* Of "results", what only a run of the trainer has. */
static json_t *run_results(const gw_trainer *t, json_t *tempo) {
    const gw_train_result *r = t->watcher.result;
    const gw_epoch_row *last = &r->last;
    return gw_json_object(
        "precision:f recall:f f1:f test_s:f test_samples_per_s:f test_forward_s:f best:o "
        "simulated:o paired:o checks:o",
        last->macro.precision, last->macro.recall, last->macro.f1, last->test_s,
        (double)t->data->test.n_global / last->test_s, last->test_forward_s, gw_best_json(&r->best),
        tempo, gw_paired_json(&r->paired), gw_checks_json(&t->measures.checked));
}

/* null: not asked for. */
static json_t *run_overhead(const gw_train_config *c, const gw_train_result *r) {
    bool asked = c->overhead != 0 && c->run.profile != GW_PROFILE_OFF;
    return asked ? gw_overhead_json(r->overhead) : json_null();
}

/* Phases are means over the ranks, of which servers compute nothing. Where each holds another part
 * of the model it is rank 0's work, beside its time. */
static gw_work_run work_of(const gw_trainer *t) {
    const double *phase = t->rec.total.summary.phase_s;
    int workers = gw_trainer_workers(t);
    double passes_s = gw_phases_computation(phase) - phase[GW_PHASE_UPDATE];
    double compute_s = passes_s * t->ranks / workers;
    if (gw_mesh_divides(&t->mesh.shape))
        compute_s = t->rec.total.by_rank[0].step.passes_s;
    if (t->c->pace > 0) /* it was slept */
        compute_s = NAN;
    return (gw_work_run){.load = gw_trainer_load(t, (t->part.global_batch + workers - 1) / workers),
                         .vectors = t->optimizer->state.count,
                         .update_flops = gw_optimizer_flops(t->optimizer),
                         .split = &t->measures.split,
                         .compute_s = compute_s};
}

static json_t *run_rate(const gw_trainer *t) {
    int64_t end = gw_lr_end(t->c->rate.schedule, gw_trainer_steps(t));
    return gw_json_object("first:f last:f schedule_end:u", (double)gw_trainer_rate(t, 1),
                          (double)gw_trainer_rate(t, t->at.step),
                          end > 0 ? (uint64_t)end : UINT64_MAX);
}

/* Of run.json. */
static json_t *run_more(const gw_trainer *t) {
    const gw_train_config *c = t->c;
    const gw_train_result *r = t->watcher.result;
    gw_work_run work = work_of(t);
    return gw_json_object(
        "mesh:o data:o backend:o ceilings:o gemm:o work:o bound:o papi:o paced:o forecast:o "
        "overhead:o checkpoints:o rate:o resumed:o",
        gw_pipeline_json(t->part.pipeline), data_facts(t),
        gw_naive_json(t->stepper.naive, gw_trainer_parameters(t)),
        gw_gauge_json(&t->measures.gauge),
        c->naive.on ? json_null() : gw_products_json(&t->measures.products),
        c->naive.on ? json_null() : gw_work_json(&work), gw_bound_run_json(&t->measures.bound),
        gw_memory_papi_json(t->measures.memory),
        gw_pacer_json(t->stepper.pacer, r->late_s, r->outside_s),
        t->choice ? gw_chooser_json(t->choice) : json_null(), run_overhead(c, r),
        gw_checkpoints_json(c, r), run_rate(t),
        gw_resumed_json(&t->resume, t->rec.start_utc, t->rec.total.summary.earlier));
}

static gw_err write_json(const gw_trainer *t, json_t *tempo) {
    const gw_train_config *c = t->c;
    const gw_train_result *r = t->watcher.result;
    run_sources sources;
    json_t *run;
    run_find_sources(t, &sources);
    gw_recorder_report of = {
        .program = "train",
        .command = c->command,
        .started_utc = t->past.started_utc,
        .stopped_by = r->stopped_by,
        .args = c->args,
        .seed = c->run.seed,
        .parameters = r->parameters,
        .wire_bytes = r->last.wire_bytes,
        .steps = r->steps,
        .node = t->node,
        .workers = gw_trainer_workers(t),
        .threads = c->run.threads,
        .helpers = gw_inside_know(t->g).helpers,
        .oversubscribed = t->oversubscribed,
        .split = r->split,
        .flagged = r->flagged,
        .dimensions = gw_recorder_dimensions(&t->rec.total.summary, &t->mesh.shape),
        .bubble_s = r->bubble_s,
        .sources = {"measured: exclusive timers, MPI by PMPI", sources.memory, run_wire_source(t),
                    sources.resident},
        .comm = gw_inside_json(t->g, t->rec.codec_rows, t->rec.warning),
        .more = run_more(t),
        .machine = gw_json_object("gemm:s gemm_warning:t", gw_gemm_library(), gw_gemm_warning()),
        .results = run_results(t, tempo)};
    GW_TRY(gw_recorder_json(&t->rec, &of, &run));
    if (t->past.told)
        gw_restart_keep(run, t->past.told);
    return gw_runfolder_write(t->rec.of.out, run);
}

gw_err gw_trainer_write(const gw_trainer *t) {
    json_t *tempo = NULL;
    GW_TRY(gw_naive_collect(t->stepper.naive));
    gw_err e = gw_pipeline_tempo_json(t->part.pipeline, &tempo, t->comm);
    if (e == GW_OK && t->rank == 0) {
        e = gw_inside_write_choices(t->g, t->c->run.out);
        gw_err late = write_json(t, tempo);
        e = e == GW_OK ? late : e;
    }
    return gw_agree(t->comm, e);
}
