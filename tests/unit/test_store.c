/* Checkpoint folders: what was written is read back, and nothing else is accepted. Single bits:
 * test_store_flips.c. */
#include "base/text.h"
#include "store_kit.h"
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char top[KIT_PATH], dir[KIT_DIR], final[GW_STORE_PATH];

static int set_up(void **state) {
    return kit_open(top, dir);
}

static int tear_down(void **state) {
    return kit_close(top);
}

static void says(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("'%s' lacks '%s'", text, part);
}

static void save(int64_t step, int keep) {
    if (kit_save(dir, step, keep, final) != GW_OK)
        fail_msg("step %d: %s", (int)step, gw_err_text());
}

/* What gw_store_newest finds: the step, -1 for none. */
static int64_t newest(char *skipped, size_t room) {
    gw_store_manifest m;
    char path[GW_STORE_PATH];
    assert_ok(gw_store_newest(dir, &m, path, skipped, room));
    int64_t step = path[0] ? m.step : -1;
    for (int i = 0; step >= 0 && i < KIT_FILES; i++)
        assert_true(kit_holds(path, i, step));
    gw_store_manifest_free(&m);
    return step;
}

static void newest_is(int64_t step) {
    char skipped[1024];
    assert_int_equal(newest(skipped, sizeof skipped), step);
    assert_string_equal(skipped, "");
}

static const char *inside(const char *name) {
    static char path[2 * GW_STORE_PATH];
    snprintf(path, sizeof path, "%s/%s", final, name);
    return path;
}

/* ---- what was written comes back ---- */

static void comes_back(void **state) {
    gw_store_manifest m;
    newest_is(-1); /* no folder yet */
    save(1200, 1);
    assert_string_equal(final + strlen(final) - 18, "/step-000000001200");
    assert_ok(gw_store_open(final, &m));
    assert_int_equal(m.serial, 1);
    assert_int_equal(m.step, 1200);
    assert_int_equal(m.epoch, 3);
    assert_int_equal(m.batch, 0);
    assert_int_equal(m.ranks, KIT_RANKS);
    assert_int_equal(strlen(m.utc), strlen("2026-01-01T00:00:00Z"));
    assert_true(strlen(m.gradwire) > 0);
    assert_string_equal(json_string_value(json_object_get(m.facts, "comm")), "allreduce");
    assert_int_equal(m.n_files, KIT_FILES);
    assert_string_equal(m.files[0].name, "model.gw");
    assert_string_equal(m.files[1].name, "rank-00000.gw");
    assert_string_equal(m.files[2].name, "rank-00001.gw");
    for (int i = 0; i < KIT_FILES; i++)
        assert_true(kit_holds(final, i, 1200));
    gw_store_manifest_free(&m);
    newest_is(1200);
}

/* ---- damage ---- */

/* A file in memory, to be damaged on disk and repaired. */
typedef struct patient {
    char name[GW_STORE_NAME];
    unsigned char bytes[1 << 12];
    size_t n;
    int fd;
} patient;

static patient admit(const char *name) {
    patient p = {.fd = open(inside(name), O_RDWR)};
    gw_text_copy(p.name, sizeof p.name, name);
    ssize_t n = p.fd < 0 ? -1 : pread(p.fd, p.bytes, sizeof p.bytes, 0);
    assert_true(n > 0 && (size_t)n < sizeof p.bytes);
    p.n = (size_t)n;
    return p;
}

static void refused(const char *name) {
    gw_store_manifest m;
    assert_int_equal(gw_store_open(final, &m), GW_ERR_INPUT);
    says(gw_err_text(), inside(name));
    assert_null(m.files);
    assert_null(m.facts);
}

static void flip(const patient *p, size_t bit) {
    unsigned char damaged = (unsigned char)(p->bytes[bit / 8] ^ 1u << bit % 8);
    assert_int_equal(pwrite(p->fd, &damaged, 1, (off_t)(bit / 8)), 1);
}

static void mend(const patient *p) {
    assert_int_equal(pwrite(p->fd, p->bytes, p->n, 0), (ssize_t)p->n);
    assert_int_equal(ftruncate(p->fd, (off_t)p->n), 0);
}

static void cut_at_every_length(const char *name) {
    patient p = admit(name);
    for (size_t n = 0; n < p.n; n++) {
        assert_int_equal(ftruncate(p.fd, (off_t)n), 0);
        refused(name);
        mend(&p);
    }
    assert_int_equal(pwrite(p.fd, "\n", 1, (off_t)p.n), 1);
    refused(name); /* too long */
    mend(&p);
    close(p.fd);
}

