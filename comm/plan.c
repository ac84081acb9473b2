#include "comm/plan.h"
#include "comm/lane_parts.h"

#include <stdlib.h>

/* The runs whose algorithm starts MPI's collectives, or the others. */
static gw_err lay_runs(const gw_plan *plan, gw_schedule *s, gw_span span, bool ordered) {
    const gw_lane *lane = plan->lane;
    for (int i = 0; i < lane->n_runs; i++) {
        const gw_lane_run *run = &lane->runs[i];
        gw_span part = gw_span_common(run->span, span);
        if (part.n == 0 || ordered != !!(run->algo->ops->caps & GW_ALGO_ORDERED))
            continue;
        GW_TRY(gw_schedule_strand(s));
        gw_schedule_narrow(s, part);
        gw_schedule_on(s, run->lane);
        GW_TRY(gw_algo_lay_down(run->algo, s, plan->verb, plan->root));
    }
    return GW_OK;
}

/* A run a strand. MPI's collectives first: they must start with the schedule, in one order on all
 * ranks, and another algorithm's stages might put them off. */
static gw_err lay_down(const gw_plan *plan, gw_schedule *s, gw_span span) {
    if (plan->lay_down)
        return plan->lay_down(plan->ctx, s);
    if (plan->lane->n_runs == 0)
        return gw_algo_lay_down(plan->algo, s, plan->verb, plan->root);
    if (plan->verb == GW_REDUCE_SCATTER || plan->verb == GW_ALLGATHER)
        return gw_fail(
            GW_ERR_UNSUPPORTED,
            "a mix of codecs (%s;...) cuts the arena by tensors, this strategy by ranks: "
            "use one codec, or a strategy that reduces to all ranks (allreduce)",
            gw_lane_codec(plan->lane)->spec);
    GW_TRY(lay_runs(plan, s, span, true));
    GW_TRY(lay_runs(plan, s, span, false));
    gw_schedule_on(s, plan->lane);
    return GW_OK;
}

gw_err gw_plan_get(gw_plan *plan, gw_span span, gw_schedule **out) {
    for (int i = 0; i < plan->n; i++) {
        gw_span have = gw_schedule_span(plan->schedules[i]);
        if (have.off == span.off && have.n == span.n) {
            *out = plan->schedules[i];
            return GW_OK;
        }
    }
    gw_schedule **wide = realloc(plan->schedules, ((size_t)plan->n + 1) * sizeof *wide);
    if (!wide)
        return gw_fail(GW_ERR_NOMEM, "plan: out of memory");
    plan->schedules = wide;
    gw_schedule *s = NULL;
    GW_TRY(gw_schedule_new(&s, plan->lane, plan->base, span));
    gw_err e = lay_down(plan, s, span);
    if (e != GW_OK) {
        gw_schedule_free(s);
        return e;
    }
    gw_schedule_narrow(s, span); /* by which it is found again, whatever was laid down last */
    plan->schedules[plan->n++] = s;
    *out = s;
    return GW_OK;
}

gw_err gw_plan_run(gw_plan *plan, gw_span span) {
    gw_schedule *s;
    GW_TRY(gw_plan_get(plan, span, &s));
    return gw_schedule_run(s);
}

void gw_plan_clear(gw_plan *plan) {
    for (int i = 0; i < plan->n; i++)
        gw_schedule_free(plan->schedules[i]);
    free(plan->schedules);
    plan->schedules = NULL;
    plan->n = 0;
}

gw_cost gw_plan_cost(const gw_plan *plan, gw_span span) {
    gw_cost sum = {0};
    const gw_lane *lane = plan->lane;
    if (lane->n_runs == 0)
        return gw_algo_cost(plan->algo, plan->lane, plan->verb, span.n);
    for (int i = 0; i < lane->n_runs; i++) {
        const gw_lane_run *run = &lane->runs[i];
        size_t n = gw_span_common(run->span, span).n;
        sum = gw_cost_sum(sum, gw_algo_cost(run->algo, run->lane, plan->verb, n));
    }
    return sum;
}
