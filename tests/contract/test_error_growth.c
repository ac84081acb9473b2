/* The algorithm decides how a lossy codec's error grows with the number of ranks. An unbiased codec
 * has the mean square error e^2 |x|^2, whatever the size of x. The errors of different encodings
 * are independent, and the sum of k ranks' normal gradients is sqrt(k) times as large as one. So
 * each encoding of a partial sum of k parts adds k e^2, relative to P of the whole sum; counting
 * the encodings of each algorithm gives its curve. */
#include "base/mem.h"
#include "base/rng.h"

#include "../mpi/lane_rig.h"

enum { N = 1 << 16, ROUNDS = 4 };

/* Mean square error over mean square, in units of that of one encoding, for P = 2, 3, 4. */
typedef struct curve {
    const char *algo;
    double want[3];
} curve;

static const curve curves[] = {
    /* every hop: (1 + 2 + .. + P) / P */
    {"ring", {3.0 / 2, 6.0 / 3, 10.0 / 4}},
    /* P-1 parts, then the sum: (P-1 + P) / P */
    {"sra", {3.0 / 2, 5.0 / 3, 7.0 / 4}},
    {"root", {3.0 / 2, 5.0 / 3, 7.0 / 4}},
    /* P/2 for each of log2 P rounds, then the sum. Of 3 ranks one is folded onto rank 0, which then
     * sends a sum of two for half of the elements */
    {"halving", {3.0 / 2, (1 + 1.5 + 3) / 3, 8.0 / 4}},
    {"swing", {3.0 / 2, (1 + 1.5 + 3) / 3, 8.0 / 4}},
    {"bine", {3.0 / 2, (1 + 1.5 + 3) / 3, 8.0 / 4}},
    /* the parts below a rank in a binomial tree, then the sum; nobody is folded */
    {"pat", {3.0 / 2, 5.0 / 3, 8.0 / 4}},
    {"tree", {3.0 / 2, 5.0 / 3, 8.0 / 4}},
    /* P parts, never a sum */
    {"doubling", {1, 1, 1}},
    {"gathersum", {1, 1, 1}},
};

static float part_of(int rank, int round, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(23, (uint64_t)rank), (uint64_t)round);
    return (float)gw_rng_normal(key, i);
}

static double square_error(const float *x, int round, int first, int count) {
    double err = 0, norm = 0;
    for (size_t i = 0; i < N; i++) {
        double want = 0;
        for (int r = first; r < first + count; r++)
            want += part_of(r, round, i);
        err += ((double)x[i] - want) * ((double)x[i] - want);
        norm += want * want;
    }
    return err / norm;
}

/* Mean over some rounds; algo NULL: for one encoding of one rank's part. */
static double measure(const char *name, gw_lane *lane, float *x) {
    gw_algo algo;
    gw_schedule *s = NULL;
    double sum = 0;
    CHECK_OK(open_algo(&algo, name ? name : "sra", gw_lane_codec(lane)));
    CHECK_OK(gw_schedule_new(&s, lane, x, (gw_span){0, N}));
    if (name)
        CHECK_OK(gw_algo_lay_down(&algo, s, GW_ALLREDUCE, 0));
    else {
        int slot;
        CHECK_OK(gw_schedule_pack(s, (gw_span){0, N}, true, &slot));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < N; i++)
            x[i] = part_of(me, round, i);
        gw_lane_begin(lane);
        CHECK_OK(gw_schedule_run(s));
        sum += square_error(x, round, name ? 0 : me, name ? ranks : 1);
    }
    gw_schedule_free(s);
    gw_algo_close(&algo);
    return sum / ROUNDS;
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    rig r;
    rig_open(&r, "sra", "qsgd:bits=4", N, false);
    double one = measure(NULL, r.lane, r.base), ring = 0;
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
        const curve *c = &curves[i];
        double growth = measure(c->algo, r.lane, r.base) / one;
        ring = i == 0 ? growth : ring;
        if (ranks == 1) {
            CHECK(growth == 0, "%s: one rank errs by %g", c->algo, growth);
            continue;
        }
        double want = c->want[ranks - 2];
        CHECK(growth > 0.95 * want && growth < 1.05 * want,
              "%s: %g times the error of one encoding, counted %g", c->algo, growth, want);
        CHECK(i == 0 || ranks == 2 || growth < ring, "%s errs by %g, a ring by %g", c->algo, growth,
              ring);
    }
    rig_close(&r);
    MPI_Finalize();
    return 0;
}
