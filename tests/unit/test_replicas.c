
#include "base/err.h"
#include "mpi/replicas.h"

#include "unit.h"

enum { LAYERS = 3 };

static void says(const uint32_t *all, int ranks, const char *words) {
    assert_int_equal(gw_replicas_tell(&(gw_replicas){.n_layers = LAYERS, .step = 7}, all, ranks),
                     GW_ERR_DIVERGED);
    assert_message(words);
}

static void a_minority(void **state) {
    static const uint32_t all[] = {1, 2, 3, 1, 9, 8, 1, 2, 3};
    says(all, 3,
         "step 7: replicas differ: rank 1 from all others, first in layer 1 (crc32 00000009 "
         "on rank 1, 00000002 on rank 0)");
}

/* The majority need not equal rank 0, and the others need not equal each other. */
static void rank_0(void **state) {
    static const uint32_t all[] = {1, 2, 0xabc, 1, 2, 3, 5, 2, 3, 1, 2, 3, 1, 2, 3};
    says(all, 5,
         "ranks 0, 2 from all others, first in layer 0 (crc32 00000005 on rank 2, 00000001 "
         "on rank 1)");
}

static void no_majority(void **state) {
    static const uint32_t two[] = {1, 2, 3, 1, 2, 4}, four[] = {1, 2, 3, 1, 2, 3, 0, 2, 3, 0, 2, 3};
    says(two, 2,
         "ranks 0, 1 have no majority, first in layer 2 (crc32 00000004 on rank 1, "
         "00000003 on rank 0)");
    says(four, 4,
         "ranks 0, 1, 2, 3 have no majority, first in layer 0 (crc32 00000000 on rank 2, "
         "00000001 on rank 0)");
}

static void many(void **state) {
    uint32_t all[32 * LAYERS] = {0};
    for (int r = 1; r < 12; r++)
        all[r * LAYERS + 2] = (uint32_t)r;
    says(all, 32, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more from all others, first in layer 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_minority), cmocka_unit_test(rank_0),
                                       cmocka_unit_test(no_majority), cmocka_unit_test(many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