static void wrong_lengths(void **state) {
    save(1200, 1);
    cut_at_every_length(GW_STORE_MANIFEST);
    cut_at_every_length("model.gw");
    cut_at_every_length("rank-00001.gw");
    newest_is(1200);
}

static void put_aside(const char *name, const char *other) {
    char from[2 * GW_STORE_PATH];
    snprintf(from, sizeof from, "%s", inside(name));
    assert_int_equal(rename(from, inside(other)), 0);
}

static void wrong_files(void **state) {
    const char *const names[] = {"rank-00000.gw", "model.gw", GW_STORE_MANIFEST};
    save(1200, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put_aside(names[i], "other"); /* a file that is not listed is never read */
        refused(names[i]);
        says(gw_err_text(), "No such file");
        assert_int_equal(mkfifo(inside(names[i]), 0600), 0);
        refused(names[i]); /* and nobody waits for a writer */
        says(gw_err_text(), "not a regular file");
        put_aside("other", names[i]);
        newest_is(1200);
    }
    /* Both complete and of equal size, but swapped. */
    put_aside("rank-00000.gw", "other");
    put_aside("rank-00001.gw", "rank-00000.gw");
    put_aside("other", "rank-00001.gw");
    refused("rank-00000.gw");
    says(gw_err_text(), "not the file that was written");
}

/* ---- several ---- */

static void damage(const char *name) {
    patient p = admit(name);
    flip(&p, 8 * (p.n - 1));
    close(p.fd);
}

static void newest_skips_damaged_ones(void **state) {
    char skipped[4096], few[40];
    save(100, 9);
    save(200, 9);
    save(300, 9);
    damage("model.gw");
    save(400, 9);
    damage(GW_STORE_MANIFEST);
    assert_int_equal(newest(skipped, sizeof skipped), 200);
    says(skipped, "step-000000000400/manifest: damaged");
    says(skipped, "\n");
    says(skipped, "step-000000000300/model.gw: damaged");
    assert_null(strstr(skipped, "step-000000000200"));
    assert_int_equal(newest(few, sizeof few), 200);
    assert_int_equal(strlen(few), sizeof few - 1);
    for (int64_t step = 100; step <= 200; step += 100) {
        snprintf(final, sizeof final, "%s/step-%012d", dir, (int)step);
        damage("rank-00000.gw");
    }
    assert_int_equal(newest(skipped, sizeof skipped), -1);
    for (int step = 100; step <= 400; step += 100) {
        char name[GW_STORE_NAME];
        snprintf(name, sizeof name, "step-%012d/", step);
        says(skipped, name); /* and left as it is */
    }
    assert_int_equal(kit_count(dir, "step-"), 4);
}

static void keeps_those_written_last(void **state) {
    for (int step = 1; step <= 5; step++) {
        save(step * 10, 2);
        assert_int_equal(kit_count(dir, "step-"), step < 2 ? step : 2);
        newest_is(step * 10);
    }
    /* Resumed from an earlier step: the last one written is the newest, whatever its step. */
    save(15, 2);
    newest_is(15);
    save(25, 1);
    newest_is(25);
    assert_int_equal(kit_count(dir, "step-"), 1);
    assert_int_equal(kit_count(dir, ""), 2 + 1); /* nothing hidden but . and .. */
}

/* A damaged checkpoint is never removed and does not count. */
static void prunes_complete_ones_only(void **state) {
    char skipped[1024];
    save(10, 2);
    save(20, 2);
    assert_int_equal(unlink(inside("model.gw")), 0);
    save(30, 2);
    assert_int_equal(kit_count(dir, "step-"), 3);
    save(40, 2);
    assert_int_equal(kit_count(dir, "step-"), 3); /* 20, 30, 40 */
    assert_int_equal(newest(skipped, sizeof skipped), 40);
    says(skipped, "step-000000000020/model.gw");
}

/* Someone has moved a checkpoint to a larger disk. */
static void leaves_what_a_link_leads_to(void **state) {
    char moved[2 * KIT_PATH];
    snprintf(moved, sizeof moved, "%s/moved", top);
    save(10, 1);
    assert_int_equal(rename(final, moved), 0);
    assert_int_equal(symlink(moved, final), 0);
    newest_is(10);
    save(10, 1);
    save(20, 1);
    assert_int_equal(kit_count(dir, ""), 2 + 1);
    assert_true(kit_holds(moved, 0, 10));
}

static void same_step_again(void **state) {
    gw_store_manifest m;
    save(100, 3);
    save(100, 3);
    assert_int_equal(gw_store_open(final, &m), GW_OK);
    assert_int_equal(m.serial, 2);
    gw_store_manifest_free(&m);
    damage("rank-00001.gw"); /* a damaged one gives way, too */
    save(100, 3);
    newest_is(100);
    damage(GW_STORE_MANIFEST);
    save(100, 3);
    newest_is(100);
    assert_int_equal(kit_count(dir, ""), 2 + 1);
}

