#include "base/norm.h"

#include "base/clones.h"

#include <omp.h>
#include <string.h>

/* As many as two vectors of AVX-512 hold, so that each is a lane of its own in any build. */
enum { LANES = 16 };
/* Blocks are summed apart, and then in their order, so that threads change no bit. */
enum { BLOCK = GW_PARALLEL_ELEMENTS, BLOCKS = 256 };

GW_CLONES static void norm_lanes(const float *restrict x, size_t n, double sum[restrict LANES]) {
    for (size_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += (double)x[i + (size_t)l] * (double)x[i + (size_t)l];
}

static double norm_block(const float *x, size_t n) {
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

double gw_norm_squares(const float *x, size_t n) {
    double sum[BLOCKS], all = 0;
    for (size_t at = 0; at < n; at += (size_t)BLOCKS * BLOCK) {
        size_t left = n - at < (size_t)BLOCKS * BLOCK ? n - at : (size_t)BLOCKS * BLOCK;
        int blocks = (int)((left + BLOCK - 1) / BLOCK);
#pragma omp parallel for num_threads(omp_get_max_threads()) if (blocks > 1)
        for (int b = 0; b < blocks; b++) {
            size_t from = (size_t)b * BLOCK;
            sum[b] = norm_block(x + at + from, left - from < BLOCK ? left - from : BLOCK);
        }
        for (int b = 0; b < blocks; b++)
            all += sum[b];
    }
    return all;
}

GW_CLONES uint32_t gw_norm_greatest(const float *x, size_t n) {
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t m;
        memcpy(&m, &x[i], sizeof m);
        m &= 0x7fffffffu;
        most = m > most ? m : most;
    }
    return most;
}
