#include "prof/batch_row.h"

#include <math.h>

bool gw_batch_clean(const gw_batch_cost *cost) {
    const double *t = cost->phase_s;
    double may_sleep =
        t[GW_PHASE_MPI_WAIT] + t[GW_PHASE_MPI_POLL] + t[GW_PHASE_MPI_POST] + t[GW_PHASE_CHECKPOINT];
    double off_cpu = cost->wall_s - cost->cpu_s - may_sleep;
    return cost->nivcsw == 0 && off_cpu <= 0.02 * cost->wall_s;
}

gw_batch_row gw_batch_row_blank(void) {
    gw_batch_row row = {.loss = NAN,
                        .split = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN},
                        .wait_skew_s = NAN,
                        .transfer_s = NAN,
                        .clock_err_s = NAN};
    for (int i = 0; i < GW_COUNTERS; i++)
        row.counter[i] = NAN;
    return row;
}
