/* Hardware counters: chosen, counted by each thread, and summed per batch. */
#include "counters/counters.h"

#include "base/mem.h"
#include "base/text.h"
#include "prof/clock.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVENTS = GW_GROUP_EVENTS,
    TRIAL = 16, /* batches until the reads' share is judged, over the latter half */
    COST_RUNS = 20,
    COST_READS = 64
};

/* A group and how its events are counted. */
typedef struct plan {
    gw_group group;
    int n;                                     /* events that count, in the order of the set */
    int event[GW_GROUP_EVENTS];                /* which of the group's */
    int column[GW_GROUP_EVENTS];               /* where it goes in a row */
    char papi[GW_GROUP_EVENTS][GW_EVENT_NAME]; /* the names that count */
    int workers, worker[GW_GROUP_EVENTS];      /* those of the n that other threads count, too */
    bool memory;
    double total[GW_GROUP_EVENTS]; /* by the group's index */
    int64_t batches;
} plan;

struct gw_counters {
    const gw_counter_source *source;
    uint64_t serial; /* 1.. in this process */
    int threads;
    int groups, columns;
    plan plan[GW_GROUPS]; /* of the groups in use */
    char column[GW_COUNTERS][GW_COUNTER_NAME];
    int64_t batch;    /* 1..; of gw_counters_begin */
    int active;       /* group of this batch */
    bool inside;      /* between begin and end */
    atomic_bool lost; /* this batch's counts cannot be used */

    gw_counters_state is;
    long long last[EVENTS], phase[GW_PHASES][EVENTS]; /* main thread */
    int64_t reads;                                    /* in the trial */
    double wall_s;

    long long (*worker)[EVENTS]; /* per thread: counted in this batch */
};

/* ---- which events of a choice count here, and in which columns ---- */

/* The first of an event's names that counts goes to *out; if none does, out->reason says why. */
static bool counters_find_name(const gw_counter_source *source, const gw_group_event *e,
                               gw_counter_event *out) {
    for (int i = 0; i < e->names; i++) {
        const char *name = e->papi[i];
        if (gw_sanity_check(source, &name, &e->sanity, 1) == GW_OK) {
            strcpy(out->papi, name);
            *out->reason = '\0';
            return true;
        }
        size_t len = strlen(out->reason);
        gw_text_print(out->reason + len, sizeof out->reason - len, "%s%s", len ? "; " : "",
                      gw_err_text());
    }
    return false;
}

/* A whole group may fail where each of its events counts alone. */
static bool counters_count_together(const gw_counter_source *source, const plan *p,
                                    gw_counter_event *said) {
    gw_sanity sanity[GW_GROUP_EVENTS];
    const char *names[GW_GROUP_EVENTS];
    for (int i = 0; i < p->n; i++) {
        sanity[i] = p->group.event[p->event[i]].sanity;
        names[i] = p->papi[i];
    }
    if (gw_sanity_check(source, names, sanity, p->n) == GW_OK)
        return true;
    for (int i = 0; i < p->group.events; i++)
        if (*said[i].papi) {
            *said[i].papi = '\0';
            gw_text_print(said[i].reason, sizeof said[i].reason,
                          "counts alone, not in its group: %.220s", gw_err_text());
        }
    return false;
}

bool gw_counters_usable(const gw_counters *c, int g, const gw_expr *e) {
    const plan *p = &c->plan[g];
    for (int i = 0; i < p->group.events; i++) {
        bool counts = false;
        for (int k = 0; k < p->n; k++)
            counts = counts || p->event[k] == i;
        if (gw_expr_uses(e, i) && !counts)
            return false;
    }
    return true;
}

