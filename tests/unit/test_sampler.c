/* The sampler: any number of ranks visits the serial global batches, every epoch is a permutation,
 * portions tile the set, and in an epoch each rank uses each sample of its portion once. */
#include "data/sampler.h"

#include "unit.h"

#include <stdlib.h>
#include <string.h>

#define EQUAL(n) ((gw_shares){.parts = (n)})

enum { MOST_RANKS = 7, EPOCHS = 3 };
static const int batches[] = {1, 2, 3, 50, 64, 77, 997, 1000};
static const uint32_t sizes[] = {1000, 1001, 1063, 60000};

static gw_sampler *open_sampler(uint32_t n, int batch, bool sharded, uint64_t seed, int rank,
                                int ranks) {
    gw_dataset set = {.n = n, .n_global = n, .rows = 1, .cols = 1, .to_rows = 1, .to_cols = 1};
    gw_sampler *s = NULL;
    if (sharded)
        assert_int_equal(gw_portion_cut(n, batch, rank, EQUAL(ranks), &set.first, &set.n), GW_OK);
    assert_ok(gw_sampler_open(&s, &set, batch, sharded, seed, rank, ranks));
    return s;
}

static void for_each_case(void (*check)(uint32_t n, int batch, int ranks)) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof batches / sizeof *batches; j++)
            for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
                check(sizes[i], batches[j], ranks);
}

/* Mark idx[0..n) in seen: each in range and new. */
static void mark(uint8_t *seen, uint32_t total, const uint32_t *idx, int n) {
    for (int i = 0; i < n; i++) {
        assert_true(idx[i] < total);
        assert_int_equal(seen[idx[i]]++, 0);
    }
}

/* The ranks' parts of each batch, put together, are the serial batch. */
static void replicated_case(uint32_t n, int batch, int ranks) {
    gw_sampler *serial = open_sampler(n, batch, false, 5, 0, 1), *part[MOST_RANKS];
    uint8_t *seen = malloc(n);
    assert_non_null(seen);
    int count = gw_sampler_batches(serial), most[MOST_RANKS] = {0};
    assert_int_equal(count, (n + (uint32_t)batch - 1) / (uint32_t)batch);
    for (int r = 0; r < ranks; r++)
        part[r] = open_sampler(n, batch, false, 5, r, ranks);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        memset(seen, 0, n);
        gw_sampler_epoch(serial, epoch);
        for (int r = 0; r < ranks; r++)
            gw_sampler_epoch(part[r], epoch);
        for (int b = 0; b < count; b++) {
            gw_batch whole = gw_sampler_batch(serial, b);
            int at = 0;
            assert_int_equal(whole.local, whole.global);
            assert_int_equal(whole.global,
                             b + 1 < count ? batch : (int)((n - 1) % (uint32_t)batch) + 1);
            mark(seen, n, whole.idx, whole.local);
            for (int r = 0; r < ranks; r++) {
                gw_batch mine = gw_sampler_batch(part[r], b);
                assert_int_equal(mine.global, whole.global);
                assert_true(at + mine.local <= whole.local);
                if (mine.local) /* cmocka refuses an empty comparison */
                    assert_memory_equal(mine.idx, whole.idx + at,
                                        (size_t)mine.local * sizeof *mine.idx);
                at += mine.local;
                most[r] = mine.local > most[r] ? mine.local : most[r];
            }
            assert_int_equal(at, whole.local);
        }
        assert_null(memchr(seen, 0, n)); /* every sample was visited */
    }
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(gw_sampler_max_local(part[r]), most[r]);
        gw_sampler_close(part[r]);
    }
    gw_sampler_close(serial);
    free(seen);
}

/* Shards tile the set. Together the ranks visit each sample once an epoch, each rank only those of
 * its portion, in parts as large as the replicated ones. */
static void sharded_case(uint32_t n, int batch, int ranks) {
    uint8_t *seen = malloc(n);
    uint32_t end = 0;
    assert_non_null(seen);
    memset(seen, 0, n);
    for (int r = 0; r < ranks; r++) {
        uint32_t first, count, used = 0;
        assert_int_equal(gw_portion_cut(n, batch, r, EQUAL(ranks), &first, &count), GW_OK);
        assert_int_equal(first, end);
        end += count;
        gw_sampler *s = open_sampler(n, batch, true, 5, r, ranks);
        gw_sampler *twin = open_sampler(n, batch, false, 5, r, ranks);
        int most = 0;
        gw_sampler_epoch(s, 2);
        for (int b = 0; b < gw_sampler_batches(s); b++) {
            gw_batch mine = gw_sampler_batch(s, b), same = gw_sampler_batch(twin, b);
            assert_int_equal(mine.local, same.local);
            assert_int_equal(mine.global, same.global);
            assert_true((mine.global == batch) == (b < gw_sampler_full(s)));
            mark(seen, n, mine.idx, mine.local);
            for (int i = 0; i < mine.local; i++)
                assert_true(mine.idx[i] - first < count);
            used += (uint32_t)mine.local;
            most = mine.local > most ? mine.local : most;
        }
        assert_int_equal(used, count);
        assert_int_equal(gw_sampler_max_local(s), most);
        gw_sampler_close(s);
        gw_sampler_close(twin);
    }
    assert_int_equal(end, n);
    assert_null(memchr(seen, 0, n));
    free(seen);
}

