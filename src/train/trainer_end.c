/* The end of a run: what all steps and ranks add up to, and the files of its folder. */
#include "train/trainer_parts.h"

#include "base/json.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "optim/lr.h"
#include "predict/chooser.h"
#include "predict/tempo.h"

#include <math.h>
#include <string.h>

/* ---- run.json ---- */

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

/* Of "results", what only a run of the trainer has. */
static json_t *run_results(const gw_trainer *t, json_t *tempo) {
    const gw_train_result *r = t->watcher.result;
    const gw_epoch_row *last = &r->last;
    return gw_json_object(
        "precision:f recall:f f1:f test_s:f test_samples_per_s:f test_forward_s:f best:o "
        "simulated:o checks:o",
        last->macro.precision, last->macro.recall, last->macro.f1, last->test_s,
        (double)t->data->test.n_global / last->test_s, last->test_forward_s, gw_best_json(&r->best),
        tempo, gw_checks_json(&t->measures.checked));
}

static const char run_simulated[] = "simulated: computation as measured on a free core, messages "
                                    "by the network's model",
                  run_simulated_wire[] = "simulated: bytes of the messages that were sent";

/* Of a simulated run: what is known of this process only. */
static json_t *run_of_no_machine(json_t *of, const char *keys) {
    for (size_t len; *keys; keys += len + (keys[len] == ' ')) {
        char key[32];
        len = strcspn(keys, " ");
        snprintf(key, sizeof key, "%.*s", (int)len, keys);
        json_object_set_new(of, key, json_null());
    }
    return of;
}

static json_t *run_step_or_null(int64_t step) {
    return step > 0 ? json_integer((json_int_t)step) : json_null();
}

/* What an earlier start had of these went with it, unless it had written them: files, what the
 * first adds up to, and figures that are in run.json alone. */
static const char *const since_resume[] = {"matrix.csv",
                                           "trace.json",
                                           "results.traffic",
                                           "overhead",
                                           "results.ranks",
                                           "results.peak_bytes",
                                           "results.peak_sum_bytes",
                                           "results.simulated",
                                           "results.straggler",
                                           "results.energy",
                                           "results.exchanges_dropped",
                                           "results.summary.memory_s.batches"};
enum { FIGURES = 3, SINCE = sizeof since_resume / sizeof *since_resume };

/* The object that has the last key of "a.b.key"; *key: that. NULL: there is none. */
static json_t *run_object_of(const json_t *run, const char *path, const char **key) {
    const json_t *object = run;
    for (*key = path; object && strchr(*key, '.'); *key = strchr(*key, '.') + 1) {
        size_t len = strcspn(*key, ".");
        char name[32] = {0};
        snprintf(name, sizeof name, "%.*s", (int)len, *key);
        object = json_object_get(object, name);
    }
    return (json_t *)object;
}

/* For a start that took no step: what is named above and in no other file, out of run.json of the
 * start that took the last one, if it had as many ranks. */
static void run_keep_told(json_t *run, const json_t *told) {
    const json_t *mine = json_object_get(json_object_get(run, "machine"), "ranks");
    const json_t *other = json_object_get(json_object_get(told, "machine"), "ranks");
    if (!json_equal(mine, other))
        return;
    for (int i = FIGURES; i < SINCE; i++) {
        const char *key;
        json_t *object = run_object_of(run, since_resume[i], &key);
        json_t *kept = json_object_get(run_object_of(told, since_resume[i], &key), key);
        if (json_is_object(object) && kept)
            json_object_set(object, key, kept);
    }
}

/* null: this start began at step 0. `utc`: when it began. `counted`: how many of the earlier steps
 * the summary includes; it leaves out steps on another number of ranks, and steps whose rows are
 * lost. */
static json_t *run_resumed(const gw_resume *r, const char *utc, int64_t counted) {
    if (!*r->path)
        return json_null();
    json_t *since = json_array();
    for (int i = 0; i < SINCE; i++)
        json_array_append_new(since, json_string(since_resume[i]));
    return gw_json_object(
        "step:I path:s from_ranks:i utc:s dropped:o changed:o passed_over:o "
        "steps_not_in_summary:I since_resume:o",
        r->manifest.step, r->path, r->manifest.ranks, utc,
        gw_notes_json(&r->notes, GW_NOTE_DROPPED), gw_notes_json(&r->notes, GW_NOTE_CHANGED),
        gw_notes_json(&r->notes, GW_NOTE_PASSED_OVER), r->manifest.step - counted, since);
}

/* Phases are means over the ranks, of which servers compute nothing. Where each holds another part
 * of the model it is rank 0's work, beside its time. */