static void counters_plan_group(gw_counters *c, const gw_group *g, gw_counters_report *report) {
    gw_counter_event *said = &report->event[report->events];
    plan *p = &c->plan[c->groups];
    *p = (plan){.group = *g};
    for (int i = 0; i < g->events; i++) {
        gw_text_print(said[i].group, sizeof said[i].group, "%s", g->name);
        gw_text_print(said[i].name, sizeof said[i].name, "%s", g->event[i].name);
        if (!counters_find_name(c->source, &g->event[i], &said[i]))
            continue;
        strcpy(p->papi[p->n], said[i].papi);
        if (c->source->per_thread(said[i].papi))
            p->worker[p->workers++] = p->n;
        p->event[p->n++] = i;
    }
    report->events += g->events;
    if (p->n == 0 || !counters_count_together(c->source, p, said))
        return;
    c->groups++;
    for (int i = 0; i < p->n; i++) {
        const char *name = p->group.event[p->event[i]].name;
        int at = 0;
        while (at < c->columns && strcmp(c->column[at], name) != 0)
            at++;
        if (at == c->columns)
            strcpy(c->column[c->columns++], name);
        p->column[i] = at;
    }
    p->memory = g->memory.steps > 0 && gw_counters_usable(c, c->groups - 1, &g->memory);
    if (p->memory) {
        report->memory = true;
        report->bound = g->bound;
    }
}

/* Only a file of many groups with different events has more columns than a row. */
static gw_err counters_count_columns(const gw_group_choice *choice) {
    const char *seen[GW_GROUPS * GW_GROUP_EVENTS];
    int n = 0;
    for (int g = 0; g < choice->groups; g++)
        for (int i = 0; i < choice->group[g].events; i++) {
            const char *name = choice->group[g].event[i].name;
            int k = 0;
            while (k < n && strcmp(seen[k], name) != 0)
                k++;
            if (k == n)
                seen[n++] = name;
        }
    return n <= GW_COUNTERS ? GW_OK
                            : gw_fail(GW_ERR_USAGE, "%s: %d counters in all, a row has room for %d",
                                      choice->name, n, GW_COUNTERS);
}

/* Try each event alone, then each group. Events that do not count are dropped, with the reason in
 * *report; if choice->named that is GW_ERR_UNSUPPORTED. */
static gw_err counters_make_plans(gw_counters *c, gw_counters_report *report,
                                  const gw_group_choice *choice) {
    GW_TRY(counters_count_columns(choice));
    for (int g = 0; g < choice->groups; g++)
        counters_plan_group(c, &choice->group[g], report);
    gw_sanity_end();
    int failed = 0; /* the first event that does not count */
    while (failed < report->events && *report->event[failed].papi)
        failed++;
    if (!report->memory && choice->groups == 0)
        gw_text_print(report->reason, sizeof report->reason, "%s", choice->reason);
    else if (!report->memory && failed < report->events)
        gw_text_print(report->reason, sizeof report->reason, "%s, event %s: %s", choice->name,
                      report->event[failed].name, report->event[failed].reason);
    else if (!report->memory)
        gw_text_print(report->reason, sizeof report->reason, "%s: no formula for it", choice->name);
    return failed == report->events || !choice->named
               ? GW_OK
               : gw_fail(GW_ERR_UNSUPPORTED,
                         "%s: event %s cannot be counted here: %s (see gradwire doctor)",
                         choice->name, report->event[failed].name, report->event[failed].reason);
}

/* ---- the calling thread's sets ---- */

static _Thread_local struct {
    uint64_t owner; /* serial number of the counters that opened the sets, 0: none; not a pointer,
                       since a thread may outlive them */
    const gw_counter_source *source;
    void *set[GW_GROUPS];
    bool main;
    int running;   /* group, or -1 */
    int64_t begun; /* batch */
    long long base[EVENTS];
} mine;

static pthread_key_t counters_ends; /* its destructor closes a thread's sets when the thread ends */
static pthread_once_t counters_ends_once = PTHREAD_ONCE_INIT;

static void counters_close_mine(void *unused) {
    (void)unused;
    if (!mine.owner)
        return;
    const gw_counter_source *source = mine.source;
    if (mine.running >= 0)
        source->stop(mine.set[mine.running]);
    for (int g = 0; g < GW_GROUPS; g++)
        if (mine.set[g])
            source->close(mine.set[g]);
    bool over = !mine.main; /* the main thread may count other sets later */
    memset(&mine, 0, sizeof mine);
    if (over && source->leave)
        source->leave();
}

static void counters_make_key(void) {
    pthread_key_create(&counters_ends, counters_close_mine);
}

static gw_err counters_read_mine(const gw_counters *c, long long values[EVENTS]) {
    memset(values, 0, EVENTS * sizeof *values);
    return mine.running >= 0 ? c->source->read(mine.set[mine.running], values) : GW_OK;
}

