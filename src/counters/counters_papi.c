/* PAPI as a source of counts. A PAPI event set holds events of one component only, so a set here
 * has one PAPI set for each component. */
#include "base/mem.h"
#include "counters/papi.h"
#include "counters/source.h"

#include <papi.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 8 };

typedef struct part {
    int set, component, n;
    int place[EVENTS]; /* index of each of its events among all */
} part;

typedef struct papi_set {
    int parts;
    part part[EVENTS];
} papi_set;

static gw_err papi_refuse(const char *what, const char *event, int code) {
    const char *why = PAPI_strerror(code);
    return gw_fail(GW_ERR_UNSUPPORTED, "%s cannot be %s: %s (%d)", event, what,
                   why ? why : "unknown error", code);
}

static gw_err papi_set_part(papi_set *s, int component, part **out) {
    for (int i = 0; i < s->parts; i++)
        if (s->part[i].component == component) {
            *out = &s->part[i];
            return GW_OK;
        }
    part *p = &s->part[s->parts];
    *p = (part){.set = PAPI_NULL, .component = component};
    int rc = PAPI_create_eventset(&p->set);
    if (rc != PAPI_OK)
        return papi_refuse("created", "an event set", rc);
    s->parts++;
    *out = p;
    return GW_OK;
}

static gw_err papi_set_add(papi_set *s, const char *event, int place) {
    int code = 0;
    int rc = PAPI_event_name_to_code(event, &code);
    if (rc != PAPI_OK)
        return papi_refuse("found by that name", event, rc);
    part *p = NULL;
    GW_TRY(papi_set_part(s, PAPI_get_event_component(code), &p));
    rc = PAPI_add_event(p->set, code);
    if (rc != PAPI_OK)
        return papi_refuse("counted, though PAPI knows the name", event, rc);
    p->place[p->n++] = place;
    return GW_OK;
}

static void papi_set_close(void *set) {
    papi_set *s = set;
    for (int i = 0; i < s->parts; i++) {
        PAPI_cleanup_eventset(s->part[i].set);
        PAPI_destroy_eventset(&s->part[i].set);
    }
    free(s);
}

static gw_err papi_set_fill(papi_set *s, const char *const *events, int n) {
    if (n > EVENTS)
        return gw_fail(GW_ERR_UNSUPPORTED, "%d events at once: at most %d", n, EVENTS);
    int rc = PAPI_register_thread();
    if (rc != PAPI_OK)
        return papi_refuse("registered", "a thread", rc);
    for (int i = 0; i < n; i++)
        GW_TRY(papi_set_add(s, events[i], i));
    return GW_OK;
}

static gw_err papi_set_open(void **out, const char *const *events, int n) {
    papi_set *s = NULL;
    GW_TRY(gw_papi_start());
    GW_TRY(gw_alloc(&s, 1, sizeof *s));
    gw_err e;
#pragma omp critical(gw_counters_papi_open)
    e = papi_set_fill(s, events, n);
    GW_OPENED(e, out, s, papi_set_close);
}

static gw_err papi_set_stop(void *set) {
    papi_set *s = set;
    int bad = PAPI_OK;
    for (int i = 0; i < s->parts; i++) {
        long long last[EVENTS];
        int rc = PAPI_stop(s->part[i].set, last);
        bad = rc != PAPI_OK ? rc : bad;
    }
    return bad == PAPI_OK ? GW_OK : papi_refuse("stopped", "an event set", bad);
}

static gw_err papi_set_start(void *set) {
    papi_set *s = set;
    for (int i = 0; i < s->parts; i++) {
        int rc = PAPI_start(s->part[i].set);
        if (rc == PAPI_OK)
            continue;
        while (--i >= 0)
            PAPI_stop(s->part[i].set, (long long[EVENTS]){0});
        return papi_refuse("started", "an event set", rc);
    }
    return GW_OK;
}

static gw_err papi_set_read(void *set, long long *values) {
    const papi_set *s = set;
    for (int i = 0; i < s->parts; i++) {
        const part *p = &s->part[i];
        long long some[EVENTS];
        int rc = PAPI_read(p->set, some);
        if (rc != PAPI_OK)
            return papi_refuse("read", "an event set", rc);
        for (int k = 0; k < p->n; k++)
            values[p->place[k]] = some[k];
    }
    return GW_OK;
}

/* Only events of the CPU and the kernel are counted per thread; other components (software-defined
 * events, energy, networks) count for the process or the machine. */
static bool papi_per_thread(const char *event) {
    int code = 0;
    if (PAPI_event_name_to_code(event, &code) != PAPI_OK)
        return false;
    const PAPI_component_info_t *c = PAPI_get_component_info(PAPI_get_event_component(code));
    return c && strcmp(c->name, "perf_event") == 0;
}

static void papi_leave(void) {
    PAPI_unregister_thread();
}

const gw_counter_source gw_counters_papi = {"papi",          papi_set_open, papi_set_start,
                                            papi_set_read,   papi_set_stop, papi_set_close,
                                            papi_per_thread, papi_leave};
