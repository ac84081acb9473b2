#include "roofline/drift.h"

#include "roofline/kernels.h"

#include <math.h>
#include <time.h>

enum { TRIES = 9, PROBES = 6, AGREE = 2 };
static const double run_s = 0.3e-3, near = 0.05;
static const struct timespec moment = {.tv_nsec = 50000000}; /* longer than a time slice */

gw_err gw_drift_probe(const void *ctx, double *rate) {
    gw_kernel *k = NULL;
    (void)ctx;
    GW_TRY(gw_kernel_open(&k, GW_KERNEL_FMA, 0));
    *rate = gw_kernel_rate(k, TRIES, run_s);
    gw_kernel_close(k);
    return GW_OK;
}

gw_err gw_drift_look(gw_drift_source *probe, const void *ctx, double *rate) {
    double all[PROBES], best = 0;
    for (int n = 0; n < PROBES; n++) {
        int close = 0;
        GW_TRY(probe(ctx, &all[n]));
        best = fmax(best, all[n]);
        for (int i = 0; i <= n; i++)
            close += all[i] >= (1 - near) * best;
        if (close >= AGREE) {
            *rate = best;
            return GW_OK;
        }
    }
    *rate = NAN;
    return GW_OK;
}

gw_err gw_drift_since(gw_drift_source *probe, const void *ctx, double before, double most,
                      double *drift) {
    double now;
    GW_TRY(gw_drift_look(probe, ctx, &now));
    *drift = now / before - 1;
    if (!(fabs(*drift) > most))
        return GW_OK;
    nanosleep(&moment, NULL);
    GW_TRY(gw_drift_look(probe, ctx, &now));
    double again = now / before - 1;
    if (!(fabs(again) >= fabs(*drift)))
        *drift = again;
    return GW_OK;
}
