/* Energy of made-up trees of powercap: which zones count, when, past the end of a counter's range,
 * and what makes it absent. */
#include "machine/energy.h"

#include "folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(const char *zone, const char *file, const char *text) {
    char name[64], line[64];
    mkdir(in_folder(zone), 0700);
    snprintf(name, sizeof name, "%s/%s", zone, file);
    snprintf(line, sizeof line, "%s\n", text ? text : "");
    unlink(in_folder(name));
    if (text)
        put_text(name, line);
}

static void zone(const char *name, const char *label, const char *uj) {
    put(name, "name", label);
    put(name, "max_energy_range_uj", "10000000");
    put(name, "energy_uj", uj);
}

static void test_counts(void **state) {
    gw_energy e;
    gw_energy_open(&e, true);
    assert_int_equal(e.zones, 0);
    assert_non_null(strstr(e.why, "absent: "));
    zone("intel-rapl:0", "package-0", "1000000");
    zone("intel-rapl:1", "package-1", "9000000");
    zone("intel-rapl:0:1", "dram", "500000");
    zone("intel-rapl:0:0", "core", "1000000");         /* part of its package */
    zone("intel-rapl:2", "psys", "1000000");           /* more than the processors */
    zone("intel-rapl-mmio:0", "package-0", "1000000"); /* the same once more */
    gw_energy_open(&e, true);
    assert_int_equal(e.zones, 3);
    assert_non_null(strstr(e.why, "measured: "));
    gw_energy_count(&e, true);
    put("intel-rapl:0", "energy_uj", "3000000");   /* 2 J */
    put("intel-rapl:1", "energy_uj", "500000");    /* 1.5 J, past the end of its range */
    put("intel-rapl:0:1", "energy_uj", "750000");  /* 0.25 J */
    put("intel-rapl:0:0", "energy_uj", "2900000"); /* counted in its package */
    gw_energy_count(&e, false);
    assert_true(fabs(e.joules - 3.75) < 1e-9);
    put("intel-rapl:0", "energy_uj", "9000000"); /* an evaluation's */
    gw_energy_count(&e, true);
    assert_true(fabs(e.joules - 3.75) < 1e-9);
    put("intel-rapl:0", "energy_uj", "9500000");
    gw_energy_count(&e, true);
    assert_true(fabs(e.joules - 4.25) < 1e-9);
    put("intel-rapl:1", "energy_uj", NULL);
    gw_energy_count(&e, true);
    assert_int_equal(e.zones, 0);
    assert_non_null(strstr(e.why, "intel-rapl:1/energy_uj: no longer readable"));
}

static void test_absent(void **state) {
    gw_energy e;
    zone("intel-rapl:0", "package-0", "1000000");
    zone("intel-rapl:1", "package-1", NULL); /* as where it is root's alone */
    gw_energy_open(&e, true);
    assert_int_equal(e.zones, 0);
    assert_non_null(strstr(e.why, "intel-rapl:1/energy_uj: not readable"));
    zone("intel-rapl:1", "package-1", "12x");
    gw_energy_open(&e, true);
    assert_int_equal(e.zones, 0);
    zone("intel-rapl:1", "package-1", "12");
    gw_energy_open(&e, false);
    assert_int_equal(e.zones, 0);
    gw_energy_open(&e, true);
    assert_int_equal(e.zones, 3); /* and the memory of the test before */
}

static int set_up(void **state) {
    return make_folder(state) || setenv("GRADWIRE_POWERCAP", folder, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_absent)};
    return cmocka_run_group_tests(tests, set_up, remove_folder);
}