static gw_err counters_begin_mine(const gw_counters *c, bool main) {
    int g = c->active;
    if (mine.owner != c->serial) {
        mine.owner = c->serial;
        mine.source = c->source;
        mine.main = main;
        mine.running = -1;
        pthread_setspecific(counters_ends, &mine);
        for (int i = 0; i < c->groups; i++) {
            const plan *p = &c->plan[i];
            const char *names[EVENTS]; /* of the events that this thread counts */
            int n = main ? p->n : p->workers;
            for (int k = 0; k < n; k++)
                names[k] = p->papi[main ? k : p->worker[k]];
            if (n > 0)
                GW_TRY(c->source->open(&mine.set[i], names, n));
        }
    }
    if (mine.running != g) {
        if (mine.running >= 0)
            GW_TRY(c->source->stop(mine.set[mine.running]));
        mine.running = -1;
        if (mine.set[g])
            GW_TRY(c->source->start(mine.set[g]));
        mine.running = mine.set[g] ? g : -1;
    }
    GW_TRY(counters_read_mine(c, mine.base));
    mine.begun = c->batch;
    return GW_OK;
}

/* *whole is false on a thread younger than the batch: OpenMP replaced the one that began it. */
static gw_err counters_end_mine(const gw_counters *c, long long counted[EVENTS], bool *whole) {
    *whole = mine.owner == c->serial && mine.begun == c->batch;
    if (!*whole)
        return GW_OK;
    GW_TRY(counters_read_mine(c, counted));
    for (int i = 0; i < EVENTS; i++) {
        counted[i] -= mine.base[i];
        *whole = *whole && counted[i] >= 0;
    }
    return GW_OK;
}

/* ---- all threads of the rank ---- */

/* Counting stops, the run continues. Any thread; keeps only the first reason. */
static void counters_fail(gw_counters *c, gw_err e) {
    if (e == GW_OK)
        return;
#pragma omp critical(gw_counters_fail)
    if (!*c->is.failed)
        gw_text_print(c->is.failed, sizeof c->is.failed, "%.255s", gw_err_text());
    atomic_store(&c->lost, true);
}

static bool counters_others_count(const gw_counters *c) {
    return c->threads > 1 && c->plan[c->active].workers > 0;
}

/* ---- edges of phases ---- */

static gw_counters *counters_listening;

static bool counters_computing(gw_phase p) {
    return gw_phase_computes(p) || p == GW_PHASE_ENCODE || p == GW_PHASE_DECODE;
}

static void counters_edge(gw_phase ended, gw_phase begun) {
    gw_counters *c = counters_listening;
    bool add = counters_computing(ended);
    if (!c->inside || !c->plan[c->active].memory || (!add && !counters_computing(begun)))
        return;
    long long now[EVENTS];
    counters_fail(c, counters_read_mine(c, now));
    for (int i = 0; add && i < EVENTS; i++)
        c->phase[ended][i] += now[i] - c->last[i];
    memcpy(c->last, now, sizeof now);
    c->reads++;
}

static const gw_ledger_sink counters_sink = {.edge = counters_edge};

static void counters_stop_edges(gw_counters *c) {
    if (counters_listening == c) {
        gw_ledger_unlisten(&counters_sink);
        counters_listening = NULL;
    }
    c->is.regions = false;
}

static void counters_begin(gw_counters *c) {
    memset(c->worker, 0, (size_t)c->threads * sizeof *c->worker);
    c->active = (int)(c->batch++ % c->groups);
    memset(c->phase, 0, sizeof c->phase);
    atomic_store(&c->lost, false);
    if (counters_others_count(c)) {
#pragma omp parallel num_threads(c->threads)
        if (omp_get_thread_num() > 0)
            counters_fail(c, counters_begin_mine(c, false));
    }
    counters_fail(c, counters_begin_mine(c, true)); /* last to begin, as it is the first to end */
    memcpy(c->last, mine.base, sizeof c->last);
    c->inside = true;
}

void gw_counters_begin(gw_counters *c) {
    if (!c || *c->is.failed || gw_ledger_profile() != GW_PROFILE_FULL)
        return;
    if (c->is.regions &&
        counters_listening != c) { /* now, as the ledger drops its sinks when it starts */
        counters_listening = c;
        gw_ledger_listen(&counters_sink);
    }
    counters_begin(c);
}

