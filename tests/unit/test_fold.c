/* Folded worlds take as long, and send as much, as worlds in which every rank is played. */
#include <math.h>

#include "../simulated.h"
#include "unit.h"

typedef struct world_kind {
    const char *network;
    int per_host, least; /* ranks, of which their number is a multiple */
} world_kind;

static const world_kind kinds[] = {{"star", 1, 1},
                                   {"star", 2, 2},
                                   {"fattree:racks=2,uplink=1gbit", 1, 2},
                                   {"fattree:racks=4,hop=1us", 2, 8}};

/* One part may be a float longer than another. */
static void assert_alike(const gw_sim_play *a, const gw_sim_play *b, const char *what) {
    double off = 1e-3 * b->step_s + OVERHEAD;
    if (fabs(a->step_s - b->step_s) > off || fabs(a->exposed_s - b->exposed_s) > off ||
        a->tally.bytes != b->tally.bytes || a->tally.messages != b->tally.messages)
        fail_msg("%s, %d of %d ranks: a step of %.9g s, %.9g exposed; all of them: %.9g, %.9g",
                 what, a->world.played, a->world.ranks, a->step_s, a->exposed_s, b->step_s,
                 b->exposed_s);
}

/* How many ranks were played; 0: all were, or this is not to be had. */
static int compare(const world_kind *kind, int ranks, const char *comm, const char *codec,
                   const gw_step_profile *of) {
    gw_sim_play a = play_of(ranks, link_with_all);
    a.world = world_of(ranks, kind->per_host, kind->network, link_with_all);
    a.script.profile = of;
    a.steps = 3;
    gw_sim_play b = a;
    b.unfolded = true;
    if (run_play(&a, comm, codec) != GW_OK || a.world.played == 0)
        return 0;
    assert_int_equal(run_play(&b, comm, codec), GW_OK);
    assert_int_equal(b.world.played, 0);
    assert_alike(&a, &b, comm);
    return a.world.played;
}

static void test_all_that_fold(void **state) {
    int folded[64] = {0}, n = 0, nth = 0;
    for (; gw_algos.entries[n]; n++)
        for (int s = 0; gw_strategies.entries[s]; s++)
            for (int c = 0; gw_codecs.entries[c]; c++)
                for (int k = 0; k < 4; k++) {
                    /* each of these with one number of ranks, and all numbers in turn */
                    int most = 16 / kinds[k].least, ranks = kinds[k].least * (1 + nth++ % most);
                    const char *comm = comm_of(gw_strategies.entries[s], gw_algos.entries[n]);
                    if (ranks >= 4)
                        folded[n] +=
                            compare(&kinds[k], ranks, comm, gw_codecs.entries[c]->name, &small) > 0;
                }
    for (int i = 0; i < n; i++) {
        unsigned caps = ((const gw_algo_ops *)gw_algos.entries[i])->caps;
        bool may = caps & (GW_ALGO_ALIKE | GW_ALGO_ALIKE_UNCUT) ||
                   ((caps & GW_ALGO_ORDERED) && !(caps & GW_ALGO_SHARED)); /* modelled */
        if ((folded[i] > 0) != may)
            fail_msg("%s: %d plays were folded", gw_algos.entries[i]->name, folded[i]);
    }
}

static void test_more_ranks(void **state) {
    static const char *const algos[] = {"ring", "sra", "doubling", "(halving:chunk=0)",
                                        "(halving:chunk=12800,window=2)"};
    static const world_kind racks = {"fattree:racks=4,uplink=8gbit", 2, 8};
    char comm[128];
    for (int a = 0; a < 5; a++) {
        /* Several exchanges and chunks of halving stay in step where all parts are equal. */
        one.n = bytes_only.n = a >= 3 ? 110080 : 110003;
        snprintf(comm, sizeof comm, "iallreduce:bucket=102400,algo=%s", algos[a]);
        assert_int_equal(compare(&kinds[0], 64, comm, "none", &bytes_only), 1);
        assert_int_equal(compare(&racks, 32, comm, "bf16", &bytes_only), 8);
    }
}

/* Roles differ, ranks go apart, or hosts are not alike. */
static void test_what_does_not_fold(void **state) {
    static const world_kind torus = {"torus:dims=4x2", 1, 8};
    one.n = bytes_only.n = 1000000;
    assert_int_equal(compare(&torus, 8, "allreduce:algo=ring", "none", &bytes_only), 0);
    assert_int_equal(compare(&kinds[0], 8, "allreduce:algo=tree", "none", &bytes_only), 0);
    assert_int_equal(compare(&kinds[0], 8, "ps:algo=ring", "none", &bytes_only), 0);
    assert_int_equal(compare(&kinds[0], 8, "allreduce:algo=halving", "none", &bytes_only), 1);
    one.n = bytes_only.n = 1000001; /* now a part of a chunk is longer than another */
    assert_int_equal(compare(&kinds[0], 8, "allreduce:algo=halving", "none", &bytes_only), 0);
    assert_int_equal(compare(&kinds[0], 6, "allreduce:algo=(halving:chunk=0)", "none", &bytes_only),
                     0);
    assert_int_equal(compare(&kinds[0], 8, "allreduce:algo=(halving:chunk=0)", "none", &bytes_only),
                     1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_that_fold),
                                       cmocka_unit_test(test_more_ranks),
                                       cmocka_unit_test(test_what_does_not_fold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
