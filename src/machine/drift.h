/** Whether the machine is as fast after a run as it was before it, by its multiply-adds a second.
 * (The bandwidth of a cache is no measure: on an idle machine it differs by a third from one probe
 * of some milliseconds to the next, where multiply-adds stay within 3%.) What disturbs a probe only
 * slows it, so one alone is not believed: the best of several counts, once two of them agree. */
#ifndef GW_MACHINE_DRIFT_H
#define GW_MACHINE_DRIFT_H

#include "base/err.h"

/** What is probed: a rate, the more the faster. By the machine's own kernel (gw_drift_probe, which
 *  wants no context), or as a test says. */
typedef gw_err gw_drift_source(const void *ctx, double *rate);
gw_err gw_drift_probe(const void *ctx, double *rate);

/** The best of some probes, as soon as two are within 5% of it; six at most. NaN: no two agreed, so
 *  nothing can be told. */
gw_err gw_drift_look(gw_drift_source *probe, const void *ctx, double *rate);

/** Probe again, and compare: the relative change, with its sign: -0.2 says that the rate is 20%
 * lower now. A change of more than `most` is looked at a second time, a moment later, and the
 * smaller one counts. NaN: cannot be told. */
gw_err gw_drift_since(gw_drift_source *probe, const void *ctx, double before, double most,
                      double *drift);

#endif