/* Fraction of the time that waited for memory while `counted` was counted; NaN: unknown. */
static double counters_fraction(const plan *p, const long long counted[EVENTS]) {
    const double slack = 0.02; /* events of a group are not read in the same cycle */
    double values[EVENTS];
    for (int i = 0; i < EVENTS; i++)
        values[i] = NAN;
    for (int i = 0; i < p->n; i++)
        values[p->event[i]] = (double)counted[i];
    double f = gw_expr_value(&p->group.memory, values);
    return !(f >= -slack && f <= 1 + slack) ? NAN : fmin(1, fmax(0, f));
}

static double counters_time_of(const gw_counters *c, const gw_batch_cost *cost, gw_phase p,
                               double whole) {
    double t = cost->phase_s[p];
    if (t == 0)
        return 0;
    return t * (c->is.regions ? counters_fraction(&c->plan[c->active], c->phase[p]) : whole);
}

static void counters_use(gw_counters *c, const long long main[EVENTS], const gw_batch_cost *cost,
                         gw_batch_counts *out) {
    plan *p = &c->plan[c->active];
    long long sum[EVENTS];
    memcpy(sum, main, sizeof sum);
    for (int t = 1; counters_others_count(c) && t < c->threads; t++)
        for (int i = 0; i < p->workers; i++)
            sum[p->worker[i]] += c->worker[t][i];
    for (int i = 0; i < p->n; i++) {
        out->counter[p->column[i]] = (double)sum[i];
        p->total[p->event[i]] += (double)sum[i];
    }
    p->batches++;
    if (!p->memory)
        return;
    double whole = counters_fraction(p, sum), compute = 0, memory = 0;
    for (gw_phase of = GW_PHASE_FORWARD; of <= GW_PHASE_UPDATE; of++) {
        compute += cost->phase_s[of];
        memory += counters_time_of(c, cost, of, whole);
    }
    if (isnan(memory)) {
        c->is.lost++;
        return;
    }
    out->memory_s = memory;
    out->core_s = compute - memory;
    out->memory_codec_s = counters_time_of(c, cost, GW_PHASE_ENCODE, whole) +
                          counters_time_of(c, cost, GW_PHASE_DECODE, whole);
}

gw_batch_counts gw_counters_end(gw_counters *c, const gw_batch_cost *cost) {
    gw_batch_counts out = gw_batch_no_counts;
    if (!c || !c->inside)
        return out;
    c->inside = false;
    long long counted[EVENTS];
    bool all;
    counters_fail(c, counters_end_mine(c, counted, &all));
    if (counters_others_count(c)) {
#pragma omp parallel num_threads(c->threads)
        if (omp_get_thread_num() > 0) {
            bool whole;
            counters_fail(c, counters_end_mine(c, c->worker[omp_get_thread_num()], &whole));
            if (!whole)
                atomic_store(&c->lost, true);
        }
    }
    if (!all || atomic_load(&c->lost))
        c->is.lost++;
    else
        counters_use(c, counted, cost, &out);
    c->wall_s += cost->wall_s;
    if (c->batch == TRIAL / 2) { /* the first batches take much longer */
        c->reads = 0;
        c->wall_s = 0;
    }
    if (*c->is.failed)
        counters_stop_edges(c);
    else if (c->is.regions && c->batch == TRIAL) { /* the number of reads a batch is known now */
        double share = (double)c->reads * c->is.read_s / c->wall_s;
        bool much = share > GW_COUNTERS_SHARE;
        if (much)
            counters_stop_edges(c);
        int len =
            snprintf(c->is.why, sizeof c->is.why, "%.0f reads of %.0f ns %s %.2f%% of a batch",
                     (double)c->reads / (TRIAL - TRIAL / 2), c->is.read_s * 1e9,
                     much ? "would take" : "take", share * 100);
        if (much)
            snprintf(c->is.why + len, sizeof c->is.why - (size_t)len, ", above %.1f%%",
                     GW_COUNTERS_SHARE * 100);
    }
    return out;
}

