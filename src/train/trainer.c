#include "train/trainer.h"

#include "base/mem.h"
#include "base/text.h"
#include "base/wait.h"
#include "data/sampler.h"
#include "prof/clock.h"
#include "prof/host.h"
#include "prof/trace.h"
#include "train/auto.h"
#include "train/codec_stats.h"
#include "train/evaluate.h"
#include "train/runfolder.h"
#include "train/step.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

enum {
    EVAL_CHUNK = 256,      /* samples a pass of an evaluation */
    ROWS = 4096,           /* batch rows kept between two flushes */
    TRACE_EVENTS = 200000, /* bounds the memory of --trace: about 25 MiB a rank */
    LIMIT_EVERY = 16,      /* steps between two looks at the time limit */
    WARMUP_STEPS = 10      /* left out of the summary's medians */
};

typedef struct trainer {
    const gw_train_config *c;
    MPI_Comm comm;
    int rank, ranks;
    int servers; /* ranks from 0 on that take no samples */
    int global_batch, chunk;
    bool oversubscribed;
    int nodes, node_ranks;
    gw_data *data;
    gw_model *model;
    gw_optimizer *optimizer;
    gw_sampler *sampler;
    gw_session *session;
    gw_stepper stepper;
    int rehearsed; /* steps */
    gw_record *record;
    gw_codec_stats *stats;
    const gw_codec_row *codec_rows; /* of the last epoch; NULL: not asked for */
    char warning[256];              /* the last one */
    gw_file *epochs_csv;            /* rank 0 */
    char started_utc[32];
    void (*watch)(void *ctx, const gw_train_status *status);
    void *ctx;
    gw_train_status status;
    int64_t step;
    double limit_from_s, train_s;
    uint64_t wire_bytes; /* this rank */
    const char *stopped_by;
    gw_train_result *result;
    bool *own;
} trainer;

/* ---- opening ---- */

static gw_err count_ranks(trainer *t) {
    GW_MPI(MPI_Comm_rank(t->comm, &t->rank));
    GW_MPI(MPI_Comm_size(t->comm, &t->ranks));
    t->servers = gw_session_servers(t->session);
    if (t->servers >= t->ranks)
        return gw_fail(GW_ERR_USAGE,
                       "train: --comm %s keeps %d of %d rank%s from training: start more ranks",
                       t->c->comm, t->servers, t->ranks, t->ranks == 1 ? "" : "s");
    gw_host_node node;
    bool helper = gw_session_thread_level(t->session) > MPI_THREAD_FUNNELED; /* a progress thread */
    GW_TRY(gw_host_node_of(&node, t->c->threads + helper, t->comm));
    t->nodes = node.nodes;
    t->node_ranks = node.ranks;
    int over = gw_host_oversubscribed(&node);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &over, 1, MPI_INT, MPI_MAX, t->comm));
    t->oversubscribed = over;
    gw_wait_yields(over);
    return GW_OK;
}

/* Ranks that take samples. */
static int workers(const trainer *t) {
    return t->ranks - t->servers;
}

static gw_err set_batch(trainer *t) {
    const gw_train_config *c = t->c;
    int64_t batch = c->local_batch ? (int64_t)c->batch * workers(t) : c->batch;
    if (batch > INT32_MAX)
        return gw_fail(GW_ERR_USAGE,
                       "train: local-batch=%d on %d ranks: the global batch must stay "
                       "below 2^31",
                       c->batch, workers(t));
    t->global_batch = (int)batch;
    return GW_OK;
}

static gw_err open_model(trainer *t) {
    const gw_train_config *c = t->c;
    gw_model_spec spec = {.inputs = gw_dataset_features(&t->data->train),
                          .classes = t->data->classes,
                          .n_hidden = c->n_hidden,
                          .activation = c->activation,
                          .init = c->init,
                          .seed = c->seed};
    memcpy(spec.hidden, c->hidden, sizeof spec.hidden);
    GW_TRY(gw_sampler_open(&t->sampler, &t->data->train, t->global_batch, c->data.sharded, c->seed,
                           t->rank - t->servers, workers(t)));
    int local = gw_sampler_max_local(t->sampler);
    int most = local > EVAL_CHUNK ? local : EVAL_CHUNK;
    t->chunk = EVAL_CHUNK;
    GW_TRY(gw_model_open(&t->model, &spec, most));
    GW_TRY(gw_optimizer_open(&t->optimizer, gw_model_size(t->model),
                             gw_session_corrects(t->session) ? 0 : c->momentum, c->weight_decay));
    t->stepper = (gw_stepper){.model = t->model,
                              .optimizer = t->optimizer,
                              .session = t->session,
                              .set = &t->data->train,
                              .lazy = c->lazy};
    return gw_alloc(&t->stepper.labels, (size_t)most, 1);
}

