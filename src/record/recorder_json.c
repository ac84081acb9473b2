/* run.json. */
#include "record/recorder.h"

#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "folder/history.h"
#include "machine/host.h"
#include "mpi/world.h"
#include "prof/clock.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

json_t *gw_recorder_options(const gw_args *args) {
    json_t *all = json_object();
    for (const gw_opt *o = gw_args_opts(args); o->name; o++) {
        const char *text = gw_args_text(args, o->name);
        json_t *v = o->type == GW_OPT_FLAG ? json_boolean(text && *text == '1')
                    : !text                ? json_null()
                    : o->type == GW_OPT_REAL || o->type == GW_OPT_TIME
                        ? json_real(gw_args_real(args, o->name))
                    : gw_opt_is_int(o) || o->type == GW_OPT_BYTES
                        ? json_integer(gw_args_int(args, o->name))
                        : json_string(text);
        json_object_set_new(all, o->name, v);
    }
    return all;
}

/* What tunes the MPI library and its transports is as much a factor as any option. */
static json_t *recorder_environment(void) {
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

/* The MPI library, its thread level, and what of the environment tunes it. Simulated ranks have
 * none. */
static json_t *recorder_mpi(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL)
        return gw_json_object("library:s standard:o thread_level:s environment:o", "none",
                              json_null(), "none", json_null());
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
                          gw_world_thread_level(level), recorder_environment());
}

/* Memory time by each source apart; see docs/measurement.md. */
static json_t *recorder_memory(const gw_batch_summary *b, const gw_recorder_report *of) {
    static const char *const names[] = {"absent", "twin+model", "ctr"};
    const gw_batch_split *s = &b->split;
    return gw_json_object("source:s ctr_s:f twin_s:f model_lo_s:f model_hi_s:f core_ctr_s:f "
                          "core_twin_s:f core_model_lo_s:f core_model_hi_s:f codec_ctr_s:f "
                          "codec_twin_s:f batches:I batches_inconsistent:I",
                          names[b->source], s->memory_ctr_s, s->memory_twin_s, s->memory_model_lo_s,
                          s->memory_model_hi_s, s->core_ctr_s, s->core_twin_s, s->core_model_lo_s,
                          s->core_model_hi_s, s->memory_codec_ctr_s, s->memory_codec_twin_s,
                          of->split, of->flagged);
}

/* Computation divided by its best source into parts that add up to it; null: undivided. Batches
 * without counters are taken to be like those that have them; by twins and model what is in neither
 * may be either. */