static gw_work_run run_work(const gw_trainer *t) {
    const double *phase = t->rec.total.summary.phase_s;
    int workers = gw_trainer_workers(t);
    double passes_s = gw_phases_computation(phase) - phase[GW_PHASE_UPDATE];
    double compute_s = passes_s * t->ranks / workers;
    if (gw_mesh_divides(&t->mesh.shape))
        compute_s = t->rec.total.by_rank[0].step.passes_s;
    if (t->c->simulated) /* nothing of it was computed in this time */
        compute_s = NAN;
    return (gw_work_run){.load = gw_trainer_load(t, (t->part.global_batch + workers - 1) / workers),
                         .vectors = t->optimizer->state.count,
                         .update_flops = gw_optimizer_flops(t->optimizer),
                         .split = &t->measures.split,
                         .compute_s = compute_s};
}

/* Of run.json. */
static json_t *run_more(const gw_trainer *t) {
    const gw_train_config *c = t->c;
    const gw_train_result *r = t->watcher.result;
    const gw_data *d = t->data;
    const gw_data_spec *of = &c->data;
    gw_work_run work = run_work(t);
    bool overhead = c->overhead != 0 && c->run.profile != GW_PROFILE_OFF; /* asked for */
    json_t *data = gw_json_object(
        "name:s source:s hash:s features:i image:o channels:i classes:i train:I validation:I "
        "test:I limit:u limit_test:u replicate:I partition:o",
        d->name, d->source, d->hash, gw_dataset_features(&d->train),
        json_pack("[i, i]", d->train.to_rows / d->train.channels, d->train.to_cols),
        d->train.channels, d->classes, (int64_t)d->train.n_global, (int64_t)d->validation.n_global,
        (int64_t)d->test.n_global, of->limit ? (uint64_t)of->limit : UINT64_MAX,
        of->limit_test ? (uint64_t)of->limit_test : UINT64_MAX, of->replicate,
        gw_divided_json(&d->divided));
    const gw_checkpoint_counts *n = &r->checkpoints;
    json_t *checkpoints = json_null(); /* of this start; null: none were asked for */
    if (c->keep.every.count > 0 || c->keep.every.s > 0)
        checkpoints = gw_json_object(
            "every_steps:o every_s:f keep:i written:I failed:I late:I last_step:o ledger_s:f",
            run_step_or_null(c->keep.every.count), c->keep.every.s > 0 ? c->keep.every.s : NAN,
            c->keep.most, n->written, n->failed, n->late, run_step_or_null(n->step),
            r->checkpoint_s);
    int64_t end = gw_lr_end(c->rate.schedule, gw_trainer_steps(t));
    json_t *rate = gw_json_object("first:f last:f schedule_end:u", (double)gw_trainer_rate(t, 1),
                                  (double)gw_trainer_rate(t, t->at.step),
                                  end > 0 ? (uint64_t)end : UINT64_MAX);
    return gw_json_object("mesh:o simulated:o data:o ceilings:o work:o bound:o papi:o "
                          "forecast:o overhead:o checkpoints:o rate:o resumed:o",
                          gw_pipeline_json(t->part.pipeline),
                          c->simulated ? gw_json_add(c->simulated->json(c->simulated->ctx),
                                                     "coding:o", gw_trainer_prices_json(t))
                                       : json_null(),
                          data, gw_gauge_json(&t->measures.gauge), gw_work_json(&work),
                          gw_bound_json(&t->measures.bound),
                          gw_memory_papi_json(t->measures.memory),
                          t->choice ? gw_chooser_json(t->choice) : json_null(),
                          overhead ? gw_overhead_json(r->overhead) : json_null(), checkpoints, rate,
                          run_resumed(&t->resume, t->rec.start_utc, t->rec.total.summary.earlier));
}

static gw_err run_write(const gw_trainer *t, json_t *tempo) {
    const gw_train_config *c = t->c;
    const gw_train_result *r = t->watcher.result;
    char memory[1024], resident[256];
    json_t *run;
    snprintf(memory, sizeof memory, "%s%s",
             t->rec.total.summary.source == GW_SPLIT_TWIN_MODEL
                 ? "modelled: times against cache-resident twins, products as an interval "
                   "(twin+model); counters "
                 : "",
             gw_memory_source(t->measures.memory));
    snprintf(resident, sizeof resident, "measured: VmHWM, set back at each change of phase");
    if (*t->rec.resident.why)
        snprintf(resident, sizeof resident,
                 "measured: getrusage, the total alone: phases cannot be told apart (%s)",
                 t->rec.resident.why);
    gw_recorder_report of = {
        .program = c->simulated ? "simulate" : "train",
        .command = c->command,
        .started_utc = t->rec.earlier.utc,
        .stopped_by = r->stopped_by,
        .args = c->args,
        .seed = c->run.seed,
        .parameters = r->parameters,
        .wire_bytes = r->last.wire_bytes,
        .steps = r->steps,
        .node = t->node,
        .workers = gw_trainer_workers(t),
        .threads = c->run.threads,
        .helpers = gw_inside_know(t->g).plan.helpers,
        .oversubscribed = t->oversubscribed,
        .split = r->split,
        .flagged = r->flagged,
        .dimensions = gw_recorder_dimensions(&t->rec.total.summary, &t->mesh.shape),
        .bubble_s = r->bubble_s,
        .sources = {"measured: exclusive timers, MPI by PMPI", memory, run_wire_source(t),
                    resident},
        .comm = gw_inside_json(t->g, t->rec.codec_rows, t->rec.warning),
        .more = run_more(t),
        .machine = gw_json_object("gemm:s gemm_warning:t", gw_gemm_library(), gw_gemm_warning()),
        .results = run_results(t, tempo)};
    if (c->simulated) {
        of.sources = (gw_recorder_sources){run_simulated, "absent", run_simulated_wire, "absent"};
        run_of_no_machine(of.machine, "busy");
        run_of_no_machine(
            of.results, "ranks peak_bytes peak_sum_bytes traffic energy test_s test_samples_per_s "
                        "test_forward_s");
    }
    GW_TRY(gw_recorder_json(&t->rec, &of, &run));
    if (t->rec.earlier.told)
        run_keep_told(run, t->rec.earlier.told);
    return gw_runfolder_write(t->rec.of.out, run);
}

