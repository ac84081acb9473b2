#include "run/work.h"

#include "base/json.h"

#include <math.h>
#include <stddef.h>

/* Elements are read and written in place; backward through an activation reads its output, too, and
 * through none, as in the last layer, only sums the columns. */
static double work_pointwise_bytes(double elements, bool last) {
    double forward = 2, backward = last ? 1 : 3;
    return sizeof(float) * elements * (forward + backward);
}

/* Gradient read, parameter read and written; the velocity likewise. */
static double work_update_bytes(double parameters, bool momentum) {
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
        w->pointwise_bytes += work_pointwise_bytes((double)p->m * p->n, layer++ == spec->n_hidden);
    }
    w->update_bytes = work_update_bytes(parameters, momentum);
}

/* ---- run.json ---- */

static double work_alone_s(const gw_split *s, const gw_product *p) {
    return s->c ? gw_twin_product(s->c, p) : NAN;
}

static json_t *work_products(const gw_work *w, const gw_split *s) {
    json_t *all = json_array();
    for (int i = 0; i < w->n_products; i++) {
        const gw_product *p = &w->product[i];
        char operands[3] = {p->ta ? 't' : 'n', p->tb ? 't' : 'n', 0};
        json_array_append_new(all,
                              gw_json_object("operands:s m:i n:i k:i flops:f bytes:f alone_s:f",
                                             operands, p->m, p->n, p->k, gw_product_flops(p),
                                             gw_split_bytes(p), work_alone_s(s, p)));
    }
    return all;
}

json_t *gw_work_json(const gw_work_run *run) {
    const gw_split *s = run->split;
    gw_work w;
    if (run->batch < 1)
        return json_null();
    gw_work_count(&w, run->spec, run->batch, run->momentum);
    /* The rank's part of what all threads of its host do together. */
    double peak = s->c ? s->c->fma.all / s->c->all_threads * s->of.threads : NAN, alone = 0;
    for (int i = 0; i < w.n_products; i++)
        alone += work_alone_s(s, &w.product[i]);
    return gw_json_object(
        "local_batch:i products:o flops:f bytes:f pointwise_bytes:f update_bytes:f alone_s:f "
        "compute_s:f flops_per_s:f peak_flops_per_s:f working_set_bytes:f level:s "
        "bandwidth_bytes_per_s:f",
        run->batch, work_products(&w, s), w.flops, w.bytes, w.pointwise_bytes, w.update_bytes,
        alone, run->compute_s, w.flops / run->compute_s, peak, s->c ? s->working_set : NAN,
        s->c ? gw_level_name(s->level) : NULL, s->c ? s->bandwidth : NAN);
}
