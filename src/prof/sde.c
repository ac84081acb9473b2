#include "prof/sde.h"

#ifdef GW_HAVE_SDE
#include "prof/ledger.h"

#include <sde_lib.h>

static long long wire_bytes(void *unused) {
    (void)unused;
    return (long long)gw_ledger_totals().wire_bytes;
}

static long long messages(void *unused) {
    (void)unused;
    return (long long)gw_ledger_totals().messages;
}

static long long collectives(void *unused) {
    (void)unused;
    return (long long)gw_ledger_totals().collectives;
}

static long long batches(void *unused) {
    (void)unused;
    return (long long)gw_ledger_totals().batches;
}

void gw_sde_offer(void) {
    static const struct {
        const char *name, *text;
        papi_sde_fptr_t value;
    } events[] = {{"wire_bytes", "bytes that this rank handed to MPI", wire_bytes},
                  {"messages", "point-to-point messages sent", messages},
                  {"collectives", "MPI collectives called", collectives},
                  {"batches", "batches ended", batches}};
    static bool offered;
    if (offered)
        return;
    offered = true;
    papi_handle_t self = papi_sde_init("gradwire");
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        papi_sde_register_counter_cb(self, events[i].name, PAPI_SDE_RO | PAPI_SDE_DELTA,
                                     PAPI_SDE_long_long, events[i].value, NULL);
        papi_sde_describe_counter(self, events[i].name, events[i].text);
    }
}
#else
void gw_sde_offer(void) {
}
#endif
