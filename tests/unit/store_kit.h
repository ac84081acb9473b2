/* Small checkpoints, as the tests of the store write them. */
#ifndef GW_TESTS_STORE_KIT_H
#define GW_TESTS_STORE_KIT_H

#include "base/io.h"
#include "folder/store.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIT_MAGIC "GWCKRANK"
enum {
    KIT_PATH = 256,
    KIT_DIR = KIT_PATH + 16,
    KIT_RANKS = 2,
    KIT_FILES = KIT_RANKS + 1,
    KIT_NUMBERS = 100,
    KIT_LIMIT = 1 << 20
};

/* A folder in memory, if the system has one: disk speed does not matter here. */
static inline int kit_folder(char out[KIT_PATH]) {
    const char *top = getenv("TMPDIR");
    if (!top)
        top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    int n = snprintf(out, KIT_PATH, "%s/gw-test-store-XXXXXX", top);
    return n < KIT_PATH && mkdtemp(out) ? 0 : -1;
}

/* The numbers of one rank at one step. */
static inline void kit_numbers(int rank, int64_t step, int32_t out[KIT_NUMBERS]) {
    for (int i = 0; i < KIT_NUMBERS; i++)
        out[i] = (int32_t)(step * 1000 + rank * 100 + i);
}

/* Write file i of the checkpoint: a rank's, or model.gw. */
static inline gw_err kit_write(const char *temp, int i, int64_t step, gw_store_file *f) {
    gw_io *io = NULL;
    int32_t numbers[KIT_NUMBERS];
    kit_numbers(i, step, numbers);
    if (i < KIT_RANKS)
        gw_store_rank_name(i, f->name);
    else
        snprintf(f->name, sizeof f->name, "model.gw");
    GW_TRY(gw_io_save(&io, temp, f->name, KIT_MAGIC, 1));
    gw_err e = gw_io_field(io, "step", &step, sizeof step);
    if (e == GW_OK)
        e = gw_io_field(io, "numbers", numbers, sizeof numbers);
    if (e == GW_OK)
        return gw_io_close_with(io, &f->bytes, &f->crc32);
    gw_io_abandon(io);
    return e;
}

static inline gw_err kit_commit(const char *temp, int64_t step, gw_store_file files[KIT_FILES],
                                int keep, char final[GW_STORE_PATH]) {
    gw_store_manifest m = {.step = step,
                           .epoch = 3,
                           .batch = step % 10,
                           .ranks = KIT_RANKS,
                           .facts = json_pack("{s:s}", "comm", "allreduce"),
                           .files = files,
                           .n_files = KIT_FILES};
    gw_err e = gw_store_commit(temp, &m, keep, final);
    json_decref(m.facts);
    return e;
}

/* A whole checkpoint; `final` is "" if there is none in the end. */
static inline gw_err kit_save(const char *ckpt_dir, int64_t step, int keep,
                              char final[GW_STORE_PATH]) {
    char temp[GW_STORE_PATH];
    gw_store_file files[KIT_FILES];
    final[0] = '\0';
    GW_TRY(gw_store_begin(ckpt_dir, step, temp));
    for (int i = 0; i < KIT_FILES; i++) {
        gw_err e = kit_write(temp, i, step, &files[i]);
        if (e != GW_OK) {
            gw_store_abandon(temp);
            return e;
        }
    }
    return kit_commit(temp, step, files, keep, final);
}

/* True if file i in folder `path` can be loaded and holds what kit_write wrote. */
static inline int kit_holds(const char *path, int i, int64_t step) {
    char file[2 * GW_STORE_PATH], name[GW_STORE_NAME] = "model.gw";
    gw_io *io = NULL;
    int64_t got_step = -1;
    int32_t numbers[KIT_NUMBERS], got[KIT_NUMBERS] = {0};
    kit_numbers(i, step, numbers);
    if (i < KIT_RANKS)
        gw_store_rank_name(i, name);
    snprintf(file, sizeof file, "%s/%s", path, name);
    if (gw_io_load(&io, file, KIT_MAGIC, 1, KIT_LIMIT) != GW_OK)
        return 0;
    gw_err e = gw_io_field(io, "step", &got_step, sizeof got_step);
    if (e == GW_OK)
        e = gw_io_field(io, "numbers", got, sizeof got);
    if (e == GW_OK)
        e = gw_io_close(io);
    else
        gw_io_abandon(io);
    return e == GW_OK && got_step == step && memcmp(got, numbers, sizeof got) == 0;
}

/* How many entries of a folder begin with `prefix`. */
static inline int kit_count(const char *dir, const char *prefix) {
    DIR *folder = opendir(dir);
    int n = 0;
    if (!folder)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(folder);
    return n;
}

/* Remove a folder of folders of files. */
static inline void kit_remove(const char *dir, int depth) {
    char path[GW_STORE_PATH];
    DIR *folder = opendir(dir);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int n = snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (n < (int)sizeof path && unlink(path) != 0 && depth > 0)
            kit_remove(path, depth - 1);
    }
    closedir(folder);
    rmdir(dir);
}

/* Make a folder for a test; in it, only the name of a checkpoint folder. Returns 0 on success. */
static inline int kit_open(char top[KIT_PATH], char ckpt_dir[KIT_DIR]) {
    if (kit_folder(top) != 0)
        return -1;
    snprintf(ckpt_dir, KIT_DIR, "%s/model.ckpt.d", top);
    return 0;
}

/* 0: nothing is left of it. */
static inline int kit_close(const char *top) {
    kit_remove(top, 3);
    return access(top, F_OK) == 0 ? -1 : 0;
}

#endif
