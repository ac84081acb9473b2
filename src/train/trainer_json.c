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
#include "select/auto.h"
#include "train/restart.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *count_or_null(uint64_t n) {
    return n == GW_UNCOUNTED ? json_null() : json_integer((json_int_t)n);
}

static json_t *options(const gw_train_config *c) {
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

static json_t *data_facts(const gw_data *d) {
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:I}", "name", d->name, "source",
                     d->source, "hash", d->hash, "features", gw_dataset_features(&d->train),
                     "classes", d->classes, "train", (json_int_t)d->train.n_global, "validation",
                     (json_int_t)d->validation.n_global, "test", (json_int_t)d->test.n_global);
}

/* What the last epoch's samples say of each layer. */
static json_t *codec_facts(const gw_trainer *t) {
    if (!t->codec_rows)
        return json_null();
    json_t *all = json_array();
    for (int l = 0; l < gw_model_layers(t->model); l++) {
        const gw_codec_row *r = &t->codec_rows[l];
        json_array_append_new(all, json_pack("{s:i, s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "layer", l,
                                             "codec", r->codec, "samples", (json_int_t)r->samples,
                                             "relative_error", gw_json_number(r->relative_error),
                                             "cosine", gw_json_number(r->cosine), "gradient_norm",
                                             gw_json_number(r->gradient_norm), "residual_norm",
                                             gw_json_number(r->residual_norm), "bits_per_element",
                                             gw_json_number(r->bits)));
    }
    return all;
}

static json_t *comm_facts(const gw_trainer *t) {
    const gw_session *s = t->session;
    return json_pack("{s:s, s:s, s:s, s:b, s:o, s:o, s:o}", "strategy", s->strategy.ops->head.name,
                     "algorithm", s->mix.algo->ops->head.name, "codec", gw_session_compression(s),
                     "error_feedback", gw_residuals_any(&s->residuals), "notes",
                     gw_json_text(s->notes), "layers", codec_facts(t), "warning",
                     gw_json_text(t->warning));
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
    return json_pack("{s:s, s:s, s:s, s:o}", "library", library, "standard", standard,
                     "thread_level", thread_level_name(level), "environment", mpi_environment());
}

static json_t *machine_facts(const gw_trainer *t, json_t *host_names) {
    gw_host h;
    gw_host_facts(&h);
    return json_pack("{s:o, s:s, s:i, s:i, s:i, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:s, s:o, "
                     "s:s}",
                     "hosts", host_names, "cpu", h.cpu_model, "cpus_online", h.cpus_online,
                     "cpus_usable", h.cpus_usable, "cores_usable", h.cores_usable, "memory_bytes",
                     (json_int_t)h.memory, "ranks", t->ranks, "workers", gw_trainer_workers(t),
                     "nodes", t->nodes, "ranks_on_this_node", t->node_ranks, "threads_per_rank",
                     t->c->threads, "helper_threads_per_rank", gw_session_helpers(t->session),
                     "oversubscribed", t->oversubscribed, "gemm", gw_gemm_library(), "gemm_warning",
                     gw_json_text(gw_gemm_warning()), "clock", gw_clock_name());
}

/* Memory time by each source apart; see docs/measurement.md. */
static json_t *memory_facts(const gw_train_result *r) {
    const gw_batch_summary *b = &r->summary;
    static const char *const names[] = {"absent", "twin+model", "ctr"};
    const gw_batch_split *s = &b->split;
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "source", names[b->source], "ctr_s",
        gw_json_number(s->memory_ctr_s), "twin_s", gw_json_number(s->memory_twin_s), "model_lo_s",
        gw_json_number(s->memory_model_lo_s), "model_hi_s", gw_json_number(s->memory_model_hi_s),
        "codec_twin_s", gw_json_number(s->memory_codec_twin_s), "batches", (json_int_t)r->split,
        "batches_inconsistent", (json_int_t)r->flagged);
}

static json_t *summary(const gw_train_result *r) {
    const gw_batch_summary *b = &r->summary;
    const double *p = b->phase_s;
    json_t *phases = json_object();
    for (int i = 0; i < GW_PHASES; i++) {
        char key[40];
        snprintf(key, sizeof key, "%s_s", gw_phase_name((gw_phase)i));
        json_object_set_new(phases, key, gw_json_number(p[i]));
    }
    return json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "batches",
        (json_int_t)b->batches, "wall_s", gw_json_number(b->wall_s), "compute_s",
        gw_json_number(p[GW_PHASE_FORWARD] + p[GW_PHASE_BACKWARD] + p[GW_PHASE_UPDATE]), "memory_s",
        memory_facts(r), "exposed_s",
        gw_json_number(p[GW_PHASE_MPI_POST] + p[GW_PHASE_MPI_POLL] + p[GW_PHASE_MPI_WAIT]),
        "waiting_s", gw_json_number(b->waiting_s), "transfer_s", gw_json_number(b->transfer_s),
        "hidden_s", gw_json_number(b->inflight_s), "codec_s",
        gw_json_number(p[GW_PHASE_ENCODE] + p[GW_PHASE_DECODE]), "wire_bytes",
        gw_json_number(b->wire_bytes), "logical_bytes", gw_json_number(b->logical_bytes), "phases",
        phases);
}