static gw_err open_folder(trainer *t) {
    if (!t->c->out || t->rank != 0)
        return GW_OK;
    return gw_runfolder_claim(t->c->out, t->c->overwrite);
}

/* Only now, when nothing is left that could be refused, an older run gives way. */
static gw_err open_files(trainer *t) {
    if (!t->c->out || t->rank != 0)
        return GW_OK;
    /* Named by the environment, perhaps: the command line was checked when it was read. */
    if (!gw_text_utf8(t->data->source))
        return gw_fail(
            GW_ERR_INPUT,
            "data folder '%s': its name is not UTF-8, as all text in the run.json of --out "
            "has to be: rename it or make a link to it",
            t->data->source);
    GW_TRY(gw_runfolder_clear(t->c->out));
    return gw_epochs_open(&t->epochs_csv, t->c->out);
}

/* A step of the cost model's rehearsal: the first batches, at rate 0, so that nothing moves. */
static gw_err rehearse(void *ctx) {
    trainer *t = ctx;
    double loss;
    int b = t->rehearsed++ % gw_sampler_batches(t->sampler);
    return gw_step(&t->stepper, gw_sampler_batch(t->sampler, b), 0, &loss);
}

static gw_err choose(trainer *t) {
    if (!gw_session_auto(t->session))
        return GW_OK;
    gw_sampler_epoch(t->sampler, 0);
    gw_auto_job job = {.rehearsal = {&t->stepper, rehearse, t, t->comm},
                       .lazy = t->c->lazy,
                       .yield = t->oversubscribed,
                       .seed = t->c->seed};
    return gw_session_choose(t->session, &job);
}

