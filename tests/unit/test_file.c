/* What killed processes left of files being written, and what only looks like it. */
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/gw-test-file-XXXXXX";

static long dead_pid(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return child;
}

static void path_of(char path[1100], const char *name) {
    snprintf(path, 1100, "%s/%s", dir, name);
}

static void make(const char *name) {
    char path[1100];
    path_of(path, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

static int is_there(const char *name) {
    char path[1100];
    path_of(path, name);
    return access(path, F_OK) == 0;
}

static void test_sweep(void **state) {
    (void)state;
    static const char *const names[] = {"run.json", "a.csv"};
    struct {
        const char *form;
        long pid;
        int stays;
    } cases[] = {
        {".run.json.%ld.tmp", 0, 0},
        {".a.csv.%ld.tmp", 0, 0},
        {".a.csv.%ld.tmp", getpid(), 0},
        {".run.json.%ld.tmp", getppid(), 1},
        {"run.json.%ld.tmp", 0, 1},
        {".other.%ld.tmp", 0, 1},
        {".run.json.%ld.tmp~", 0, 1},
        {".run.json.%ld", 0, 1},
        {".run.json.-%ld.tmp", 0, 1},
        {".run.json. %ld.tmp", 0, 1},
        {".run.json.%ldx.tmp", 0, 1},
        {".run.json.9999999999%ld.tmp", 0, 1},
        {".run.json.00000%ld.tmp", 0, 1},
        {".run.json..tmp", 0, 1},
        {".run.json.999999999999999999999%ld.tmp", 0, 1},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    char made[CASES][64];
    long dead = dead_pid();
    for (int i = 0; i < CASES; i++) {
        snprintf(made[i], sizeof made[i], cases[i].form, cases[i].pid ? cases[i].pid : dead);
        make(made[i]);
    }
    make("run.json");
    assert_int_equal(gw_file_sweep(dir, names, 2), GW_OK);
    for (int i = 0; i < CASES; i++)
        if (is_there(made[i]) != cases[i].stays)
            fail_msg("%s %s", made[i], cases[i].stays ? "is gone" : "is still there");
    assert_true(is_there("run.json"));
    assert_int_equal(gw_file_sweep("/nonexistent/folder", names, 2), GW_ERR_INPUT);
}

static int set_up(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sweep)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
