#include "cli/train/step_opts.h"

#include "nn/gemm.h"

#include <string.h>

static const gw_rule rules[] = {
    {"local-batch", NULL, false, "batch", NULL, "it makes the global batch by itself"},
    {"error-feedback", "momentum|dgc", true, "momentum", "!0", "it is about momentum"},
    {0}};

gw_err gw_step_opts_read(gw_train_config *c, const gw_args *a, const char *owner) {
    const char *init = gw_args_text(a, "init");
    GW_TRY(gw_args_check(a, rules, owner));
    GW_TRY(gw_gemm_allow(gw_args_text(a, "gemm")));
    gw_args_fill(a, c);
    c->args = a;
    GW_TRY(gw_mesh_parse(&c->parallel.shape, NULL)); /* all ranks are data, unless told otherwise */
    bool he = strcmp(init, "auto") == 0 ? c->model.activation == GW_RELU : strcmp(init, "he") == 0;
    c->model.init = he ? GW_INIT_HE : GW_INIT_XAVIER;
    c->model.seed = c->seed;
    c->local_batch = gw_args_given(a, "local-batch");
    if (c->local_batch)
        c->batch = (int)gw_args_int(a, "local-batch");
    return GW_OK;
}
