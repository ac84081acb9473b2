/* Files of state: what is no such file is refused by its first bytes, and no size makes a load take
 * memory for it. */
#include "base/io.h"

#include "folder.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "GWTEST01"
enum { LIMIT = 1 << 28 };

static char path[64];

static int set_up(void **state) {
    int failed = make_folder(state);
    snprintf(path, sizeof path, "%s/state", folder);
    return failed;
}

static void save(const char *magic, uint32_t version) {
    gw_io *io = NULL;
    int32_t number = 42;
    assert_int_equal(gw_io_save(&io, folder, "state", magic, version), GW_OK);
    assert_int_equal(gw_io_field(io, "number", &number, sizeof number), GW_OK);
    assert_int_equal(gw_io_close(io), GW_OK);
}

static void refused(size_t limit, const char *why) {
    gw_io *io = NULL;
    assert_int_equal(gw_io_load(&io, path, MAGIC, 1, limit), GW_ERR_INPUT);
    assert_null(io);
    if (!strstr(gw_err_text(), path) || !strstr(gw_err_text(), why))
        fail_msg("'%s' lacks '%s'", gw_err_text(), why);
}

static void loads_what_was_saved(void **state) {
    gw_io *io = NULL;
    int32_t number = 0;
    save(MAGIC, 1);
    assert_int_equal(gw_io_load(&io, path, MAGIC, 1, LIMIT), GW_OK);
    assert_true(gw_io_loading(io));
    assert_int_equal(gw_io_field(io, "number", &number, sizeof number), GW_OK);
    assert_int_equal(number, 42);
    assert_int_equal(gw_io_close(io), GW_OK);
    assert_int_equal(gw_io_load(&io, path, MAGIC, 1, LIMIT), GW_OK);
    assert_int_equal(gw_io_close(io), GW_ERR_INPUT); /* a field is left */
}

static void refuses_by_the_first_bytes(void **state) {
    save("GWOTHER1", 1);
    /* Terabytes, of which the disk holds none: the header alone decides. */
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    refused(SIZE_MAX, "not a gradwire 'GWTEST01' file");
    save(MAGIC, 2);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    refused(SIZE_MAX, "format version 2, this gradwire reads 1");
    save(MAGIC, 1);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    refused(LIMIT, "1099511627776 bytes, but a 'GWTEST01' file has at most 268435456");
}

static long peak_kib(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

static void takes_no_memory_for_a_file(void **state) {
    save(MAGIC, 1);
    assert_int_equal(truncate(path, LIMIT), 0);
    long before = peak_kib();
    refused(LIMIT, "its checksum does not match");
    assert_true(peak_kib() - before < LIMIT / 1024 / 8);
}

static void refuses_what_is_no_file(void **state) {
    refused(LIMIT, "No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(LIMIT, "not a regular file"); /* and does not wait for a writer */
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    refused(LIMIT, "not a regular file");
    rmdir(path);
}

/* A name in a file may be anything; the message about it is one plain line. */
static void quotes_other_fields_plainly(void **state) {
    gw_io *io = NULL;
    int32_t number = 42;
    assert_int_equal(gw_io_save(&io, folder, "state", MAGIC, 1), GW_OK);
    assert_int_equal(gw_io_field(io, "num\033\nber", &number, sizeof number), GW_OK);
    assert_int_equal(gw_io_close(io), GW_OK);
    assert_int_equal(gw_io_load(&io, path, MAGIC, 1, LIMIT), GW_OK);
    assert_fails(gw_io_field(io, "number", &number, sizeof number), GW_ERR_INPUT,
                 "holds 'num??ber' of 4 bytes where 'number' of 4 is");
    gw_io_abandon(io);
}

/* The figures of a closed file know it from every other one, even from a whole one of its size. */
static void tells_a_file_by_its_figures(void **state) {
    uint64_t bytes[2];
    uint32_t crc[2];
    for (int32_t i = 0; i < 2; i++) {
        gw_io *io = NULL;
        assert_int_equal(gw_io_save(&io, folder, "state", MAGIC, 1), GW_OK);
        assert_int_equal(gw_io_field(io, "number", &i, sizeof i), GW_OK);
        assert_int_equal(gw_io_close_with(io, &bytes[i], &crc[i]), GW_OK);
        assert_int_equal(bytes[i], 16 + 4 + 6 + 8 + 4 + 4);
        assert_int_equal(gw_io_check(path, bytes[i], crc[i]), GW_OK);
    }
    assert_fails(gw_io_check(path, bytes[0], crc[0]), GW_ERR_INPUT,
                 "not the file that was written");
    assert_fails(gw_io_check(path, bytes[1] + 1, crc[1]), GW_ERR_INPUT, "42 bytes, not 43");
    assert_int_equal(truncate(path, 3), 0);
    assert_fails(gw_io_check(path, 3, 0), GW_ERR_INPUT, "3 bytes, fewer than its header");
    unlink(path);
    assert_fails(gw_io_check(path, bytes[1], crc[1]), GW_ERR_INPUT, "No such file");
}

/* A limit on the size of files stands for a full disk. */
static int limit_files(rlim_t bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    return getrlimit(RLIMIT_FSIZE, &limit) != 0
               ? -1
               : setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, limit.rlim_max});
}

