/* What was predicted and from what, as JSON. */
#include "predict/chooser.h"

#include "base/json.h"
#include "predict/codec.h"

#include <math.h>

static json_t *chooser_points(const gw_curve *c) {
    json_t *points = c->n > 0 ? json_array() : json_null();
    for (int i = 0; i < c->n; i++)
        json_array_append_new(points,
                              gw_json_object("bytes:f time_s:f", c->bytes[i], c->time_s[i]));
    return points;
}

static json_t *chooser_json_candidate(const gw_candidate *c) {
    return gw_json_object(
        "codec:s algorithm:s error_feedback:b step_s:f local_s:f codec_s:f exposed_s:f "
        "wire_bytes:f bytes_per_float:f seconds_per_float:o exchange:o measured_step_s:f",
        c->codec, c->algo, c->feedback, c->step_s, c->local_s, c->codec_s, c->exposed_s, c->sent,
        c->bytes, gw_codec_price_json(c->price), chooser_points(&c->exchange), c->measured_s);
}

json_t *gw_chooser_json(const gw_chooser *a) {
    json_t *all = json_array();
    for (int i = 0; i < a->n; i++)
        json_array_append_new(all, chooser_json_candidate(&a->candidate[i]));
    const gw_candidate *c = &a->candidate[a->chosen];
    json_t *out = gw_json_object(
        "codec:s algorithm:s error_feedback:b how:s why:s margin:f predicted_step_s:f local_s:f "
        "codec_s:f exposed_s:f measured_step_s:f ratio:f ranks:i nodes:i",
        c->codec, c->algo, c->feedback,
        "simulated: local + codec + exposed of a played step (docs/benchmarks.md, plan), out of "
        "parts measured before the first step",
        a->named ? NULL : a->why, a->named ? NAN : a->margin, c->step_s, c->local_s, c->codec_s,
        c->exposed_s, a->measured_s, c->step_s / a->measured_s, a->ranks, a->nodes);
    gw_json_add(out, "local:o links:o memory:o candidates:o", gw_layers_json(&a->times),
                json_incref(a->link), json_incref(a->memory), all);
    return out;
}
