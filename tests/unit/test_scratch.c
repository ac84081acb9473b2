/* Scratch: the spare block that is kept is the larger one. */

#include "compress/scratch.h"

#include "unit.h"

#include <stdlib.h>

enum { SMALL = 100, LARGE = 100000 };

/* Two blocks in use, given back in either order: the next large request allocates nothing. */
static void keeps_the_larger(void **state) {
    for (int large_first = 0; large_first < 2; large_first++) {
        gw_scratch s = {NULL};
        void *small, *large, *again;
        gw_block *small_block, *large_block, *block;
        assert_int_equal(gw_scratch_take(&s, "test", SMALL, &small, &small_block), GW_OK);
        assert_int_equal(gw_scratch_take(&s, "test", LARGE, &large, &large_block), GW_OK);
        assert_true(small != large && (uintptr_t)large % 64 == 0);
        gw_scratch_give(&s, large_first ? large_block : small_block);
        gw_scratch_give(&s, large_first ? small_block : large_block);
        void *hole = aligned_alloc(64, LARGE / 64 * 64); /* where a block that was freed lay */
        assert_int_equal(gw_scratch_take(&s, "test", LARGE, &again, &block), GW_OK);
        assert_ptr_equal(again, large);
        gw_scratch_give(&s, block);
        gw_scratch_clear(&s);
        free(hole);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_the_larger)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
