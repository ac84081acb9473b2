/* Opening a run, and closing it. */
#include "train/trainer_parts.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "folder/history.h"
#include "machine/host.h"
#include "mpi/wait.h"
#include "predict/chooser.h"
#include "prof/clock.h"
#include "prof/tempo.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

/* Samples a pass of an evaluation, and floats that they may leave in memory. */
enum { EVAL_CHUNK = 256, EVAL_FLOATS = 1 << 24 };

_Static_assert((int)GW_EXCHANGE_DIMS == (int)GW_DIMS, "waits are along the dimensions of a mesh");

static gw_err trainer_count_ranks(gw_trainer *t) {
    GW_TRY(gw_comm_place(t->comm, &t->rank, &t->ranks));
    GW_TRY(gw_mesh_open(&t->mesh, &t->c->parallel.shape, t->comm));
    t->part.servers = gw_inside_know(t->g).plan.servers;
    int replicas = t->mesh.shape.size[GW_DIM_DATA];
    if (t->part.servers >= replicas)
        return gw_fail(GW_ERR_USAGE,
                       "train: --comm %s keeps %d of %d %s%s from training: start more ranks",
                       t->c->run.comm->text, t->part.servers, replicas,
                       replicas == t->ranks ? "rank" : "replica", replicas == 1 ? "" : "s");
    GW_TRY(gw_delay_suits(&t->c->skew, "train", t->ranks));
    GW_TRY(
        gw_host_node_of(&t->node, t->c->run.threads + gw_inside_know(t->g).plan.helpers, t->comm));
    int over = !t->c->simulated && gw_host_oversubscribed(&t->node);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &over, 1, MPI_INT, MPI_MAX, t->comm));
    t->oversubscribed = over;
    gw_wait_yields(over);
    return GW_OK;
}

static gw_model_spec trainer_spec(const gw_trainer *t) {
    gw_model_spec spec = t->c->model;
    spec.inputs = gw_dataset_features(&t->data->train);
    spec.classes = t->data->classes;
    return spec;
}

/* Collective. */
static gw_err trainer_divide(gw_trainer *t) {
    if (!t->part.pipeline)
        return GW_OK;
    gw_facts_of facts = {.c = t->c, .mesh = &t->mesh};
    gw_model_spec spec = trainer_spec(t);
    gw_pipeline_recut(t->part.pipeline, gw_facts_stages(t->resume.manifest.facts, &facts));
    int last = gw_sampler_batches(t->sampler) - 1;
    gw_pipeline_rows rows = {gw_sampler_batch(t->sampler, 0).local,
                             gw_sampler_batch(t->sampler, last).local};
    return gw_pipeline_divide(t->part.pipeline, &t->mesh, &spec, rows, t->comm);
}

/* A codec that scales several floats together may take a running variance below zero, and their
 * distances are no gradient that a norm should count. */
static gw_err trainer_check_tracked(const gw_trainer *t, const gw_model_spec *spec) {
    const unsigned together = GW_CODEC_UNBIASED | GW_CODEC_BIASED | GW_CODEC_SPARSE;
    gw_inside_facts is = gw_inside_know(t->g);
    bool tracks = false, scales = !is.codec || (!is.lossless && is.codec->caps & together);
    for (int l = 0; l < gw_model_spec_layers(spec); l++) {
        gw_unit u = gw_model_spec_unit(spec, l);
        for (int i = 0; i < u.n_tensors; i++)
            tracks |= u.tensor[i].tracks;
    }
    if (tracks && scales && (is.one || !is.codec))
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "train: --compress %s: the model's running means have to go exact: add a "
                       "rule for small tensors, such as ';min_bytes=4K', or use fp16 or bf16",
                       t->c->run.compress->text);
    if (tracks && t->c->run.clip > 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "train: --clip-norm: the norm would count how far the model's running means "
                       "have to move: use a model without batch normalisation");
    return GW_OK;
}

