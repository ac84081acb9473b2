#include "base/norm.h"

#include "base/clones.h"

#include <string.h>

/* As many as two vectors of AVX-512 hold, so that each is a lane of its own in any build. */
enum { LANES = 16 };

GW_CLONES static void norm_lanes(const float *restrict x, size_t n, double sum[restrict LANES]) {
    for (size_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += (double)x[i + (size_t)l] * (double)x[i + (size_t)l];
}

double gw_norm_squares(const float *x, size_t n) {
    float rest[LANES] = {0};
    double sum[LANES] = {0}, all = 0;
    size_t whole = n - n % LANES;
    norm_lanes(x, whole, sum);
    if (n > whole)
        memcpy(rest, x + whole, (n - whole) * sizeof *rest);
    norm_lanes(rest, LANES, sum);
    for (int l = 0; l < LANES; l++)
        all += sum[l];
    return all;
}
