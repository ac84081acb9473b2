#include "train/memory.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct group_sums {
    double value[GW_GROUP_EVENTS], batches;
} group_sums;

/* The columns of a rank, to be compared with another's. */
typedef struct columns {
    int counts, n;
    char name[GW_COUNTERS][GW_COUNTER_NAME], group[256];
} columns;

struct gw_memory {
    MPI_Comm comm;
    int rank, threads, ranks_counting;
    const gw_group_choice *choice; /* the caller's; NULL: none wanted */
    gw_papi_report papi;           /* rank 0 */
    gw_counters_report report;
    gw_counters *counters;     /* NULL: nothing counts */
    group_sums sum[GW_GROUPS]; /* over the ranks, rank 0 */
    columns columns;           /* rank 0's */
    char source[512];
};

static void memory_columns_of(const gw_memory *m, columns *c) {
    const char *names[GW_COUNTERS];
    memset(c, 0, sizeof *c); /* all of it is compared */
    if (!m->counters)
        return;
    c->counts = 1;
    c->n = gw_counters_columns(m->counters, names);
    for (int i = 0; i < c->n; i++)
        snprintf(c->name[i], GW_COUNTER_NAME, "%s", names[i]);
    gw_text_print(c->group, sizeof c->group, "%s", m->choice->name);
}

static gw_err memory_start(gw_memory *m) {
    if (m->rank == 0)
        gw_papi_probe(&m->papi); /* before anything else counts */
    return gw_counters_open(&m->counters, &m->report, &gw_counters_papi, m->choice, m->threads);
}

/* Figures of one column must mean the same on all ranks. Where rank 0 counts nothing, the others
 * need not start PAPI, which takes milliseconds. */
static gw_err memory_start_all(gw_memory *m) {
    columns mine;
    GW_TRY(gw_agree(m->comm, m->rank == 0 ? memory_start(m) : GW_OK));
    memory_columns_of(m, &m->columns);
    GW_TRY(gw_bcast(&m->columns, (int)sizeof m->columns, MPI_BYTE, 0, m->comm));
    if (!m->columns.counts)
        return GW_OK;
    GW_TRY(gw_agree(m->comm, m->rank == 0 ? GW_OK : memory_start(m)));
    memory_columns_of(m, &mine);
    if (m->counters && memcmp(&m->columns, &mine, sizeof mine) != 0) {
        gw_counters_close(m->counters);
        m->counters = NULL;
    }
    m->ranks_counting = m->counters != NULL;
    return gw_allreduce(MPI_IN_PLACE, &m->ranks_counting, 1, MPI_INT, MPI_SUM, m->comm);
}

gw_err gw_memory_open(gw_memory **out, const gw_group_choice *choice, int threads, MPI_Comm comm) {
    gw_memory *m = NULL;
    GW_TRY(gw_agree(comm, gw_alloc(&m, 1, sizeof *m)));
    m->comm = comm;
    m->threads = threads;
    m->choice = choice;
    gw_err e = gw_mpi_check(MPI_Comm_rank(comm, &m->rank), "MPI_Comm_rank");
    e = gw_agree(comm, e);
    if (e == GW_OK && choice) {
        gw_sde_offer();
        e = memory_start_all(m);
    }
    if (e != GW_OK) {
        gw_memory_close(m);
        return e;
    }
    static const char *const words[] = {"hardware counters (ctr)",
                                        "hardware counters (ctr), a lower bound",
                                        "hardware counters (ctr), an upper bound"};
    if (!m->choice)
        gw_text_print(m->source, sizeof m->source, "absent: counters were not asked for");
    else if (m->counters && m->report.memory)
        gw_text_print(m->source, sizeof m->source, "measured: %s", words[m->report.bound]);
    else
        gw_text_print(m->source, sizeof m->source, "absent: %s", m->report.reason);
    *out = m;
    return GW_OK;
}

int gw_memory_columns(const gw_memory *m, const char *names[GW_COUNTERS]) {
    int n = m ? m->columns.n : 0;
    for (int i = 0; i < n; i++)
        names[i] = m->columns.name[i];
    return n;
}

void gw_memory_close(gw_memory *m) {
    if (!m)
        return;
    gw_counters_close(m->counters);
    free(m);
}

gw_counters *gw_memory_counters(const gw_memory *m) {
    return m ? m->counters : NULL;
}

