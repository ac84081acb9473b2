/* PAPI: what it can count here, its counts, and gradwire's own counts for its other tools. */
#include "counters/papi.h"

#include "base/mem.h"
#include "base/text.h"
#include "counters/sanity.h"
#include "prof/ledger.h"

#include <papi.h>
#include <pthread.h>
#ifdef GW_HAVE_SDE
#include <sde_lib.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 8 }; /* of a set */

static unsigned long papi_thread(void) {
    return (unsigned long)pthread_self();
}

/* Start PAPI with thread support, unless it runs already; it runs until the process ends. */
static gw_err papi_start(void) {
    if (PAPI_is_initialized() != PAPI_NOT_INITED)
        return GW_OK;
    int rc = PAPI_library_init(PAPI_VER_CURRENT);
    if (rc > 0 && rc != PAPI_VER_CURRENT)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "the library is version %d.%d, gradwire was compiled for %d.%d",
                       PAPI_VERSION_MAJOR(rc), PAPI_VERSION_MINOR(rc),
                       PAPI_VERSION_MAJOR(PAPI_VERSION), PAPI_VERSION_MINOR(PAPI_VERSION));
    rc = rc > 0 ? PAPI_thread_init(papi_thread) : rc;
    return rc == PAPI_OK ? GW_OK
                         : gw_fail(GW_ERR_UNSUPPORTED, "PAPI cannot be started: %s (%d)",
                                   PAPI_strerror(rc) ? PAPI_strerror(rc) : "unknown error", rc);
}

void gw_papi_probe(gw_papi_report *out) {
    *out = (gw_papi_report){.version = "absent"};
    if (papi_start() != GW_OK) {
        gw_text_print(out->reason, sizeof out->reason, "%s", gw_err_text());
        return;
    }
    int version = PAPI_get_opt(PAPI_LIB_VERSION, NULL);
    snprintf(out->version, sizeof out->version, "%d.%d.%d", PAPI_VERSION_MAJOR(version),
             PAPI_VERSION_MINOR(version), PAPI_VERSION_REVISION(version));
    int n = PAPI_num_components();
    for (int i = 0; i < n && out->components < GW_PAPI_COMPONENTS; i++) {
        const PAPI_component_info_t *info = PAPI_get_component_info(i);
        if (!info)
            continue;
        gw_papi_component *c = &out->component[out->components++];
        gw_text_print(c->name, sizeof c->name, "%.31s", info->name);
        c->enabled = info->disabled == 0;
        if (!c->enabled)
            gw_text_print(c->reason, sizeof c->reason, "%.159s", info->disabled_reason);
    }
    /* An event that is accepted may count nothing. */
    static const char *const cycles = "PAPI_TOT_CYC";
    const gw_sanity check = GW_SANITY_CYCLES;
    out->hardware = gw_sanity_check(&gw_counters_papi, &cycles, &check, 1) == GW_OK;
    if (!out->hardware)
        gw_text_print(out->reason, sizeof out->reason, "%s", gw_err_text());
}

/* ---- a source of counts ---- */

/* A PAPI event set holds events of one component only, so a set here has one PAPI set for each
 * component. */
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
    for (int i = 0; i < n; i++) {
        int code = 0, k = 0;
        rc = PAPI_event_name_to_code(events[i], &code);
        if (rc != PAPI_OK)
            return papi_refuse("found by that name", events[i], rc);
        int component = PAPI_get_event_component(code);
        while (k < s->parts && s->part[k].component != component)
            k++;
        part *p = &s->part[k];
        if (k == s->parts) {
            *p = (part){.set = PAPI_NULL, .component = component};
            rc = PAPI_create_eventset(&p->set);
            if (rc != PAPI_OK)
                return papi_refuse("created", "an event set", rc);
            s->parts++;
        }
        rc = PAPI_add_event(p->set, code);
        if (rc != PAPI_OK)
            return papi_refuse("counted, though PAPI knows the name", events[i], rc);
        p->place[p->n++] = i;
    }
    return GW_OK;
}

static gw_err papi_set_open(void **out, const char *const *events, int n) {
    papi_set *s = NULL;
    GW_TRY(papi_start());
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

const gw_counter_source gw_counters_papi = {papi_set_open, papi_set_start, papi_set_read,
                                            papi_set_stop, papi_set_close, papi_per_thread,
                                            papi_leave};

/* ---- gradwire as a source of PAPI's ---- */

#ifdef GW_HAVE_SDE

/* `which`: the number of a member of gw_ledger_sums. */
static long long sde_read(void *which) {
    gw_ledger_sums sums = gw_ledger_totals();
    const uint64_t all[] = {sums.wire_bytes, sums.messages, sums.collectives, sums.batches};
    return (long long)all[(uintptr_t)which];
}

/* Without descriptions: libsde 1.0 never frees them. */
void gw_sde_offer(void) {
    static const char *const events[] = {"wire_bytes", "messages", "collectives", "batches"};
    static bool offered;
    if (offered)
        return;
    offered = true;
    papi_handle_t self = papi_sde_init("gradwire");
    for (uintptr_t i = 0; i < sizeof events / sizeof *events; i++)
        papi_sde_register_counter_cb(self, events[i], PAPI_SDE_RO | PAPI_SDE_DELTA,
                                     PAPI_SDE_long_long, sde_read, (void *)i);
}
#else
void gw_sde_offer(void) {
}
#endif
