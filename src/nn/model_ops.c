#include "nn/model_ops.h"

#include <string.h>

#define X(name) extern const gw_model_ops gw_model_##name;
#include "nn/models.def"
#undef X

static const gw_entry *const entries[] = {
#define X(name) &gw_model_##name.head,
#include "nn/models.def"
#undef X
    NULL,
};

static const gw_hook needs[] = {GW_HOOK(gw_model_ops, units),
                                GW_HOOK(gw_model_ops, unit),
                                GW_HOOK(gw_model_ops, products),
                                GW_HOOK(gw_model_ops, initialise),
                                GW_HOOK(gw_model_ops, product),
                                GW_HOOK(gw_model_ops, enter),
                                GW_HOOK(gw_model_ops, descend),
                                GW_HOOK(gw_model_ops, weights),
                                {0}};

const gw_registry gw_models = {.kind = "model",
                               .symbol = "gw_model_plugin",
                               .abi = GW_MODEL_ABI,
                               .entries = entries,
                               .needs = needs};

gw_err gw_model_spec_choose(gw_model_spec *spec, const gw_spec *model) {
    const gw_entry *entry = NULL;
    gw_args *args = NULL;
    if (!model)
        return GW_OK;
    if (strlen(model->text) >= GW_MODEL_TEXT)
        return gw_fail(GW_ERR_USAGE, "--model %.40s..: longer than %d characters", model->text,
                       GW_MODEL_TEXT - 1);
    GW_TRY(gw_registry_find(&gw_models, model->name, &entry));
    GW_TRY(gw_args_of(&args, entry->opts, entry->name, model));
    spec->ops = (const gw_model_ops *)entry; /* head is the first member */
    strcpy(spec->text, spec->ops == &gw_model_mlp ? "" : model->text);
    gw_err e = spec->ops->open ? spec->ops->open(spec, args) : GW_OK;
    gw_args_free(args);
    return e;
}

int gw_model_spec_layers(const gw_model_spec *spec) {
    return gw_model_ops_of(spec)->units(spec);
}

gw_unit gw_model_spec_unit(const gw_model_spec *spec, int l) {
    return gw_model_ops_of(spec)->unit(spec, l);
}

size_t gw_unit_params(const gw_unit *u) {
    size_t n = 0;
    for (int i = 0; i < u->n_tensors; i++)
        n += (size_t)u->tensor[i].rows * (size_t)u->tensor[i].cols;
    return n;
}

int gw_model_spec_width(const gw_model_spec *spec, int l) {
    return l < 0 ? spec->inputs : gw_model_spec_unit(spec, l).out;
}

bool gw_model_spec_dense(const gw_model_spec *spec) {
    return gw_model_ops_of(spec)->traits & GW_MODEL_DENSE;
}

/* ---- checks ---- */

static gw_err spec_check_perceptron(const gw_model_spec *spec, gw_err kind, const char *where) {
    if (spec->n_hidden < 0 || spec->n_hidden >= GW_MAX_LAYERS)
        return gw_fail(kind, "%s%d hidden layers: must be 0 to %d", where, spec->n_hidden,
                       GW_MAX_LAYERS - 1);
    if ((int)spec->activation < GW_RELU || spec->activation > GW_TANH)
        return gw_fail(kind, "%sunknown activation %d", where, (int)spec->activation);
    int layers = gw_model_spec_layers(spec);
    if (spec->n_init < 0 || (spec->n_init > 1 && spec->n_init != layers))
        return gw_fail(
            kind,
            "%sinit: %d given, and the network has %d layer%s: give one for all of them, "
            "or one each",
            where, spec->n_init, layers, layers == 1 ? "" : "s");
    for (int l = 0; l < layers; l++)
        if ((int)gw_model_spec_init(spec, l) < GW_INIT_HE ||
            gw_model_spec_init(spec, l) > GW_INIT_XAVIER)
            return gw_fail(kind, "%sunknown initialisation %d", where,
                           (int)gw_model_spec_init(spec, l));
    return GW_OK;
}

static gw_err spec_check_width(int l, int width, gw_err kind, const char *where) {
    if (l == 0 && width > GW_MAX_WIDTH)
        return gw_fail(kind,
                       "%sa sample has %d inputs: at most %d: give smaller images (--image-size)",
                       where, width, GW_MAX_WIDTH);
    if (width < 1 || width > GW_MAX_WIDTH)
        return gw_fail(kind, "%slayer %d has width %d: must be 1 to %d", where, l, width,
                       GW_MAX_WIDTH);
    return GW_OK;
}