static gw_err trainer_opening_open_model(gw_trainer *t) {
    const gw_train_config *c = t->c;
    gw_model_spec spec = trainer_spec(t);
    GW_TRY(gw_trainer_fits(t, &spec));
    GW_TRY(trainer_check_tracked(t, &spec));
    /* A text of a transformer leaves megabytes, an image of a perceptron some kilobytes. */
    size_t row = 1;
    for (int l = 0; l < gw_model_spec_layers(&spec); l++) {
        gw_unit u = gw_model_spec_unit(&spec, l);
        row += (size_t)u.out + (size_t)u.kept;
    }
    size_t fit = EVAL_FLOATS / row;
    int local = gw_sampler_max_local(t->sampler);
    t->part.chunk = fit < 1 ? 1 : fit < EVAL_CHUNK ? (int)fit : EVAL_CHUNK;
    int most = local > t->part.chunk ? local : t->part.chunk;
    if (t->part.pipeline) {
        const gw_model_room *room = gw_pipeline_room(t->part.pipeline);
        t->part.chunk = room->rows;
        GW_TRY(gw_model_open_shard(&t->model, gw_pipeline_shard(t->part.pipeline), room));
    } else {
        bool takes = c->simulated && t->mesh.at[GW_DIM_DATA] > 0;
        GW_TRY((takes ? gw_model_build : gw_model_open)(&t->model, &spec, most));
    }
    GW_TRY(gw_step_optimizer(&t->optimizer, c, t->model, gw_inside_know(t->g).corrects));
    t->stepper = (gw_stepper){.model = t->model,
                              .optimizer = t->optimizer,
                              .g = t->g,
                              .is = gw_inside_know(t->g),
                              .set = &t->data->train,
                              .lazy = c->run.lazy,
                              .pipeline = t->part.pipeline};
    size_t classes = (size_t)spec.classes, targets = (size_t)gw_model_spec_targets(&spec);
    if (classes <= GW_MAX_CONFUSED)
        GW_TRY(gw_alloc(&t->epochs.confusion, classes * classes, sizeof *t->epochs.confusion));
    return gw_alloc(&t->stepper.labels, (size_t)most * targets, sizeof *t->stepper.labels);
}

/* Returns what happens to the run that --out holds; t->resume was looked for before. */
static gw_runfolder_use trainer_use(const gw_trainer *t) {
    return gw_runfolder_use_of(t->c->run.out, t->c->run.overwrite, t->c->keep.resume,
                               t->resume.path);
}

/* Named by the environment, perhaps: the command line was checked when it was read. */
static gw_err trainer_check_source(const gw_trainer *t) {
    if (!t->c->run.out || t->rank != 0 || gw_text_utf8(t->data->source))
        return GW_OK;
    return gw_fail(GW_ERR_INPUT,
                   "data folder '%s': its name is not UTF-8, as all text in the run.json of --out "
                   "has to be: rename it or make a link to it",
                   t->data->source);
}

gw_load gw_trainer_load(const gw_trainer *t, int batch) {
    gw_load load = {.shard = gw_model_shard(t->model), .batch = batch};
    if (!t->part.pipeline)
        return load;
    const gw_model_room *room = gw_pipeline_room(t->part.pipeline);
    load.micro = t->c->parallel.microbatches;
    load.repeats = room->recompute;
    for (int c = 0; c < load.shard->share.n_chunks && !room->recompute; c++)
        load.held = room->slots[c] > load.held ? room->slots[c] : load.held;
    return load;
}

/* A full batch, as most are. */
static void trainer_opening_next(void *ctx, gw_pipeline_job *pass) {
    gw_trainer *t = ctx;
    const gw_stepper *s = &t->stepper;
    gw_watchdog_beat();
    int full = gw_sampler_full(t->sampler);
    gw_batch b = gw_sampler_batch(t->sampler, t->measures.rehearsed++ % full);
    *pass = (gw_pipeline_job){s->set, b.idx, s->labels, b.local, b.global, s->is.plan.polls, 0};
}

