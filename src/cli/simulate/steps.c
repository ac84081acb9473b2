#include "cli/simulate/steps.h"

#include "base/mem.h"

#include <string.h>

#define MIB 1048576

static gw_err steps_of_bytes(gw_step_profile *p, size_t n) {
    *p = (gw_step_profile){.model = "bytes", .batch = 1, .n_tensors = 1, .groups = 1, .n = n};
    GW_TRY(gw_alloc(&p->tensor, 1, sizeof *p->tensor));
    *p->tensor = (gw_step_tensor){.name = "bytes", .n = n, .std = 1};
    return GW_OK;
}

gw_err gw_sim_steps_read(gw_sim_play *p, gw_step_profile *profile, const gw_args *args,
                         const char *owner) {
    const char *path = gw_args_text(args, "profile");
    p->profile = profile;
    p->sleeps = strcmp(gw_args_text(args, "compute"), "sleep") == 0;
    p->speed = gw_args_real(args, "speed");
    p->bucket = (size_t)(gw_args_real(args, "bucket-mb") * MIB);
    if (path)
        return gw_step_profile_read(profile, path);
    if (gw_args_given(args, "bytes"))
        return steps_of_bytes(profile, gw_args_bytes(args, "bytes") / sizeof(float));
    return profile->model
               ? GW_OK
               : gw_fail(GW_ERR_USAGE, "%s: nothing to exchange: give --profile or --bytes", owner);
}

void gw_sim_coding(double coded_s[GW_CODINGS], double seconds) {
    for (gw_coding k = 0; k < GW_CODINGS; k++)
        coded_s[k] = seconds * (k == GW_CODING_ADOPT ? 2 : 1);
}
