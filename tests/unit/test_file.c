/* Temporary files of killed processes and files that only look like them; files that a later
 * process resumes; outputs where something else than a file is. */
#include "base/file.h"

#include "folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_there(const char *name) {
    return access(in_folder(name), F_OK) == 0;
}

static void test_sweep(void **state) {
    static const char *const names[] = {"run.json", "a.csv"};
    static const struct {
        const char *name;
        int stays;
    } cases[] = {
        {".run.json.0123456789abcdef.tmp", 0},
        {".a.csv.fedcba9876543210.tmp", 0},
        {".run.json.1.tmp", 1},
        {"run.json.0123456789abcdef.tmp", 1},
        {".other.0123456789abcdef.tmp", 1},
        {".run.json.0123456789abcdef.tmp~", 1},
        {".run.json.0123456789abcdef", 1},
        {".run.json.-123456789abcdef.tmp", 1},
        {".run.json. 123456789abcdef.tmp", 1},
        {".run.json.0123456789ABCDEF.tmp", 1},
        {".run.json.0123456789abcdefx.tmp", 1},
        {".run.json..tmp", 1},
        {".run.json.0123456789abcdef0.tmp", 1},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    for (int i = 0; i < CASES; i++)
        put_text(cases[i].name, "");
    put_text("run.json", "");
    assert_int_equal(gw_file_sweep(folder, names, 2), GW_OK);
    for (int i = 0; i < CASES; i++)
        if (is_there(cases[i].name) != cases[i].stays)
            fail_msg("%s %s", cases[i].name, cases[i].stays ? "is gone" : "is still there");
    assert_true(is_there("run.json"));
    assert_int_equal(gw_file_sweep("/nonexistent/folder", names, 2), GW_ERR_INPUT);
}

static void write_to(gw_file *f, const char *text) {
    assert_true(fputs(text, gw_file_stream(f)) >= 0);
}

static void assert_holds(const char *name, const char *text) {
    char *data;
    size_t len;
    assert_int_equal(gw_file_read(in_folder(name), 1000, &data, &len), GW_OK);
    assert_string_equal(data, text);
    free(data);
}

/* A process that writes, marks, writes on and is killed. */
static int64_t killed_writer(const char *name, const char *kept, const char *lost) {
    int64_t bytes = (int64_t)strlen(kept);
    pid_t child = fork();
    if (child == 0) {
        gw_file *f;
        int64_t at = -1;
        if (gw_file_create_part(&f, folder, name) != GW_OK)
            _exit(1);
        fputs(kept, gw_file_stream(f));
        if (gw_file_mark(f, &at) != GW_OK || at != bytes)
            _exit(2);
        fputs(lost, gw_file_stream(f));
        fflush(gw_file_stream(f));
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    return bytes;
}

static void test_part_goes_on(void **state) {
    gw_file *f;
    int64_t mark = killed_writer("rows", "head\n1\n", "2\nhalf a ro"), again;
    assert_false(is_there("rows"));
    assert_holds("rows.part", "head\n1\n2\nhalf a ro");
    assert_int_equal(gw_file_resume_part(&f, folder, "rows", mark), GW_OK);
    assert_holds("rows.part", "head\n1\n");
    char line[16];
    rewind(gw_file_stream(f)); /* it can be read, too */
    assert_non_null(fgets(line, sizeof line, gw_file_stream(f)));
    assert_string_equal(line, "head\n");
    assert_int_equal(fseek(gw_file_stream(f), 0, SEEK_END), 0);
    write_to(f, "2\n");
    assert_int_equal(gw_file_mark(f, &again), GW_OK);
    assert_int_equal(again, mark + 2);
    write_to(f, "3\n");
    gw_file_abandon(f); /* marked: who failed may be started again */
    assert_int_equal(gw_file_resume_part(&f, folder, "rows", again), GW_OK);
    assert_int_equal(gw_file_commit(&f), GW_OK);
    assert_false(is_there("rows.part"));
    assert_holds("rows", "head\n1\n2\n");
    /* A file that was closed whole becomes a part again. */
    assert_int_equal(gw_file_resume_part(&f, folder, "rows", mark), GW_OK);
    assert_false(is_there("rows"));
    gw_file_abandon(f);
    assert_holds("rows.part", "head\n1\n");
}

static void test_part_refused(void **state) {
    gw_file *f;
    assert_fails(gw_file_resume_part(&f, folder, "none", 0), GW_ERR_INPUT,
                 "none.part: No such file");
    assert_false(is_there("none.part"));
    int64_t mark = killed_writer("short", "1\n", "");
    assert_fails(gw_file_resume_part(&f, folder, "short", mark + 1), GW_ERR_INPUT, "too short");
    assert_holds("short.part", "1\n");
    /* A part that no run can resume is removed. */
    assert_int_equal(gw_file_create_part(&f, folder, "fresh"), GW_OK);
    assert_true(is_there("fresh.part"));
    gw_file_abandon(f);
    assert_false(is_there("fresh.part"));
}

static void test_part_copied(void **state) {
    const char *from = in_folder("elsewhere");
    gw_file *f;
    int64_t mark = killed_writer("copied", "a\nb\n", "c");
    assert_int_equal(mkdir(from, 0777), 0);
    assert_int_equal(gw_file_copy_part(&f, from, folder, "copied", mark), GW_OK);
    write_to(f, "d\n");
    assert_int_equal(gw_file_commit(&f), GW_OK);
    assert_holds("elsewhere/copied", "a\nb\nd\n");
    assert_holds("copied.part", "a\nb\nc");
    assert_int_equal(gw_file_copy_part(&f, from, folder, "copied", 100), GW_ERR_INPUT);
    assert_false(is_there("elsewhere/copied.part"));
}

/* Whoever removes or replaces a part takes its rows away: no commit names something else. */
static void test_part_taken(void **state) {
    gw_file *f;
    for (int by = 0; by < 3; by++) {
        assert_int_equal(gw_file_create_part(&f, folder, "taken"), GW_OK);
        write_to(f, "1\n");
        assert_int_equal(unlink(in_folder("taken.part")), 0);
        if (by == 1)
            assert_int_equal(mkdir(in_folder("taken.part"), 0777), 0);
        else if (by == 2)
            put_text("taken.part", "");
        assert_fails(gw_file_commit(&f), GW_ERR_IO, "taken.part was removed or replaced");
        assert_false(is_there("taken"));
        assert_int_equal(is_there("taken.part"), by > 0); /* it is another's */
        if (by == 1)
            assert_int_equal(rmdir(in_folder("taken.part")), 0);
    }
}

static gw_err output(const char *name, const char *text) {
    gw_file *f;
    gw_err e = gw_file_create_at(&f, in_folder(name));
    if (e != GW_OK)
        return e;
    write_to(f, text);
    return gw_file_commit(&f);
}

static void link_to(const char *to, const char *name) {
    assert_int_equal(symlink(to, in_folder(name)), 0);
}

static mode_t kind_of(const char *name) {
    struct stat of;
    assert_int_equal(lstat(in_folder(name), &of), 0);
    return of.st_mode & S_IFMT;
}

/* Only a regular file that an option names as an output is replaced, also behind links. */
static void test_output(void **state) {
    char got[8] = "";
    put_text("old", "");
    assert_int_equal(mkdir(in_folder("sub"), 0777), 0);
    link_to("old", "link");
    link_to("../link", "sub/chain");
    link_to("sub/new", "dangling");
    link_to("circle", "circle");
    assert_int_equal(output("sub/chain", "1\n"), GW_OK);
    assert_holds("old", "1\n");
    assert_int_equal(output("dangling", "2\n"), GW_OK);
    assert_holds("sub/new", "2\n");
    assert_true(S_ISLNK(kind_of("link")) && S_ISLNK(kind_of("sub/chain")) &&
                S_ISLNK(kind_of("dangling")));
    assert_int_equal(output("circle", ""), GW_ERR_INPUT);
    assert_fails(output("sub", ""), GW_ERR_INPUT, "a folder");
    assert_int_equal(output("sub/", ""), GW_ERR_USAGE);
    assert_int_equal(mkfifo(in_folder("pipe"), 0666), 0);
    assert_fails(output("pipe", ""), GW_ERR_INPUT, "nothing reads this pipe");
    int in = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK);
    assert_int_equal(output("pipe", "3\n"), GW_OK);
    assert_int_equal(read(in, got, sizeof got - 1), 2);
    assert_string_equal(got, "3\n");
    assert_true(S_ISFIFO(kind_of("pipe")));
    close(in);
    gw_file *f; /* a run's own file: nothing that is not a file has its name */
    assert_int_equal(gw_file_create(&f, folder, "pipe"), GW_ERR_INPUT);
    assert_int_equal(gw_file_create(&f, folder, "sub"), GW_ERR_INPUT);
}

static void test_read_text(void **state) {
    char *data;
    size_t len;
    const char *path = put_bytes("zero", "ab\0c", 4);
    assert_fails(gw_file_read(path, 1000, &data, &len), GW_ERR_INPUT, "byte 2 is a zero byte");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep),        cmocka_unit_test(test_part_goes_on),
        cmocka_unit_test(test_part_refused), cmocka_unit_test(test_part_copied),
        cmocka_unit_test(test_part_taken),   cmocka_unit_test(test_output),
        cmocka_unit_test(test_read_text)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
