/* Checkpoints under calamities. Every call that changes a folder is put in the way of the store's:
 * before each of them in turn the process is killed, or it and what follows fails. And two
 * processes are killed at moments by chance. A complete checkpoint always remains.
 *
 *    test_store_crash [KILLS]     at moments by chance; 100 unless told */
#include "base/rng.h"
#include "store_kit.h"
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static char top[KIT_PATH], dir[KIT_DIR], final[GW_STORE_PATH];

/* ---- calls in the way ---- */

typedef enum calamity { NONE, KILLED, FAILS_ONCE, FULL, READ_ONLY } calamity;

static struct {
    calamity what;
    int left; /* calls before it strikes */
    bool struck;
    int why; /* errno */
} plan;

/* Must this call fail? On a full disk files can be removed, but that frees no room. */
static bool strikes(bool removes) {
    if (plan.what == NONE || (plan.what == FULL && removes))
        return false;
    if (plan.left-- > 0 || (plan.struck && plan.what == FAILS_ONCE))
        return false;
    plan.struck = true;
    if (plan.what == KILLED)
        kill(getpid(), SIGKILL);
    errno = plan.why;
    return true;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int mkdirat(int fd, const char *path, mode_t mode) {
    return strikes(false) ? -1 : REAL(mkdirat)(fd, path, mode);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return strikes(false) ? -1 : REAL(renameat)(from_dir, from, to_dir, to);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    return strikes(false) ? -1 : REAL(linkat)(from_dir, from, to_dir, to, flags);
}

int fsync(int fd) {
    return strikes(false) ? -1 : REAL(fsync)(fd);
}

int unlinkat(int fd, const char *path, int flags) {
    return strikes(true) ? -1 : REAL(unlinkat)(fd, path, flags);
}

int openat(int fd, const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    bool makes = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    int mode = makes ? va_arg(ap, int) : 0;
    va_end(ap);
    return makes && strikes(false) ? -1 : REAL(openat)(fd, path, flags, mode);
}

/* ---- what must hold whatever happened ---- */

static int set_up(void **state) {
    return kit_open(top, dir);
}

static int tear_down(void **state) {
    return kit_close(top);
}

static void save(int64_t step, int keep) {
    if (kit_save(dir, step, keep, final) != GW_OK)
        fail_msg("step %d: %s", (int)step, gw_err_text());
}

/* The newest checkpoint is complete and no partial one is visible; returns its serial number. */
static int64_t newest(int64_t *step) {
    gw_store_manifest m;
    char path[GW_STORE_PATH], skipped[1024];
    assert_ok(gw_store_newest(dir, &m, path, skipped, sizeof skipped));
    assert_string_equal(skipped, "");
    assert_true(path[0]);
    int64_t serial = m.serial;
    *step = m.step;
    gw_store_manifest_free(&m);
    for (int i = 0; i < KIT_FILES; i++)
        assert_true(kit_holds(path, i, *step));
    return serial;
}

static void sweep(void) {
    assert_ok(gw_store_sweep(dir));
    assert_int_equal(kit_count(dir, ".step-"), 0);
}

/* ---- at every call ---- */

/* A checkpoint of step 100, then one of `step` while the calamity strikes at call `at`. True if it
 * struck. */
static bool try_at(calamity what, int why, int64_t step, int at) {
    kit_remove(dir, 1);
    save(100, 1);
    plan.left = at;
    plan.struck = false;
    plan.why = why;
    plan.what = what;
    gw_err e = kit_save(dir, step, 1, final);
    plan.what = NONE;
    char text[1024];
    snprintf(text, sizeof text, "%s", gw_err_text());
    int64_t found, serial = newest(&found);
    assert_int_equal(serial, final[0] ? 2 : 1);
    assert_int_equal(found, final[0] ? step : 100);
    assert_true(plan.struck || e == GW_OK);
    if (e == GW_OK)
        assert_true(final[0]);
    else if (!strstr(text, strerror(why)))
        fail_msg("'%s' does not tell '%s'", text, strerror(why));
    if (what == FULL)
        assert_int_equal(kit_count(dir, ".step-"), 0);
    return plan.struck;
}

static void fails_at_every_call(calamity what, int why) {
    for (int64_t step = 100; step <= 200; step += 100) { /* in place of the other; behind it */
        int at = 0;
        while (try_at(what, why, step, at)) {
            sweep();
            save(step + 1, 1); /* as if nothing had been */
            int64_t found;
            newest(&found);
            assert_int_equal(found, step + 1);
            assert_int_equal(kit_count(dir, ""), 2 + 1);
            at++;
        }
        assert_in_range(at, 20, 200); /* that the calls do come this way */
    }
}

static void disk_is_full(void **state) {
    fails_at_every_call(FULL, ENOSPC);
}

static void disk_becomes_read_only(void **state) {
    fails_at_every_call(READ_ONLY, EROFS);
}

static void one_call_fails(void **state) {
    fails_at_every_call(FAILS_ONCE, EIO);
}

/* True if the process was killed at call `at`. */
static bool kill_at(int64_t step, int at) {
    int status;
    kit_remove(dir, 1);
    save(100, 1);
    pid_t child = fork();
    if (child == 0) {
        plan.left = at;
        plan.what = KILLED;
        _exit(kit_save(dir, step, 1, final) == GW_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    else
        assert_int_equal(WTERMSIG(status), SIGKILL);
    return WIFSIGNALED(status);
}

static void killed_before_every_call(void **state) {
    for (int64_t step = 100; step <= 200; step += 100) {
        int at = 0;
        int64_t found, serial = 1;
        while (kill_at(step, at)) {
            int64_t last = serial;
            serial = newest(&found);
            assert_int_equal(found, serial == 2 ? step : 100);
            assert_true(serial >= last); /* what exists at one call exists at the next */
            sweep();
            assert_int_equal(newest(&found), serial);
            save(step, 1);
            assert_int_equal(newest(&found), serial + 1);
            assert_int_equal(kit_count(dir, ""), 2 + 1);
            at++;
        }
        assert_int_equal(serial, 2);
        assert_in_range(at, 20, 200);
    }
}

/* ---- at any moment ---- */

static int kills = 100;

typedef struct order {
    int64_t step;
    char temp[GW_STORE_PATH];
} order;

/* Rank 1: writes its file where rank 0 tells. */
static void write_orders(int from, int to) {
    static order o;
    gw_store_file f = {0};
    while (read(from, &o, sizeof o) == sizeof o && kit_write(o.temp, 1, o.step, &f) == GW_OK &&
           write(to, &f, sizeof f) == sizeof f)
        ;
    _exit(1);
}

/* Rank 0: checkpoints without end, every third step twice. */
static void write_checkpoints(int64_t step, int from, int to, volatile int64_t *committed) {
    static order o;
    gw_store_file files[KIT_FILES];
    for (int64_t i = 0;; i++, step += i % 3 != 0) {
        o.step = step;
        bool fine = gw_store_begin(dir, step, o.temp) == GW_OK &&
                    write(to, &o, sizeof o) == sizeof o &&
                    kit_write(o.temp, 0, step, &files[0]) == GW_OK &&
                    kit_write(o.temp, 2, step, &files[2]) == GW_OK &&
                    read(from, &files[1], sizeof files[1]) == sizeof files[1] &&
                    kit_commit(o.temp, step, files, 2, final) == GW_OK;
        if (!fine)
            _exit(1);
        *committed = step;
    }
}

/* Both ranks, from `step` on. After so many microseconds one is killed, then both are. */
static void run_and_kill(int64_t step, unsigned us, int first, volatile int64_t *committed) {
    int down[2], up[2], status;
    pid_t rank[2];
    assert_int_equal(pipe(down) | pipe(up), 0);
    for (int r = 0; r < 2; r++) {
        rank[r] = fork();
        if (rank[r] == 0) {
            close(r == 0 ? down[0] : down[1]);
            close(r == 0 ? up[1] : up[0]);
            if (r == 0)
                write_checkpoints(step, up[0], down[1], committed);
            write_orders(down[0], up[1]);
        }
    }
    for (int i = 0; i < 2; i++) {
        close(down[i]);
        close(up[i]);
    }
    usleep(us);
    kill(rank[first], SIGKILL);
    usleep(us % 300); /* the other one may notice */
    for (int r = 0; r < 2; r++) {
        kill(rank[r], SIGKILL);
        assert_int_equal(waitpid(rank[r], &status, 0), rank[r]);
    }
}

/* Do some of them, whatever makes this slow: a disk, valgrind. */
static unsigned long time_of_checkpoints(int64_t step) {
    enum { SOME = 12, LEAST_US = 4000 };
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    save(step, 2);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double us =
        1e6 * (double)(to.tv_sec - from.tv_sec) + 1e-3 * (double)(to.tv_nsec - from.tv_nsec);
    return SOME * us > LEAST_US ? (unsigned long)(SOME * us) : LEAST_US;
}

static void killed_at_any_moment(void **state) {
    enum { SEED = 4711 };
    volatile int64_t *committed =
        mmap(NULL, sizeof *committed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(committed != MAP_FAILED);
    int64_t step = 1, last_serial = 1;
    int within = 0; /* checkpoints that were under way */
    unsigned long most_us = time_of_checkpoints(step);
    *committed = step;
    /* If the machine is too busy for the ranks to begin, do more of them, later. */
    for (uint64_t i = 0; i < (uint64_t)kills || last_serial == 1 || within == 0; i++) {
        most_us += i < (uint64_t)kills ? 0 : most_us / 4;
        run_and_kill(step, (unsigned)(gw_rng_u64(SEED, 2 * i) % most_us),
                     (int)(gw_rng_u64(SEED, 2 * i + 1) % 2), committed);
        int64_t serial = newest(&step);
        assert_true(step >= *committed && serial >= last_serial);
        last_serial = serial;
        within += kit_count(dir, ".step-") > 0;
        sweep();
    }
    print_message("%d within a checkpoint; %d were completed\n", within, (int)last_serial);
    munmap((void *)committed, sizeof *committed);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(disk_is_full),         CASE(disk_becomes_read_only),
        CASE(one_call_fails),       CASE(killed_before_every_call),
        CASE(killed_at_any_moment),
    };
    if (argc > 1)
        kills = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
