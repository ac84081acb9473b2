/* gradwire show --json: the same figures for programs. */
#include "cli/show/show.h"

#include "base/json.h"

static json_t *parts(const gw_show_run *r) {
    json_t *all = json_object();
    for (int p = 0; p < GW_SHOW_PARTS; p++) {
        char key[40];
        snprintf(key, sizeof key, "%s_s", gw_show_part_names[p]);
        json_object_set_new(all, key, gw_json_number(r->part[p]));
    }
    return all;
}

static json_t *products(const gw_show_run *r) {
    gw_show_rate rate = gw_show_products(r);
    return json_pack("{s:o, s:o, s:o}", "flops_per_s", gw_json_number(rate.achieved),
                     "ceiling_flops_per_s", gw_json_number(rate.ceiling), "share",
                     gw_json_number(rate.achieved / rate.ceiling));
}

static json_t *run_json(const gw_show_run *r, const gw_show_run *first) {
    const gw_show_steps *s = &r->steps;
    const double *m = s->median;
    gw_show_bound bound = gw_show_bound_of(r);
    json_t *slowest = s->slowest < 0 ? json_null()
                                     : json_pack("{s:i, s:o, s:o}", "rank", s->slowest, "own_s",
                                                 gw_json_number(s->slowest_s), "mean_own_s",
                                                 gw_json_number(s->own_s));
    json_t *sources = (json_t *)gw_show_json(r, "sources");
    return json_pack(
        "{s:s, s:O?, s:O?, s:O?, s:I, s:I, s:o, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:s?, s:o, s:o, "
        "s:o, s:O?, s:O?, s:O?, s:O?, s:o, s:o, s:o, s:O?, s:I, s:o, s:o}",
        "dir", r->dir, "command", gw_show_json(r, "command"), "machine", gw_show_json(r, "machine"),
        "link", gw_show_json(r, "link"), "warmup_steps", (json_int_t)s->warmup, "steps",
        (json_int_t)s->steps, "clean_steps", s->judged ? json_integer(s->clean) : json_null(),
        "steps_used", (json_int_t)s->drawn, "contaminated", s->contaminated, "step_s",
        gw_json_number(m[GW_SHOW_WALL]), "step_ratio",
        gw_json_number(m[GW_SHOW_WALL] / first->steps.median[GW_SHOW_WALL]), "parts", parts(r),
        "computation_s", gw_json_number(m[GW_SHOW_COMPUTE]), "exposed_s",
        gw_json_number(m[GW_SHOW_EXPOSED]), "split_source", r->split, "inflight_s",
        gw_json_number(m[GW_SHOW_INFLIGHT]), "wire_bytes", gw_json_number(m[GW_SHOW_WIRE_BYTES]),
        "slowest", slowest, "sources", sources, "straggler", gw_show_json(r, "results.straggler"),
        "paired", gw_show_json(r, "results.paired"), "overhead", gw_show_json(r, "overhead"),
        "products", products(r), "codec_memory_ctr_s", gw_json_number(m[GW_SHOW_CODEC_MEMORY_CTR]),
        "codec_memory_twin_s", gw_json_number(m[GW_SHOW_CODEC_MEMORY_TWIN]), "resumed",
        gw_show_json(r, "resumed"), "steps_of_other_ranks", (json_int_t)s->others, "bound_s",
        gw_json_number(bound.bound_s), "step_over_bound", gw_json_number(bound.over));
}

json_t *gw_show_document(const gw_show_run *runs, int n) {
    json_t *all = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(all, run_json(&runs[i], &runs[0]));
    return json_pack("{s:i, s:o}", "schema", 1, "runs", all);
}
