#include "mpi/present.h"

gw_present_calls gw_present[GW_PRESENT_THREADS];
atomic_int gw_present_region = -1;
_Thread_local int gw_present_thread = GW_PRESENT_ASIDE;

void gw_present_start(void) {
    gw_present_calls *aside = &gw_present[GW_PRESENT_ASIDE];
    if (gw_present_thread == GW_PRESENT_MAIN)
        return;
    gw_present_thread = GW_PRESENT_MAIN; /* until now its calls were counted as another thread's */
    atomic_store(&aside->call, NULL);
    atomic_store(&aside->posted, NULL);
}