/* Steps without exchange, to be timed. */
static gw_layer_job trainer_opening_steps(gw_trainer *t) {
    gw_sampler_epoch(t->sampler, 0);
    return (gw_layer_job){.model = t->model,
                          .optimizer = t->optimizer,
                          .next = trainer_opening_next,
                          .ctx = t,
                          .comm = t->comm};
}

static bool trainer_opening_gauges(const gw_trainer *t) {
    const gw_train_config *c = t->c;
    return c->ceilings && c->run.out && c->run.profile == GW_PROFILE_FULL;
}

static gw_err trainer_open_gauge(gw_trainer *t) {
    const gw_train_config *c = t->c;
    gw_inside_facts is = gw_inside_know(t->g);
    bool gauges = trainer_opening_gauges(t);
    /* A codec has a twin if it is one for all tensors, one thread runs it, and no momentum of the
     * session's lies on top of it. */
    bool coded = !(is.codec->caps & GW_CODEC_IDENTITY) && is.one && !is.lossy && !is.rule;
    gw_twin_setup twins = {.load = gw_trainer_load(t, gw_sampler_max_local(t->sampler)),
                           .threads = c->run.threads,
                           .optimizer = t->optimizer,
                           .codec = coded && c->run.threads == 1 ? is.codec->of : NULL,
                           .feedback = is.feedback,
                           .framed = is.codec->framed,
                           .joined = is.codec->ranks};
    t->measures.gauging = (gw_gauge_setup){.comm = t->comm,
                                           .from = c->ceilings,
                                           .threads = c->run.threads,
                                           .oversubscribed = t->oversubscribed,
                                           .twins = twins};
    t->measures.gauge.drift = NAN;
    gw_watchdog_stage("measuring the ceilings");
    if (gauges)
        GW_TRY(gw_gauge_open(&t->measures.gauge, &t->measures.gauging));
    twins.load.batch = t->measures.gauge.batch;
    gw_split_open(&t->measures.split, gauges ? &t->measures.gauge.c : NULL, &twins);
    return GW_OK;
}

/* Whoever waits lets others run: ranks without a core of their own, and those of one process. */
static bool trainer_yields(const gw_trainer *t) {
    return t->oversubscribed || t->c->simulated;
}

static gw_step_setup trainer_step_setup(const gw_trainer *t) {
    gw_step_setup setup = {.c = t->c,
                           .comm = t->mesh.comm[GW_DIM_DATA],
                           .seed = t->c->run.seed,
                           .yield = trainer_yields(t),
                           .note = t->part.pipeline ? gw_pipeline_note(t->part.pipeline) : NULL,
                           .table = t->resume.table};
    for (int d = GW_DIM_PIPE; d < GW_DIMS; d++)
        if (t->mesh.shape.size[d] > 1)
            setup.rest[setup.n_rest++] = t->mesh.comm[d];
    if (gw_mesh_divides(&t->mesh.shape)) /* ranks of one data coordinate draw apart */
        setup.seed = gw_rng_key(setup.seed, (uint64_t)gw_mesh_group(&t->mesh));
    return setup;
}

/* What was asked for and does not happen: of the exchange of gradients, then of activations, whose
 * encodings are only counted. */
