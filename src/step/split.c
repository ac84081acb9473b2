#include "step/split.h"

#include "nn/layer.h"

#include <math.h>

/* Batches that differ by more run at another rate. */
#define SAME_SIZE 0.1

double gw_split_bytes(const gw_product *p) {
    double m = p->m, n = p->n, k = p->k;
    return sizeof(float) * (m * k + k * n + 2 * m * n);
}

double gw_split_load_bytes(const gw_load *l, const gw_product *p) {
    gw_product all = *p, none = *p;
    int *rows = p->ta ? &all.k : &all.m;
    *rows = l->batch;
    *(p->ta ? &none.k : &none.m) = 0;
    double bytes = gw_split_bytes(&all) + (gw_load_parts(l) - 1) * gw_split_bytes(&none);
    return gw_load_times(l, p) * bytes;
}

static int split_layers(const gw_split *m) {
    return m->of.load.shard->n_layers;
}

/* What a step touches: parameters, gradients and the optimizer's state; inputs, outputs and two
 * deltas. */
static double split_working_set(const gw_split *m) {
    const gw_load *load = &m->of.load;
    const gw_shard_layer *layer = load->shard->layers;
    double arena = 0, sample = 0, widest = 0, held = load->held > 1 ? load->held : 1;
    for (int l = 0; l < split_layers(m); l++) {
        double out = layer[l].layer.out;
        bool begins = l == 0 || layer[l].chunk != layer[l - 1].chunk;
        arena += (double)layer[l].layer.span.n;
        sample += out + gw_model_spec_unit(&load->shard->spec, layer[l].number).kept +
                  (begins ? layer[l].layer.in : 0);
        widest = fmax(widest, out);
    }
    int arrays = 2 + m->of.optimizer->state.count;
    return sizeof(float) * (arrays * arena + gw_load_rows(load) * (held * sample + 2 * widest));
}

static void split_price_products(gw_split *m) {
    const gw_load *load = &m->of.load;
    gw_product all[GW_PRODUCTS];
    int rows = gw_load_rows(load), n = gw_twin_products(load->shard, rows, all);
    m->flop_s = 0;
    for (int i = 0; i < n; i++)
        m->flop_s += gw_load_times(load, &all[i]) * gw_twin_product(m->c, &all[i]);
    m->flop_s *= (double)load->batch / rows;
    m->working_set = split_working_set(m);
    m->level = gw_ceilings_level(m->c, m->working_set / m->of.threads, m->c->all_threads);
    m->bandwidth = m->of.threads * gw_ceilings_bandwidth(m->c, m->level, m->c->all_threads);
}

void gw_split_open(gw_split *m, const gw_ceilings *c, const gw_twin_setup *of) {
    *m = (gw_split){.c = c, .of = *of};
    if (!c || c->oversubscribed || of->load.batch < 1) {
        m->c = NULL;
        return;
    }
    m->move_s = gw_twin_update(c, of);
    m->fork_s = of->threads > 1 ? gw_twin_fork(c) : 0;
    for (int k = 0; k < GW_CODINGS; k++)
        m->code_s[k] = gw_twin_coded(c, of, (gw_coding)k);
    for (int l = 0; l < split_layers(m); l++) {
        m->forward_s[l] = gw_twin_pointwise(c, of, l, GW_PART_FORWARD_POINTWISE);
        m->backward_s[l] = gw_twin_pointwise(c, of, l, GW_PART_BACKWARD_POINTWISE);
    }
    split_price_products(m);
}

/* What the pointwise kernels and the update would take with all data in the first-level cache. */
static double split_twins(const gw_split *m, int local, const gw_moved *moved) {
    double t = moved->alone * m->move_s;
    if (moved->forks > 0)
        t += moved->shared * m->move_s / m->of.threads + moved->forks * m->fork_s;
    const gw_load *load = &m->of.load;
    int parts = gw_load_parts(load), again = 1 + load->repeats;
    for (int l = 0; l < split_layers(m); l++) {
        int width = load->shard->layers[l].layer.out;
        int threads = gw_layer_threads((local + parts - 1) / parts, width);
        double all = (double)local * width * (again * m->forward_s[l] + m->backward_s[l]);
        t += threads > 1 ? all / threads + parts * (again + 1) * m->fork_s : all;
    }
    return t;
}

/* Time beyond the twins', no less than 0: a twin's own error may make it the longer one. */
static double split_beyond(double took_s, double twin_s) {
    return isnan(twin_s) ? NAN : fmax(0, took_s - twin_s);
}

static void split_codec(const gw_split *m, const gw_batch_cost *cost, gw_batch_split *split) {
    double twin = 0, took = cost->phase_s[GW_PHASE_ENCODE] + cost->phase_s[GW_PHASE_DECODE];
    for (int k = 0; k < GW_CODINGS; k++)
        twin += cost->coded[k] > 0 ? cost->coded[k] * m->code_s[k] : 0;
    if (m->of.codec)
        split->memory_codec_twin_s = split_beyond(took, twin);
}

void gw_split_interval(double c_s, double flop_s, double bytes_s, double *lo, double *hi) {
    *lo = fmax(0, c_s - flop_s);
    *hi = fmin(c_s, bytes_s);
    if (isnan(c_s + flop_s + bytes_s) || *lo > *hi) /* fmax and fmin leave a NaN out */
        *lo = *hi = NAN;
}

static void split_products(gw_split *m, int local, double took_s, gw_batch_split *split) {
    gw_product all[GW_PRODUCTS];
    gw_load load = m->of.load;
    double scale = (double)local / load.batch, bytes = 0, lo, hi;
    if (fabs(scale - 1) > SAME_SIZE)
        return;
    load.batch = local;
    int n = gw_twin_products(load.shard, gw_load_rows(&load), all);
    for (int i = 0; i < n; i++)
        bytes += gw_split_load_bytes(&load, &all[i]);
    gw_split_interval(took_s, m->flop_s * scale, bytes / m->bandwidth, &lo, &hi);
    m->flagged += isnan(lo);
    split->memory_model_lo_s = lo;
    split->memory_model_hi_s = hi;
    split->core_model_lo_s = took_s - hi;
    split->core_model_hi_s = took_s - lo;
}

void gw_split_forget(gw_split *m) {
    m->split = m->flagged = 0;
}

gw_batch_split gw_split_batch(gw_split *m, int local, const gw_moved *moved,
                              const gw_batch_cost *c) {
    gw_batch_split split = gw_batch_no_split;
    const double *phase = c->phase_s, *part = c->part_s;
    double pointwise = part[GW_PART_FORWARD_POINTWISE] + part[GW_PART_BACKWARD_POINTWISE];
    double rest = pointwise + part[GW_PART_LOSS];
    if (!m->c || isnan(rest) || local < 1)
        return split;
    if (!gw_model_spec_dense(&m->of.load.shard->spec)) { /* its own kernels are in no part */
        split_codec(m, c, &split);
        return split;
    }
    double moving = pointwise + phase[GW_PHASE_UPDATE];
    double memory = split_beyond(moving, split_twins(m, local, moved));
    split.memory_twin_s = memory;
    split.core_twin_s = rest + phase[GW_PHASE_UPDATE] - memory;
    split_codec(m, c, &split);
    m->split++;
    double passes = gw_phases_computation(phase) - phase[GW_PHASE_UPDATE];
    split_products(m, local, passes - rest, &split);
    return split;
}
