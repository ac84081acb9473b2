/** What an exchange takes, by its bytes: a latency, then straight lines between measured points. */
#ifndef GW_LINKS_CURVE_H
#define GW_LINKS_CURVE_H

enum { GW_CURVE_POINTS = 8 };

/** Measured times of an allreduce by encoded bytes, in ascending order. */
typedef struct gw_curve {
    int n;
    double bytes[GW_CURVE_POINTS], time_s[GW_CURVE_POINTS];
} gw_curve;

/** Time for `bytes` > 0: straight between points; the first one's below it (latency); above the
 * last on by the last slope. Needs a point at least; by a single one proportional above it. */
double gw_curve_at(const gw_curve *c, double bytes);

/** The last slope, beta, in seconds a byte. */
double gw_curve_beta(const gw_curve *c);

#endif
