#include "base/probe.h"

gw_probe gw_probe_hooks;
void (*gw_probe_spend)(double seconds);
void (*gw_probe_work)(int begins);
_Thread_local int gw_probe_dim;

const char *const gw_dim_names[GW_EXCHANGE_DIMS + 1] = {"data", "pipe", "tensor", NULL};

double gw_phases_computation(const double phase_s[GW_PHASES]) {
    double sum = 0;
    for (int p = 0; p < GW_PHASES; p++)
        sum += gw_phase_computes((gw_phase)p) ? phase_s[p] : 0;
    return sum;
}

const char *gw_phase_name(gw_phase phase) {
    static const char *const names[GW_PHASES] = {
        "other",  "data",   "forward",  "backward", "recompute", "update",
        "encode", "decode", "mpi_post", "mpi_poll", "mpi_wait",  "checkpoint",
    };
    return (unsigned)phase < GW_PHASES ? names[phase] : "unknown";
}
