/* A list of options without effect, and its forms: for people, and for run.json. */
#include "run/unmet.h"

#include "base/json.h"
#include "base/text.h"

#include <string.h>

void gw_unmet_add(gw_unmet *u, const char *option, const char *value, const char *what,
                  const char *why) {
    if (u->n == GW_UNMET_MOST)
        return;
    gw_unmet_item *i = &u->item[u->n++];
    i->option = option;
    gw_text_copy(i->value, sizeof i->value, value);
    gw_text_copy(i->what, sizeof i->what, what);
    gw_text_copy(i->why, sizeof i->why, why);
}

void gw_unmet_late(gw_unmet *u, const char *option, const char *method, const gw_args *args,
                   int64_t steps) {
    char value[128], why[160];
    gw_text_print(why, sizeof why, "the run ends with step %lld", (long long)steps);
    for (const gw_opt *o = args ? gw_args_opts(args) : NULL; o && o->name; o++) {
        bool after = o->type == GW_OPT_STEPS;
        if ((!after && o->type != GW_OPT_PERIOD) || gw_args_int(args, o->name) + after <= steps)
            continue;
        gw_text_print(value, sizeof value, "%.*s:%s=%s", (int)strcspn(method, ":"), method, o->name,
                      gw_args_text(args, o->name));
        gw_unmet_add(u, option, value, "nothing comes after it", why);
    }
}

void gw_unmet_text(const gw_unmet *u, char *out, size_t room) {
    size_t at = 0;
    *out = '\0';
    for (const gw_unmet_item *i = u->item; i < u->item + u->n; i++)
        at += gw_text_print(out + at, room - at, "--%s %s: %s: %s\n", i->option, i->value, i->what,
                            i->why);
}

static bool unmet_says(const gw_unmet *u, const gw_unmet_item *i) {
    for (const gw_unmet_item *one = u->item; one < u->item + u->n; one++)
        if (strcmp(one->option, i->option) == 0 && strcmp(one->value, i->value) == 0 &&
            strcmp(one->what, i->what) == 0)
            return true;
    return false;
}

void gw_unmet_print(const gw_unmet *u, const gw_unmet *but, FILE *to) {
    for (const gw_unmet_item *i = u->item; i < u->item + u->n; i++)
        if (!but || !unmet_says(but, i))
            fprintf(to, "note: --%s %s: %s: %s\n", i->option, i->value, i->what, i->why);
}

json_t *gw_unmet_json(const gw_unmet *u) {
    json_t *all = json_array();
    for (const gw_unmet_item *i = u->item; i < u->item + u->n; i++)
        json_array_append_new(all, gw_json_object("option:s value:s what:s why:s", i->option,
                                                  i->value, i->what, i->why));
    return all;
}
