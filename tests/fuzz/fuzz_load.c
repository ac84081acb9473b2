/* What gradwire_load gets, on one rank. A spec is a strategy, or `velocity`, each with a codec that
 * keeps a residual where the strategy carries one.
 *
 * An input's first byte, modulo 4:
 *   0  the rest is the whole state
 *   1  the rest are its fields; head and checksum are made right
 *   2  damage (gw_fuzz_damage) to one that is right
 *   3  damage to its fields alone; head and checksum are made right */
#include "harness.h"

#include "base/registry.h"
#include "comm/strategy.h"

#include <gradwire.h>
#include <string.h>
#include <zlib.h>

enum { TENSORS = 3, N = 6 + 3 + 8, HEAD = 32, LENGTH = 8 /* where the head has it */, SUM = 4 };

static const size_t sizes[TENSORS] = {6, 3, 8}, rows[TENSORS] = {2, 0, 4};
static const int groups[TENSORS] = {0, 1, 1};
static const char *const residual = "--compress topk:ratio=0.3";

static char words[128];
static uint8_t *right;
static size_t right_n;
static float params[N], grads[N];

/* ---- a handle ---- */

static gradwire *start(void) {
    gradwire *g = NULL;
    if (gradwire_new(&g, GRADWIRE_ALL, words) < 0)
        return NULL;
    int e = 0;
    size_t at = 0;
    for (int t = 0; t < TENSORS && e >= 0; at += sizes[t++])
        e = gradwire_tensor(g, (const char *[]){"a", "b", "c"}[t], groups[t], sizes[t], rows[t],
                            params + at);
    if (e >= 0 && gradwire_open(g) >= 0)
        return g;
    gradwire_close(g);
    return NULL;
}

/* A batch, which no state may hinder. */
static void step(gradwire *g) {
    int all[TENSORS] = {2, 1, 0};
    float *const where[TENSORS] = {grads + 9, grads + 6, grads};
    for (int i = 0; i < N; i++)
        grads[i] = (float)(i - 8) / 8;
    MUST(gradwire_begin(g, 2, 2) >= 0);
    MUST(gradwire_ready(g, TENSORS, all, where) >= 0);
    MUST(gradwire_finish(g, GRADWIRE_ALL) >= 0);
    MUST(gradwire_updated(g, GRADWIRE_ALL) >= 0);
    MUST(gradwire_end(g, 0) >= 0);
}

static uint8_t *save(gradwire *g, size_t *n) {
    void *state = NULL;
    MUST(gradwire_save(g, &state, n) >= 0);
    return state;
}

/* ---- inputs ---- */

static void seal(uint8_t *state, size_t n) {
    uint64_t length = n - HEAD - SUM;
    memcpy(state + LENGTH, &length, sizeof length);
    uint32_t sum = (uint32_t)crc32_z(crc32_z(0, NULL, 0), state, n - SUM);
    memcpy(state + n - SUM, &sum, sizeof sum);
}

/* The state that the input stands for, malloced. */
static uint8_t *state_of(const uint8_t *data, size_t size, size_t *n) {
    int what = data[0] % 4;
    size_t room = right_n > size ? right_n : size;
    uint8_t *state = malloc(HEAD + room + SUM);
    MUST(state);
    memcpy(state, right, right_n);
    *n = right_n;
    if (what < 2) {
        size_t skip = what == 1 ? HEAD : 0;
        memcpy(state + skip, data + 1, size - 1);
        *n = skip + size - 1 + (what == 1 ? SUM : 0);
    } else if (what == 2) {
        *n = gw_fuzz_damage(state, right_n, data + 1, size - 1);
    } else {
        *n = HEAD + gw_fuzz_damage(state + HEAD, right_n - HEAD - SUM, data + 1, size - 1) + SUM;
    }
    if (what % 2 == 1)
        seal(state, *n);
    uint8_t *exact = realloc(state, *n + !*n); /* so that a sanitizer sees its end */
    MUST(exact);
    return exact;
}

/* All of it was taken over, and training goes on from there. */
static void check_loaded(gradwire *g, const uint8_t *state, size_t n) {
    size_t again_n;
    uint8_t *again = save(g, &again_n);
    MUST(again_n == n && memcmp(again, state, n) == 0);
    free(again);
    step(g);
    free(save(g, &again_n));
    MUST(again_n == n);
}

static void check_refused(int e, const uint8_t *state, size_t n) {
    gw_fuzz_answer((gw_err)e);
    MUST(e == GW_ERR_INPUT && !gradwire_alone(e));
    MUST(n != right_n || memcmp(state, right, n) != 0);
}

static void one(const uint8_t *data, size_t size) {
    size_t n;
    if (size < 1)
        return;
    uint8_t *state = state_of(data, size, &n);
    gradwire *g = start();
    MUST(g);
    gw_fuzz_forget();
    int e = gradwire_load(g, state, n);
    if (e >= 0)
        check_loaded(g, state, n);
    else
        check_refused(e, state, n);
    MUST(gradwire_close(g) >= 0);
    free(state);
}

/* ---- specs ---- */

static void each(void (*f)(const char *spec)) {
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++)
        f((*s)->name);
    f("velocity");
}

/* The words of a spec, with which a handle opens. */
static gradwire *start_spec(const char *spec) {
    if (strcmp(spec, "velocity") == 0)
        snprintf(words, sizeof words, "--comm sparse %s --momentum 0.9 --error-feedback dgc",
                 residual);
    else
        snprintf(words, sizeof words, "--comm %s %s", spec, residual);
    gradwire *g = start();
    if (g)
        return g;
    snprintf(words, sizeof words, "--comm %s", spec);
    return start();
}

static void open_spec(const char *spec) {
    unsetenv("GRADWIRE");
    MUST(gradwire_start(NULL, NULL, NULL) >= 0);
    gradwire *g = start_spec(spec);
    if (!g)
        gw_fuzz_stop(gradwire_error(), spec);
    step(g);
    right = save(g, &right_n);
    MUST(gradwire_close(g) >= 0);
    MUST(right_n > HEAD + SUM);
}

static void close_spec(void) {
    free(right);
    right = NULL;
}

const gw_fuzz_target gw_fuzz_load = {.name = "load",
                                     .mutations = 300,
                                     .each = each,
                                     .open = open_spec,
                                     .close = close_spec,
                                     .one = one};