/* Which figures were observed and which follow from a formula. */
static json_t *sources(const gw_trainer *t) {
    char memory[1024];
    snprintf(memory, sizeof memory, "%s%s",
             t->result->summary.source == GW_SPLIT_TWIN_MODEL
                 ? "modelled: times against cache-resident twins, products as an interval "
                   "(twin+model); counters "
                 : "",
             gw_memory_source(t->memory));
    if (t->c->profile == GW_PROFILE_OFF)
        return json_pack("{s:s, s:s, s:s, s:s, s:s}", "phases", "absent", "waiting_s", "absent",
                         "hidden_s", "absent", "memory_s", "absent", "wire_bytes", "absent");
    bool native = t->session->mix.algo->ops->caps & GW_ALGO_ORDERED;
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "phases",
                     "measured: exclusive timers, MPI by PMPI", "waiting_s",
                     "measured: blocked before the last rank's arrival, on a common clock",
                     "hidden_s", "upper bound: computation while a message was in flight",
                     "memory_s", memory, "wire_bytes",
                     native ? "modelled: what the bandwidth-optimal collective sends"
                            : "measured: bytes handed to MPI");
}

/* Null: with --profile off nothing is counted. */
static json_t *traffic(const gw_train_config *c, const gw_matrix_total *t) {
    if (c->profile == GW_PROFILE_OFF)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I}", "messages", (json_int_t)t->messages, "message_bytes",
                     (json_int_t)t->bytes, "collectives", (json_int_t)t->collectives,
                     "collective_bytes", (json_int_t)t->collective_bytes);
}

static json_t *straggler(const gw_straggler *s) {
    if (s->rank < 0)
        return json_null();
    return json_pack("{s:i, s:f, s:f, s:f}", "rank", s->rank, "last_share", s->last_share,
                     "waited_s", s->waited_s, "of_step", s->of_step);
}

static json_t *results(const gw_trainer *t) {
    const gw_train_result *r = t->result;
    const gw_epoch_row *last = &r->last;
    char hash[16];
    snprintf(hash, sizeof hash, "%08x", last->replica_hash);
    return json_pack(
        "{s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:o, s:o, s:s, s:o, s:o, s:o, s:I, s:o, "
        "s:o}",
        "steps", (json_int_t)r->steps, "stopped_by", r->stopped_by, "train_loss",
        gw_json_number(last->train_loss), "validation_loss", gw_json_number(last->validation_loss),
        "validation_accuracy", gw_json_number(last->validation_accuracy), "test_loss",
        gw_json_number(last->test_loss), "test_accuracy", gw_json_number(last->test_accuracy),
        "elapsed_s", r->elapsed_s, "train_s", r->train_s, "wire_bytes",
        count_or_null(last->wire_bytes), "traffic", traffic(t->c, &r->traffic), "replica_hash",
        hash, "summary", summary(r), "ranks", gw_ranks_json(t->by_rank, t->ranks), "straggler",
        straggler(&r->straggler), "exchanges_dropped", (json_int_t)r->dropped, "paired",
        gw_paired_json(&r->paired), "checks", gw_checks_json(&t->checked));
}

/* null: not asked for. */
static json_t *overhead(const gw_train_config *c, const gw_train_result *r) {
    bool asked = c->overhead != 0 && c->profile != GW_PROFILE_OFF;
    return asked ? gw_overhead_json(r->overhead) : json_null();
}

/* Phases are means over the ranks, of which servers compute nothing. */
static gw_work_run work_of(const gw_trainer *t) {
    const double *phase = t->result->summary.phase_s;
    int workers = gw_trainer_workers(t);
    double compute_s = phase[GW_PHASE_FORWARD] + phase[GW_PHASE_BACKWARD];
    return (gw_work_run){.spec = gw_model_get_spec(t->model),
                         .batch = (t->global_batch + workers - 1) / workers,
                         .momentum = t->gauging.twins.momentum > 0,
                         .split = &t->split,
                         .compute_s = compute_s * t->ranks / workers};
}

static gw_err write_json(const gw_trainer *t, json_t *host_names) {
    const gw_train_config *c = t->c;
    const gw_train_result *r = t->result;
    json_t *interruptions = NULL;
    GW_TRY(gw_history_read(c->out, &interruptions));
    gw_work_run work = work_of(t);
    json_t *run = json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "schema", GW_RUN_SCHEMA, "version", GW_VERSION, "commit", GW_COMMIT, "command", c->command,
        "started_utc", t->started_utc, "options", options(c), "seed", (json_int_t)c->seed,
        "parameters", (json_int_t)r->parameters, "data", data_facts(t->data), "comm", comm_facts(t),
        "mpi", mpi_facts(), "machine", machine_facts(t, host_names), "link",
        gw_link_cost_json(&r->link_cost), "ceilings", gw_gauge_json(&t->gauge), "gemm",
        gw_products_json(&t->products), "work", gw_work_json(&work), "bound",
        gw_bound_run_json(&t->bound), "papi", gw_memory_papi_json(t->memory), "sources", sources(t),
        "forecast", t->choice ? gw_auto_json(t->choice) : json_null(), "overhead", overhead(c, r),
        "checkpoints", gw_checkpoints_json(c, r), "resumed",
        gw_resumed_json(&t->resume, t->start_utc, r->summary.earlier), "interruptions",
        interruptions, "results", results(t));
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
    if (e == GW_OK)
        e = gw_mpi_check(MPI_Gather(mine, NAME, MPI_CHAR, all, NAME, MPI_CHAR, 0, comm),
                         "MPI_Gather");
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
    json_t *names = NULL;
    GW_TRY(gather_hosts(t->comm, &names));
    gw_err e = GW_OK;
    if (names) { /* rank 0 */
        e = write_choices(t->c->out, t->session);
        gw_err late = write_json(t, names);
        e = e == GW_OK ? late : e;
    }
    return gw_agree(t->comm, e);
}
