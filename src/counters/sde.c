#include "counters/sde.h"

#ifdef GW_HAVE_SDE
#include "prof/ledger.h"

#include <sde_lib.h>

static long long wire_bytes(void *unused) {
    (void)unused;
    return (long long)gw_ledger_totals().wire_bytes;
}

static long long sde_messages(void *unused) {
    (void)unused;
    return (long long)gw_ledger_totals().messages;
}

static long long sde_collectives(void *unused) {
    (void)unused;
    return (long long)gw_ledger_totals().collectives;
}

static long long sde_batches(void *unused) {
    (void)unused;
    return (long long)gw_ledger_totals().batches;
}

/* Without descriptions: libsde 1.0 never frees them. */
void gw_sde_offer(void) {
    static const struct {
        const char *name;
        papi_sde_fptr_t value;
    } events[] = {{"wire_bytes", wire_bytes},
                  {"messages", sde_messages},
                  {"collectives", sde_collectives},
                  {"batches", sde_batches}};
    static bool offered;
    if (offered)
        return;
    offered = true;
    papi_handle_t self = papi_sde_init("gradwire");
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        papi_sde_register_counter_cb(self, events[i].name, PAPI_SDE_RO | PAPI_SDE_DELTA,
                                     PAPI_SDE_long_long, events[i].value, NULL);
}
#else
void gw_sde_offer(void) {
}
#endif