gw_err gw_trainer_unmet(gw_trainer *t, bool ended) {
    static const char *const options[] = {"compress-activations", "compress-deltas"};
    gw_unmet *u = gw_inside_know(t->g).unmet;
    gw_unmet_ask ask = {.ended = ended,
                        .steps = t->c->rate.schedule ? gw_trainer_steps(t) : 0,
                        .carried = gw_mesh_divides(&t->mesh.shape)};
    GW_TRY(gw_inside_unmet(t->g, ask, t->comm));
    /* The schedule: options beyond the end of the run, and a rate of 0 before it. */
    const gw_lr *s = t->c->rate.schedule;
    char why[160];
    const char *how = t->c->rate.how ? t->c->rate.how->text : "constant";
    int64_t zero = s ? gw_lr_zero(s, ask.steps) : 0;
    if (s)
        gw_unmet_late(u, "lr-schedule", how, gw_lr_args(s), ask.steps);
    snprintf(why, sizeof why, "nothing moves from step %lld of %lld on", (long long)zero,
             (long long)ask.steps);
    if (zero > 0)
        gw_unmet_add(u, "lr-schedule", how, "the rate is 0", why);
    if (t->c->data.partition.on && t->data->divided.parts == 0)
        gw_unmet_add(u, "partition", gw_args_text(t->c->args, "partition"), "nothing is divided",
                     "one rank takes all samples");
    for (int k = 0; k < 2 && ended && ask.carried; k++) {
        bool idle;
        GW_TRY(gw_pipeline_idle(t->part.pipeline, k, t->comm, &idle));
        if (idle)
            gw_unmet_add(u, options[k], gw_pipeline_codec(t->part.pipeline, k), "not encoded here",
                         "no encoding was counted");
    }
    if (ended && t->c->run.compress_stats > t->at.step)
        gw_unmet_add(u, "compress-stats", gw_args_text(t->c->args, "compress-stats"),
                     "no step was compared", "the run ended before that step");
    t->watcher.result->unmet = *u;
    return GW_OK;
}

gw_facts_of gw_trainer_facts(const gw_trainer *t) {
    const gw_chooser *a = t->choice;
    bool chosen = gw_chooser_chooses(a) && a->chosen >= 0;
    const gw_candidate *c = chosen ? &a->candidate[a->chosen] : NULL;
    return (gw_facts_of){.c = t->c,
                         .codec = c ? c->codec : NULL,
                         .algo = c ? c->algo : NULL,
                         .data = t->data,
                         .mesh = &t->mesh,
                         .pipeline = t->part.pipeline,
                         .g = t->g,
                         .parameters = gw_trainer_parameters(t),
                         .ranks = t->ranks,
                         .global_batch = t->part.global_batch,
                         .schedule = gw_lr_end(t->c->rate.schedule, gw_trainer_steps(t)),
                         .optimizer = t->optimizer};
}

/* Ranks, data set and model; then codec and algorithm are known, too. */
static gw_err trainer_open_basis(gw_trainer *t) {
    const gw_train_config *c = t->c;
    omp_set_num_threads(c->run.threads);
    GW_TRY(trainer_count_ranks(t));
    GW_TRY(gw_watchdog_meet(t->comm));
    GW_TRY(gw_agree(t->comm, gw_step_batch(c, gw_trainer_workers(t), &t->part.global_batch)));
    gw_recorder_setup of = {.comm = t->comm,
                            .rank = t->rank,
                            .ranks = t->ranks,
                            .along = t->mesh.comm,
                            .out = c->run.out,
                            .profile = c->run.profile,
                            .collectives = c->run.collectives,
                            .trace = c->run.trace,
                            .evaluations = c->eval_every > 0,
                            .log = c->run.log,
                            .log_every = c->run.log_every,
                            .args = c->args,
                            .node = &t->node,
                            .early = true};
    if (!c->check) /* before anybody reads the folder */
        GW_TRY(gw_recorder_claim(&t->rec, &of));
    GW_TRY(gw_resume_find(&t->resume, c, t->comm));
    bool holds = c->run.out && t->rank == 0;
    if (!c->check)
        GW_TRY(gw_agree(t->comm, holds ? gw_runfolder_check(c->run.out, trainer_use(t)) : GW_OK));
    gw_flush_denormals(); /* starts the threads: after what may be refused */
    gw_watchdog_stage("reading the data set");
    gw_data_spec spec = c->data;
    spec.context = c->model.context;
    spec.batch = t->part.global_batch;
    spec.servers = t->part.servers;
    spec.parts = gw_trainer_workers(t);
    spec.outline = c->check;
    GW_TRY(gw_data_open(&t->data, &spec, t->comm));
    gw_watchdog_stage("making the model");
    GW_TRY(gw_agree(t->comm, gw_sampler_open(&t->sampler, &t->data->train, t->part.global_batch,
                                             c->data.sharded, c->run.seed,
                                             t->mesh.at[GW_DIM_DATA] - t->part.servers,
                                             gw_trainer_workers(t))));
    GW_TRY(trainer_divide(t));
    GW_TRY(gw_agree(t->comm, trainer_opening_open_model(t)));
    GW_TRY(gw_trainer_share_params(t));
    gw_facts_of facts = gw_trainer_facts(t);
    GW_TRY(gw_resume_check(&t->resume, &facts, t->comm));
    if (!t->choice)
        return GW_OK;
    gw_watchdog_stage("predicting steps");
    gw_chooser_job job = {.check = c->check,
                          .steps = trainer_opening_steps(t),
                          .nodes = t->node.nodes,
                          .yield = t->oversubscribed,
                          .codec = t->resume.codec,
                          .algo = t->resume.algo};
    return gw_chooser_settle(t->choice, &job);
}

