/* Clocks that run apart, as those of hosts do. Every rank reads the one real clock with its own
 * offset and drift, so the truth is known. */
#include "mpi/wait.h"
#include "prof/clock.h"
#include "prof/ledger.h"
#include "prof/sync.h"

#include "../timed.h"
#include "check.h"

#include <math.h>

static uint64_t origin;

/* Ahead by 3 s a rank, and 100 ppm a rank fast: worse than any quartz. */
static uint64_t apart_at(uint64_t true_ticks) {
    uint64_t since = true_ticks - origin;
    return true_ticks + (uint64_t)me * (uint64_t)(3 / gw_clock_seconds(1)) +
           (uint64_t)(1e-4 * me * (double)since);
}

static uint64_t apart_now(void) {
    return apart_at(gw_clock_ticks());
}

/* The true common time: all ranks are on one machine. */
static double truth(uint64_t true_ticks, uint64_t zero) {
    return gw_clock_seconds(true_ticks - zero);
}

/* `error`: the largest error that was stated while the measurements around these instants were the
 * latest. */
static void check_instants(const gw_sync *s, uint64_t zero, uint64_t from, uint64_t to,
                           double error) {
    for (int i = 0; i <= 10; i++) {
        uint64_t at = from + (to - from) / 10 * (uint64_t)i;
        double is = gw_sync_seconds(s, apart_at(at)), should = truth(at, zero);
        /* Each rank has calibrated its own rate, which costs some ppm of the time in between. */
        CHECK(fabs(is - should) <= error + 1e-4 * gw_clock_seconds(to - from) + 1e-7,
              "instant %d: %.9f instead of %.9f, error said to be %.9f", i, is, should, error);
    }
}

static void test_apart(void) {
    gw_sync *s;
    gw_sync_setup setup = {apart_now, true};
    uint64_t zero = gw_ledger_zero();
    CHECK_MPI(MPI_Bcast(&zero, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
    CHECK_OK(gw_sync_open(&s, &setup, MPI_COMM_WORLD));
    uint64_t from = gw_clock_ticks();
    double worst = gw_sync_error(s); /* the first instants lie between this one and the next */
    for (int look = 0; look < 3; look++) {
        spin(0.02);
        CHECK_OK(gw_sync_again(s));
        worst = fmax(worst, gw_sync_error(s));
    }
    uint64_t to = gw_clock_ticks();
    /* 60 ms at 100 ppm a rank are 6 us a rank: the error if the drift were ignored. */
    check_instants(s, zero, from, to, worst);
    double error = gw_sync_error(s), least, most;
    CHECK_MPI(MPI_Allreduce(&error, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD));
    CHECK_MPI(MPI_Allreduce(&error, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    CHECK(least == most && error > 0, "ranks disagree on the error: %g to %g", least, most);
    for (int look = 0; look < 300; look++) { /* more than are kept */
        CHECK_OK(gw_sync_again(s));
        worst = fmax(worst, gw_sync_error(s));
    }
    check_instants(s, zero, from, to, worst);
    gw_sync_close(s);
}

/* Ranks of a host share the counter: equal readings mean the same instant on all ranks. */
static void test_one_host(void) {
    gw_sync *s;
    CHECK_OK(gw_sync_open(&s, NULL, MPI_COMM_WORLD));
    spin(0.01);
    CHECK_OK(gw_sync_again(s));
    uint64_t ticks = gw_clock_ticks();
    CHECK_MPI(MPI_Bcast(&ticks, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
    double mine = gw_sync_seconds(s, ticks), first = mine;
    CHECK_MPI(MPI_Bcast(&first, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    CHECK(fabs(mine - first) < 1e-9, "%.12f here, %.12f on rank 0", mine, first);
    CHECK(gw_sync_error(s) > 0, "error %g s", gw_sync_error(s));
    gw_sync_close(s);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    gw_wait_yields(ranks > 2);
    origin = gw_clock_ticks();
    CHECK_MPI(MPI_Bcast(&origin, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
    test_apart();
    test_one_host();
    gw_sync_close(NULL);
    MPI_Finalize();
    return 0;
}
