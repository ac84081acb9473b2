#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

json_t *gw_json_number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *json_value(char type, va_list *values) {
    switch (type) {
    case 'i': return json_integer(va_arg(*values, int));
    case 'I': return json_integer((json_int_t)va_arg(*values, int64_t));
    case 'u': {
        uint64_t n = va_arg(*values, uint64_t);
        return n == UINT64_MAX ? json_null() : json_integer((json_int_t)n);
    }
    case 'f': return gw_json_number(va_arg(*values, double));
    case 'b': return json_boolean(va_arg(*values, int));
    case 'o': return va_arg(*values, json_t *);
    default: break;
    }
    const char *text = va_arg(*values, const char *);
    return text && (type == 's' || *text) ? json_string(text) : json_null();
}

json_t *gw_json_add(json_t *to, const char *members, ...) {
    int bad = 0;
    va_list values;
    va_start(values, members);
    for (const char *at = members; *at; at += strspn(at, " ")) {
        char key[64];
        int len = (int)strcspn(at, ":");
        snprintf(key, sizeof key, "%.*s", len, at);
        bad |= json_object_set_new(to, key, json_value(at[len + 1], &values));
        at += len + 2;
    }
    va_end(values);
    if (!bad)
        return to;
    json_decref(to);
    return NULL;
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
        return gw_file_commit(&file);
    gw_file_abandon(file);
    return gw_fail(GW_ERR_IO, "cannot write %s: is the disk full?", what);
}
