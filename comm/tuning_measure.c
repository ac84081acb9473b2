#include "comm/timing.h"
#include "comm/tuning.h"

#include "base/mem.h"
#include "comm/channel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t wanted[] = {4 << 10, 64 << 10, 1 << 20, 8 << 20};
enum { WANTED = sizeof wanted / sizeof *wanted };

typedef struct tuner {
    gw_tuning *t;
    gw_lane *lane;
    gw_timing timing;
    gw_timed timed[GW_TUNING_ALGOS];
} tuner;

/* ---- who takes part ---- */

static gw_err tuning_several_nodes(const gw_lane *lane, bool *out) {
    const gw_channel *c = gw_lane_channel(lane);
    int here = c->shared ? gw_shared_size(c->shared) : 1;
    int neighbours = here > 1 && here < gw_lane_size(lane);
    GW_TRY(c->fabric->ops->sum(c->fabric, &neighbours));
    *out = neighbours > 0;
    return GW_OK;
}

static gw_err tuning_gather(gw_tuning *t, const gw_lane *lane, const gw_algo_ops *except) {
    bool nodes;
    GW_TRY(tuning_several_nodes(lane, &nodes));
    for (const gw_entry *const *e = gw_algos.entries; *e; e++) {
        bool layered = strcmp((*e)->name, "hier") == 0; /* on one node the same as shm */
        if (*e == &except->head || (layered && !nodes) || t->n_algos == GW_TUNING_ALGOS)
            continue;
        gw_err err =
            gw_algo_open(&t->algo[t->n_algos], &GW_SPEC_NAMED((*e)->name), gw_lane_codec(lane));
        if (err == GW_OK)
            t->n_algos++;
        else if (err != GW_ERR_UNSUPPORTED)
            return err;
    }
    return GW_OK;
}

/* ---- measuring ---- */

static gw_err tuning_run_once(void *ctx, int i, double *s) {
    return gw_timed_run(&((tuner *)ctx)->timed[i], s);
}

/* The fastest by the medians. */
static gw_err tuning_choose(void *ctx, size_t n) {
    tuner *p = ctx;
    gw_tuning_row *row = &p->t->row[p->t->n_sizes++];
    *row = (gw_tuning_row){.bytes = n * sizeof(float), .chosen = -1};
    for (int a = 0; a < p->t->n_algos; a++) {
        gw_samples *s = &p->timed[a].times;
        row->time_s[a] = s->n > 0 ? gw_stats_median(s->x, s->n) : NAN;
        if (s->n > 0 && (row->chosen < 0 || row->time_s[a] < row->time_s[row->chosen]))
            row->chosen = a;
    }
    return row->chosen >= 0
               ? GW_OK
               : gw_fail(GW_ERR_UNSUPPORTED, "algo=auto: no algorithm carries codec %s here",
                         gw_lane_codec(p->lane)->name);
}

static gw_err tuning_measure(tuner *p, double budget_s) {
    gw_lane *lane = p->lane;
    size_t arena = gw_lane_encoder(lane)->of->n * sizeof(float), most = wanted[WANTED - 1];
    float *scratch;
    arena = arena < most ? arena : most;
    gw_timing_plan plan = {.wanted = wanted,
                           .n_wanted = WANTED,
                           .arena = arena,
                           .budget_s = budget_s,
                           .least = 1,
                           .most = 15,
                           .hopeless = 8,
                           .end = tuning_choose};
    GW_TRY(gw_lane_floats(lane, arena / sizeof(float), &scratch));
    p->timing.rounds = (gw_rounds){
        .comm = gw_lane_comm(lane), .seed = gw_lane_seed(lane), .once = tuning_run_once, .ctx = p};
    for (int a = 0; a < p->t->n_algos; a++) {
        p->timed[a] = (gw_timed){.algo = &p->t->algo[a], .lane = lane, .base = scratch};
        p->timing.timed[p->timing.n++] = &p->timed[a];
    }
    gw_err e = gw_timing_sizes(&p->timing, &plan);
    for (int a = 0; a < p->t->n_algos; a++)
        gw_timed_close(&p->timed[a]);
    return e;
}

gw_err gw_tuning_measure(gw_tuning *t, gw_lane *lane, const gw_algo_ops *except, double budget_s) {
    const gw_encoder *encoder = gw_lane_encoder(lane);
    size_t n = encoder->of->n;
    float *residual = NULL;
    tuner *p = NULL;
    gw_codings before = {0}; /* what is tried is no part of the run */
    *t = (gw_tuning){0};
    gw_err e = gw_alloc(&p, 1, sizeof *p);
    if (e == GW_OK && encoder->residual)
        e = gw_alloc(&residual, n, sizeof *residual);
    GW_THEN(e, tuning_gather(t, lane, except));
    e = gw_lane_agree(lane, e);
    if (e == GW_OK) {
        *p = (tuner){.t = t, .lane = lane};
        if (encoder->codings)
            before = *encoder->codings;
        if (residual)
            memcpy(residual, encoder->residual, n * sizeof *residual);
        e = tuning_measure(p, budget_s);
        if (encoder->codings)
            *encoder->codings = before;
        if (residual)
            memcpy(encoder->residual, residual, n * sizeof *residual);
    }
    free(residual);
    free(p);
    if (e != GW_OK)
        gw_tuning_clear(t);
    return e;
}
