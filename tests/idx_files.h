/* Data folders for the tests: files in MNIST's format, whole or spoilt, in a temporary folder. */
#ifndef GW_TESTS_IDX_FILES_H
#define GW_TESTS_IDX_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { SIDE_R = 5, SIDE_C = 7, PIXELS = SIDE_R * SIDE_C, TRAIN_N = 103, TEST_N = 31 };

static inline void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        abort();
    }
}

static inline uint8_t pixel_of(int set, uint32_t i, int p) {
    return (uint8_t)(i * 31 + (uint32_t)p * 7 + (uint32_t)set * 101 + i * (uint32_t)p);
}

static inline uint8_t label_of(int set, uint32_t i) {
    return (uint8_t)((i + (uint32_t)set) % 10);
}

static inline void put32(uint8_t *at, uint32_t v) {
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> (24 - 8 * i));
}

static inline void write_bytes(const char *dir, const char *name, const void *data, size_t n) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    must(f != NULL, path);
    must(fwrite(data, 1, n, f) == n && fclose(f) == 0, path);
}

/* One gzip member; returns its length. */
static inline size_t pack(const void *data, size_t n, uint8_t *out, size_t cap) {
    z_stream z = {0};
    must(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2");
    z.next_in = (unsigned char *)(uintptr_t)data;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)cap;
    must(deflate(&z, Z_FINISH) == Z_STREAM_END, "deflate");
    size_t len = z.total_out;
    deflateEnd(&z);
    return len;
}

static inline void write_packed(const char *dir, const char *name, const void *data, size_t n) {
    size_t cap = n + n / 8 + 256;
    uint8_t *out = malloc(cap);
    must(out != NULL, "malloc");
    write_bytes(dir, name, out, pack(data, n, out, cap));
    free(out);
}

/* Contents of the whole files; the return value is the length. */
static inline size_t image_file(int set, uint8_t *out) {
    uint32_t n = set ? TEST_N : TRAIN_N;
    put32(out, 0x803);
    put32(out + 4, n);
    put32(out + 8, SIDE_R);
    put32(out + 12, SIDE_C);
    for (uint32_t i = 0; i < n; i++)
        for (int p = 0; p < PIXELS; p++)
            out[16 + i * PIXELS + (uint32_t)p] = pixel_of(set, i, p);
    return 16 + (size_t)n * PIXELS;
}

static inline size_t label_file(int set, uint8_t *out) {
    uint32_t n = set ? TEST_N : TRAIN_N;
    put32(out, 0x801);
    put32(out + 4, n);
    for (uint32_t i = 0; i < n; i++)
        out[8 + i] = label_of(set, i);
    return 8 + n;
}

enum { FILE_BYTES = 16 + TRAIN_N * PIXELS };

static const char *const idx_names[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

static inline size_t idx_content(int which, uint8_t *out) {
    return which % 2 ? label_file(which / 2, out) : image_file(which / 2, out);
}

static inline void write_folder(const char *dir, int packed) {
    uint8_t data[FILE_BYTES];
    for (int i = 0; i < 4; i++) {
        char name[64];
        size_t n = idx_content(i, data);
        snprintf(name, sizeof name, "%s%s", idx_names[i], packed ? ".gz" : "");
        (packed ? write_packed : write_bytes)(dir, name, data, n);
    }
}

static inline void remove_file(const char *dir, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

/* Remove every file that may have been written under an MNIST name, then the folder itself. */
static inline void remove_folder(const char *dir) {
    for (int i = 0; i < 4 * 4; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s%s", idx_names[i / 4], i % 2 ? ".gz" : "");
        if (i / 2 % 2)
            *strstr(name, "-idx") = '.';
        remove_file(dir, name);
    }
    rmdir(dir);
}

#endif
