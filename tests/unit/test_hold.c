/* Folders held by their descriptors: what is written goes there or nowhere, through no link. */
#include "base/file.h"
#include "base/hold.h"

#include "folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[96], other[96], link_at[160];
static gw_hold *hold;

static int set_up(void **state) {
    if (make_folder(state))
        return 1;
    snprintf(dir, sizeof dir, "%s/run", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(link_at, sizeof link_at, "%s/model.ckpt.d", dir);
    mkdir(dir, 0755);
    mkdir(other, 0755);
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    int lock = openat(fd, GW_HOLD_LOCK, O_RDWR | O_CREAT, 0644);
    return gw_hold_begin(&hold, dir, fd, lock) != GW_OK;
}

static int tear_down(void **state) {
    gw_hold_end(hold);
    return remove_folder(state);
}

static bool there(const char *in, const char *name) {
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", in, name);
    return lstat(path, &st) == 0;
}

static gw_err write_file(const char *in) {
    gw_file *file;
    GW_TRY(gw_file_create(&file, in, "a"));
    fputs("text", gw_file_stream(file));
    return gw_file_commit(&file);
}

static void another_takes_its_name(void **state) {
    gw_file *begun;
    int why;
    assert_int_equal(write_file(dir), GW_OK);
    assert_true(there(dir, "a"));
    assert_int_equal(gw_file_create(&begun, dir, "b"), GW_OK);
    char moved[96];
    snprintf(moved, sizeof moved, "%s/moved", folder);
    assert_int_equal(rename(dir, moved), 0);
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_fails(gw_file_commit(&begun), GW_ERR_LOST, moved);
    assert_int_equal(write_file(dir), GW_ERR_LOST);
    assert_int_equal(gw_hold_make(dir, "c"), GW_ERR_LOST);
    assert_int_equal(gw_hold_rename(dir, "a", "d", &why), GW_ERR_LOST);
    assert_int_equal(gw_hold_remove(dir, "a", NULL), GW_ERR_LOST);
    assert_int_equal(write_file(link_at), GW_ERR_LOST);
    assert_int_equal(rmdir(dir), 0); /* nothing came into it */
    assert_int_equal(gw_hold_check(dir), GW_ERR_LOST);
    assert_int_equal(write_file(other), GW_OK); /* held by nobody */
    assert_int_equal(rename(moved, dir), 0);
    assert_int_equal(write_file(dir), GW_OK);
}

static void its_lock_goes(void **state) {
    assert_int_equal(gw_hold_check(dir), GW_OK);
    char lock[128];
    snprintf(lock, sizeof lock, "%s/" GW_HOLD_LOCK, dir);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(gw_hold_check(dir), GW_ERR_LOST);
    close(open(lock, O_RDWR | O_CREAT, 0644));
    assert_int_equal(gw_hold_check(dir), GW_ERR_LOST);
}

static void process_changes_its_folder(void **state) {
    char here[4096];
    gw_hold *inner;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    mkdir("relative", 0755);
    int fd = open("relative", O_RDONLY | O_DIRECTORY);
    int lock = openat(fd, GW_HOLD_LOCK, O_RDWR | O_CREAT, 0644);
    assert_int_equal(gw_hold_begin(&inner, "relative", fd, lock), GW_OK);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(write_file("relative"), GW_OK);
    assert_int_equal(chdir(folder), 0);
    assert_true(there("relative", "a"));
    gw_hold_end(inner);
    assert_int_equal(chdir(here), 0);
}

static void goes_through_no_link(void **state) {
    assert_int_equal(write_file(other), GW_OK);
    assert_int_equal(symlink(other, link_at), 0);
    assert_int_equal(write_file(link_at), GW_ERR_INPUT);
    assert_int_equal(gw_hold_make(link_at, "c"), GW_ERR_IO);
    assert_int_equal(gw_hold_remove(dir, "model.ckpt.d", "a"), GW_OK);
    assert_false(there(dir, "model.ckpt.d"));
    assert_true(there(other, "a"));
    char part[128];
    gw_file *file;
    snprintf(part, sizeof part, "%s/a.part", dir);
    snprintf(link_at, sizeof link_at, "%s/a", other);
    assert_int_equal(symlink(link_at, part), 0);
    assert_int_equal(gw_file_create_part(&file, dir, "a"), GW_ERR_INPUT);
    assert_int_equal(gw_file_resume_part(&file, dir, "a", 0), GW_ERR_INPUT);
    struct stat st;
    assert_int_equal(stat(link_at, &st), 0);
    assert_int_equal(st.st_size, 4);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(another_takes_its_name), CASE(its_lock_goes),
                                       CASE(process_changes_its_folder),
                                       CASE(goes_through_no_link)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
