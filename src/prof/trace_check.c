#include "prof/trace_check.h"

#include "base/mem.h"
#include "prof/trace_json.h"
#include "prof/trace_sums.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 1 << 16, TRACKS = 64, DEPTH = 16, KEY = 256 };

typedef struct track {
    json_int_t tid;
    uint64_t end[DEPTH]; /* of the slices that are open, the outermost first */
    int depth;
} track;

typedef struct stretch {
    uint64_t start, end;
    int64_t batch; /* of a phase: index of its batch; -1: none that counts */
} stretch;

typedef struct process {
    track *tracks;
    int n_tracks;
    uint64_t now; /* the latest event */
    gw_trace_batches batches;
    bool opened;         /* a batch, or what lies between two, has been seen */
    json_int_t main;     /* its track */
    stretch outer;       /* the last of them */
    uint64_t filled;     /* up to where its phases reach */
    stretch computation; /* the last slice of forward, backward or update */
    stretch flight;      /* the last of "requests" */
    uint64_t codec_phases, codec_slices;
    int64_t open; /* exchanges */
} process;

typedef struct check {
    gw_trace_report *report;
    uint64_t line; /* of the event at hand */
    process *ranks;
    int n, room;
    json_t *open; /* "pid/cat/id" -> [begin, name] of what has begun */
    bool described;
} check;

/* An event, as far as all kinds have it. */
typedef struct event {
    const json_t *json;
    process *of;
    int pid;
    track *on;
    uint64_t ts;
} event;

/* The step in which the rank is, for messages; -1: in none. */
static int64_t step_of(const process *r) {
    return r->opened && r->outer.batch >= 0 ? r->batches.at[r->outer.batch].step : -1;
}

#define FAULT_OF(c, e, ...)                                                                        \
    gw_trace_fault((c)->report, (c)->line, (e)->pid, step_of((e)->of), (e)->ts, __VA_ARGS__)
#define FAULT(c, ...) gw_trace_fault((c)->report, (c)->line, -1, -1, UINT64_MAX, __VA_ARGS__)

/* ---- values ---- */

static const char *text(const json_t *of, const char *key) {
    return json_string_value(json_object_get(of, key));
}

static bool whole(const json_t *of, const char *key, json_int_t *out) {
    const json_t *v = json_object_get(of, key);
    *out = json_integer_value(v);
    return json_is_integer(v);
}

/* Microseconds with three decimals, as nanoseconds. */
static bool time_of(const json_t *of, const char *key, uint64_t *ns) {
    const json_t *v = json_object_get(of, key);
    double x = json_number_value(v) * 1000;
    if (!json_is_number(v) || !(x >= 0 && x <= 0x1p53) || fabs(x - nearbyint(x)) > 0.25)
        return false;
    *ns = (uint64_t)nearbyint(x);
    return true;
}

static gw_err grow(void *array, size_t n, size_t *room, size_t size) {
    if (n < *room)
        return GW_OK;
    size_t wide = *room ? 2 * *room : 16;
    void *old, *fresh;
    memcpy(&old, array, sizeof old);
    fresh = realloc(old, wide * size);
    if (!fresh)
        return gw_fail(GW_ERR_NOMEM, "out of memory for a trace");
    memcpy(array, &fresh, sizeof fresh);
    *room = wide;
    return GW_OK;
}

/* ---- metadata ---- */

static gw_err process_name(check *c, const json_t *e, json_int_t pid) {
    char name[32];
    const char *given = text(json_object_get(e, "args"), "name");
    snprintf(name, sizeof name, "rank %d", c->n);
    if (pid != c->n || !given || strcmp(given, name) != 0) {
        FAULT(c, "process %lld is named '%s': must be process %d, '%s'", (long long)pid,
              given ? given : "", c->n, name);
        return GW_OK;
    }
    if (c->n == RANKS)
        return gw_fail(GW_ERR_INPUT, "a trace of more than %d ranks cannot be checked", RANKS);
    size_t room = (size_t)c->room;
    GW_TRY(grow(&c->ranks, (size_t)c->n, &room, sizeof *c->ranks));
    c->room = (int)room;
    c->ranks[c->n++] = (process){.main = -1, .batches = {.flights_from = 0}};
    return GW_OK;
}

static track *track_of(const process *r, json_int_t tid) {
    for (int i = 0; i < r->n_tracks; i++)
        if (r->tracks[i].tid == tid)
            return &r->tracks[i];
    return NULL;
}

