#include "step/exec/naive.h"

#include "base/nap.h"
#include "prof/clock.h"

double gw_exec_naive_compute(gw_stepper *t, const gw_batch *batch) {
    gw_naive_job job = {t->set, batch->idx, batch->local, batch->global};
    double loss = gw_naive_compute(t->naive, &job);
    if (t->guard)
        gw_guard_loss(t->guard, loss);
    return loss;
}

static double naive_sleep(gw_stepper *t) {
    gw_phase_enter(GW_PHASE_BACKWARD);
    gw_pacer_segment(t->pacer, false);
    gw_phase_leave();
    return t->computed_loss;
}

/* For the time that it takes on a free core. Done now if others get what it computes. */
static void naive_descend_paced(gw_stepper *t, float lr) {
    double start_s = gw_nap_now();
    if (gw_naive_publishes(t->naive))
        gw_naive_descend(t->naive, (double)lr);
    else
        t->later = (gw_step_later){.due = true, .lr = lr};
    gw_phase_enter(GW_PHASE_UPDATE);
    gw_pacer_rest(t->pacer, start_s, gw_pacer_update_s(t->pacer, gw_model_size(t->model)));
    gw_phase_leave();
}

gw_err gw_exec_naive(gw_stepper *t, const gw_batch *batch, float lr, double *loss_sum) {
    *loss_sum = t->pacer ? naive_sleep(t) : gw_exec_naive_compute(t, batch);
    gw_inside_count(t->g, gw_naive_bytes(t->naive));
    uint64_t start = gw_clock_ticks();
    GW_TRY(gw_naive_reduce(t->naive));
    if (t->pacer)
        gw_pacer_waited(t->pacer, gw_clock_since(start));
    if (gw_naive_descends(t->naive) && t->pacer)
        naive_descend_paced(t, lr);
    else if (gw_naive_descends(t->naive))
        gw_naive_descend(t->naive, (double)lr);
    return gw_naive_publish(t->naive);
}
