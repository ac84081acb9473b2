/* The step of plain loops: all of the model at once. */
#include "step/exec/naive.h"

gw_err gw_exec_naive(gw_stepper *t, const gw_batch *batch, float lr, double *loss_sum) {
    gw_naive_job job = {t->set, batch->idx, batch->local, batch->global};
    *loss_sum = gw_naive_compute(t->naive, &job);
    if (t->guard)
        gw_guard_loss(t->guard, *loss_sum);
    gw_inside_count(t->g, gw_naive_bytes(t->naive));
    GW_TRY(gw_naive_reduce(t->naive));
    if (gw_naive_descends(t->naive))
        gw_naive_descend(t->naive, (double)lr);
    return gw_naive_publish(t->naive);
}