static gw_err thread_name(check *c, const json_t *e, json_int_t pid, json_int_t tid) {
    const char *name = text(json_object_get(e, "args"), "name");
    if (pid < 0 || pid != c->n - 1) {
        FAULT(c, "thread %lld is named before its process %lld, or behind another", (long long)tid,
              (long long)pid);
        return GW_OK;
    }
    process *r = &c->ranks[pid];
    if (!name || !*name || track_of(r, tid) || r->n_tracks == TRACKS) {
        FAULT(c, "thread %lld of process %lld has no name, two, or is one too many", (long long)tid,
              (long long)pid);
        return GW_OK;
    }
    if (!r->tracks)
        GW_TRY(gw_alloc(&r->tracks, TRACKS, sizeof *r->tracks));
    r->tracks[r->n_tracks++].tid = tid;
    return GW_OK;
}

static gw_err metadata(check *c, const json_t *e, json_int_t pid, json_int_t tid) {
    const char *name = text(e, "name");
    if (name && strcmp(name, "process_name") == 0)
        return process_name(c, e, pid);
    if (name && strcmp(name, "thread_name") == 0)
        return thread_name(c, e, pid, tid);
    if (!name || !strstr(name, "sort_index"))
        FAULT(c, "metadata '%s' is none that a trace has", name ? name : "");
    return GW_OK;
}

/* ---- slices ---- */

static void nest(check *c, const event *e, uint64_t end) {
    track *t = e->on;
    while (t->depth > 0 &&
           (t->end[t->depth - 1] < e->ts || (t->end[t->depth - 1] == e->ts && end > e->ts)))
        t->depth--;
    if (t->depth > 0 && end > t->end[t->depth - 1])
        FAULT_OF(c, e, "slice '%s' ends %" PRIu64 " ns after the slice in which it began",
                 text(e->json, "name"), end - t->end[t->depth - 1]);
    if (end == e->ts)
        return; /* nothing begins in it */
    if (t->depth == DEPTH)
        FAULT_OF(c, e, "slices nest deeper than %d", DEPTH);
    else
        t->end[t->depth++] = end;
}

/* The phases reach to the end of the batch, or of what lies between two. */
static void close_outer(check *c, int pid) {
    const process *r = &c->ranks[pid];
    if (r->opened && r->filled != r->outer.end)
        gw_trace_fault(c->report, 0, pid, step_of(r), r->outer.start,
                       "it takes %" PRIu64 " ns, but its phases reach to %" PRIu64 " ns",
                       r->outer.end - r->outer.start, r->filled - r->outer.start);
}

static gw_err batch_slice(check *c, const event *e, uint64_t end, bool counts) {
    process *r = e->of;
    gw_trace_batches *b = &r->batches;
    json_int_t step = 0;
    if (counts && (!whole(json_object_get(e->json, "args"), "step", &step) || step < 1)) {
        FAULT_OF(c, e, "a batch has no number");
        return GW_OK;
    }
    close_outer(c, e->pid);
    if (counts && b->n > 0 && step - 1 != b->at[b->n - 1].step)
        FAULT_OF(c, e, "step %lld follows on step %lld", (long long)step,
                 (long long)b->at[b->n - 1].step);
    r->main = r->opened ? r->main : e->on->tid;
    r->opened = true;
    r->outer = (stretch){e->ts, end, counts ? (int64_t)b->n : -1};
    r->filled = e->ts;
    if (!counts)
        return GW_OK;
    GW_TRY(grow(&b->at, b->n, &b->room, sizeof *b->at));
    b->at[b->n++] = (gw_trace_sums){.step = step, .start = e->ts, .wall = end - e->ts, .wire = NAN};
    return GW_OK;
}

/* Two stretches that overlap meet here once: when the later one comes. */
static void add_inflight(process *r) {
    const stretch *a = &r->computation, *b = &r->flight;
    uint64_t from = a->start > b->start ? a->start : b->start;
    uint64_t to = a->end < b->end ? a->end : b->end;
    if (a->batch >= 0 && to > from)
        r->batches.at[a->batch].inflight += to - from;
}

static int phase_named(const char *name) {
    for (int p = 0; name && p < GW_PHASES; p++)
        if (strcmp(name, gw_phase_name((gw_phase)p)) == 0)
            return p;
    return -1;
}

static void phase_slice(check *c, const event *e, uint64_t end) {
    process *r = e->of;
    int p = phase_named(text(e->json, "name"));
    if (p < 0) {
        FAULT_OF(c, e, "'%s' is no phase", text(e->json, "name"));
        return;
    }
    if (!r->opened || e->on->tid != r->main || e->ts != r->filled)
        FAULT_OF(c, e, "slice '%s' does not begin where the one before it ends",
                 gw_phase_name((gw_phase)p));
    r->filled = end;
    int64_t batch = r->opened ? r->outer.batch : -1;
    if (batch >= 0) {
        r->batches.at[batch].phase[p] += end - e->ts;
        r->batches.at[batch].slices++;
    }
    if (p == GW_PHASE_FORWARD || p == GW_PHASE_BACKWARD || p == GW_PHASE_UPDATE) {
        r->computation = (stretch){e->ts, end, batch};
        add_inflight(r);
    }
    if (p == GW_PHASE_ENCODE || p == GW_PHASE_DECODE)
        r->codec_phases += end - e->ts;
}

