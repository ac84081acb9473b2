#include "counters/papi.h"

#include "base/text.h"
#include "counters/sanity.h"
#include "prof/ledger.h"

#include <papi.h>
#include <pthread.h>
#ifdef GW_HAVE_SDE
#include <sde_lib.h>
#endif
#include <stdio.h>

static void papi_list_components(gw_papi_report *out) {
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

/* An event that is accepted may count nothing. */
static void papi_try_cycles(gw_papi_report *out) {
    static const char *const cycles = "PAPI_TOT_CYC";
    const gw_sanity check = GW_SANITY_CYCLES;
    out->hardware = gw_sanity_check(&gw_counters_papi, &cycles, &check, 1) == GW_OK;
    if (!out->hardware)
        gw_text_print(out->reason, sizeof out->reason, "%s", gw_err_text());
}

static unsigned long papi_thread(void) {
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
    rc = rc > 0 ? PAPI_thread_init(papi_thread) : rc;
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
    papi_list_components(out);
    papi_try_cycles(out);
}

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
