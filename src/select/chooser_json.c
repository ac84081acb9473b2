/* What the cost model predicted and from what, as JSON. */
#include "select/chooser.h"

#include "base/json.h"

json_t *gw_chooser_points(const gw_curve *c) {
    json_t *points = json_array();
    for (int i = 0; i < c->n; i++)
        json_array_append_new(
            points, json_pack("{s:f, s:f}", "bytes", c->bytes[i], "time_s", c->time_s[i]));
    return points;
}

static json_t *chooser_json_curve(const gw_curve *c) {
    if (c->n == 0)
        return json_null();
    return json_pack("{s:f, s:f, s:o}", "alpha_s", gw_curve_alpha(c), "beta_s_per_byte",
                     gw_curve_beta(c), "points", gw_chooser_points(c));
}

static json_t *chooser_json_codings(const double x[GW_CODINGS]) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "encode", x[GW_CODING_ENCODE], "adopt",
                     x[GW_CODING_ADOPT], "add", x[GW_CODING_ADD], "set", x[GW_CODING_SET], "sum",
                     x[GW_CODING_SUM]);
}

static json_t *chooser_json_algorithms(const gw_chooser *a) {
    json_t *all = json_array();
    for (int i = 0; i < a->n_algos; i++) {
        const gw_algo_survey *s = &a->algo[i];
        json_array_append_new(
            all, json_pack("{s:s, s:o, s:o, s:b, s:o, s:f}", "algorithm", s->spec.text, "exact",
                           chooser_json_curve(&s->exact), "coded", chooser_json_curve(&s->coded),
                           "summed_by_mpi", s->summed, "floats_coded_per_float",
                           chooser_json_codings(s->work), "chunks_per_float", s->chunks));
    }
    return all;
}

static json_t *chooser_json_candidate(const gw_candidate *c) {
    const gw_forecast *f = &c->forecast;
    return json_pack("{s:s, s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "codec", c->codec,
                     "algorithm", c->algo, "error_feedback", c->feedback, "step_s", f->step_s,
                     "local_s", f->local_s, "codec_s", f->codec_s, "exposed_s", f->exposed_s,
                     "wire_bytes", f->sent, "bytes_per_float", c->way.bytes, "seconds_per_float",
                     chooser_json_codings(c->way.price), "measured_step_s",
                     gw_json_number(c->measured_s));
}

json_t *gw_chooser_json(const gw_chooser *a) {
    json_t *all = json_array();
    for (int i = 0; i < a->n; i++)
        json_array_append_new(all, chooser_json_candidate(&a->candidate[i]));
    const gw_candidate *c = &a->candidate[a->chosen];
    const gw_forecast *f = &c->forecast;
    return json_pack(
        "{s:s, s:s, s:b, s:s, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:o, s:i, s:i, s:{s:f, "
        "s:f, s:f, s:f, s:f}, s:o, s:o}",
        "codec", c->codec, "algorithm", c->algo, "error_feedback", c->feedback, "how",
        "modelled: local + codec + exposed, by the cost model (docs/benchmarks.md, "
        "plan) out of parts measured before the first step",
        "why", a->named ? json_null() : json_string(a->why), "margin",
        a->named ? json_null() : json_real(a->margin), "predicted_step_s", f->step_s, "local_s",
        f->local_s, "codec_s", f->codec_s, "exposed_s", f->exposed_s, "measured_step_s",
        gw_json_number(a->measured_s), "ratio", gw_json_number(f->step_s / a->measured_s), "ranks",
        a->ranks, "nodes", a->nodes, "local", "data_s", a->local.data_s, "forward_s",
        a->local.forward_s, "backward_s", a->local.backward_s, "update_s", a->local.update_s,
        "other_s", a->local.other_s, "algorithms", chooser_json_algorithms(a), "candidates", all);
}
