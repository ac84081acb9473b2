#include "counters/papi.h"

#include "base/text.h"

#include <papi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* A chain of dependent multiplications: every CPU needs at least one cycle a step and at most a
 * thousand. */
enum { STEPS = 1000000, MOST_CYCLES_A_STEP = 1000 };

static void known_work(void) {
    volatile uint64_t sink;
    uint64_t x = 1;
    for (int i = 0; i < STEPS; i++) {
        x *= 0x9e3779b97f4a7c15u;
        __asm__ volatile("" : "+r"(x)); /* keep the loop a loop */
    }
    sink = x;
    (void)sink;
}

static void papi_say(gw_papi_report *out, const char *what, int code) {
    const char *why = PAPI_strerror(code);
    gw_text_print(out->reason, sizeof out->reason, "%s: %s (%d)", what, why ? why : "unknown error",
                  code);
}

static void list_components(gw_papi_report *out) {
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
}

static void count_known_work(gw_papi_report *out, int set) {
    long long cycles = 0;
    int rc = PAPI_start(set);
    if (rc != PAPI_OK) {
        papi_say(out, "PAPI_TOT_CYC cannot be started", rc);
        return;
    }
    known_work();
    rc = PAPI_stop(set, &cycles);
    if (rc != PAPI_OK)
        papi_say(out, "PAPI_TOT_CYC cannot be read", rc);
    else if (cycles < STEPS || cycles > (long long)STEPS * MOST_CYCLES_A_STEP)
        gw_text_print(out->reason, sizeof out->reason,
                      "PAPI_TOT_CYC is accepted but counted %lld cycles for a loop of %d dependent "
                      "multiplications",
                      cycles, STEPS);
    else
        out->hardware = true;
}

static void try_hardware(gw_papi_report *out) {
    int set = PAPI_NULL, rc = PAPI_create_eventset(&set);
    if (rc != PAPI_OK) {
        papi_say(out, "no event set", rc);
        return;
    }
    rc = PAPI_add_event(set, PAPI_TOT_CYC);
    if (rc == PAPI_OK)
        count_known_work(out, set);
    else
        papi_say(out, "PAPI_TOT_CYC cannot be added", rc);
    PAPI_cleanup_eventset(set);
    PAPI_destroy_eventset(&set);
}

static unsigned long thread_id(void) {
    return (unsigned long)pthread_self();
}

gw_err gw_papi_start(void) {
    if (PAPI_is_initialized() != PAPI_NOT_INITED)
        return GW_OK;
    int rc = PAPI_library_init(PAPI_VER_CURRENT);
    if (rc > 0 && rc != PAPI_VER_CURRENT)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "the library is version %d.%d, gradwire was compiled for %d.%d",
                       PAPI_VERSION_MAJOR(rc), PAPI_VERSION_MINOR(rc),
                       PAPI_VERSION_MAJOR(PAPI_VERSION), PAPI_VERSION_MINOR(PAPI_VERSION));
    rc = rc > 0 ? PAPI_thread_init(thread_id) : rc;
    return rc == PAPI_OK ? GW_OK
                         : gw_fail(GW_ERR_UNSUPPORTED, "PAPI cannot be started: %s (%d)",
                                   PAPI_strerror(rc) ? PAPI_strerror(rc) : "unknown error", rc);
}

void gw_papi_probe(gw_papi_report *out) {
    *out = (gw_papi_report){.version = "absent"};
    if (gw_papi_start() != GW_OK) {
        gw_text_print(out->reason, sizeof out->reason, "%s", gw_err_text());
        return;
    }
    int version = PAPI_get_opt(PAPI_LIB_VERSION, NULL);
    snprintf(out->version, sizeof out->version, "%d.%d.%d", PAPI_VERSION_MAJOR(version),
             PAPI_VERSION_MINOR(version), PAPI_VERSION_REVISION(version));
    list_components(out);
    try_hardware(out);
}