static gw_err slice(check *c, const event *e) {
    process *r = e->of;
    const char *cat = text(e->json, "cat");
    uint64_t dur;
    if (!cat || !text(e->json, "name") || !time_of(e->json, "dur", &dur)) {
        FAULT_OF(c, e, "a slice lacks its name, category or duration, or has a negative one");
        return GW_OK;
    }
    c->report->slices++;
    nest(c, e, e->ts + dur);
    bool counts = strcmp(cat, "batch") == 0;
    if (counts || strcmp(cat, "between") == 0)
        return batch_slice(c, e, e->ts + dur, counts);
    if (strcmp(cat, "phase") == 0)
        phase_slice(c, e, e->ts + dur);
    else if (strcmp(cat, "codec") == 0)
        r->codec_slices += dur;
    else if (strcmp(cat, "requests") == 0) {
        if (r->flight.end == 0)
            r->batches.flights_from = e->ts;
        r->flight = (stretch){e->ts, e->ts + dur, -1};
        add_inflight(r);
    }
    return GW_OK;
}

/* ---- exchanges and counters ---- */

/* Names an async event in `open`; false: it lacks something. */
static bool key_of(const event *e, char key[KEY]) {
    const char *cat = text(e->json, "cat"), *id = text(e->json, "id");
    return cat && id && text(e->json, "name") &&
           snprintf(key, KEY, "%d/%s/%s", e->pid, cat, id) < KEY;
}

static gw_err begin(check *c, const event *e) {
    char key[KEY];
    if (!key_of(e, key)) {
        FAULT_OF(c, e, "an async event lacks its name, category or id");
        return GW_OK;
    }
    if (json_object_get(c->open, key)) {
        FAULT_OF(c, e, "'%s' begins again before it has ended", text(e->json, "name"));
        return GW_OK;
    }
    c->report->exchanges++;
    e->of->open++;
    json_t *began = json_pack("[I, s]", (json_int_t)e->ts, text(e->json, "name"));
    if (json_object_set_new(c->open, key, began) != 0)
        return gw_fail(GW_ERR_NOMEM, "out of memory for a trace");
    return GW_OK;
}

static void finish(check *c, const event *e) {
    char key[KEY];
    if (!key_of(e, key)) {
        FAULT_OF(c, e, "an async event lacks its name, category or id");
        return;
    }
    const json_t *began = json_object_get(c->open, key);
    const char *name = json_string_value(json_array_get(began, 1));
    if (!began || strcmp(name, text(e->json, "name")) != 0 ||
        (uint64_t)json_integer_value(json_array_get(began, 0)) > e->ts) {
        FAULT_OF(c, e, "'%s' ends without having begun", text(e->json, "name"));
        return;
    }
    e->of->open--;
    json_object_del(c->open, key);
}

static void counter(check *c, const event *e) {
    const char *name = text(e->json, "name"), *key;
    json_t *args = json_object_get(e->json, "args"), *value;
    c->report->counters++;
    if (!name || json_object_size(args) == 0) {
        FAULT_OF(c, e, "a counter lacks its name or value");
        return;
    }
    json_object_foreach(args, key, value) {
        if (!json_is_number(value))
            FAULT_OF(c, e, "counter '%s' has a value that is no number", name);
    }
    const json_t *inflight = json_object_get(args, "in flight"), *bytes;
    if (strcmp(name, "exchanges") == 0 && json_integer_value(inflight) != e->of->open)
        FAULT_OF(c, e, "the counter says that %lld exchanges are in flight: there are %lld",
                 (long long)json_integer_value(inflight), (long long)e->of->open);
    bytes = json_object_get(args, "bytes");
    const process *r = e->of;
    if (strcmp(name, "wire") == 0 && r->opened && r->outer.batch >= 0)
        r->batches.at[r->outer.batch].wire = json_number_value(bytes);
}

/* ---- the whole ---- */

static gw_err timed(check *c, event *e, char ph) {
    if (!time_of(e->json, "ts", &e->ts)) {
        e->ts = e->of->now;
        FAULT_OF(c, e, "an event of '%c' has no time that is valid", ph);
        return GW_OK;
    }
    if (e->ts < e->of->now)
        FAULT_OF(c, e, "the event before it is %" PRIu64 " ns later", e->of->now - e->ts);
    else
        e->of->now = e->ts;
    switch (ph) {
    case 'X': return slice(c, e);
    case 'b': return begin(c, e);
    case 'e': finish(c, e); return GW_OK;
    default: counter(c, e); return GW_OK;
    }
}

