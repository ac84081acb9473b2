/* A program that uses the library through its header alone. */
#ifndef GW_TESTS_CLIENT_H
#define GW_TESTS_CLIENT_H

#include "check.h"

#include <gradwire.h>
#include <string.h>
#include <sys/mman.h>

/* A call that must succeed. */
static inline int ok(int e) {
    CHECK(e >= 0, "%s", gradwire_error());
    return e;
}

/* The last call left one line that has `part` in it. */
static inline void says(const char *part) {
    const char *text = gradwire_error();
    CHECK(*text && strstr(text, part) && !strchr(text, '\n'), "'%s' was expected, not '%s'", part,
          text);
}

static inline void refused(int e, const char *part) {
    CHECK(e < 0, "'%s' was expected, and nothing was refused", part);
    says(part);
}

/* A gradient's element: the same whoever asks for it, in (-1, 1). */
static inline float draw(int step, int rank, size_t i) {
    uint32_t x = (uint32_t)(step * 7919 + rank * 104729 + (int)i * 31 + 17);
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return (float)(x % 2001) / 1000.0f - 1.0f;
}

/* Memory that can be lent, of the file *file. */
static inline float *lendable(size_t bytes, int *file) {
    *file = memfd_create("gradients", 0);
    CHECK(*file >= 0 && ftruncate(*file, (off_t)bytes) == 0, "memory to lend");
    float *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    CHECK(x != MAP_FAILED, "memory to lend");
    return x;
}

#endif
