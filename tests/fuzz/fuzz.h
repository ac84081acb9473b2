/** What the fuzzer (libFuzzer) and the replay of the corpora share: one input against one target.
 *
 *  A target is one file here, fuzz_NAME.c, that defines `const gw_fuzz_target gw_fuzz_NAME`; CMake
 *  finds it. Its corpus is corpus/NAME, or a folder a spec in it where it has specs. */
#ifndef GW_TESTS_FUZZ_H
#define GW_TESTS_FUZZ_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { GW_FUZZ_BYTES = 1024 }; /* of the longest input */

typedef struct gw_fuzz_target {
    const char *name;
    unsigned mutations;       /* of the corpus, in the tests: some 4 s in an optimised build */
    const char *const *words; /* NULL-terminated: what a text that gets far is made of; or NULL */
    /** Call f for each kind of input ("specs"), which have corpora of their own; NULL: one kind. */
    void (*each)(void (*f)(const char *spec));
    /** Once before the inputs, and behind them; NULL: nothing to do. `spec` is "" where there is
     * one kind. A spec that does not exist ends the program by gw_fuzz_stop. */
    void (*open)(const char *spec);
    void (*close)(void);
    /** One input. Aborts (MUST) if a promise is broken; what reads or writes outside of its buffers
     *  is the sanitizer's to find, what is lost LeakSanitizer's. Must not keep state. */
    void (*one)(const uint8_t *data, size_t size);
} gw_fuzz_target;

/** Tell what is wrong with the call or the corpus, and end the program with status 2. */
static inline void gw_fuzz_stop(const char *what, const char *name) {
    fprintf(stderr, "fuzz: %s: %s\n", name, what);
    exit(2);
}

/** Damage n bytes at `at`: 3 bytes of `data` each, where (16-bit) and what is flipped there; a last
 *  byte that is left over cuts as many bytes off. Return how many are left. */
static inline size_t gw_fuzz_damage(uint8_t *at, size_t n, const uint8_t *data, size_t size) {
    for (; size >= 3 && n > 0; data += 3, size -= 3)
        at[(size_t)(data[0] | data[1] << 8) % n] ^= data[2];
    return size == 1 && n > 0 ? n - data[0] % n : n;
}

#define MUST(promise)                                                                              \
    do {                                                                                           \
        if (!(promise)) {                                                                          \
            fprintf(stderr, "%s:%d: broken promise: %s (%s)\n", __FILE__, __LINE__, #promise,      \
                    gw_err_text());                                                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