gw_err gw_trainer_check(gw_trainer *t) {
    GW_TRY(trainer_open_basis(t));
    gw_step_setup setup = trainer_step_setup(t);
    if (gw_inside_know(t->g).codec) /* else it has not chosen what to open */
        GW_TRY(gw_agree(t->comm, gw_step_open(&t->stepper, t->g, &setup)));
    if (gw_inside_know(t->g).codec && !t->part.pipeline)
        GW_TRY(gw_trainer_unmet(t, false));
    if (t->c->run.profile == GW_PROFILE_FULL)
        GW_TRY(gw_memory_open(&t->measures.memory, t->c->counters, t->c->run.threads, t->comm));
    gw_gauge_setup gauging = {.comm = t->comm,
                              .from = t->c->ceilings,
                              .threads = t->c->run.threads,
                              .oversubscribed = t->oversubscribed};
    if (trainer_opening_gauges(t))
        GW_TRY(gw_gauge_check(&gauging));
    return gw_agree(t->comm, trainer_check_source(t));
}

/* Checkpoints and comparisons of gradients are parts of steps; evaluations, comparisons of replicas
 * and what settles a strategy for them lie between steps. */
static gw_repeat trainer_opening_repeat(const gw_trainer *t, int64_t from) {
    const gw_count_time *keep = &t->c->keep.every;
    gw_repeat repeat = gw_inside_repeat(t->g, from);
    gw_repeat_also(&repeat, keep->count, gw_trainer_steps(t));
    gw_repeat_also(&repeat, t->c->run.compress_stats, gw_trainer_steps(t));
    if (keep->s > 0 || gw_delay_varies(&t->c->skew))
        repeat.all = 0;
    return repeat;
}

/* Rank 0, when nothing can be refused any more: removes what the end of the resumed run wrote, and
 * notes the restart in its history. */
static gw_err trainer_reopen(gw_trainer *t) {
    if (t->rec.earlier.lacks)
        GW_TRY(gw_notes_add(&t->resume.notes, GW_NOTE_DROPPED, "%s", t->rec.earlier.lacks));
    if (trainer_use(t) == GW_RUNFOLDER_RESUME) {
        GW_TRY(gw_resume_forget_later(&t->resume, t->c->run.out));
        GW_TRY(gw_runfolder_reopen(t->c->run.out, t->rec.earlier.concludes));
    }
    char utc[GW_UTC];
    json_t *all = NULL;
    GW_TRY(gw_history_read(t->c->run.out, &all));
    bool news = *t->resume.path || json_array_size(all) > 0;
    json_decref(all);
    if (!news)
        return GW_OK;
    gw_utc_now(utc);
    return gw_history_add(t->c->run.out,
                          gw_json_object("event:s utc:s step:I path:t ranks:i changed:o dropped:o",
                                         "resumed", utc, t->resume.manifest.step, t->resume.path,
                                         t->ranks, gw_notes_json(&t->resume.notes, GW_NOTE_CHANGED),
                                         gw_notes_json(&t->resume.notes, GW_NOTE_DROPPED)));
}