/* What GW_MODEL_SHARES owes: a way to cut everything, into equal pieces where there are pieces. */
static bool spec_is_cut(const gw_unit *u, bool last) {
    bool sound = u->cut == GW_CUT_BOTH || (last && u->cut == GW_CUT_COLUMNS);
    for (int i = 0; sound && i < u->n_tensors; i++) {
        gw_cut cut = u->tensor[i].cut;
        int n = cut == GW_CUT_ROWS ? u->tensor[i].rows : u->tensor[i].cols;
        int pieces = u->tensor[i].pieces;
        sound = (cut == GW_CUT_ROWS || cut == GW_CUT_COLUMNS) && pieces >= 0 &&
                (pieces == 0 || n % pieces == 0);
    }
    return sound;
}

/* What a model says of a unit; `below`: what it gets, as the one below says. */
static gw_err spec_check_unit(const gw_unit *u, bool dense, int l, int below, gw_err kind,
                              const char *where) {
    bool sound =
        u->in == below && u->kept >= 0 && u->n_tensors > 0 && u->n_tensors <= GW_UNIT_TENSORS;
    GW_TRY(spec_check_width(l + 1, u->out, kind, where));
    if (u->kept > GW_MAX_WIDTH)
        return gw_fail(
            kind,
            "%sunit %d of the model keeps more than %d floats of a sample for the backward pass: "
            "give smaller samples (--image-size, a shorter context) or a narrower model",
            where, l, GW_MAX_WIDTH);
    for (int i = 0; sound && i < u->n_tensors; i++)
        sound = u->tensor[i].rows > 0 && u->tensor[i].rows <= GW_MAX_WIDTH &&
                u->tensor[i].cols > 0 && u->tensor[i].cols <= GW_MAX_WIDTH;
    bool matrix_and_biases = u->n_tensors == 2 && u->kept == 0 && u->tensor[0].rows == u->in &&
                             u->tensor[0].cols == u->out && u->tensor[1].rows == 1 &&
                             u->tensor[1].cols == u->out;
    if (!sound || (dense && !matrix_and_biases)) /* as shards cut dense ones */
        return gw_fail(kind, "%sunit %d of the model: %d inputs of %d, %d floats kept, %d tensors",
                       where, l, u->in, below, u->kept, u->n_tensors);
    return GW_OK;
}

gw_err gw_model_spec_check(const gw_model_spec *spec, gw_err kind, const char *where,
                           size_t *params) {
    if (gw_model_spec_dense(spec))
        GW_TRY(spec_check_perceptron(spec, kind, where));
    if (spec->classes < 1 || spec->classes > GW_MAX_CLASSES)
        return gw_fail(kind, "%s%d classes: must be 1 to %d", where, spec->classes, GW_MAX_CLASSES);
    if ((int)spec->output < GW_OUTPUT_SOFTMAX || spec->output > GW_OUTPUT_SIGMOID)
        return gw_fail(kind, "%sunknown output %d", where, (int)spec->output);
    GW_TRY(spec_check_width(0, spec->inputs, kind, where));
    const gw_model_ops *ops = gw_model_ops_of(spec);
    const char *why = ops->refuses ? ops->refuses(spec) : NULL;
    if (why)
        return gw_fail(kind, "%s--model %s: a sample has %d inputs: %s", where, ops->head.name,
                       spec->inputs, why);
    int layers = gw_model_spec_layers(spec), below = spec->inputs;
    if (layers < 1 || layers > GW_MAX_LAYERS)
        return gw_fail(kind, "%sthe model has %d units: must be 1 to %d", where, layers,
                       GW_MAX_LAYERS);
    *params = 0;
    for (int l = 0; l < layers; l++) {
        gw_unit u = gw_model_spec_unit(spec, l);
        GW_TRY(spec_check_unit(&u, gw_model_spec_dense(spec), l, below, kind, where));
        if ((ops->traits & GW_MODEL_SHARES) && !spec_is_cut(&u, l + 1 == layers))
            return gw_fail(kind, "%sunit %d of the model: it says not how tensor ranks share it",
                           where, l);
        below = u.out;
        *params += gw_unit_params(&u);
        if (*params > GW_MAX_PARAMS)
            return gw_fail(kind, "%sthe model has more than %zu parameters: narrow its layers",
                           where, GW_MAX_PARAMS);
    }
    int targets = gw_model_spec_targets(spec);
    if (below / targets != spec->classes || below % targets != 0)
        return gw_fail(kind, "%sthe model gives %d logits for %d classes of %d target%s", where,
                       below, spec->classes, targets, targets == 1 ? "" : "s");
    return GW_OK;
}
