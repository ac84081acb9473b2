/* Who arrived last: for exchanges that all ranks know, that only some know, and in which only some
 * take part. */
#include "mpi/wait.h"
#include "prof/arrival.h"

#include "check.h"

enum { N = 300 };

static gw_arrival arrival(int id, int schedule, uint64_t run, double at) {
    gw_arrival a = {.x = {.lane = schedule % 2, .schedule = schedule, .run = run}, .id = id};
    a.mine_s = at;
    return a;
}

/* Rank r arrives at exchange i after r' = (r + i) mod P. */
static double when(int i, int rank) {
    return 100 + i + 0.1 * ((rank + i) % ranks);
}

static void check_one(const gw_arrival *a, int i) {
    int last = ((ranks - 1 - i) % ranks + ranks) % ranks;
    CHECK(a->known, "exchange %d is not known", i);
    CHECK(a->last_rank == last, "exchange %d: %d instead of %d", i, a->last_rank, last);
    CHECK(a->first_s == when(i, (ranks - i % ranks) % ranks), "exchange %d: first %.3f", i,
          a->first_s);
    CHECK(a->latest_s == when(i, last), "exchange %d: latest %.3f", i, a->latest_s);
}

/* In a different order on each rank; `missing`: rank 0 does not know every seventh. */
static void test_all(bool missing) {
    gw_arrival all[N];
    int n = 0;
    for (int k = 0; k < N; k++) {
        int i = (k + 17 * me) % N;
        if (!(missing && me == 0 && i % 7 == 0))
            all[n++] = arrival(i, i % 9, (uint64_t)i / 9 + 1, when(i, me));
    }
    CHECK_OK(gw_arrivals_resolve(all, (size_t)n, MPI_COMM_WORLD));
    for (int k = 0; k < n; k++) {
        if (missing && all[k].id % 7 == 0)
            CHECK(!all[k].known || ranks == 1, "exchange %d: rank 0 does not know it", all[k].id);
        else
            check_one(&all[k], all[k].id);
    }
}

/* As in a ring: only the right neighbour counts, however late the others are. */
static void test_peers(void) {
    int right = (me + 1) % ranks;
    gw_arrival a = arrival(0, 0, 1, 10.0 + me);
    a.x.n_peers = 1;
    a.x.peer[0] = right;
    CHECK_OK(gw_arrivals_resolve(&a, 1, MPI_COMM_WORLD));
    CHECK(a.known && a.last_rank == (right > me ? right : me), "last is %d", a.last_rank);
    CHECK(a.latest_s == 10.0 + (right > me ? right : me), "latest %.1f", a.latest_s);
    CHECK(a.first_s == 10.0 + (right < me ? right : me), "first %.1f", a.first_s);
}

static void test_none(void) {
    gw_arrival a = arrival(0, 0, 1, 1);
    CHECK_OK(gw_arrivals_resolve(NULL, 0, MPI_COMM_WORLD));
    CHECK_OK(gw_arrivals_resolve(&a, me == 0, MPI_COMM_WORLD));
    CHECK(!a.known || ranks == 1, "only rank 0 knows it");
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    gw_wait_yields(ranks > 2);
    test_all(false);
    test_all(true);
    test_peers();
    test_none();
    MPI_Finalize();
    return 0;
}
