/** Whether the machine is as fast after a run as before it, by its multiply-adds a second. (The
 *  bandwidth of a cache would not do: on an idle machine it differs by a third between two probes
 *  of some milliseconds, where multiply-adds stay within 3%.) A disturbance only slows a probe, so
 *  the best of several counts, once two of them agree. */
#ifndef GW_ROOFLINE_DRIFT_H
#define GW_ROOFLINE_DRIFT_H

#include "base/err.h"

/** A probe: *rate is higher on a faster machine. gw_drift_probe runs a kernel and ignores ctx;
 *  tests have probes of their own. */
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