gw_err gw_memory_finish(gw_memory *m) {
    if (!m || m->ranks_counting == 0)
        return GW_OK;
    memset(m->sum, 0, sizeof m->sum);
    for (int g = 0; m->counters && g < gw_counters_groups(m->counters); g++) {
        int64_t batches;
        gw_counters_totals(m->counters, g, m->sum[g].value, &batches);
        m->sum[g].batches = (double)batches;
        for (int i = 0; i < GW_GROUP_EVENTS; i++)
            if (isnan(m->sum[g].value[i]))
                m->sum[g].value[i] = 0; /* another rank does not count it either */
    }
    int n = (int)(GW_GROUPS * sizeof *m->sum / sizeof(double));
    return gw_allreduce(MPI_IN_PLACE, m->sum, n, MPI_DOUBLE, MPI_SUM, m->comm);
}

const char *gw_memory_source(const gw_memory *m) {
    return m ? m->source : "absent: not looked for (--profile)";
}

/* ---- run.json ---- */

/* List by name the events that count, or (counted false) those that were wanted. */
static json_t *memory_events_json(const gw_counters_report *r, bool counted) {
    json_t *all = json_array();
    for (int i = 0; i < r->events; i++)
        if (!counted || *r->event[i].papi)
            json_array_append_new(all, json_string(r->event[i].name));
    return all;
}

/* Each group's counts and figures over all batches and ranks. */
static json_t *memory_groups_json(const gw_memory *m) {
    json_t *all = json_array();
    for (int g = 0; m->counters && g < gw_counters_groups(m->counters); g++) {
        double own[GW_GROUP_EVENTS];
        const double *value = m->sum[g].value;
        int64_t batches;
        const gw_group *group = gw_counters_totals(m->counters, g, own, &batches);
        json_t *sums = json_object(), *figures = json_object();
        for (int i = 0; i < group->events; i++)
            json_object_set_new(sums, group->event[i].name,
                                isnan(own[i]) ? json_null() : json_real(value[i]));
        if (group->memory.steps && gw_counters_usable(m->counters, g, &group->memory))
            json_object_set_new(figures, "memory_bound",
                                gw_json_number(gw_expr_value(&group->memory, value)));
        for (int i = 0; i < group->figures; i++) {
            const gw_group_figure *f = &group->figure[i];
            double x = gw_counters_usable(m->counters, g, &f->value)
                           ? gw_expr_value(&f->value, value)
                           : NAN;
            json_object_set_new(figures, f->name, gw_json_number(x));
        }
        json_array_append_new(all, gw_json_object("name:s batches:I sums:o figures:o", group->name,
                                                  (int64_t)m->sum[g].batches, sums, figures));
    }
    return all;
}

json_t *gw_memory_papi_json(const gw_memory *m) {
    if (!m || !m->choice)
        return json_null();
    const gw_papi_report *p = &m->papi;
    const gw_counters_report *r = &m->report;
    json_t *components = json_array(), *fates = json_array(), *reading = json_null();
    gw_counters_state s;
    if (m->counters) {
        gw_counters_tell(m->counters, &s);
        reading = gw_json_object(
            "at:s why:s read_s:f batch_edges_s:f threads:i ranks:i batches_lost:I ended_early:t",
            s.regions ? "the edges of computing phases (main thread), of batches (others)"
                      : "the edges of batches",
            s.why, s.read_s, s.edge_s, m->threads, m->ranks_counting, s.lost, s.failed);
    }
    for (const gw_papi_component *c = p->component; c < p->component + p->components; c++)
        json_array_append_new(components, gw_json_object("name:s enabled:b reason:t", c->name,
                                                         c->enabled, c->reason));
    for (const gw_counter_event *e = r->event; e < r->event + r->events; e++)
        json_array_append_new(fates, gw_json_object("group:s name:s papi:t reason:t", e->group,
                                                    e->name, e->papi, e->reason));
    return gw_json_object("version:s hardware_counters:b reason:t components:o group:t "
                          "events_wanted:o events_counted:o events:o groups:o reading:o "
                          "memory_reason:t",
                          p->version, p->hardware, p->reason, components, m->choice->name,
                          memory_events_json(r, false), memory_events_json(r, true), fates,
                          memory_groups_json(m), reading, r->reason);
}