static gw_err counters_start(gw_counters *c) {
    long long values[EVENTS];
    bool memory = false;
    pthread_once(&counters_ends_once, counters_make_key);
    GW_TRY(gw_alloc(&c->worker, (size_t)c->threads, sizeof *c->worker));
    c->is.edge_s = c->is.read_s = 1;
    /* The first of these batches opens the sets of all threads. */
    for (int run = 0; run < COST_RUNS && !*c->is.failed; run++) {
        gw_batch_cost cost = {0};
        uint64_t from = gw_clock_ticks();
        counters_begin(c);
        gw_counters_end(c, &cost);
        c->is.edge_s = fmin(c->is.edge_s, gw_clock_since(from));
    }
    gw_counters_forget(c);
    for (int run = 0; run < COST_RUNS && !*c->is.failed; run++) {
        uint64_t from = gw_clock_ticks();
        for (int i = 0; i < COST_READS; i++)
            counters_fail(c, counters_read_mine(c, values));
        c->is.read_s = fmin(c->is.read_s, gw_clock_since(from) / COST_READS);
    }
    if (*c->is.failed)
        return gw_fail(GW_ERR_UNSUPPORTED, "counters: %s", c->is.failed);
    for (int g = 0; g < c->groups; g++)
        memory = memory || c->plan[g].memory;
    c->is.regions = memory && c->is.read_s <= GW_COUNTERS_READ_S;
    if (memory && !c->is.regions)
        snprintf(c->is.why, sizeof c->is.why, "a read takes %.0f ns, above %.0f: a system call",
                 c->is.read_s * 1e9, GW_COUNTERS_READ_S * 1e9);
    else
        snprintf(c->is.why, sizeof c->is.why, "%sa read takes %.0f ns",
                 memory ? "" : "no formula asks for more; ", c->is.read_s * 1e9);
    return GW_OK;
}

gw_err gw_counters_open(gw_counters **out, gw_counters_report *report,
                        const gw_counter_source *source, const gw_group_choice *choice,
                        int threads) {
    gw_counters *c = NULL;
    *out = NULL;
    *report = (gw_counters_report){0};
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    static uint64_t serial;
    c->source = source;
    c->serial = ++serial;
    c->threads = threads;
    gw_err e = counters_make_plans(c, report, choice);
    if (e == GW_OK && c->groups > 0) {
        e = counters_start(c);
        if (e == GW_ERR_UNSUPPORTED) {
            report->memory = false;
            gw_text_print(report->reason, sizeof report->reason, "%s", gw_err_text());
        }
        if (e == GW_OK) {
            *out = c;
            return GW_OK;
        }
    }
    gw_counters_close(c);
    return e == GW_ERR_UNSUPPORTED && !choice->named ? GW_OK : e;
}

void gw_counters_close(gw_counters *c) {
    if (!c)
        return;
    counters_stop_edges(c);
    if (c->threads > 1)
#pragma omp parallel num_threads(c->threads)
        if (omp_get_thread_num() > 0 && mine.owner == c->serial)
            counters_close_mine(NULL);
    if (mine.owner == c->serial)
        counters_close_mine(NULL);
    free(c->worker);
    free(c);
}

void gw_counters_forget(gw_counters *c) {
    if (!c)
        return;
    c->batch = c->reads = c->is.lost = 0;
    c->wall_s = 0;
    for (int g = 0; g < c->groups; g++) {
        memset(c->plan[g].total, 0, sizeof c->plan[g].total);
        c->plan[g].batches = 0;
    }
}

int gw_counters_columns(const gw_counters *c, const char *names[GW_COUNTERS]) {
    for (int i = 0; i < c->columns; i++)
        names[i] = c->column[i];
    return c->columns;
}

void gw_counters_tell(const gw_counters *c, gw_counters_state *out) {
    *out = c->is;
}

int gw_counters_groups(const gw_counters *c) {
    return c->groups;
}

const gw_group *gw_counters_totals(const gw_counters *c, int g, double values[GW_GROUP_EVENTS],
                                   int64_t *batches) {
    const plan *p = &c->plan[g];
    for (int i = 0; i < EVENTS; i++)
        values[i] = NAN;
    for (int i = 0; i < p->n; i++)
        values[p->event[i]] = p->total[p->event[i]];
    *batches = p->batches;
    return &p->group;
}
