#include "folder/report.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

json_t *gw_report_options(const gw_args *args) {
    json_t *all = json_object();
    for (const gw_opt *o = gw_args_opts(args); o->name; o++) {
        const char *text = gw_args_text(args, o->name);
        json_t *v = o->type == GW_OPT_FLAG ? json_boolean(text && *text == '1')
                    : !text                ? json_null()
                    : o->type == GW_OPT_REAL || o->type == GW_OPT_TIME
                        ? json_real(gw_args_real(args, o->name))
                    : o->type == GW_OPT_INT || o->type == GW_OPT_BYTES
                        ? json_integer(gw_args_int(args, o->name))
                        : json_string(text);
        json_object_set_new(all, o->name, v);
    }
    return all;
}

const char *gw_report_thread_level(int level) {
    return level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
           : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
           : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                            : "MPI_THREAD_MULTIPLE";
}

/* What tunes the MPI library and its transports is as much a factor as any option. */
static json_t *report_environment(void) {
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

json_t *gw_report_mpi(void) {
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
                          gw_report_thread_level(level), report_environment());
}

/* Memory time by each source apart; see docs/measurement.md. */
static json_t *report_memory(const gw_report_steps *of) {
    const gw_batch_summary *b = of->summary;
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
static json_t *report_division(const gw_batch_summary *b, double compute) {
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

json_t *gw_report_summary(const gw_report_steps *of) {
    const gw_batch_summary *b = of->summary;
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
        "batches:I statistic:s interrupted:f wall_s:f spread:o halves:o compute_s:f division:o "
        "memory_s:o exposed_s:f waiting_s:f transfer_s:f hidden_s:f codec_s:f wire_bytes:f "
        "logical_bytes:f phases:o dimensions:o bubble_s:f bubble_share:f",
        b->batches, GW_STEADY_NAME, b->interrupted, b->wall_s,
        gw_json_object("p10_s:f p90_s:f", d->p10, d->p90),
        gw_json_object("odd_s:f even_s:f first_s:f last_s:f apart:f warned:b", d->odd, d->even,
                       d->first, d->last, d->apart, gw_steady_doubts(d)),
        compute, report_division(b, compute), report_memory(of),
        p[GW_PHASE_MPI_POST] + p[GW_PHASE_MPI_POLL] + p[GW_PHASE_MPI_WAIT], b->waiting_s,
        b->transfer_s, b->inflight_s, p[GW_PHASE_ENCODE] + p[GW_PHASE_DECODE], b->wire_bytes,
        b->logical_bytes, phases, of->dimensions, of->bubble_s, of->bubble_s / b->wall_s);
}

json_t *gw_report_traffic(gw_profile profile, const gw_matrix_total *t) {
    if (profile == GW_PROFILE_OFF)
        return json_null();
    return gw_json_object("messages:I message_bytes:I collectives:I collective_bytes:I",
                          t->messages, t->bytes, t->collectives, t->collective_bytes);
}

json_t *gw_report_straggler(const gw_straggler *s) {
    if (s->rank < 0)
        return json_null();
    return gw_json_object("rank:i last_share:f waited_s:f of_step:f", s->rank, s->last_share,
                          s->waited_s, s->of_step);
}

gw_err gw_report_hosts(json_t **out, MPI_Comm comm) {
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