static gw_err trainer_open_files(gw_trainer *t) {
    const gw_train_config *c = t->c;
    const char *counters[GW_COUNTERS];
    const gw_store_manifest *at = &t->resume.manifest;
    bool goes_on = *t->resume.path,
         last = at->epoch == c->until.epochs && at->batch == gw_sampler_batches(t->sampler);
    gw_recorder_past past = {.path = t->resume.path,
                             .marks = json_object_get(at->facts, "marks"),
                             .by = gw_store_other(at),
                             .strict = c->keep.strict,
                             .ended = last || (c->until.steps > 0 && at->step >= c->until.steps)};
    gw_recorder_opening o = {
        .use = trainer_use(t),
        .parts = goes_on || c->keep.every.count > 0 || c->keep.every.s > 0,
        .mesh = gw_mesh_divides(&t->mesh.shape),
        .repeats = {trainer_opening_repeat(t, 0), trainer_opening_repeat(t, GW_RECORD_WARMUP)},
        .counters = counters,
        .n_counters = gw_memory_columns(t->measures.memory, counters),
        .session = gw_inside_session(t->g),
        .compress_stats = c->run.compress_stats,
        .step = at->step,
        .past = goes_on ? &past : NULL};
    GW_TRY(gw_recorder_open(&t->rec, &o));
    return gw_agree(t->comm, t->rank == 0 && c->run.out ? trainer_reopen(t) : GW_OK);
}

gw_err gw_trainer_open(gw_trainer *t) {
    GW_TRY(trainer_open_basis(t));
    gw_watchdog_stage("opening the exchange");
    gw_step_setup setup = trainer_step_setup(t);
    GW_TRY(gw_agree(t->comm, gw_step_open(&t->stepper, t->g, &setup)));
    if (t->part.pipeline) {
        gw_watchdog_stage("opening the exchange of activations");
        gw_pipeline_hooks hooks = gw_step_hooks(&t->stepper);
        /* Replicas draw apart, too: their codecs' errors must not add up. */
        uint64_t seed = gw_rng_key(t->c->run.seed, (uint64_t)t->mesh.at[GW_DIM_DATA]);
        GW_TRY(
            gw_pipeline_open(t->part.pipeline, t->model, &hooks, seed, trainer_yields(t), t->comm));
    }
    GW_TRY(gw_trainer_unmet(t, false));
    GW_TRY(gw_resume_load(&t->resume, &t->stepper, &t->mesh, t->comm));
    if (t->c->bound) {
        gw_watchdog_stage("measuring the bound of a step");
        gw_layer_job steps = trainer_opening_steps(t);
        GW_TRY(
            gw_bound_measure(&t->measures.bound, &t->stepper, &steps, t->oversubscribed, t->own));
    }
    const gw_shard *held = gw_model_shard(t->model);
    for (int l = 0; l < held->n_layers; l++)
        t->part.layer_numbers[l] = held->layers[l].number;
    gw_checks_open(&t->measures.checks, t->c, t->g, t->comm, t->mesh.comm[GW_DIM_DATA],
                   gw_model_spans(t->model), gw_model_layers(t->model), t->part.layer_numbers);
    t->measures.checks.pipeline = t->part.pipeline;
    t->stepper.guard = &t->measures.checks.guard;
    gw_clock_start();
    if (t->c->run.profile == GW_PROFILE_FULL)
        GW_TRY(gw_memory_open(&t->measures.memory, t->c->counters, t->c->run.threads, t->comm));
    GW_TRY(trainer_open_gauge(t));
    int sig;
    GW_TRY(gw_signals_agree(&sig, t->comm));
    gw_trainer_heed(t, sig);
    if (sig)
        return GW_OK;
    GW_TRY(gw_trainer_open_clock(t));
    gw_watchdog_stage("opening the run's files");
    GW_TRY(gw_agree(t->comm, trainer_check_source(t)));
    return trainer_open_files(t);
}

