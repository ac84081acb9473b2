#include "base/json.h"

#include <math.h>

json_t *gw_json_number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *gw_json_text(const char *text) {
    return text && *text ? json_string(text) : json_null();
}

void gw_json_stats(json_t *to, const char *name, const char *unit, const gw_stats *s) {
    const double value[] = {s->median, s->ci_low, s->ci_high};
    static const char *const suffix[] = {"", "_ci_low", "_ci_high"};
    for (int i = 0; i < 3; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s%s%s", name, suffix[i], unit);
        json_object_set_new(to, key, gw_json_number(value[i]));
    }
}

gw_err gw_json_commit(gw_file *file, json_t *document, size_t flags, const char *what) {
    FILE *to = gw_file_stream(file);
    bool written = document && json_dumpf(document, to, flags) == 0 && fputc('\n', to) != EOF;
    json_decref(document);
    if (written)
        return gw_file_commit(file);
    gw_file_abandon(file);
    return gw_fail(GW_ERR_IO, "cannot write %s: is the disk full?", what);
}
