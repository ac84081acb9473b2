#include "base/probe.h"

gw_probe gw_probe_hooks;
_Thread_local int gw_probe_dim;

const char *gw_phase_name(gw_phase phase) {
    static const char *const names[GW_PHASES] = {
        "other",  "data",     "forward",  "backward", "update",     "encode",
        "decode", "mpi_post", "mpi_poll", "mpi_wait", "checkpoint",
    };
    return (unsigned)phase < GW_PHASES ? names[phase] : "unknown";
}
