#include "links/curve.h"

double gw_curve_beta(const gw_curve *c) {
    if (c->n == 1)
        return c->time_s[0] / c->bytes[0];
    int i = c->n - 1;
    double slope = (c->time_s[i] - c->time_s[i - 1]) / (c->bytes[i] - c->bytes[i - 1]);
    return slope > 0 ? slope : 0;
}

double gw_curve_at(const gw_curve *c, double bytes) {
    int last = c->n - 1;
    if (bytes <= c->bytes[0])
        return c->time_s[0];
    if (bytes >= c->bytes[last])
        return c->time_s[last] + (bytes - c->bytes[last]) * gw_curve_beta(c);
    int i = 1;
    while (c->bytes[i] < bytes)
        i++;
    double part = (bytes - c->bytes[i - 1]) / (c->bytes[i] - c->bytes[i - 1]);
    return c->time_s[i - 1] + part * (c->time_s[i] - c->time_s[i - 1]);
}
