#include "select/bound.h"

#include "base/json.h"

#include <math.h>

const char *gw_bound_name(gw_bound_mode mode) {
    static const char *const names[GW_BOUND_MODES] = {
        [GW_BOUND_BLOCKING] = "blocking", [GW_BOUND_EAGER] = "eager",
        [GW_BOUND_LAZY] = "lazy",         [GW_BOUND_PRIORITY] = "priority",
        [GW_BOUND_SHARDED] = "sharded",   [GW_BOUND_DELAYED] = "delayed",
    };
    return names[mode];
}

static double bound_transport(const gw_bound_parts *p) {
    return isnan(p->transport_s) ? 0 : p->transport_s;
}

static double bound_walk(const gw_bound_parts *p, gw_bound_mode mode) {
    bool sharded = mode == GW_BOUND_SHARDED;
    gw_walk w = {.local = p->local,
                 .layers = p->layers,
                 .n_layers = p->n_layers,
                 .lazy = mode != GW_BOUND_EAGER,
                 .priority = mode == GW_BOUND_PRIORITY,
                 .gathers = sharded};
    gw_walk_cut(&w, sharded ? 0 : p->bucket);
    /* Wire, codec and transport by the floats of each part. What the core does for a part, it does
     * while the part is on its way: the bound is no later for a codec whose first bytes leave
     * early. */
    for (int i = 0; i < w.n_parts; i++) {
        gw_walk_part *part = &w.part[i];
        double share = (double)part->span.n / (double)gw_span_end(p->layers[p->n_layers - 1]);
        double wire_s = p->wire_s * share;
        part->beside_s = (p->codec_s + bound_transport(p)) * share;
        part->wire_s = sharded ? wire_s / 2 : wire_s;
        part->gather_s = sharded ? wire_s / 2 : 0;
    }
    return gw_walk_step(&w).step_s;
}

double gw_bound_step(const gw_bound_parts *p, gw_bound_mode mode) {
    gw_bound_parts mine = *p;
    mine.local.update_s *= p->update_share;
    double computation_s = gw_bound_computation(&mine);
    switch (mode) {
    case GW_BOUND_BLOCKING: return computation_s + p->wire_s;
    case GW_BOUND_DELAYED: return fmax(computation_s + bound_transport(p), p->wire_s);
    default: return bound_walk(&mine, mode);
    }
}

json_t *gw_bound_json(const gw_bound_parts *p) {
    const gw_local *l = &p->local;
    json_t *modes = json_object();
    for (int m = 0; m < GW_BOUND_MODES; m++)
        json_object_set_new(modes, gw_bound_name((gw_bound_mode)m),
                            gw_json_number(gw_bound_step(p, (gw_bound_mode)m)));
    return json_pack("{s:{s:f, s:f, s:f, s:f, s:f}, s:f, s:f, s:f, s:o, s:f, s:I, s:o}", "local",
                     "data_s", l->data_s, "forward_s", l->forward_s, "backward_s", l->backward_s,
                     "update_s", l->update_s, "other_s", l->other_s, "computation_s",
                     gw_bound_computation(p), "codec_s", p->codec_s, "wire_s", p->wire_s,
                     "transport_s", gw_json_number(p->transport_s), "update_share", p->update_share,
                     "bucket_floats", (json_int_t)p->bucket, "modes", modes);
}
