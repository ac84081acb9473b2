/* qsgd with rounding=correlated over each algorithm: where encodings of the ranks' own values are
 * summed, of equal values the sum's mean square error falls to a P-th; where sums are encoded
 * again, they are without bias, as offsets that depended on those before would not be. */
#include "base/mem.h"
#include "base/rng.h"
#include "comm/algo.h"
#include "comm/lane.h"

#include "../specs.h"
#include "check.h"

#include <string.h>
#include <unistd.h>

enum { N = 2001, DRAWS = 300 };

static int me, ranks;
static double mean[N];

typedef struct errors {
    double square, bias; /* of the sum: per element; of its mean over the draws, by what chance */
} errors;                /* gives */

static float value(size_t i) {
    return (float)(2 * gw_rng_unit(77, i) - 1);
}

static errors measure(const char *name, const char *rounding) {
    char spec[64];
    gw_codec codec;
    gw_algo algo;
    gw_lane *lane;
    gw_schedule *s;
    float *x;
    errors e = {0};
    snprintf(spec, sizeof spec, "qsgd:bits=4,rounding=%s", rounding);
    CHECK_OK(open_codec(&codec, spec));
    CHECK_OK(open_algo(&algo, name, &codec));
    gw_lane_setup setup = {.codec = &codec,
                           .n = N,
                           .seed = 3,
                           .shared = true,
                           .yield = ranks >= sysconf(_SC_NPROCESSORS_ONLN)};
    CHECK_OK(gw_lane_open(&lane, MPI_COMM_WORLD, &setup));
    CHECK_OK(gw_lane_floats(lane, N, &x));
    CHECK_OK(gw_schedule_new(&s, lane, x, (gw_span){0, N}));
    CHECK_OK(gw_algo_lay_down(&algo, s, GW_ALLREDUCE, 0));
    memset(mean, 0, sizeof mean);
    for (int draw = 0; draw < DRAWS; draw++) {
        for (size_t i = 0; i < N; i++)
            x[i] = value(i);
        gw_lane_begin(lane);
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
    gw_lane_close(lane);
    gw_algo_close(&algo);
    gw_codec_close(&codec);
    return e;
}

int main(int argc, char **argv) {
    static const char *const algos[] = {"gathersum", "doubling", "ring", "sra",
                                        "halving",   "tree",     "root", "shm"};
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    ranks = check_ranks(argc, argv);
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
