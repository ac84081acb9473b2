/* qsgd with rounding=correlated over each algorithm: where encodings of the ranks' own values are
 * summed, of equal values the sum's mean square error falls to a P-th; where sums are encoded
 * again, they are without bias, as offsets that depended on those before would not be. */
#include "base/mem.h"
#include "base/rng.h"

#include "lane_rig.h"

#include <string.h>

enum { N = 2001, DRAWS = 300 };

static double mean[N];

typedef struct errors {
    double square, bias; /* of the sum: per element; of its mean over the draws, by what chance */
} errors;                /* gives */

static float value(size_t i) {
    return (float)(2 * gw_rng_unit(77, i) - 1);
}

static errors measure(const char *name, const char *rounding) {
    char spec[64];
    rig r;
    errors e = {0};
    snprintf(spec, sizeof spec, "qsgd:bits=4,rounding=%s", rounding);
    rig_open(&r, name, spec, N, false);
    gw_schedule *s = rig_sum(&r, (gw_span){0, N});
    float *x = r.base;
    memset(mean, 0, sizeof mean);
    for (int draw = 0; draw < DRAWS; draw++) {
        for (size_t i = 0; i < N; i++)
            x[i] = value(i);
        gw_lane_begin(r.lane);
        CHECK_OK(gw_schedule_run(s));
        for (size_t i = 0; i < N; i++) {
            double d = (double)x[i] - ranks * (double)value(i);
            mean[i] += d / DRAWS;
            e.square += d * d / N / DRAWS;
        }
    }
    for (size_t i = 0; i < N; i++)
        e.bias += mean[i] * mean[i] / N * DRAWS / e.square;
    gw_schedule_free(s);
    rig_close(&r);
    return e;
}

int main(int argc, char **argv) {
    static const char *const algos[] = {"gathersum", "doubling", "ring", "sra",
                                        "halving",   "tree",     "root", "shm"};
    check_start(argc, argv);
    for (size_t i = 0; i < sizeof algos / sizeof *algos && ranks > 1; i++) {
        errors one = measure(algos[i], "stochastic"), with = measure(algos[i], "correlated");
        double ratio = with.square / one.square;
        CHECK(with.bias > 0.85 && with.bias < 1.15, "%s: squared bias is %g of what chance gives",
              algos[i], with.bias);
        CHECK(i > 1 || (ratio * ranks > 0.95 && ratio * ranks < 1.05),
              "%s: an error of %g times that of independent rounding, not 1/%d", algos[i], ratio,
              ranks);
        CHECK(ratio < 1.03, "%s: %g times the error of independent rounding", algos[i], ratio);
    }
    MPI_Finalize();
    return 0;
}
