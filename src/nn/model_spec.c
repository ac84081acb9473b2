#include "nn/model_spec.h"

#include "nn/metrics.h"

static gw_err spec_check_init(const gw_model_spec *spec, gw_err kind, const char *where) {
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

gw_err gw_model_spec_check(const gw_model_spec *spec, gw_err kind, const char *where,
                           size_t *params) {
    if (spec->n_hidden < 0 || spec->n_hidden >= GW_MAX_LAYERS)
        return gw_fail(kind, "%s%d hidden layers: must be 0 to %d", where, spec->n_hidden,
                       GW_MAX_LAYERS - 1);
    if (spec->classes < 1 || spec->classes > GW_MAX_CLASSES)
        return gw_fail(kind, "%s%d classes: must be 1 to %d", where, spec->classes, GW_MAX_CLASSES);
    *params = 0;
    for (int l = -1; l <= spec->n_hidden; l++) {
        int out = gw_model_spec_width(spec, l);
        if (out < 1 || out > GW_MAX_WIDTH)
            return gw_fail(kind, "%slayer %d has width %d: must be 1 to %d", where, l + 1, out,
                           GW_MAX_WIDTH);
        if (l >= 0)
            *params += ((size_t)gw_model_spec_width(spec, l - 1) + 1) * (size_t)out;
        if (*params > GW_MAX_PARAMS)
            return gw_fail(kind, "%sthe model has more than %zu parameters: narrow its layers",
                           where, GW_MAX_PARAMS);
    }
    if ((int)spec->activation < GW_RELU || spec->activation > GW_TANH)
        return gw_fail(kind, "%sunknown activation %d", where, (int)spec->activation);
    if ((int)spec->output < GW_OUTPUT_SOFTMAX || spec->output > GW_OUTPUT_SIGMOID)
        return gw_fail(kind, "%sunknown output %d", where, (int)spec->output);
    return spec_check_init(spec, kind, where);
}
