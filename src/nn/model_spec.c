#include "nn/model_spec.h"

#include "nn/metrics.h"

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
    if ((int)spec->init < GW_INIT_HE || spec->init > GW_INIT_XAVIER)
        return gw_fail(kind, "%sunknown initialisation %d", where, (int)spec->init);
    return GW_OK;
}