static void ranks_walk_the_serial_batches(void **state) {
    for_each_case(replicated_case);
}

static void shards_tile_the_set(void **state) {
    for_each_case(sharded_case);
}

static void order_of(uint32_t *out, bool sharded, uint64_t seed, int epoch, int rank) {
    gw_sampler *s = open_sampler(1000, 50, sharded, seed, rank, 2);
    gw_sampler_epoch(s, 1); /* the order of an epoch does not depend on earlier ones */
    gw_sampler_epoch(s, epoch);
    for (int b = 0; b < 20; b++)
        memcpy(out + b * 25, gw_sampler_batch(s, b).idx, 25 * sizeof *out);
    gw_sampler_close(s);
}

static void order_follows_seed_and_epoch(void **state) {
    uint32_t a[500], b[500];
    for (int sharded = 0; sharded < 2; sharded++) {
        order_of(a, sharded, 1, 4, 0);
        order_of(b, sharded, 1, 4, 0);
        assert_memory_equal(a, b, sizeof a);
        order_of(b, sharded, 1, 5, 0);
        assert_memory_not_equal(a, b, sizeof a);
        order_of(b, sharded, 2, 4, 0);
        assert_memory_not_equal(a, b, sizeof a);
        order_of(b, sharded, 1, 4, 1);
        for (int i = 0; i < 500 && sharded; i++)
            b[i] -= 500; /* ranks permute their shards differently */
        assert_memory_not_equal(a, b, sizeof a);
    }
}

static void stands_at_epoch_0(void **state) {
    gw_sampler *s = open_sampler(1000, 1000, false, 9, 0, 1);
    uint32_t before[1000];
    memcpy(before, gw_sampler_batch(s, 0).idx, sizeof before);
    gw_sampler_epoch(s, 0);
    assert_memory_equal(before, gw_sampler_batch(s, 0).idx, sizeof before);
    gw_sampler_close(s);
}

/* The position of a sample in an epoch is uniform: chi-squared over 20 parts of the epoch. */
static void order_is_uniform(void **state) {
    enum { RUNS = 4000, BINS = 20 };
    int bins[BINS] = {0};
    gw_sampler *s = open_sampler(100, 100, false, 3, 0, 1);
    for (int e = 0; e < RUNS; e++) {
        gw_sampler_epoch(s, e);
        const uint32_t *idx = gw_sampler_batch(s, 0).idx;
        for (int i = 0; i < 100; i++)
            if (idx[i] == 17)
                bins[i * BINS / 100]++;
    }
    double chi = 0, want = (double)RUNS / BINS;
    for (int i = 0; i < BINS; i++)
        chi += (bins[i] - want) * (bins[i] - want) / want;
    assert_true(chi < 50); /* 19 degrees of freedom: p = 1e-4 */
    gw_sampler_close(s);
}

static void refuses_bad_batches(void **state) {
    gw_dataset set = {.n = 100, .n_global = 100, .rows = 1, .cols = 1, .to_rows = 1, .to_cols = 1};
    gw_sampler *s = NULL;
    uint32_t first, count;
    static const int bad[] = {101, 0, -1};
    for (size_t i = 0; i < 3; i++) {
        assert_fails(gw_sampler_open(&s, &set, bad[i], false, 1, 0, 1), GW_ERR_USAGE,
                     "1 to the number of training samples, 100");
        assert_int_equal(gw_portion_cut(100, bad[i], 0, EQUAL(1), &first, &count), GW_ERR_USAGE);
    }
    /* A whole set is refused as a shard, and so is a shard cut for another batch. */
    assert_int_equal(gw_sampler_open(&s, &set, 10, true, 1, 0, 2), GW_ERR_INTERNAL);
    assert_int_equal(gw_portion_cut(100, 10, 0, EQUAL(3), &set.first, &set.n), GW_OK);
    assert_int_equal(gw_sampler_open(&s, &set, 100, true, 1, 0, 3), GW_ERR_INTERNAL);
    assert_null(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_walk_the_serial_batches),
        cmocka_unit_test(shards_tile_the_set),
        cmocka_unit_test(order_follows_seed_and_epoch),
        cmocka_unit_test(stands_at_epoch_0),
        cmocka_unit_test(order_is_uniform),
        cmocka_unit_test(refuses_bad_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
