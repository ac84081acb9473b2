#include "cli/train/step_opts.h"

#include "nn/gemm.h"

#include <stdlib.h>
#include <string.h>

static gw_err parse_layers(gw_train_config *c, const char *owner, const char *text) {
    c->n_hidden = 0;
    while (*text) {
        char *end;
        long width = strtol(text, &end, 10);
        if (end == text || width < 1 || width > 1 << 20 || (*end && *end != ','))
            return gw_fail(GW_ERR_USAGE,
                           "%s: layers: '%s': must be whole numbers from 1 to "
                           "1048576 with commas between",
                           owner, text);
        if (c->n_hidden == GW_MAX_LAYERS - 1)
            return gw_fail(GW_ERR_USAGE, "%s: layers: more than %d hidden layers", owner,
                           GW_MAX_LAYERS - 1);
        c->hidden[c->n_hidden++] = (int)width;
        text = *end ? end + 1 : end;
    }
    return GW_OK;
}

static bool is(const gw_args *a, const char *option, const char *word) {
    return strcmp(gw_args_text(a, option), word) == 0;
}

static void read_model(gw_train_config *c, const gw_args *a) {
    c->activation = is(a, "activation", "relu")      ? GW_RELU
                    : is(a, "activation", "sigmoid") ? GW_SIGMOID
                                                     : GW_TANH;
    bool he = is(a, "init", "auto") ? c->activation == GW_RELU : is(a, "init", "he");
    c->init = he ? GW_INIT_HE : GW_INIT_XAVIER;
}

gw_err gw_step_opts_read(gw_train_config *c, const gw_args *a, const char *owner) {
    if (gw_args_given(a, "batch") && gw_args_given(a, "local-batch"))
        return gw_fail(GW_ERR_USAGE, "%s: give --batch or --local-batch, not both", owner);
    GW_TRY(gw_gemm_allow(gw_args_text(a, "gemm")));
    GW_TRY(parse_layers(c, owner, gw_args_text(a, "layers")));
    read_model(c, a);
    c->lr = gw_args_real(a, "lr");
    c->momentum = gw_args_real(a, "momentum");
    if (c->momentum == 0 && (is(a, "error-feedback", "momentum") || is(a, "error-feedback", "dgc")))
        return gw_fail(GW_ERR_USAGE,
                       "%s: --error-feedback %s is about momentum, and there is none: give "
                       "--momentum, or use --error-feedback auto",
                       owner, gw_args_text(a, "error-feedback"));
    c->weight_decay = gw_args_real(a, "weight-decay");
    c->local_batch = gw_args_given(a, "local-batch");
    c->batch = (int)gw_args_int(a, c->local_batch ? "local-batch" : "batch");
    c->seed = (uint64_t)gw_args_int(a, "seed");
    c->threads = (int)gw_args_int(a, "threads");
    c->comm = gw_args_text(a, "comm");
    c->compress = gw_args_text(a, "compress");
    c->feedback = gw_args_text(a, "error-feedback");
    c->wire_check = is(a, "wire-check", "on");
    c->lazy = is(a, "update", "lazy");
    return GW_OK;
}