static json_t *recorder_division(const gw_batch_summary *b, double compute) {
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

json_t *gw_recorder_dimensions(const gw_batch_summary *b, const gw_mesh_shape *mesh) {
    if (!gw_mesh_divides(mesh))
        return json_null();
    json_t *all = json_object();
    for (int d = 0; d < GW_DIMS; d++)
        json_object_set_new(all, gw_dim_names[d],
                            gw_json_object("ranks:i comm_s:f waiting_s:f bytes:f messages:f",
                                           mesh->size[d], b->dim_comm_s[d], b->dim_waiting_s[d],
                                           b->dim_bytes[d], b->dim_messages[d]));
    return all;
}

static json_t *recorder_summary(const gw_recorder *r, const gw_recorder_report *of) {
    const gw_batch_summary *b = &r->total.summary;
    const gw_steady_doubt *d = &b->doubt;
    const double *p = b->phase_s;
    double compute = gw_phases_computation(p);
    json_t *phases = json_object();
    for (int i = 0; i < GW_PHASES; i++) {
        char key[40];
        snprintf(key, sizeof key, "%s_s", gw_phase_name((gw_phase)i));
        json_object_set_new(phases, key, gw_json_number(p[i]));
    }
    return gw_json_object(
        "batches:I statistic:s period:I counted:I interrupted:f wall_s:f spread:o halves:o "
        "compute_s:f division:o memory_s:o exposed_s:f waiting_s:f transfer_s:f hidden_s:f "
        "codec_s:f wire_bytes:f logical_bytes:f phases:o dimensions:o bubble_s:f bubble_share:f",
        b->batches, of->statistic ? of->statistic : gw_steady_name(&b->kept), b->kept.period,
        b->kept.steps, b->interrupted, b->wall_s, gw_json_object("p10_s:f p90_s:f", d->p10, d->p90),
        gw_json_object("odd_s:f even_s:f first_s:f last_s:f apart:f warned:b", d->odd, d->even,
                       d->first, d->last, d->apart, gw_steady_doubts(d)),
        compute, recorder_division(b, compute), recorder_memory(b, of),
        p[GW_PHASE_MPI_POST] + p[GW_PHASE_MPI_POLL] + p[GW_PHASE_MPI_WAIT], b->waiting_s,
        b->transfer_s, b->inflight_s, p[GW_PHASE_ENCODE] + p[GW_PHASE_DECODE], b->wire_bytes,
        b->logical_bytes, phases, of->dimensions, of->bubble_s, of->bubble_s / b->wall_s);
}

/* null with GW_PROFILE_OFF: nothing is counted. */
static json_t *recorder_traffic(gw_profile profile, const gw_matrix_total *t) {
    if (profile == GW_PROFILE_OFF)
        return json_null();
    return gw_json_object("messages:I message_bytes:I collectives:I collective_bytes:I",
                          t->messages, t->bytes, t->collectives, t->collective_bytes);
}

static json_t *recorder_straggler(const gw_straggler *s) {
    if (s->rank < 0)
        return json_null();
    return gw_json_object("rank:i of_waiting:f last_share:f waited_s:f of_step:f", s->rank,
                          s->of_waiting, s->last_share, s->waited_s, s->of_step);
}

static json_t *recorder_machine(const gw_recorder *r, const gw_recorder_report *of) {
    gw_host h;
    gw_host_facts(&h);
    const gw_busy *before = r->total.before.seconds > 0 ? &r->total.before : NULL;
    return gw_json_object(
        "hosts:o cpu:s cpus_online:i cpus_usable:i cores_usable:i memory_bytes:I ranks:i workers:i "
        "nodes:i ranks_on_this_node:i threads_per_rank:i helper_threads_per_rank:i "
        "oversubscribed:b busy:o clock:s",
        json_incref(r->total.hosts), h.cpu_model, h.cpus_online, h.cpus_usable, h.cores_usable,
        h.memory, r->of.ranks, of->workers, of->node.nodes, of->node.ranks, of->threads,
        of->helpers, of->oversubscribed, gw_busy_run_json(before, &r->total.during),
        gw_clock_name());
}

/* Which figures were observed and which follow from a formula. */
static json_t *recorder_sources(const gw_recorder *r, const gw_recorder_report *of) {
    static const char form[] =
        "phases:s waiting_s:s hidden_s:s memory_s:s wire_bytes:s peak_bytes:s";
    if (r->of.profile == GW_PROFILE_OFF)
        return gw_json_object(form, "absent", "absent", "absent", "absent", "absent",
                              of->sources.resident);
    return gw_json_object(form, of->sources.phases,
                          gw_clock_is_virtual() ? "absent"
                                                : "measured: blocked before the last rank's "
                                                  "arrival, on a common clock",
                          "upper bound: computation while a message was in flight",
                          of->sources.memory, of->sources.wire, of->sources.resident);
}

static json_t *recorder_results(const gw_recorder *r, const gw_recorder_report *of) {
    const gw_epoch_row *last = &r->last;
    const gw_recorder_total *t = &r->total;
    json_t *peak, *sum;
    char hash[16];
    gw_ranks_memory_json(t->by_rank, r->of.ranks, &peak, &sum);
    json_t *results = gw_json_object(
        "steps:I stopped_by:s train_loss:f validation_loss:f validation_accuracy:f test_loss:f "
        "test_accuracy:f elapsed_s:f train_s:f wire_bytes:u traffic:o summary:o peak_bytes:o "
        "peak_sum_bytes:o ranks:o straggler:o exchanges_dropped:I energy:o",
        of->steps, of->stopped_by, last->train_loss, last->validation_loss,
        last->validation_accuracy, last->test_loss, last->test_accuracy, t->elapsed_s, r->train_s,
        of->wire_bytes, recorder_traffic(r->of.profile, &t->traffic), recorder_summary(r, of), peak,
        sum, gw_ranks_json(t->by_rank, r->of.ranks), recorder_straggler(&t->straggler), t->dropped,
        t->energy ? json_incref(t->energy) : json_null());
    snprintf(hash, sizeof hash, "%08x", last->replica_hash);
    return last->epoch > 0 ? gw_json_add(results, "replica_hash:s", hash) : results;
}

/* Adds the members of `more` to the object `to`, and frees `more`. Returns NULL, and frees both, if
 * either is NULL. */
static json_t *recorder_join(json_t *to, json_t *more) {
    bool joined = to && more && json_object_update(to, more) == 0;
    json_decref(more);
    if (!joined)
        json_decref(to);
    return joined ? to : NULL;
}

gw_err gw_recorder_json(const gw_recorder *r, const gw_recorder_report *of, json_t **out) {
    json_t *interruptions = NULL;
    gw_err e = r->of.out ? gw_history_read(r->of.out, &interruptions) : GW_OK;
    json_t *run = gw_json_object(
        "schema:i program:s version:s commit:s command:s started_utc:s options:o seed:I "
        "parameters:I comm:o mpi:o machine:o link:o sources:o interruptions:o results:o",
        GW_RUN_SCHEMA, of->program, GW_VERSION, GW_COMMIT, of->command, of->started_utc,
        gw_recorder_options(of->args), of->seed, of->parameters, of->comm, recorder_mpi(r->of.comm),
        recorder_join(recorder_machine(r, of), of->machine), gw_link_cost_json(&r->total.link_cost),
        recorder_sources(r, of), interruptions ? interruptions : json_null(),
        recorder_join(recorder_results(r, of), of->results));
    run = recorder_join(run, of->more);
    if (e == GW_OK && !run)
        e = gw_fail(GW_ERR_INTERNAL, "run.json: a text in it is not UTF-8");
    GW_OPENED(e, out, run, json_decref);
}