/* ---- the first step ---- */

static gw_err trainer_resume(gw_trainer *t) {
    const gw_position *at = &t->resume.at;
    if (at->epoch < 1 || at->batch < 0 || at->batch > gw_sampler_batches(t->sampler))
        return gw_fail(GW_ERR_INPUT, "%s: epoch %lld, batch %lld: there are %d batches an epoch",
                       t->resume.path, (long long)at->epoch, (long long)at->batch,
                       gw_sampler_batches(t->sampler));
    t->at.epoch = (int)at->epoch;
    t->at.batch = (int)at->batch;
    t->at.step = at->step;
    t->at.samples = at->samples;
    t->rec.sum.samples = t->rank == 0 ? at->samples : 0;
    t->rec.sum.loss = at->loss_sum;
    t->rec.sum.left_out = at->left_out;
    gw_checks_resume(&t->measures.checks, &at->checks);
    t->rec.train_s = at->train_s;
    t->rec.wire_bytes = at->wire_bytes;
    t->rec.zero_s -= at->elapsed_s;
    return GW_OK;
}

static gw_err trainer_begin_best(gw_trainer *t) {
    t->epochs.best.n = gw_trainer_parameters(t);
    if (t->c->keep.model == GW_SAVE_BEST && t->rank == 0)
        GW_TRY(gw_alloc(&t->epochs.best.params, t->epochs.best.n, sizeof *t->epochs.best.params));
    return gw_resume_best(&t->resume, &t->epochs.best, gw_args_spec(t->c->args, "model"));
}

gw_err gw_trainer_begin(gw_trainer *t) {
    const gw_train_config *c = t->c;
    t->at.epoch = 1;
    GW_TRY(gw_recorder_begin(&t->rec));
    t->at.limit_from_s = t->rec.zero_s;
    if (*t->resume.path) {
        GW_TRY(gw_agree(t->comm, trainer_resume(t)));
        GW_TRY(gw_resume_statistics(&t->resume, t->rec.stats, t->comm));
    }
    GW_TRY(gw_agree(t->comm, trainer_begin_best(t)));
    t->watcher.status.step = t->at.step;
    t->watcher.status.begins = true;
    t->watcher.status.busy = &t->rec.total.before;
    t->watcher.status.notes = &t->resume.notes;
    GW_TRY(gw_vote_open(&t->at.vote, t->comm, t->at.step, t->at.limit_from_s));
    gw_checkpoint_setup setup = {.c = c,
                                 .stepper = &t->stepper,
                                 .stats = t->rec.stats,
                                 .mesh = &t->mesh,
                                 .best = &t->epochs.best,
                                 .rows = t->rec.rows,
                                 .comm = t->comm};
    bool keeps = c->keep.every.count > 0 || c->keep.every.s > 0;
    if (keeps)
        GW_TRY(gw_checkpoint_open(&t->checkpoint, &setup));
    gw_resident_enter(&t->rec.resident, GW_RESIDENT_TRAINING);
    return GW_OK;
}

/* ---- closing ---- */

void gw_trainer_close(gw_trainer *t) {
    gw_tempo_close();
    gw_checks_free(&t->measures.checked);
    gw_memory_close(t->measures.memory);
    gw_checkpoint_close(t->checkpoint); /* its thread may be at the rows */
    gw_recorder_close(&t->rec);
    gw_resume_free(&t->resume);
    gw_pipeline_close(t->part.pipeline);
    gradwire_close(t->g);
    gw_step_close(&t->stepper);
    free(t->stepper.labels);
    free(t->epochs.whole);
    free(t->epochs.best.params);
    free(t->epochs.confusion);
    gw_optimizer_close(t->optimizer);
    gw_sampler_close(t->sampler);
    gw_model_close(t->model);
    gw_data_close(t->data);
    gw_mesh_close(&t->mesh);
}
