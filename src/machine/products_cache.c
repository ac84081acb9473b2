/* Times of products between runs: one file a machine, libraries and number of threads. Whoever
 * measures holds its lock, so that the first figures stay, and nobody measures beside another. */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "machine/ceilings_file.h"
#include "machine/host.h"
#include "machine/products.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { FORMAT = 1, MOST_BYTES = 1 << 20, MOST_TIMES = 2000 };
#define LOCK_PATIENCE_S 5.0
#define LOCK_LOOK_NS    20000000

struct gw_products_cache {
    char path[GW_CEILINGS_PATH], lock[GW_CEILINGS_PATH];
    int lock_fd;  /* -1: nothing is kept */
    json_t *head; /* what the figures hold for */
    json_t *seconds;
    bool changed;
};

static void cache_say(char note[256], const char *what) {
    snprintf(note, 256, "times of products are for this run alone: %s", what);
}

static json_t *cache_identify(int threads) {
    gw_host host;
    gw_host_facts(&host);
    return json_pack("{s:i, s:s, s:s, s:s, s:i}", "gradwire_products", FORMAT, "host", host.name,
                     "cpu", host.cpu_model, "libraries", gw_gemm_library(), "threads", threads);
}

/* With patience, since another run may be measuring. Where locks are unknown (some network file
 * systems) it goes without. */
static bool product_take_lock(gw_products_cache *c, char note[256]) {
    c->lock_fd = open(c->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (c->lock_fd < 0) {
        cache_say(note, strerror(errno));
        return false;
    }
    const struct timespec pause = {0, LOCK_LOOK_NS};
    for (double waited = 0; waited < LOCK_PATIENCE_S; waited += 1e-9 * LOCK_LOOK_NS) {
        if (flock(c->lock_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            return true;
        nanosleep(&pause, NULL);
    }
    cache_say(note, "another run holds the lock of the cache");
    close(c->lock_fd);
    c->lock_fd = -1;
    return false;
}

static bool cache_fits(const json_t *root, const json_t *head) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)head, key, value) {
        if (!json_equal(json_object_get(root, key), value))
            return false;
    }
    json_object_foreach(json_object_get(root, "seconds"), key, value) {
        if (!json_is_number(value) || !(json_number_value(value) > 0))
            return false;
    }
    return json_is_object(json_object_get(root, "seconds"));
}

/* What cannot be used is measured anew, and replaced. */
static void cache_load(gw_products_cache *c) {
    char *data = NULL;
    size_t len;
    if (access(c->path, F_OK) != 0 || gw_file_read(c->path, MOST_BYTES, &data, &len) != GW_OK)
        return;
    json_t *root = json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
    free(data);
    if (cache_fits(root, c->head))
        json_object_update(c->seconds, json_object_get(root, "seconds"));
    json_decref(root);
}

gw_err gw_products_cache_open(gw_products_cache **out, int threads, char note[256]) {
    gw_products_cache *c;
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    *out = c;
    c->lock_fd = -1;
    c->head = cache_identify(threads);
    c->seconds = json_object();
    char *key = c->head ? json_dumps(c->head, JSON_COMPACT) : NULL;
    if (!key) {
        cache_say(note, "host, CPU or libraries are not UTF-8");
        return GW_OK;
    }
    gw_err e = gw_cache_path("products", key, c->path);
    free(key);
    if (e != GW_OK || snprintf(c->lock, sizeof c->lock, "%s.lock", c->path) >= (int)sizeof c->lock)
        cache_say(note, e != GW_OK ? gw_err_text() : "the path of the cache is too long");
    else if (product_take_lock(c, note))
        cache_load(c);
    return GW_OK;
}

double gw_products_cache_get(const gw_products_cache *c, const char *name) {
    const json_t *seconds = json_object_get(c->seconds, name);
    return seconds ? json_number_value(seconds) : NAN;
}

void gw_products_cache_put(gw_products_cache *c, const char *name, double seconds) {
    while (json_object_size(c->seconds) >= MOST_TIMES) /* the oldest gives way */
        json_object_del(c->seconds, json_object_iter_key(json_object_iter(c->seconds)));
    json_object_set_new(c->seconds, name, json_real(seconds));
    c->changed = true;
}

static gw_err cache_store(const gw_products_cache *c) {
    gw_file *file = NULL;
    json_object_set(c->head, "seconds", c->seconds);
    GW_TRY(gw_file_create_at(&file, c->path));
    return gw_json_commit(file, json_incref(c->head), JSON_INDENT(1), c->path);
}

void gw_products_cache_close(gw_products_cache *c, char note[256]) {
    if (!c)
        return;
    if (c->lock_fd >= 0) {
        if (c->changed && cache_store(c) != GW_OK)
            cache_say(note, gw_err_text());
        close(c->lock_fd);
    }
    json_decref(c->head);
    json_decref(c->seconds);
    free(c);
}
