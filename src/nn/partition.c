#include "nn/partition.h"

#include "nn/model_spec.h"

#include <math.h>

gw_err gw_partition(const double *cost, int n, int parts, int *sizes) {
    double sum[GW_MAX_LAYERS + 1] = {0};                        /* of the costs before a layer */
    double least[GW_MAX_LAYERS + 1][GW_MAX_LAYERS + 1] = {{0}}; /* of k parts from layer i on */
    if (n < 1 || n > GW_MAX_LAYERS || parts < 1 || parts > n)
        return gw_fail(GW_ERR_INTERNAL, "%d layers in %d parts", n, parts);
    for (int i = 0; i < n; i++) {
        if (!(cost[i] >= 0 && cost[i] < INFINITY))
            return gw_fail(GW_ERR_INTERNAL, "layer %d costs %g", i, cost[i]);
        sum[i + 1] = sum[i] + cost[i];
    }
    for (int i = 0; i < n; i++)
        least[1][i] = sum[n] - sum[i];
    for (int k = 2; k <= parts; k++)
        for (int i = 0; i + k <= n; i++) {
            least[k][i] = INFINITY;
            for (int j = i + 1; j + k - 1 <= n; j++)
                least[k][i] = fmin(least[k][i], fmax(sum[j] - sum[i], least[k - 1][j]));
        }
    double most = least[parts][0];
    int at = 0;
    for (int k = parts; k > 1; k--) {
        int end = at + 1;
        while (sum[end] - sum[at] > most || least[k - 1][end] > most)
            end++;
        sizes[parts - k] = end - at;
        at = end;
    }
    sizes[parts - 1] = n - at;
    return GW_OK;
}
