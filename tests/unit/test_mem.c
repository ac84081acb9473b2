/* What gw_alloc promises of alignment and contents, on either side of a large page. */
#include "base/mem.h"

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void aligned_and_zeroed(void **state) {
    static const size_t sizes[] = {
        0, 1, 4097, GW_LARGE_PAGE - 1, GW_LARGE_PAGE, 3 * GW_LARGE_PAGE + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = NULL;
        assert_int_equal(gw_alloc(&p, sizes[i], 1), GW_OK);
        size_t align = sizes[i] >= GW_LARGE_PAGE ? GW_LARGE_PAGE : GW_ALIGN;
        assert_int_equal((uintptr_t)p % align, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_true(p[k] == 0);
        free(p);
    }
}

/* The flags of the mapping that `p` lies in, as the kernel tells them. */
static void flags_of(const void *p, char *flags, int room) {
    char line[512];
    FILE *f = fopen("/proc/self/smaps", "r");
    unsigned long lo = 0, hi = 0, a, b;
    *flags = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &a, &b) == 2)
            lo = a, hi = b;
        if (strncmp(line, "VmFlags:", 8) == 0 && lo <= (uintptr_t)p && (uintptr_t)p < hi)
            snprintf(flags, (size_t)room, "%s", line);
    }
    if (f)
        fclose(f);
}

/* Whether it then gives them is the kernel's affair. */
static void asks_for_large_pages(void **state) {
    char flags[512];
    void *p = NULL;
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0)
        return; /* this kernel has none to ask for */
    assert_int_equal(gw_alloc(&p, 8 * GW_LARGE_PAGE, 1), GW_OK);
    flags_of((char *)p + GW_LARGE_PAGE, flags, sizeof flags);
    assert_non_null(strstr(flags, " hg"));
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligned_and_zeroed),
        cmocka_unit_test(asks_for_large_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