static gw_err open_all(trainer *t) {
    time_t now = time(NULL);
    struct tm utc;
    strftime(t->started_utc, sizeof t->started_utc, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    omp_set_num_threads(t->c->threads);
    gw_flush_denormals();
    GW_TRY(count_ranks(t));
    GW_TRY(gw_agree(t->comm, set_batch(t)));
    GW_TRY(gw_agree(t->comm, open_folder(t)));
    gw_data_spec spec = t->c->data;
    spec.batch = t->global_batch;
    spec.servers = t->servers;
    GW_TRY(gw_data_open(&t->data, &spec, t->comm));
    GW_TRY(gw_agree(t->comm, open_model(t)));
    GW_TRY(choose(t));
    gw_session_setup setup = {.n = gw_model_size(t->model),
                              .layers = gw_model_spans(t->model),
                              .n_layers = gw_model_layers(t->model),
                              .tensors = gw_model_tensors(t->model),
                              .n_tensors = gw_model_tensor_count(t->model),
                              .by_layer = t->c->lazy,
                              .params = gw_model_params(t->model),
                              .momentum = gw_optimizer_momentum(t->optimizer),
                              .correction = (float)t->c->momentum,
                              .seed = t->c->seed,
                              .yield = t->oversubscribed};
    GW_TRY(gw_session_open(t->session, t->comm, &setup));
    gw_model_lend(t->model, gw_session_params(t->session), gw_session_grads(t->session));
    GW_TRY(gw_agree(t->comm, open_files(t)));
    gw_codec_stats_setup stats = {.session = t->session,
                                  .layers = gw_model_spans(t->model),
                                  .n_layers = gw_model_layers(t->model),
                                  .n = gw_model_size(t->model),
                                  .every = t->c->compress_stats,
                                  .out = t->c->out};
    GW_TRY(gw_codec_stats_open(&t->stats, t->comm, &stats));
    GW_TRY(gw_record_open(&t->record, t->c->out, ROWS, t->comm));
    gw_clock_start();
    GW_TRY(gw_barrier(t->comm));
    gw_ledger_start();
    gw_ledger_set_profile(t->c->profile);
    return t->c->trace ? gw_trace_open(TRACE_EVENTS, t->comm) : GW_OK;
}

static void close_all(trainer *t) {
    gw_trace_close();
    gw_record_abandon(t->record);
    gw_file_abandon(t->epochs_csv);
    gw_codec_stats_close(t->stats);
    gw_session_close(t->session);
    free(t->stepper.labels);
    gw_optimizer_close(t->optimizer);
    gw_sampler_close(t->sampler);
    gw_model_close(t->model);
    gw_data_close(t->data);
}

/* ---- running ---- */

/* Warm-up climbs from the unscaled rate (or 0, without scaling) to the full one (Goyal et al.,
 * "Accurate, large minibatch SGD", 2017). */
static float rate(const trainer *t, int64_t step) {
    const gw_train_config *c = t->c;
    double full = c->lr * (c->lr_linear ? workers(t) : 1);
    if (step > c->lr_warmup)
        return (float)full;
    double from = c->lr_linear ? c->lr : 0;
    return (float)(from + (full - from) * (double)step / (double)c->lr_warmup);
}

/* After this step somebody reads parameters or calls MPI: nothing may be pending then. */
static bool must_settle(const trainer *t, int b) {
    return b + 1 == gw_sampler_batches(t->sampler) || t->step == t->c->steps ||
           t->step % ROWS == 0 || gw_codec_stats_settles(t->stats, t->step) ||
           (t->c->time_limit_s > 0 && t->step % LIMIT_EVERY == 0);
}

static void count_wire(trainer *t, const gw_batch_cost *cost) {
    if (cost->wire_bytes != GW_UNCOUNTED)
        t->wire_bytes += cost->wire_bytes;
}

static gw_err one_step(trainer *t, int epoch, int b, double *loss_sum) {
    gw_batch batch = gw_sampler_batch(t->sampler, b);
    uint64_t logical = gw_session_logical_bytes(t->session);
    gw_batch_row row = gw_batch_row_blank();
    row.epoch = epoch;
    row.step = ++t->step;
    row.samples = batch.local;
    double loss = 0;
    gw_codec_stats_begin(t->stats, t->step);
    gw_ledger_begin();
    gw_err e = gw_step(&t->stepper, batch, rate(t, t->step), &loss);
    if (e == GW_OK && must_settle(t, b))
        e = gw_step_settle(&t->stepper);
    gw_ledger_end(&row.cost);
    if (e != GW_OK) {
        *t->own = true;
        return e;
    }
    *loss_sum += loss;
    row.loss = batch.local ? loss / batch.local : NAN;
    row.logical_bytes = gw_session_logical_bytes(t->session) - logical;
    t->train_s += row.cost.wall_s;
    count_wire(t, &row.cost);
    t->status.loss = row.loss;
    return gw_record_push(t->record, &row);
}

/* The rows are full: between batches, and on all ranks at the same step. */
static gw_err make_room(trainer *t) {
    if (t->step % ROWS != 0)
        return GW_OK;
    return gw_record_flush(t->record);
}

static gw_err limit_reached(trainer *t, bool *stop) {
    if (t->c->steps > 0 && t->step >= t->c->steps) {
        t->stopped_by = "steps";
        *stop = true;
        return GW_OK;
    }
    if (t->c->time_limit_s <= 0 || t->step % LIMIT_EVERY != 0)
        return GW_OK;
    /* Rank 0's clock decides for all, so that all stop at the same step. */
    int over = gw_ledger_now() - t->limit_from_s >= t->c->time_limit_s;
    GW_TRY(gw_bcast(&over, 1, MPI_INT, 0, t->comm));
    if (over) {
        t->stopped_by = "time-limit";
        *stop = true;
    }
    return GW_OK;
}

static void report(trainer *t, double epoch_start_s, int64_t samples) {
    if (t->rank != 0 || !t->watch)
        return;
    double now = gw_ledger_now();
    t->status.step = t->step;
    t->status.elapsed_s = now - t->limit_from_s;
    if (!t->status.epoch_end && now > epoch_start_s)
        t->status.samples_per_s = (double)samples / (now - epoch_start_s);
    t->watch(t->ctx, &t->status);
    t->status.warning = NULL;
}

/* Every replica must hold the same bits; a difference names the ranks. */
static gw_err check_replicas(trainer *t, uint32_t *hash) {
    *hash = (uint32_t)crc32_z(0, (const Bytef *)gw_model_params(t->model),
                              gw_model_size(t->model) * sizeof(float));
    uint32_t *all = NULL;
    GW_TRY(gw_agree(t->comm, gw_alloc(&all, (size_t)t->ranks, sizeof *all)));
    gw_err e = gw_mpi_check(MPI_Allgather(hash, 1, MPI_UINT32_T, all, 1, MPI_UINT32_T, t->comm),
                            "MPI_Allgather");
    for (int r = 1; e == GW_OK && r < t->ranks; r++)
        if (all[r] != all[0])
            e = gw_fail(GW_ERR_DIVERGED,
                        "step %lld: parameters of rank %d differ from rank 0's (crc32 %08x, %08x): "
                        "the strategy, algorithm or codec does not keep replicas equal",
                        (long long)t->step, r, all[r], all[0]);
    free(all);
    return e;
}

/* Bytes of a settling belong to the run, but to no batch. */
static gw_err settle_replicas(trainer *t) {
    gw_batch_cost cost;
    gw_ledger_begin();
    gw_err e = gw_session_settle(t->session);
    gw_ledger_end(&cost);
    count_wire(t, &cost);
    *t->own = e != GW_OK;
    return e;
}

static gw_err end_epoch(trainer *t, int epoch, double loss_sum, int64_t samples) {
    GW_TRY(settle_replicas(t));
    GW_TRY(gw_record_flush(t->record));
    uint64_t wire = t->wire_bytes;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &loss_sum, 1, MPI_DOUBLE, MPI_SUM, t->comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &wire, 1, MPI_UINT64_T, MPI_SUM, t->comm));
    if (t->c->profile == GW_PROFILE_OFF)
        wire = GW_UNCOUNTED;
    double mean = loss_sum / (double)samples;
    if (!isfinite(mean))
        return gw_fail(GW_ERR_DIVERGED,
                       "epoch %d: the training loss is no longer finite: try a smaller --lr",
                       epoch);
    gw_epoch_row row = {.epoch = epoch,
                        .step = t->step,
                        .train_loss = mean,
                        .elapsed_s = gw_ledger_now() - t->limit_from_s,
                        .wire_bytes = wire};
    gw_evaluation test, validation;
    GW_TRY(gw_evaluate(t->model, &t->data->test, t->chunk, t->comm, NULL, &test));
    GW_TRY(gw_evaluate(t->model, &t->data->validation, t->chunk, t->comm, NULL, &validation));
    GW_TRY(check_replicas(t, &row.replica_hash));
    row.test_loss = test.loss;
    row.test_accuracy = test.accuracy;
    row.validation_loss = validation.loss;
    row.validation_accuracy = validation.accuracy;
    gw_train_result *r = t->result;
    r->train_loss = t->status.loss = mean;
    r->test_loss = t->status.test_loss = test.loss;
    r->test_accuracy = t->status.test_accuracy = test.accuracy;
    r->validation_loss = t->status.validation_loss = validation.loss;
    r->validation_accuracy = t->status.validation_accuracy = validation.accuracy;
    r->wire_bytes = wire;
    r->replica_hash = row.replica_hash;
    GW_TRY(gw_codec_stats_epoch(t->stats, epoch, &t->codec_rows));
    return gw_agree(t->comm, t->epochs_csv ? gw_epochs_write(t->epochs_csv, &row) : GW_OK);
}

