#include "checkpoint/best.h"

#include "base/json.h"
#include "folder/store.h"
#include "nn/model.h"

#include <math.h>
#include <string.h>

bool gw_best_offer(gw_best *b, const gw_best *epoch, const float *params) {
    double least = b->epoch > 0 ? b->validation_loss : INFINITY;
    if (!(epoch->validation_loss < least)) /* NaN: no validation set, or a signal cut it short */
        return false;
    b->epoch = epoch->epoch;
    b->validation_loss = epoch->validation_loss;
    b->validation_accuracy = epoch->validation_accuracy;
    b->test_accuracy = epoch->test_accuracy;
    if (b->params)
        memcpy(b->params, params, b->n * sizeof *params);
    return true;
}

json_t *gw_best_json(const gw_best *b) {
    if (b->epoch == 0)
        return json_null();
    return gw_json_object("epoch:i validation_loss:f validation_accuracy:f test_accuracy:f",
                          b->epoch, b->validation_loss, b->validation_accuracy, b->test_accuracy);
}

static double best_number(const json_t *best, const char *key) {
    const json_t *value = json_object_get(best, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

gw_err gw_best_read(gw_best *b, const json_t *facts, const char *from) {
    const json_t *best = json_object_get(facts, GW_BEST_FACT);
    int64_t epoch = json_integer_value(json_object_get(best, "epoch"));
    b->epoch = 0;
    if (!json_is_object(best))
        return GW_OK;
    b->validation_loss = best_number(best, "validation_loss");
    b->validation_accuracy = best_number(best, "validation_accuracy");
    b->test_accuracy = best_number(best, "test_accuracy");
    if (epoch < 1 || epoch > INT32_MAX || isnan(b->validation_loss))
        return gw_fail(GW_ERR_INPUT, "%s: its best epoch cannot be", from);
    b->epoch = (int)epoch;
    return GW_OK;
}

gw_err gw_best_load(gw_best *b, const char *from, const gw_spec *plugin) {
    char path[GW_STORE_PATH];
    gw_model *m = NULL;
    GW_TRY(gw_store_path(path, from, GW_BEST_FILE));
    GW_TRY(gw_model_load(&m, path, 1, plugin));
    bool fits = gw_model_size(m) == b->n;
    if (fits)
        memcpy(b->params, gw_model_params(m), b->n * sizeof(float));
    gw_model_close(m);
    return fits ? GW_OK
                : gw_fail(GW_ERR_INPUT, "%s: %zu parameters are expected there", path, b->n);
}