/* The state after a run was killed between setting aside and renaming. */
static void finds_one_that_is_set_aside(void **state) {
    char aside[2 * GW_STORE_PATH];
    save(50, 9);
    save(100, 9);
    snprintf(aside, sizeof aside, "%s.old", final);
    assert_int_equal(rename(final, aside), 0);
    newest_is(100);
    save(100, 9);
    newest_is(100);
    assert_int_equal(access(aside, F_OK), -1);
    assert_int_equal(kit_count(dir, ""), 2 + 2);
}

static void sweeps_what_the_dead_left(void **state) {
    char path[2 * GW_STORE_PATH], temp[GW_STORE_PATH];
    gw_store_file f;
    const char *const others[] = {".step-7.99999999.tmp", ".step-000000000007.99999999",
                                  ".step-000000000007.xy.tmp", ".other-000000000007.99999999.tmp",
                                  "step-000000000007.tmp"};
    snprintf(path, sizeof path, "%s/.step-000000000008.0123456789abcdef.tmp", dir);
    assert_int_equal(gw_store_sweep(dir), GW_OK); /* no folder */
    save(5, 1);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, others[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(gw_store_begin(dir, 6, temp), GW_OK);
    assert_int_equal(kit_write(temp, 0, 6, &f), GW_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(gw_store_begin(dir, 7, temp) == GW_OK && kit_write(temp, 1, 7, &f) == GW_OK ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(kit_count(dir, ".step-"), 3 + 3);
    assert_int_equal(gw_store_sweep(dir), GW_OK);
    assert_int_equal(kit_count(dir, ".step-"), 3);
    assert_int_equal(kit_count(dir, ""), 2 + 1 + 5);
    newest_is(5);
}

/* A new run takes the folder: all old checkpoints go, and nothing else. */
static void clears_all_checkpoints(void **state) {
    char other[2 * GW_STORE_PATH];
    assert_false(gw_store_any(dir));
    assert_int_equal(gw_store_clear(dir), GW_OK); /* no folder */
    save(30, 3);
    save(20, 3);
    assert_true(gw_store_any(dir));
    assert_int_equal(unlink(inside("manifest")), 0);
    assert_int_equal(gw_store_clear(dir), GW_OK);
    assert_int_equal(access(dir, F_OK), -1);
    save(10, 1);
    snprintf(other, sizeof other, "%s/notes", dir);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(gw_store_clear(dir), GW_OK);
    assert_false(gw_store_any(dir));
    assert_int_equal(access(other, F_OK), 0);
}

/* ---- what cannot be written ---- */

static void refuses_to_commit_what_is_not_there(void **state) {
    gw_store_file files[KIT_FILES];
    char temp[GW_STORE_PATH];
    save(1, 1);
    for (int wrong = 0; wrong < 2; wrong++) {
        assert_int_equal(gw_store_begin(dir, 2, temp), GW_OK);
        for (int i = 0; i < KIT_FILES - wrong; i++)
            assert_int_equal(kit_write(temp, i, 2, &files[i]), GW_OK);
        files[1].bytes += !wrong;
        assert_int_equal(kit_commit(temp, 2, files, 1, final), GW_ERR_IO);
        says(gw_err_text(), wrong ? "model.gw: No such file" : "rank-00001.gw: damaged");
        assert_string_equal(final, "");
        assert_int_equal(access(temp, F_OK), -1);
        newest_is(1);
    }
}

static void wants_a_folder_to_begin_in(void **state) {
    char temp[GW_STORE_PATH], deep[2 * GW_STORE_PATH];
    snprintf(deep, sizeof deep, "%s/not/there", dir);
    assert_int_equal(gw_store_begin(deep, 1, temp), GW_ERR_IO);
    says(gw_err_text(), deep);
    says(gw_err_text(), "No such file");
    FILE *file = fopen(dir, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(gw_store_begin(dir, 1, temp), GW_ERR_IO);
    says(gw_err_text(), "Not a directory");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(comes_back),
        CASE(wrong_lengths),
        CASE(wrong_files),
        CASE(newest_skips_damaged_ones),
        CASE(keeps_those_written_last),
        CASE(prunes_complete_ones_only),
        CASE(leaves_what_a_link_leads_to),
        CASE(same_step_again),
        CASE(finds_one_that_is_set_aside),
        CASE(sweeps_what_the_dead_left),
        CASE(clears_all_checkpoints),
        CASE(refuses_to_commit_what_is_not_there),
        CASE(wants_a_folder_to_begin_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