static gw_err look_at_codecs(trainer *t) {
    const char *warning = NULL;
    GW_TRY(gw_codec_stats_end(t->stats, t->step, &warning));
    if (warning)
        snprintf(t->warning, sizeof t->warning, "%s", warning);
    t->status.warning = warning;
    return GW_OK;
}

static gw_err one_epoch(trainer *t, int epoch, bool *stop) {
    gw_sampler_epoch(t->sampler, epoch - 1);
    double loss_sum = 0, start_s = gw_ledger_now();
    int64_t samples = 0;
    t->status.epoch = epoch;
    t->status.epoch_end = false;
    for (int b = 0; b < gw_sampler_batches(t->sampler) && !*stop; b++) {
        GW_TRY(one_step(t, epoch, b, &loss_sum));
        samples += gw_sampler_batch(t->sampler, b).global;
        GW_TRY(look_at_codecs(t));
        GW_TRY(make_room(t));
        GW_TRY(limit_reached(t, stop));
        report(t, start_s, samples);
    }
    t->status.samples_per_s = (double)samples / (gw_ledger_now() - start_s);
    GW_TRY(end_epoch(t, epoch, loss_sum, samples));
    t->status.epoch_end = true;
    report(t, start_s, samples);
    return GW_OK;
}

/* ---- the end ---- */

