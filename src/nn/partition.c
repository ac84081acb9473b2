#include "nn/partition.h"

#include <math.h>

/* The fewest parts of layers from `at` on that each cost no more than `most`. With any bound below
 * *more they would be these. */
static int partition_parts(const double *cost, int at, int n, double most, double *more) {
    int parts = 1;
    *more = INFINITY;
    for (double sum = cost[at]; ++at < n; sum += cost[at])
        if (sum + cost[at] > most) {
            *more = fmin(*more, sum + cost[at]);
            parts++;
            sum = 0;
        }
    return parts;
}

gw_err gw_partition(const double *cost, int n, int parts, int *sizes) {
    double most = 0, more;
    if (n < 1 || parts < 1 || parts > n)
        return gw_fail(GW_ERR_INTERNAL, "%d layers in %d parts", n, parts);
    for (int i = 0; i < n; i++) {
        if (!(cost[i] >= 0 && cost[i] < INFINITY))
            return gw_fail(GW_ERR_INTERNAL, "layer %d costs %g", i, cost[i]);
        most = fmax(most, cost[i]);
    }
    while (partition_parts(cost, 0, n, most, &more) > parts)
        most = more;
    for (int k = parts - 1, at = 0; k >= 0; k--) {
        int end = k ? at + 1 : n;
        while (k && partition_parts(cost, end, n, most, &more) > k)
            end++;
        *sizes++ = end - at;
        at = end;
    }
    return GW_OK;
}
