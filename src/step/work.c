#include "step/work.h"

#include "base/json.h"

#include <math.h>
#include <stddef.h>

/* Elements are read and written in place; backward through an activation reads its output, too, and
 * through none, as in the last layer, only sums the columns. */
static double work_pointwise_bytes(const gw_load *load, const gw_layer *layer) {
    double forward = load->repeats ? 4 : 2, backward = layer->transfer == GW_LINEAR ? 1 : 3;
    return sizeof(float) * (double)load->batch * layer->out * (forward + backward);
}

/* Of a step, out of those that a part of its rows takes. */
static double work_flops(const gw_load *load, const gw_product *part) {
    return gw_load_times(load, part) * gw_product_flops(part) * load->batch / gw_load_rows(load);
}

/* Gradient read, parameter read and written; the optimizer's vectors likewise. */
static double work_update_bytes(double parameters, int vectors) {
    return sizeof(float) * parameters * (3 + 2 * vectors);
}

void gw_work_count(gw_work *w, const gw_load *load, int vectors) {
    const gw_shard *shard = load->shard;
    *w = (gw_work){0};
    w->n_products = gw_twin_products(shard, gw_load_rows(load), w->product);
    for (int i = 0; i < w->n_products; i++) {
        w->flops += work_flops(load, &w->product[i]);
        w->bytes += gw_split_load_bytes(load, &w->product[i]);
    }
    if (!gw_model_spec_dense(&shard->spec))
        w->pointwise_bytes = NAN;
    for (int l = 0; l < shard->n_layers; l++)
        w->pointwise_bytes += work_pointwise_bytes(load, &shard->layers[l].layer);
    w->update_bytes = work_update_bytes((double)shard->size, vectors);
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
    if (run->load.batch < 1)
        return json_null();
    gw_work_count(&w, &run->load, run->vectors);
    /* The rank's part of what all threads of its host do together. */
    double peak = s->c ? s->c->fma.all / s->c->all_threads * s->of.threads : NAN, alone = 0;
    for (int i = 0; i < w.n_products; i++)
        alone += gw_load_times(&run->load, &w.product[i]) * work_alone_s(s, &w.product[i]);
    alone *= (double)run->load.batch / gw_load_rows(&run->load);
    return gw_json_object(
        "local_batch:i microbatches:i products:o flops:f bytes:f pointwise_bytes:f "
        "update_bytes:f update_flops:f alone_s:f compute_s:f flops_per_s:f peak_flops_per_s:f "
        "working_set_bytes:f level:s bandwidth_bytes_per_s:f",
        run->load.batch, gw_load_parts(&run->load), work_products(&w, s), w.flops, w.bytes,
        w.pointwise_bytes, w.update_bytes, run->update_flops, alone, run->compute_s,
        w.flops / run->compute_s, peak, s->c ? s->working_set : NAN,
        s->c ? gw_level_name(s->level) : NULL, s->c ? s->bandwidth : NAN);
}