/* ---- the whole ---- */

void gw_trainer_note(const gw_trainer *t, gw_train_result *r) {
    r->steps = t->at.step;
    r->total = t->rec.total;
    r->total.by_rank = NULL; /* the recorder's, as hosts */
    r->total.hosts = NULL;
    r->train_s = t->rec.train_s;
    r->ranks = t->ranks;
    r->parameters = gw_trainer_parameters(t);
    r->checkpoints = gw_checkpoint_count(t->checkpoint);
    r->best = t->epochs.best;
    r->best.params = NULL; /* the trainer's */
    snprintf(r->stopped_by, sizeof r->stopped_by, "%s", t->at.stopped_by);
}

gw_err gw_trainer_finish(gw_trainer *t) {
    gw_train_result *r = t->watcher.result;
    gw_watchdog_stage("collecting the results");
    GW_TRY(gw_recorder_end(&t->rec, gw_trainer_workers(t)));
    gw_trainer_note(t, r);
    bool pipe = t->mesh.shape.size[GW_DIM_PIPE] > 1;
    r->bubble_s = pipe ? r->total.summary.dim_waiting_s[GW_DIM_PIPE] : NAN;
    GW_TRY(gw_checks_collect(&t->measures.checks, &t->measures.checked));
    r->told = *gw_inside_know(t->g).unmet;
    GW_TRY(gw_trainer_unmet(t, true));
    r->left_out = t->measures.checked.nan.out_steps;
    r->first_fault = t->measures.checked.nan.first;
    if (t->choice)
        t->choice->measured_s = r->total.summary.wall_s;
    GW_TRY(gw_memory_finish(t->measures.memory));
    r->bound_s =
        t->measures.bound.measured ? t->measures.bound.parts.step_s[t->measures.bound.mode] : 0;
    r->bound_mode = t->measures.bound.mode;
    int64_t split[2] = {t->measures.split.split, t->measures.split.flagged};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, split, 2, MPI_INT64_T, MPI_SUM, t->comm));
    GW_TRY(gw_allreduce(&t->at.checkpoint_s, &r->checkpoint_s, 1, MPI_DOUBLE, MPI_MAX, t->comm));
    r->split = split[0];
    r->flagged = split[1];
    gw_watchdog_stage("measuring the ceilings again");
    GW_TRY(gw_gauge_close(&t->measures.gauge, &t->measures.gauging));
    r->ceilings_drift = t->measures.gauge.drift;
    gw_watchdog_stage("writing the results");
    if (!t->c->run.out)
        return GW_OK;
    /* The model is what all this led to, or its best. */
    bool saves = t->c->keep.model == GW_SAVE_BEST ? t->epochs.best.epoch > 0
                                                  : t->c->keep.model == GW_SAVE_LAST;
    const float *params = t->epochs.best.params ? t->epochs.best.params : gw_trainer_whole(t);
    uint64_t bytes;
    uint32_t crc32;
    gw_err e = GW_OK;
    if (saves && t->rank == 0)
        e = gw_model_save(t->model, params, t->c->run.out, "model.gw", &bytes, &crc32);
    GW_TRY(gw_agree(t->comm, e));
    /* Then run.json, and algo.csv beside it. */
    json_t *tempo = NULL;
    e = gw_predict_tempo(t->part.pipeline, &t->c->parallel,
                         gw_sampler_batch(t->sampler, 0).local == 0, &tempo, t->comm);
    if (e == GW_OK && t->rank == 0) {
        e = gw_inside_write_choices(t->g, t->c->run.out);
        gw_err late = run_write(t, tempo);
        e = e == GW_OK ? late : e;
    }
    return gw_agree(t->comm, e);
}
