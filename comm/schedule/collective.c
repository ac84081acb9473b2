#include "comm/schedule/collective.h"

#include "base/mem.h"

#include <stdlib.h>

/* The runs whose algorithm starts MPI's collectives, or the others. */
static gw_err collective_lay_runs(const gw_collective *c, gw_schedule *s, gw_span span,
                                  bool ordered) {
    int n;
    const gw_lane_run *run = gw_lane_runs(c->lane, &n);
    for (int i = 0; i < n; i++, run++) {
        gw_span part = gw_span_common(run->span, span);
        if (part.n == 0 || ordered != !!(run->algo->ops->caps & GW_ALGO_ORDERED))
            continue;
        GW_TRY(gw_schedule_strand(s));
        gw_schedule_narrow(s, part);
        gw_schedule_on(s, run->lane);
        GW_TRY(gw_algo_lay_down(run->algo, s, c->verb, c->root));
    }
    return GW_OK;
}

/* A run a strand. MPI's collectives first: they must start with the schedule, in one order on all
 * ranks, and another algorithm's stages might put them off. */
static gw_err collective_lay_down(const gw_collective *c, gw_schedule *s, gw_span span) {
    if (c->lay_down)
        return c->lay_down(c->ctx, s);
    if (!gw_lane_mixed(c->lane))
        return gw_algo_lay_down(c->algo, s, c->verb, c->root);
    if (c->verb == GW_REDUCE_SCATTER || c->verb == GW_ALLGATHER)
        return gw_fail(
            GW_ERR_UNSUPPORTED,
            "a mix of codecs (%s;...) cuts the arena by tensors, this strategy by ranks: "
            "use one codec, or a strategy that reduces to all ranks (allreduce)",
            gw_lane_codec(c->lane)->spec);
    GW_TRY(collective_lay_runs(c, s, span, true));
    GW_TRY(collective_lay_runs(c, s, span, false));
    gw_schedule_on(s, c->lane);
    return GW_OK;
}

gw_err gw_collective_get(gw_collective *c, gw_span span, gw_schedule **out) {
    for (int i = 0; i < c->n; i++) {
        gw_span have = gw_schedule_span(c->schedules[i]);
        if (have.off == span.off && have.n == span.n) {
            *out = c->schedules[i];
            return GW_OK;
        }
    }
    GW_TRY(gw_grow(&c->schedules, &c->room, c->n + 1, sizeof *c->schedules));
    gw_schedule *s = NULL;
    GW_TRY(gw_schedule_new(&s, c->lane, c->base, span));
    gw_err e = collective_lay_down(c, s, span);
    if (e != GW_OK) {
        gw_schedule_free(s);
        return e;
    }
    gw_schedule_narrow(s, span); /* by which it is found again, whatever was laid down last */
    c->schedules[c->n++] = s;
    *out = s;
    return GW_OK;
}

gw_err gw_collective_run(gw_collective *c, gw_span span) {
    gw_schedule *s;
    GW_TRY(gw_collective_get(c, span, &s));
    return gw_schedule_run(s);
}

void gw_collective_clear(gw_collective *c) {
    for (int i = 0; i < c->n; i++)
        gw_schedule_free(c->schedules[i]);
    free(c->schedules);
    c->schedules = NULL;
    c->n = 0;
}

gw_cost gw_collective_cost(const gw_collective *c, gw_span span) {
    gw_cost sum = {0};
    int runs;
    const gw_lane_run *run = gw_lane_runs(c->lane, &runs);
    if (runs == 0)
        return gw_algo_cost(c->algo, c->lane, c->verb, span.n);
    for (int i = 0; i < runs; i++, run++) {
        size_t n = gw_span_common(run->span, span).n;
        sum = gw_cost_sum(sum, gw_algo_cost(run->algo, run->lane, c->verb, n));
    }
    return sum;
}
