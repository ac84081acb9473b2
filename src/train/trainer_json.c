/* run.json, and algo.csv beside it. */
#include "train/trainer_parts.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/version.h"
#include "checkpoint/history.h"
#include "comm/tuning.h"
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

static json_t *run_options(const gw_train_config *c) {
    json_t *all = json_object();
    for (const gw_opt *o = gw_args_opts(c->args); o->name; o++) {
        const char *text = gw_args_text(c->args, o->name);
        json_t *v = o->type == GW_OPT_FLAG ? json_boolean(text && *text == '1')
                    : !text                ? json_null()
                    : o->type == GW_OPT_REAL || o->type == GW_OPT_TIME
                        ? json_real(gw_args_real(c->args, o->name))
                    : o->type == GW_OPT_INT || o->type == GW_OPT_BYTES
                        ? json_integer(gw_args_int(c->args, o->name))
                        : json_string(text);
        json_object_set_new(all, o->name, v);
    }
    return all;
}

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

/* What the last epoch's samples say of each layer. */
static json_t *codec_facts(const gw_trainer *t) {
    if (!t->codec_rows)
        return json_null();
    json_t *all = json_array();
    for (int l = 0; l < gw_model_layers(t->model); l++) {
        const gw_codec_row *r = &t->codec_rows[l];
        json_array_append_new(all,
                              gw_json_object("layer:i codec:s samples:I relative_error:f cosine:f "
                                             "gradient_norm:f residual_norm:f bits_per_element:f",
                                             l, r->codec, r->samples, r->relative_error, r->cosine,
                                             r->gradient_norm, r->residual_norm, r->bits));
    }
    return all;
}

static json_t *comm_facts(const gw_trainer *t) {
    const gw_session *s = t->session;
    return gw_json_object(
        "strategy:s algorithm:s codec:s error_feedback:b notes:t layers:o warning:t",
        s->strategy.ops->head.name, s->mix.algo->ops->head.name, gw_session_compression(s),
        gw_residuals_any(&s->residuals), s->notes, codec_facts(t), t->warning);
}

static const char *thread_level_name(int level) {
    return level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
           : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
           : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                            : "MPI_THREAD_MULTIPLE";
}

/* What tunes the MPI library and its transports is as much a factor as any option. */
static json_t *mpi_environment(void) {
    static const char *const families[] = {"UCX_", "MPIR_CVAR_", "MPICH_", "FI_"};
    json_t *all = json_object();
    for (char *const *v = environ; *v; v++)
        for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
            char name[128];
            const char *value = strchr(*v, '=');
            if (!value || strncmp(*v, families[i], strlen(families[i])) != 0 || !gw_text_utf8(*v))
                continue;
            snprintf(name, sizeof name, "%.*s", (int)(value - *v), *v);
            json_object_set_new(all, name, json_string(value + 1));
        }
    return all;
}

static json_t *mpi_facts(void) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int len = 0, version = 0, subversion = 0, level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (MPI_Get_library_version(library, &len) != MPI_SUCCESS)
        library[0] = '\0';
    library[strcspn(library, "\n")] = '\0';
    MPI_Get_version(&version, &subversion);
    char standard[32];
    snprintf(standard, sizeof standard, "%d.%d", version, subversion);
    return gw_json_object("library:s standard:s thread_level:s environment:o", library, standard,
                          thread_level_name(level), mpi_environment());
}

static json_t *machine_facts(const gw_trainer *t, json_t *host_names) {
    gw_host h;
    gw_host_facts(&h);
    return gw_json_object(
        "hosts:o cpu:s cpus_online:i cpus_usable:i cores_usable:i memory_bytes:I ranks:i workers:i "
        "nodes:i ranks_on_this_node:i threads_per_rank:i helper_threads_per_rank:i "
        "oversubscribed:b gemm:s gemm_warning:t clock:s",
        host_names, h.cpu_model, h.cpus_online, h.cpus_usable, h.cores_usable, h.memory, t->ranks,
        gw_trainer_workers(t), t->nodes, t->node_ranks, t->c->threads,
        gw_session_helpers(t->session), t->oversubscribed, gw_gemm_library(), gw_gemm_warning(),
        gw_clock_name());
}

