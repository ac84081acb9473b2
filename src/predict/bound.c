#include "predict/bound.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/strategy/plain.h"
#include "play/options.h"

#include <math.h>
#include <stdlib.h>

enum { RANKS = 2, STEPS = 6 };
enum { PARTS = 256 };   /* of a model, where layers are the parts */
enum { POLLS = 32768 }; /* of a step in which buckets wait for the link */

const char *gw_bound_name(gw_bound_mode mode) {
    static const char *const names[GW_BOUND_MODES] = {
        [GW_BOUND_BLOCKING] = "blocking", [GW_BOUND_EAGER] = "eager",
        [GW_BOUND_LAZY] = "lazy",         [GW_BOUND_PRIORITY] = "priority",
        [GW_BOUND_SHARDED] = "sharded",   [GW_BOUND_DELAYED] = "delayed",
    };
    return names[mode];
}

/* ---- the step, as a profile ---- */

static size_t bound_floats(const gw_bound_parts *p) {
    return gw_span_end(p->layers[p->n_layers - 1]);
}

/* Computation and codec: what the core has to do whatever the mode. */
static double bound_computation(const gw_bound_parts *p) {
    return gw_layers_sum(&p->local) + p->codec_s;
}

/* What the core does for the buckets that are on their way. */
static double bound_beside(const gw_bound_parts *p, gw_bound_mode mode) {
    bool moves = mode != GW_BOUND_BLOCKING && !isnan(p->transport_s);
    return p->codec_s + (moves ? p->transport_s : 0);
}

/* A tensor for each layer that has parameters. Its gradient is there when the layers above have
 * computed their input's and it has computed its own; what lies above it in the forward pass, up to
 * the next tensor, follows it. */
static void bound_profile(const gw_bound_parts *p, gw_bound_mode mode, gw_step_profile *out) {
    const gw_layer_times *t = &p->local;
    double floats = (double)bound_floats(p), beside_s = bound_beside(p, mode);
    double since_s = 0, follows_s = 0; /* the tensor above was ready; forward passes without one */
    int polls = mode == GW_BOUND_PRIORITY ? POLLS : 1; /* others begin all that is ready */
    *out = (gw_step_profile){.model = "measured",
                             .batch = 1,
                             .n = bound_floats(p),
                             .tensor = out->tensor,
                             .ahead = true,
                             .poll_s = fmax(bound_computation(p) / polls, 1e-9)};
    for (int l = 0; l < p->n_layers; l++)
        out->groups = out->n_tensors += p->layers[l].n > 0;
    for (int l = p->n_layers - 1, group = out->n_tensors; l >= 0; l--) {
        size_t n = p->layers[l].n;
        follows_s += t->forward_s[l];
        if (n > 0) {
            group--;
            out->tensor[group] = (gw_step_tensor){.name = "layer",
                                                  .group = group,
                                                  .n = n,
                                                  .forward_s = follows_s,
                                                  .backward_s = since_s + t->weights_s[l],
                                                  .std = 1};
            since_s = beside_s * (double)n / floats;
            follows_s = 0;
        }
        since_s += t->input_s[l];
    }
    out->rest_s = since_s;
    out->data_s = t->data_s + t->other_s + follows_s;
    /* Of two ranks each updates half where they share it. */
    out->optimizer_s = t->update_s * p->update_share * (mode == GW_BOUND_SHARDED ? RANKS : 1);
}

/* ---- the exchange ---- */

static bool bound_suits(const gw_strategy_ops *s, gw_bound_mode mode) {
    return mode == GW_BOUND_SHARDED ? s->gives == GW_GIVES_PARTS
                                    : s->shape == GW_SHAPE_BUCKETS && s->gives == GW_GIVES_MEAN;
}

/* A bucket is one message: between two ranks `doubling` sends all there is, `ring` its halves. */
static void bound_comm(const gw_bound_parts *p, gw_bound_mode mode, char *text, size_t size) {
    const char *name = GW_STRATEGY_PLAIN;
    size_t bucket = p->bucket ? p->bucket : 1 + bound_floats(p) / PARTS;
    for (const gw_entry *const *e = gw_strategies.entries; *e && mode != GW_BOUND_BLOCKING; e++)
        if (bound_suits((const gw_strategy_ops *)*e, mode))
            name = (*e)->name;
    size_t at = gw_text_print(text, size, "%s:algo=(%s)", name,
                              mode == GW_BOUND_SHARDED ? "ring:chunk=0" : "doubling");
    if (mode != GW_BOUND_BLOCKING && mode != GW_BOUND_SHARDED)
        at += gw_text_print(text + at, size - at, ",bucket=%zu", bucket * sizeof(float));
    if (mode == GW_BOUND_PRIORITY)
        gw_text_print(text + at, size - at, ",order=priority,credit=4");
}

gw_err gw_bound_play(gw_bound_parts *p) {
    gw_step_profile profile = {0};
    gw_err e = gw_alloc(&profile.tensor, (size_t)p->n_layers, sizeof *profile.tensor);
    double bytes_per_s = (double)(bound_floats(p) * sizeof(float)) / fmax(p->wire_s, 1e-12);
    double core_s = gw_layers_sum(&p->local) - (1 - p->update_share) * p->local.update_s;
    for (int m = 0; m < GW_BOUND_DELAYED && e == GW_OK; m++) {
        gw_bound_mode mode = (gw_bound_mode)m;
        gw_sim_play play = {.world = {.ranks = RANKS, .link.bytes_per_s = bytes_per_s},
                            .profile = &profile,
                            .lazy = mode != GW_BOUND_BLOCKING && mode != GW_BOUND_EAGER,
                            .sleeps = true,
                            .speed = 1,
                            .steps = STEPS};
        char comm[160];
        bound_profile(p, mode, &profile);
        bound_comm(p, mode, comm, sizeof comm);
        e = gw_sim_play_exact(&play, comm);
        p->step_s[m] = play.step_s;
    }
    free(profile.tensor);
    p->step_s[GW_BOUND_DELAYED] = fmax(core_s + bound_beside(p, GW_BOUND_DELAYED), p->wire_s);
    return e;
}

json_t *gw_bound_json(const gw_bound_parts *p) {
    json_t *modes = json_object();
    for (int m = 0; m < GW_BOUND_MODES; m++)
        json_object_set_new(modes, gw_bound_name((gw_bound_mode)m), gw_json_number(p->step_s[m]));
    return gw_json_object("local:o computation_s:f codec_s:f wire_s:f transport_s:f update_share:f "
                          "bucket_floats:I modes:o",
                          gw_layers_json(&p->local), bound_computation(p), p->codec_s, p->wire_s,
                          p->transport_s, p->update_share, (json_int_t)p->bucket, modes);
}
