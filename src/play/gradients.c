#include "play/gradients.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TABLE = 1 << 20 }; /* floats, which come again and again, from another one on each time */

static gw_err gradients_draw(gw_gradients *g) {
    GW_TRY(gw_alloc(&g->table, TABLE, sizeof *g->table));
    for (size_t i = 0; i < TABLE; i++)
        g->table[i] = (float)gw_rng_normal(g->key, i);
    return GW_OK;
}

static gw_err gradients_map(gw_gradients *g, const char *path) {
    FILE *in;
    GW_TRY(gw_file_open(path, &in, &g->bytes));
    size_t step = g->profile->n * sizeof(float);
    if (g->bytes == 0 || g->bytes % step != 0) {
        fclose(in);
        return gw_fail(GW_ERR_INPUT,
                       "replay: gradients: %s has %zu bytes: must be a multiple of the %zu of one "
                       "step, 4 for each parameter",
                       path, g->bytes, step);
    }
    void *map = mmap(NULL, g->bytes, PROT_READ, MAP_SHARED, fileno(in), 0);
    fclose(in);
    if (map == MAP_FAILED)
        return gw_fail(GW_ERR_INPUT, "replay: gradients: %s: cannot be mapped", path);
    g->captured = map;
    g->steps = (long)(g->bytes / step);
    return GW_OK;
}

gw_err gw_gradients_open(gw_gradients *g, const gw_step_profile *profile, const char *from,
                         uint64_t seed, int rank) {
    *g = (gw_gradients){.profile = profile, .key = gw_rng_key(seed, (uint64_t)rank)};
    return strcmp(from, "normal") == 0 ? gradients_draw(g) : gradients_map(g, from);
}

void gw_gradients_close(gw_gradients *g) {
    if (g->captured)
        munmap((void *)g->captured, g->bytes);
    free(g->table);
    *g = (gw_gradients){0};
}

void gw_gradients_write(const gw_gradients *g, int tensor, size_t at, long step, float *to) {
    const gw_step_tensor *t = &g->profile->tensor[tensor];
    if (g->captured) {
        long which = (step + (long)(g->key % (uint64_t)g->steps)) % g->steps;
        memcpy(to, g->captured + (size_t)which * g->profile->n + at, t->n * sizeof *to);
        return;
    }
    float std = (float)t->std;
    size_t from = gw_rng_u64(gw_rng_key(g->key, (uint64_t)step), (uint64_t)tensor) % TABLE;
    for (size_t i = 0; i < t->n; from = 0) {
        size_t n = t->n - i < TABLE - from ? t->n - i : TABLE - from;
        for (size_t k = 0; k < n; k++)
            to[i + k] = std * g->table[from + k];
        i += n;
    }
}