/* Memory time by each source apart; see docs/measurement.md. */
static json_t *memory_facts(const gw_train_result *r) {
    const gw_batch_summary *b = &r->summary;
    static const char *const names[] = {"absent", "twin+model", "ctr"};
    const gw_batch_split *s = &b->split;
    return gw_json_object("source:s ctr_s:f twin_s:f model_lo_s:f model_hi_s:f core_ctr_s:f "
                          "core_twin_s:f core_model_lo_s:f core_model_hi_s:f codec_ctr_s:f "
                          "codec_twin_s:f batches:I batches_inconsistent:I",
                          names[b->source], s->memory_ctr_s, s->memory_twin_s, s->memory_model_lo_s,
                          s->memory_model_hi_s, s->core_ctr_s, s->core_twin_s, s->core_model_lo_s,
                          s->core_model_hi_s, s->memory_codec_ctr_s, s->memory_codec_twin_s,
                          r->split, r->flagged);
}

/* Computation divided by its best source into parts that add up to it; null: undivided. Batches
 * without counters are taken to be like those that have them; by twins and model what is in neither
 * may be either. */
static json_t *run_division(const gw_batch_summary *b, double compute) {
    const gw_batch_split *s = &b->split;
    double core = b->core_least_s, memory = b->memory_least_s;
    if (b->source == GW_SPLIT_NONE)
        return json_null();
    if (b->source == GW_SPLIT_CTR) {
        memory = compute * s->memory_ctr_s / (s->core_ctr_s + s->memory_ctr_s);
        core = compute - memory;
    }
    return gw_json_object("source:s core_s:f core_or_memory_s:f memory_s:f",
                          b->source == GW_SPLIT_CTR ? "ctr" : "twin+model", core,
                          b->source == GW_SPLIT_CTR ? NAN : compute - core - memory, memory);
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

static json_t *run_summary(const gw_trainer *t) {
    const gw_train_result *r = t->result;
    const gw_batch_summary *b = &r->summary;
    const double *p = b->phase_s;
    double compute = gw_phases_computation(p);
    json_t *phases = json_object();
    for (int i = 0; i < GW_PHASES; i++) {
        char key[40];
        snprintf(key, sizeof key, "%s_s", gw_phase_name((gw_phase)i));
        json_object_set_new(phases, key, gw_json_number(p[i]));
    }
    return gw_json_object(
        "batches:I statistic:s interrupted:f wall_s:f compute_s:f division:o memory_s:o "
        "exposed_s:f waiting_s:f transfer_s:f hidden_s:f codec_s:f wire_bytes:f logical_bytes:f "
        "phases:o dimensions:o bubble_s:f bubble_share:f",
        b->batches, GW_STEADY_NAME, b->interrupted, b->wall_s, compute, run_division(b, compute),
        memory_facts(r), p[GW_PHASE_MPI_POST] + p[GW_PHASE_MPI_POLL] + p[GW_PHASE_MPI_WAIT],
        b->waiting_s, b->transfer_s, b->inflight_s, p[GW_PHASE_ENCODE] + p[GW_PHASE_DECODE],
        b->wire_bytes, b->logical_bytes, phases, run_dimensions(t), r->bubble_s,
        r->bubble_s / b->wall_s);
}

/* MPI does not say what its own collectives send: those of gradients, or of tensor ranks. */
static const char *run_wire_source(const gw_trainer *t) {
    bool mesh = gw_mesh_divides(&t->mesh.shape), one = t->mesh.shape.size[GW_DIM_DATA] == 1;
    bool data = !(mesh && one) && (t->session->mix.algo->ops->caps & GW_ALGO_ORDERED);
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

/* Null: with --profile off nothing is counted. */
static json_t *run_traffic(const gw_train_config *c, const gw_matrix_total *t) {
    if (c->profile == GW_PROFILE_OFF)
        return json_null();
    return gw_json_object("messages:I message_bytes:I collectives:I collective_bytes:I",
                          t->messages, t->bytes, t->collectives, t->collective_bytes);
}

static json_t *run_straggler(const gw_straggler *s) {
    if (s->rank < 0)
        return json_null();
    return gw_json_object("rank:i last_share:f waited_s:f of_step:f", s->rank, s->last_share,
                          s->waited_s, s->of_step);
}

static json_t *run_results(const gw_trainer *t, json_t *tempo) {
    const gw_train_result *r = t->result;
    const gw_epoch_row *last = &r->last;
    char hash[16];
    json_t *peak, *sum;
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
        run_traffic(t->c, &r->traffic), hash, run_summary(t), tempo, peak, sum,
        gw_ranks_json(t->by_rank, t->ranks), run_straggler(&r->straggler), r->dropped,
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
    double compute_s = t->c->pace > 0 ? NAN : passes_s * t->ranks / workers; /* else slept */
    if (gw_mesh_divides(&t->mesh.shape))
        compute_s = t->by_rank[0].step.passes_s;
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
        "schema:i version:s commit:s command:s started_utc:s options:o seed:I parameters:I mesh:o "
        "data:o comm:o backend:o mpi:o machine:o link:o ceilings:o gemm:o work:o bound:o papi:o "
        "paced:o sources:o forecast:o overhead:o checkpoints:o resumed:o interruptions:o results:o",
        GW_RUN_SCHEMA, GW_VERSION, GW_COMMIT, c->command, t->started_utc, run_options(c), c->seed,
        r->parameters, gw_pipeline_json(t->pipeline), data_facts(t), comm_facts(t),
        gw_naive_json(t->stepper.naive, gw_trainer_parameters(t)), mpi_facts(),
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

/* What algo=auto chose, in the form that its table= reads. */
static gw_err write_choices(const char *dir, const gw_session *session) {
    const char *rows = session->choices;
    if (!*rows)
        return GW_OK;
    gw_file *file = NULL;
    GW_TRY(gw_file_create(&file, dir, "algo.csv"));
    fprintf(gw_file_stream(file), GW_TUNING_HEADER "%s", rows);
    return gw_file_commit(file);
}

/* The names of all hosts, each once, in the order of the ranks. */
static gw_err gather_hosts(MPI_Comm comm, json_t **out) {
    enum { NAME = 64 };
    int rank, size;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    GW_MPI(MPI_Comm_size(comm, &size));
    char mine[NAME] = {0}, *all = NULL;
    gethostname(mine, NAME - 1);
    gw_err e = gw_agree(comm, rank == 0 ? gw_alloc(&all, (size_t)size, NAME) : GW_OK);
    GW_THEN(e, gw_mpi_check(MPI_Gather(mine, NAME, MPI_CHAR, all, NAME, MPI_CHAR, 0, comm),
                            "MPI_Gather"));
    if (e == GW_OK && rank == 0) {
        json_t *names = json_array();
        for (int r = 0; r < size; r++) {
            const char *name = all + (size_t)r * NAME;
            bool known = false;
            for (size_t i = 0; i < json_array_size(names); i++)
                known |= strcmp(json_string_value(json_array_get(names, i)), name) == 0;
            if (!known)
                json_array_append_new(names, json_string(name));
        }
        *out = names;
    }
    free(all);
    return e;
}

gw_err gw_trainer_write(const gw_trainer *t) {
    json_t *names = NULL, *tempo = NULL;
    GW_TRY(gw_naive_collect(t->stepper.naive));
    GW_TRY(gather_hosts(t->comm, &names));
    gw_err e = gw_pipeline_tempo_json(t->pipeline, &tempo, t->comm);
    if (e != GW_OK)
        json_decref(names);
    else if (names) { /* rank 0 */
        e = write_choices(t->c->out, t->session);
        gw_err late = write_json(t, names, tempo);
        e = e == GW_OK ? late : e;
    }
    return gw_agree(t->comm, e);
}
