#include "run/work.h"

#include "base/json.h"

#include <math.h>
#include <stddef.h>

/* Elements are read and written in place; backward through an activation reads its output, too, and
 * through none, as in the last layer, only sums the columns. */
static double pointwise_bytes(double elements, bool last) {
    double forward = 2, backward = last ? 1 : 3;
    return sizeof(float) * elements * (forward + backward);
}

/* Gradient read, parameter read and written; the velocity likewise. */
static double update_bytes(double parameters, bool momentum) {
    return sizeof(float) * parameters * (momentum ? 5 : 3);
}

void gw_work_count(gw_work *w, const gw_model_spec *spec, int batch, bool momentum) {
    double parameters = 0;
    int layer = 0;
    *w = (gw_work){0};
    w->n_products = gw_twin_products(spec, batch, w->product);
    for (int i = 0; i < w->n_products; i++) {
        const gw_product *p = &w->product[i];
        w->flops += gw_product_flops(p);
        w->bytes += gw_split_bytes(p);
        if (p->ta || p->tb)
            continue; /* one forward product a layer */
        parameters += ((double)p->k + 1) * p->n;
        w->pointwise_bytes += pointwise_bytes((double)p->m * p->n, layer++ == spec->n_hidden);
    }
    w->update_bytes = update_bytes(parameters, momentum);
}

/* ---- run.json ---- */

static double alone_s(const gw_split *s, const gw_product *p) {
    return s->c ? gw_twin_product(s->c, p) : NAN;
}

static json_t *products(const gw_work *w, const gw_split *s) {
    json_t *all = json_array();
    for (int i = 0; i < w->n_products; i++) {
        const gw_product *p = &w->product[i];
        char operands[3] = {p->ta ? 't' : 'n', p->tb ? 't' : 'n', 0};
        json_array_append_new(all, json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:o}", "operands",
                                             operands, "m", p->m, "n", p->n, "k", p->k, "flops",
                                             gw_product_flops(p), "bytes", gw_split_bytes(p),
                                             "alone_s", gw_json_number(alone_s(s, p))));
    }
    return all;
}

/* The rank's part of what all threads of its host do together. */
static double peak(const gw_split *s) {
    return s->c ? s->c->fma.all / s->c->all_threads * s->of.threads : NAN;
}

json_t *gw_work_json(const gw_work_run *run) {
    const gw_split *s = run->split;
    gw_work w;
    if (run->batch < 1)
        return json_null();
    gw_work_count(&w, run->spec, run->batch, run->momentum);
    double alone = 0;
    for (int i = 0; i < w.n_products; i++)
        alone += alone_s(s, &w.product[i]);
    return json_pack(
        "{s:i, s:o, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "local_batch",
        run->batch, "products", products(&w, s), "flops", w.flops, "bytes", w.bytes,
        "pointwise_bytes", w.pointwise_bytes, "update_bytes", w.update_bytes, "alone_s",
        gw_json_number(alone), "compute_s", gw_json_number(run->compute_s), "flops_per_s",
        gw_json_number(w.flops / run->compute_s), "peak_flops_per_s", gw_json_number(peak(s)),
        "working_set_bytes", gw_json_number(s->c ? s->working_set : NAN), "level",
        s->c ? json_string(gw_level_name(s->level)) : json_null(), "bandwidth_bytes_per_s",
        gw_json_number(s->c ? s->bandwidth : NAN));
}
