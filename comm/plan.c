#include "comm/plan.h"

#include <stdlib.h>

static gw_err lay_down(const gw_plan *plan, gw_schedule *s) {
    switch (plan->verb) {
    case GW_ALLREDUCE: return plan->algo->ops->allreduce(plan->algo->args, s);
    case GW_REDUCE: return gw_algo_reduce(plan->algo, s, plan->root);
    case GW_BCAST: return gw_algo_bcast(plan->algo, s, plan->root);
    }
    return gw_fail(GW_ERR_INTERNAL, "plan: unknown collective %d", (int)plan->verb);
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
    gw_err e = lay_down(plan, s);
    if (e != GW_OK) {
        gw_schedule_free(s);
        return e;
    }
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
