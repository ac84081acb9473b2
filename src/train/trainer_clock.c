/* The clock of a run in virtual time. */
#include "mpi/wait.h"
#include "prof/clock.h"
#include "step/times.h"
#include "train/trainer_parts.h"

#define TIMES_S 0.5 /* of steps whose arithmetic is measured */

/* Ranks that hold equal parts of the model take equally long: the first that takes samples measures
 * for them. */
static gw_err trainer_clock_times(gw_trainer *t, gw_step_times *times) {
    const gw_simulated *s = t->c->simulated;
    gw_err e = GW_OK;
    bool measures = t->mesh.at[GW_DIM_DATA] == t->part.servers;
    if (s->times)
        return gw_agree(t->comm, s->times(s->ctx, t->model, times));
    gw_watchdog_stage("measuring computation");
    if (measures)
        e = gw_step_times_measure(times, &t->stepper, t->sampler, TIMES_S);
    GW_TRY(gw_agree(t->comm, e));
    return gw_bcast(times, (int)sizeof *times, MPI_BYTE, t->part.servers,
                    t->mesh.comm[GW_DIM_DATA]);
}

gw_err gw_trainer_open_clock(gw_trainer *t) {
    const gw_simulated *s = t->c->simulated;
    gw_step_times times;
    if (!s)
        return GW_OK;
    GW_TRY(trainer_clock_times(t, &times));
    t->stepper.exec = s->open(s->ctx, t->comm, &times, gw_products_gap_s(&t->measures.products));
    GW_TRY(gw_barrier(t->comm));
    gw_clock_virtual(s->ns);
    return GW_OK;
}