static gw_err one_event(void *ctx, const json_t *json, uint64_t line) {
    check *c = ctx;
    c->line = line;
    const char *ph = text(json, "ph");
    json_int_t pid, tid;
    if (!ph || strlen(ph) != 1 || !strchr("MXbeC", *ph)) {
        FAULT(c, "an event of kind '%s': a trace has M, X, b, e and C", ph ? ph : "");
        return GW_OK;
    }
    if (!whole(json, "pid", &pid) || !whole(json, "tid", &tid)) {
        FAULT(c, "an event has no process or no thread");
        return GW_OK;
    }
    if (*ph == 'M')
        return metadata(c, json, pid, tid);
    event e = {.json = json};
    if (pid >= 0 && pid < c->n) {
        e.pid = (int)pid;
        e.of = &c->ranks[pid];
        e.on = track_of(e.of, tid);
    }
    if (!e.on) {
        FAULT(c, "an event of thread %lld of process %lld, which has no name", (long long)tid,
              (long long)pid);
        return GW_OK;
    }
    return timed(c, &e, *ph);
}

/* Sums up one "dropped_*" array; the flights that are missing are not to be missed. */
static gw_err one_dropped(check *c, const char *kind, const json_t *counts) {
    size_t i;
    json_t *count;
    if (!json_is_array(counts) || json_array_size(counts) != (size_t)c->n) {
        FAULT(c, "otherData: %s has not one number a rank", kind);
        return GW_OK;
    }
    json_array_foreach(counts, i, count) {
        c->report->dropped += (uint64_t)json_integer_value(count);
        if (strcmp(kind, "dropped_flights") == 0 && json_integer_value(count) == 0)
            c->ranks[i].batches.flights_from = 0;
    }
    return GW_OK;
}

static gw_err other_data(void *ctx, const json_t *data) {
    check *c = ctx;
    const char *format = text(data, "format"), *key;
    json_int_t version = 0;
    json_t *value;
    c->line = 0;
    if (!format || strcmp(format, "gradwire trace") != 0 || !whole(data, "version", &version) ||
        version != 2)
        return gw_fail(GW_ERR_INPUT, "it is no trace of gradwire, or of another version than 2");
    c->described = true;
    json_object_foreach((json_t *)data, key, value) {
        if (strncmp(key, "dropped_", 8) == 0)
            GW_TRY(one_dropped(c, key, value));
    }
    return GW_OK;
}

/* What can be told only at the end. */
static void close_ranks(check *c) {
    const char *key;
    json_t *began;
    gw_trace_report *report = c->report;
    report->ranks = c->n;
    for (int i = 0; i < c->n; i++) {
        const process *r = &c->ranks[i];
        const gw_trace_batches *b = &r->batches;
        close_outer(c, i);
        if (r->codec_phases != r->codec_slices)
            gw_trace_fault(report, 0, i, -1, UINT64_MAX,
                           "its codec phases take %" PRIu64 " ns, its codec slices %" PRIu64,
                           r->codec_phases, r->codec_slices);
        report->batches += (int64_t)b->n;
        if (b->n > 0 && (report->first_step == 0 || b->at[0].step < report->first_step))
            report->first_step = b->at[0].step;
        if (b->n > 0 && b->at[b->n - 1].step > report->last_step)
            report->last_step = b->at[b->n - 1].step;
    }
    json_object_foreach(c->open, key, began) {
        gw_trace_fault(report, 0, atoi(key), -1,
                       (uint64_t)json_integer_value(json_array_get(began, 0)), "'%s' has no end",
                       json_string_value(json_array_get(began, 1)));
    }
}

static gw_err compare(check *c, const char *path) {
    gw_trace_batches *all = NULL;
    GW_TRY(gw_alloc(&all, (size_t)c->n, sizeof *all));
    for (int i = 0; i < c->n; i++)
        all[i] = c->ranks[i].batches;
    gw_err e = gw_trace_compare(path, all, c->n, c->report);
    free(all);
    return e;
}

gw_err gw_trace_check(const char *path, const char *batches, gw_trace_report *out) {
    check c = {.report = out, .open = json_object()};
    const gw_trace_reader reader = {&c, one_event, other_data};
    *out = (gw_trace_report){.rows = -1};
    gw_err e = c.open ? gw_trace_read(path, &reader) : gw_fail(GW_ERR_NOMEM, "out of memory");
    if (e == GW_OK && !c.described)
        e = gw_fail(GW_ERR_INPUT, "%s: no trace of gradwire: \"otherData\" is missing", path);
    if (e == GW_OK)
        close_ranks(&c);
    if (e == GW_OK && batches)
        e = compare(&c, batches);
    for (int i = 0; i < c.n; i++) {
        free(c.ranks[i].tracks);
        free(c.ranks[i].batches.at);
    }
    free(c.ranks);
    json_decref(c.open);
    return e;
}