static gw_err write_results(trainer *t) {
    gw_train_result *r = t->result;
    r->steps = t->step;
    r->elapsed_s = gw_ledger_now() - t->limit_from_s;
    r->train_s = t->train_s;
    r->oversubscribed = t->oversubscribed;
    r->ranks = t->ranks;
    r->workers = workers(t);
    r->nodes = t->nodes;
    r->node_ranks = t->node_ranks;
    r->parameters = gw_model_size(t->model);
    snprintf(r->stopped_by, sizeof r->stopped_by, "%s", t->stopped_by);
    if (t->rank == 0)
        gw_record_summary(t->record, t->step > 2 * WARMUP_STEPS ? WARMUP_STEPS : 0, &r->summary);
    if (gw_session_auto(t->session))
        gw_session_auto(t->session)->measured_s = r->summary.wall_s;
    gw_record *record = t->record;
    t->record = NULL;
    GW_TRY(gw_record_close(record));
    if (t->c->trace)
        GW_TRY(gw_trace_write(t->c->out, t->comm));
    if (!t->c->out)
        return GW_OK;
    gw_err e = GW_OK;
    if (t->rank == 0) {
        gw_file *epochs = t->epochs_csv;
        t->epochs_csv = NULL;
        e = gw_file_commit(epochs);
        if (e == GW_OK)
            e = gw_codec_stats_commit(t->stats);
        if (e == GW_OK)
            e = gw_model_save(t->model, t->c->out, "model.gw");
    }
    GW_TRY(gw_agree(t->comm, e));
    int level = 0;
    GW_MPI(MPI_Query_thread(&level));
    gw_run_facts facts = {.data = t->data,
                          .session = t->session,
                          .thread_level = level,
                          .started_utc = t->started_utc,
                          .codec = t->codec_rows,
                          .layers = gw_model_layers(t->model),
                          .warning = t->warning,
                          .comm = t->comm};
    return gw_runfolder_write(t->c, &facts, r);
}

static gw_err run(trainer *t) {
    GW_TRY(open_all(t));
    int per_epoch = gw_sampler_batches(t->sampler);
    t->status.epochs = t->c->epochs;
    t->status.steps = (int64_t)per_epoch * t->c->epochs;
    if (t->c->steps > 0 && t->c->steps < t->status.steps)
        t->status.steps = t->c->steps;
    t->status.data = t->data;
    t->status.parameters = gw_model_size(t->model);
    t->status.ranks = t->ranks;
    t->status.oversubscribed = t->oversubscribed;
    t->stopped_by = "epochs";
    t->limit_from_s = gw_ledger_now();
    report(t, t->limit_from_s, 0);
    bool stop = false;
    for (int epoch = 1; epoch <= t->c->epochs && !stop; epoch++)
        GW_TRY(one_epoch(t, epoch, &stop));
    return write_results(t);
}

gw_err gw_train(const gw_train_config *config, gw_session *session, MPI_Comm comm,
                void (*watch)(void *ctx, const gw_train_status *status), void *ctx,
                gw_train_result *result, bool *own) {
    trainer t = {.c = config,
                 .comm = comm,
                 .session = session,
                 .watch = watch,
                 .ctx = ctx,
                 .result = result,
                 .own = own};
    *own = false;
    memset(result, 0, sizeof *result);
    gw_err e = run(&t);
    /* After a failure of one rank alone no collective can be relied on, closing included. */
    if (!*own)
        close_all(&t);
    return e;
}
