#include "comm/plan.h"

#include <stdlib.h>

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
    gw_err e = gw_algo_lay_down(plan->algo, s, plan->verb, plan->root);
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

gw_cost gw_plan_cost(const gw_plan *plan, size_t n) {
    return gw_algo_cost(plan->algo, plan->lane, plan->verb, n);
}
