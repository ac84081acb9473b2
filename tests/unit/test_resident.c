/* Peaks of resident memory, phase by phase; and what is left where the kernel sets none back. */
#include "prof/resident.h"

#include "folder.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB   1048576.0
#define LUMPS (4 * MIB) /* the kernel counts the pages of each thread and core in lumps */
enum { SIZE = 64 << 20, PAGE = 4096 };

static volatile char *map(int flags) {
    volatile char *pages = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
    assert_true(pages != MAP_FAILED);
    for (int i = 0; i < SIZE; i += PAGE)
        pages[i] = 1;
    return pages;
}

/* What a phase needs and frees is in its peak, and in no later one's. One that comes again keeps
 * its larger peak. */
static void test_phases(void **state) {
    gw_resident r;
    gw_resident_start(&r, "/proc/self");
    gw_resident_enter(&r, GW_RESIDENT_TRAINING);
    munmap((void *)map(MAP_PRIVATE), SIZE);
    gw_resident_enter(&r, GW_RESIDENT_EVALUATION);
    gw_resident_enter(&r, GW_RESIDENT_TRAINING);
    gw_resident_end(&r);
    if (*r.why)
        print_message("not told apart: %s\n", r.why);
    assert_string_equal(r.why, "");
    double training = r.most[GW_RESIDENT_TRAINING].peak;
    double evaluation = r.most[GW_RESIDENT_EVALUATION].peak;
    assert_true(evaluation > 0);
    assert_true(training >= evaluation + SIZE - LUMPS);
    assert_true(r.most[GW_RESIDENT_SETUP].peak > 0);
    assert_true(r.most[GW_RESIDENT_TOTAL].peak == fmax(training, r.most[GW_RESIDENT_SETUP].peak));
}

/* Shared pages are told apart from private ones. */
static void test_shared(void **state) {
    gw_resident r;
    gw_resident_start(&r, "/proc/self");
    gw_resident_enter(&r, GW_RESIDENT_TRAINING);
    volatile char *own = map(MAP_PRIVATE);
    gw_resident_enter(&r, GW_RESIDENT_EVALUATION);
    volatile char *shared = map(MAP_SHARED);
    gw_resident_end(&r);
    gw_resident_bytes before = r.most[GW_RESIDENT_TRAINING], after = r.most[GW_RESIDENT_EVALUATION];
    assert_true(after.shared - before.shared >= SIZE - LUMPS);
    assert_true(fabs((after.peak - after.shared) - (before.peak - before.shared)) <= LUMPS);
    assert_true(after.shared <= after.peak + LUMPS);
    munmap((void *)own, SIZE);
    munmap((void *)shared, SIZE);
}

static void walk(gw_resident *r, const char *proc) {
    gw_resident_start(r, proc);
    gw_resident_enter(r, GW_RESIDENT_TRAINING);
    gw_resident_end(r);
}

/* A kernel without clear_refs, or a status that lacks the figures: the total alone, and why. */
static void test_refused(void **state) {
    gw_resident r;
    put_text("status", "Name:\tx\nVmHWM:\t    2048 kB\nRssFile:\t 100 kB\nRssShmem:\t 24 kB\n");
    walk(&r, folder);
    assert_non_null(strstr(r.why, "/clear_refs: No such file or directory"));
    assert_true(isnan(r.most[GW_RESIDENT_SETUP].peak) && isnan(r.most[GW_RESIDENT_TRAINING].peak));
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    assert_true(r.most[GW_RESIDENT_TOTAL].peak == 1024.0 * (double)use.ru_maxrss);
    assert_true(r.most[GW_RESIDENT_TOTAL].shared == 124 * 1024.0);

    put_text("clear_refs", "");
    walk(&r, folder);
    assert_string_equal(r.why, "");
    assert_true(r.most[GW_RESIDENT_SETUP].peak == 2 * MIB);
    assert_true(r.most[GW_RESIDENT_TOTAL].shared == 124 * 1024.0);

    put_text("status", "Name:\tx\nVmHWM:\tmuch\nRssFile:\t 100 kB\n");
    walk(&r, folder);
    assert_non_null(strstr(r.why, "/status: has no VmHWM"));
    assert_true(r.most[GW_RESIDENT_TOTAL].peak > 0 && isnan(r.most[GW_RESIDENT_TOTAL].shared));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
