#include "counters/sde.h"

#ifdef GW_HAVE_SDE
#include "prof/ledger.h"

#include <sde_lib.h>

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
