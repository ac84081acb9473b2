#include "data/raw.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static void raw_free_part(gw_raw_part *p) {
    free(p->images);
    free(p->labels);
    *p = (gw_raw_part){0};
}

void gw_raw_free(gw_raw *raw) {
    raw_free_part(&raw->train);
    raw_free_part(&raw->validation);
    raw_free_part(&raw->test);
    *raw = (gw_raw){0};
}

gw_err gw_raw_fits(const char *name, double bytes) {
    double most = gw_file_memory();
    return bytes <= most ? GW_OK
                         : gw_fail(GW_ERR_INPUT,
                                   "%s: its samples take %.1f GiB, and there are %.1f GiB of "
                                   "memory: give a smaller set",
                                   name, bytes * 0x1p-30, most * 0x1p-30);
}

/* Of bytes where a byte holds a class. */
static uLong raw_hash_labels(uLong crc, const gw_raw *raw, const gw_raw_part *part) {
    size_t n = (size_t)part->n * (size_t)raw->targets;
    if (raw->classes > 1 + UINT8_MAX)
        return crc32_z(crc, (const Bytef *)part->labels, n * sizeof *part->labels);
    for (size_t at = 0; at < n;) {
        Bytef some[4096];
        size_t k = 0;
        while (k < sizeof some && at < n)
            some[k++] = (Bytef)part->labels[at++];
        crc = crc32_z(crc, some, k);
    }
    return crc;
}

void gw_raw_hash(const gw_raw *raw, char hash[32]) {
    size_t pixels = (size_t)raw->rows * (size_t)raw->cols;
    uLong crc = crc32_z(0, NULL, 0);
    crc = crc32_z(crc, raw->train.images, raw->train.n * pixels);
    crc = raw_hash_labels(crc, raw, &raw->train);
    crc = crc32_z(crc, raw->test.images, raw->test.n * pixels);
    crc = raw_hash_labels(crc, raw, &raw->test);
    snprintf(hash, 32, "crc32:%08lx", (unsigned long)crc);
}

static gw_err raw_limit_part(gw_raw_part *p, int64_t most, const char *option, const char *what,
                             const char *name) {
    if (most < 0 || most > (int64_t)p->n)
        return gw_fail(GW_ERR_USAGE, "--%s %lld: %s has %u %s samples: give 1 to %u", option,
                       (long long)most, name, p->n, what, p->n);
    if (most > 0)
        p->n = (uint32_t)most;
    return GW_OK;
}

gw_err gw_raw_limit(gw_raw *raw, int64_t train, int64_t test, const char *name) {
    GW_TRY(raw_limit_part(&raw->train, train, "limit", "training", name));
    return raw_limit_part(&raw->test, test, "limit-test", "test", name);
}

gw_err gw_raw_apart(uint32_t n, double fraction, uint32_t *out) {
    if (!(fraction >= 0 && fraction < 1))
        return gw_fail(GW_ERR_USAGE, "validation=%g: must be from 0 to below 1", fraction);
    uint32_t take = *out = (uint32_t)(fraction * n);
    if (fraction > 0 && (take == 0 || take == n))
        return gw_fail(
            GW_ERR_USAGE,
            "validation=%g: of %u training samples none would be left %s: choose another "
            "fraction, or 0",
            fraction, n, take == 0 ? "to validate with" : "to train on");
    return GW_OK;
}

gw_err gw_raw_split(gw_raw *raw, double fraction, uint64_t seed) {
    uint32_t n = raw->train.n, take = 0;
    GW_TRY(gw_raw_apart(n, fraction, &take));
    if (take == 0)
        return GW_OK;
    enum { SALT = 0x76616c69 }; /* differs from that of the epochs' permutations */
    gw_raw_part apart = {0};
    uint32_t *order = NULL;
    uint8_t *chosen = NULL;
    gw_err e = gw_alloc(&chosen, n, 1);
    GW_THEN(e, gw_alloc(&order, n, sizeof *order));
    GW_THEN(e, gw_alloc(&apart.images, take, (size_t)raw->rows * (size_t)raw->cols));
    GW_THEN(e, gw_alloc(&apart.labels, take, (size_t)raw->targets * sizeof *apart.labels));
    if (e == GW_OK) {
        for (uint32_t i = 0; i < n; i++)
            order[i] = i;
        gw_rng_shuffle(gw_rng_key(seed, SALT), order, n);
        for (uint32_t i = 0; i < take; i++)
            chosen[order[i]] = 1;
        size_t pixels = (size_t)raw->rows * (size_t)raw->cols, targets = (size_t)raw->targets;
        gw_raw_part *train = &raw->train;
        raw->validation = apart;
        train->n = 0;
        for (uint32_t i = 0; i < n; i++) {
            gw_raw_part *to = chosen[i] ? &raw->validation : train;
            uint32_t at = to->n++;
            if (to == train && at == i)
                continue;
            memcpy(to->images + at * pixels, train->images + i * pixels, pixels);
            memcpy(to->labels + at * targets, train->labels + i * targets,
                   targets * sizeof *to->labels);
        }
    } else {
        raw_free_part(&apart);
    }
    free(chosen);
    free(order);
    return e;
}
