/* The ceilings in run.json. */
#include "machine/gauge.h"

#include "base/json.h"

#include "machine/ceilings_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *links(const gw_gauge *g) {
    json_t *all = json_array();
    for (int i = 0; i < g->links; i++) {
        const gw_link *l = &g->link[i];
        json_array_append_new(all,
                              json_pack("{s:i, s:i, s:s, s:o, s:o}", "from", l->from, "to", l->to,
                                        "over", l->same_host ? "shared memory" : "network",
                                        "alpha_s", gw_json_number(l->alpha_s), "beta_s_per_byte",
                                        gw_json_number(l->beta_s_a_byte)));
    }
    return all;
}

/* Products as rates, which is what they are compared by. */
static json_t *products(const gw_gauge *g) {
    json_t *all = json_array();
    for (int i = 0; i < g->c.n_times; i++) {
        const gw_ceiling_time *t = &g->c.time[i];
        char shape[4];
        int m, n, k;
        if (sscanf(t->name, "product %2s %dx%dx%d", shape, &m, &n, &k) == 4)
            json_array_append_new(all, json_pack("{s:s, s:i, s:i, s:i, s:f, s:f}", "operands",
                                                 shape, "m", m, "n", n, "k", k, "s", t->seconds,
                                                 "flops_per_s", 2.0 * m * n * k / t->seconds));
    }
    return all;
}

json_t *gw_gauge_json(const gw_gauge *g) {
    if (g->source == GW_GAUGE_ABSENT)
        return json_null();
    json_t *all = gw_ceilings_json(&g->c);
    if (!all)
        return json_null();
    json_object_set_new(all, "source", json_string(gw_gauge_source_name(g->source)));
    json_object_set_new(all, "age_s", gw_json_number(g->age_s));
    json_object_set_new(all, "took_s", gw_json_number(g->took_s));
    json_object_set_new(all, "times_measured_now", json_integer(g->added));
    json_object_set_new(all, "note", gw_json_text(g->note));
    json_object_set_new(all, "products", products(g));
    json_object_set_new(all, "links", links(g));
    json_object_set_new(all, "drift", gw_json_number(g->drift));
    json_object_set_new(all, "drifted",
                        isnan(g->drift) ? json_null()
                                        : json_boolean(fabs(g->drift) > GW_GAUGE_DRIFT));
    return all;
}
