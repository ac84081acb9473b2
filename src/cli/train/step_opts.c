#include "cli/train/step_opts.h"

#include "nn/gemm.h"
#include "optim/optimizer.h"

#include <string.h>

#define GW_OF_THE_PERCEPTRON "it is an option of the model mlp"

static const gw_rule rules[] = {
    {"local-batch", NULL, false, "batch", NULL, "it makes the global batch by itself"},
    {"model", "!mlp", false, "layers", NULL, GW_OF_THE_PERCEPTRON},
    {"model", "!mlp", false, "activation", NULL, GW_OF_THE_PERCEPTRON},
    {"model", "!mlp", false, "init", NULL, GW_OF_THE_PERCEPTRON},
    {0}};

/* Where gradients are exchanged. */
static const gw_rule comm_rules[] = {
    {"error-feedback", "momentum|dgc", true, "momentum", "!0", "it is about momentum"}, {0}};

/* A word for all layers, or one for each: gw_model_spec_check counts them. */
static gw_err step_opts_init(gw_model_spec *m, const char *text, const char *owner) {
    static const char *const words[] = {"he", "xavier", "auto"};
    enum { WORDS = sizeof words / sizeof *words };
    m->n_init = 0;
    for (const char *at = text; m->n_init == 0 || *at++ == ',';) {
        size_t len = strcspn(at, ",");
        int w = 0;
        while (w < WORDS && (strlen(words[w]) != len || memcmp(words[w], at, len) != 0))
            w++;
        if (w == WORDS)
            return gw_fail(GW_ERR_USAGE,
                           "%s: init=%s: must be auto, he or xavier, or one of these for each "
                           "layer, as he,he,xavier",
                           owner, text);
        if (m->n_init < GW_MAX_LAYERS)
            m->init[m->n_init] = w == WORDS - 1
                                     ? (m->activation == GW_RELU ? GW_INIT_HE : GW_INIT_XAVIER)
                                     : (gw_init)w;
        m->n_init++;
        at += len;
    }
    return GW_OK;
}

gw_err gw_step_opts_read(gw_train_config *c, const gw_args *a, const char *owner) {
    GW_TRY(gw_args_check(a, rules, owner));
    if (gw_args_has(a, "error-feedback"))
        GW_TRY(gw_args_check(a, comm_rules, owner));
    GW_TRY(gw_gemm_allow(gw_args_text(a, "gemm")));
    gw_args_fill(a, c);
    c->args = a;
    gw_optimizer *o = NULL;
    gw_err e =
        gw_optimizer_open(&o, &(gw_optimizer_setup){.spec = c->optimizer, .command = c->args});
    gw_optimizer_close(o);
    GW_TRY(e);
    GW_TRY(gw_mesh_parse(&c->parallel.shape, NULL)); /* all ranks are data, unless told otherwise */
    GW_TRY(step_opts_init(&c->model, gw_args_text(a, "init"), owner));
    GW_TRY(gw_model_spec_choose(&c->model, gw_args_spec(a, "model")));
    c->model.seed = c->run.seed;
    c->local_batch = gw_args_given(a, "local-batch");
    if (c->local_batch)
        c->batch = (int)gw_args_int(a, "local-batch");
    return GW_OK;
}