static void says_why_it_cannot_write(void **state) {
    gw_io *io = NULL;
    char data[1 << 16] = {0};
    assert_int_equal(gw_io_save(&io, folder, "state", MAGIC, 1), GW_OK);
    assert_int_equal(limit_files(4096), 0);
    assert_int_equal(gw_io_field(io, "data", data, sizeof data), GW_ERR_IO);
    assert_int_equal(limit_files(RLIM_INFINITY), 0);
    assert_message(path);
    assert_non_null(strstr(gw_err_text(), strerror(EFBIG)));
    gw_io_abandon(io);
    assert_int_not_equal(access(path, F_OK), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, remove_folder)

/* In memory: what was kept comes back, any number of times; the next save takes its place. */
static void memory_keeps_the_last(void **state) {
    gw_io_memory m = {0};
    gw_io *io = NULL;
    for (int32_t round = 0; round < 3; round++) {
        int32_t number = 40 + round;
        char text[1000], got[1000];
        memset(text, 'a' + round, sizeof text);
        size_t size = round == 1 ? 0 : sizeof text; /* an empty field, too */
        assert_int_equal(gw_io_keep(&io, &m), GW_OK);
        assert_false(gw_io_loading(io));
        assert_int_equal(gw_io_field(io, "number", &number, sizeof number), GW_OK);
        assert_int_equal(gw_io_field(io, "text", text, size), GW_OK);
        assert_int_equal(gw_io_close(io), GW_OK);
        for (int again = 0; again < 2; again++) {
            number = 0;
            memset(got, 0, sizeof got);
            assert_int_equal(gw_io_recall(&io, &m), GW_OK);
            assert_true(gw_io_loading(io));
            assert_int_equal(gw_io_field(io, "number", &number, sizeof number), GW_OK);
            assert_int_equal(gw_io_field(io, "text", got, size), GW_OK);
            assert_int_equal(gw_io_close(io), GW_OK);
            assert_int_equal(number, 40 + round);
            assert_memory_equal(got, text, size);
        }
    }
    free(m.data);
}

/* Another object's state is not taken for one's own. */
static void memory_wants_its_fields(void **state) {
    gw_io_memory m = {0};
    gw_io *io = NULL;
    int32_t number = 42;
    assert_int_equal(gw_io_keep(&io, &m), GW_OK);
    assert_int_equal(gw_io_field(io, "number", &number, sizeof number), GW_OK);
    assert_int_equal(gw_io_close(io), GW_OK);
    assert_int_equal(gw_io_recall(&io, &m), GW_OK);
    assert_int_equal(gw_io_field(io, "count", &number, sizeof number), GW_ERR_INPUT);
    gw_io_abandon(io);
    assert_int_equal(gw_io_recall(&io, &m), GW_OK);
    assert_int_equal(gw_io_close(io), GW_ERR_INPUT); /* a field was left */
    assert_int_equal(gw_io_recall(&io, &m), GW_OK);
    assert_int_equal(gw_io_field(io, "number", &number, sizeof number), GW_OK);
    assert_int_equal(gw_io_field(io, "more", &number, sizeof number), GW_ERR_INPUT);
    gw_io_abandon(io);
    free(m.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(loads_what_was_saved),
        CASE(refuses_by_the_first_bytes),
        CASE(takes_no_memory_for_a_file),
        CASE(refuses_what_is_no_file),
        CASE(quotes_other_fields_plainly),
        CASE(tells_a_file_by_its_figures),
        CASE(says_why_it_cannot_write),
        cmocka_unit_test(memory_keeps_the_last),
        cmocka_unit_test(memory_wants_its_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
