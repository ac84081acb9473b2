/* A temporary folder of a test or a group of tests, and the files in it. */
#ifndef GW_TESTS_FOLDER_H
#define GW_TESTS_FOLDER_H

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/gw-test-XXXXXX";

/* A setup for cmocka. */
static inline int make_folder(void **state) {
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    return mkdtemp(folder) ? 0 : -1;
}

/* A teardown for cmocka. */
static inline int remove_folder(void **state) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* The path of `name` in the folder. Four of them are valid at a time. */
static inline const char *in_folder(const char *name) {
    static char paths[4][sizeof folder + 100];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof *paths, "%s/%s", folder, name);
    return path;
}

/* Write a file; returns its path. */
static inline const char *put_bytes(const char *name, const void *data, size_t n) {
    const char *path = in_folder(name);
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(data, 1, n, to), n);
    assert_int_equal(fclose(to), 0);
    return path;
}

static inline const char *put_text(const char *name, const char *text) {
    return put_bytes(name, text, strlen(text));
}

#endif
