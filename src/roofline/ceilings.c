#include "roofline/ceilings.h"

#include "base/file.h"
#include "base/mem.h"
#include "machine/host.h"
#include "prof/clock.h"
#include "roofline/kernels.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE = 256, /* of a file in /sys */
    MOST_INDICES = 16,
    LEAST_L1 = 32 << 10,
    TRIES = 15,
    BEYOND_CACHE = 4,      /* DRAM: so many times the last level */
    LEAST_DRAM = 64 << 20, /* where the caches are not all known */
    MOST_DRAM = 512 << 20, /* or a large cache would take seconds to fill */
    MOST_DRAM_OF_ALL = 1 << 30
};
/* Short against a time slice, so that on a busy machine some runs are left alone. */
#define RUN_S 0.3e-3

const char *gw_level_name(int level) {
    static const char *const names[GW_LEVELS] = {"L1", "L2", "L3", "DRAM"};
    return level >= 0 && level < GW_LEVELS ? names[level] : "unknown";
}

/* ---- caches ---- */

/* A line of /sys/devices/system/cpu/cpuN/cache/indexI/NAME. */
static bool ceilings_cache_fact(int cpu, int index, const char *name, char out[LINE]) {
    char path[LINE];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index, name);
    return gw_file_first_line(path, out, LINE);
}

/* CPUs in a list such as "0-3,8". */
static int ceilings_count_cpus(const char *at) {
    int n = 0;
    while (isdigit((unsigned char)*at)) {
        char *end;
        long from = strtol(at, &end, 10), to = from;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        n += to >= from ? (int)(to - from + 1) : 0;
        at = *end == ',' ? end + 1 : end;
    }
    return n;
}

/* Read the caches of the CPU that the caller runs on, out of /sys, or where that is silent by
 * sysconf(3). A cache that is not larger than the one before is left out. Level 1 is never 0: if
 * neither knows it, it is 32 KiB, which no current CPU undercuts. */
static void ceilings_read_caches(gw_cache out[GW_CACHES]) {
    int here = sched_getcpu(), cpu = here < 0 ? 0 : here;
    for (int i = 0; i < MOST_INDICES; i++) {
        char level[LINE], type[LINE], size[LINE], list[LINE], *end;
        if (!ceilings_cache_fact(cpu, i, "level", level) ||
            !ceilings_cache_fact(cpu, i, "type", type) ||
            !ceilings_cache_fact(cpu, i, "size", size))
            continue;
        int l = atoi(level) - 1;
        if (l < 0 || l >= GW_CACHES || strcmp(type, "Instruction") == 0)
            continue;
        unsigned long long n = strtoull(size, &end, 10); /* "32K", "1M", "512" */
        out[l].bytes = (size_t)(*end == 'K' ? n << 10 : *end == 'M' ? n << 20 : n);
        if (ceilings_cache_fact(cpu, i, "shared_cpu_list", list))
            out[l].sharers = ceilings_count_cpus(list);
    }
#ifdef _SC_LEVEL1_DCACHE_SIZE
    static const int names[GW_CACHES] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                         _SC_LEVEL3_CACHE_SIZE};
    for (int l = 0; l < GW_CACHES; l++) {
        long bytes = sysconf(names[l]);
        if (out[l].bytes == 0 && bytes > 0)
            out[l].bytes = (size_t)bytes;
    }
#endif
    if (out[0].bytes == 0)
        out[0].bytes = LEAST_L1;
    size_t below = out[0].bytes;
    for (int l = 1; l < GW_CACHES; l++) {
        if (out[l].bytes <= below)
            out[l] = (gw_cache){0};
        else
            below = out[l].bytes;
    }
}

/* ---- several threads at once ---- */

enum { MOST_KINDS = 3 };

/* What is measured on one working set. */
typedef struct bout {
    gw_kernel_kind kind[MOST_KINDS];
    gw_ceiling_pair *out[MOST_KINDS];
    uint64_t sweeps[MOST_KINDS];
    int kinds, tries;
    size_t one, part; /* working sets: of one thread, of each of all; part 0: not of all */
} bout;

typedef struct team {
    const bout *b;
    atomic_int members, arrived; /* members: 0 until all have been started */
    _Atomic gw_err failed;
    pthread_mutex_t lock;
    double took[MOST_KINDS][TRIES]; /* of the slowest */
    double work[MOST_KINDS];        /* of a sweep */
} team;

/* Wait until all members have come so far for the n-th time. */
static void ceiling_line_up(team *t, int n) {
    atomic_fetch_add(&t->arrived, 1);
    while (atomic_load(&t->members) == 0 || atomic_load(&t->arrived) < n * atomic_load(&t->members))
        sched_yield();
}

/* All kinds, try by try; the first run of each warms up. */
static void *ceiling_member(void *ctx) {
    team *t = ctx;
    gw_kernel *k = NULL;
    int met = 1;
    gw_flush_denormals_here();
    gw_err e = gw_kernel_open(&k, t->b->kind[0], t->b->part);
    if (e != GW_OK)
        atomic_store(&t->failed, e);
    ceiling_line_up(t, 1);
    bool failed = atomic_load(&t->failed) != GW_OK;
    for (int i = 0; !failed && i < t->b->kinds; i++) {
        gw_kernel_turn(k, t->b->kind[i]);
        gw_kernel_run(k, t->b->sweeps[i]);
        for (int n = 0; n < t->b->tries; n++) {
            ceiling_line_up(t, ++met);
            double took = gw_kernel_run(k, t->b->sweeps[i]);
            pthread_mutex_lock(&t->lock);
            t->took[i][n] = fmax(t->took[i][n], took);
            t->work[i] = gw_kernel_work(k);
            pthread_mutex_unlock(&t->lock);
        }
    }
    gw_kernel_close(k);
    return NULL;
}

/* The rates of `threads` threads together. */
static gw_err ceiling_measure_all(const bout *b, int threads) {
    team t = {.b = b};
    pthread_t *ids = NULL;
    GW_TRY(gw_alloc(&ids, (size_t)threads, sizeof *ids));
    pthread_mutex_init(&t.lock, NULL);
    int started = 0;
    while (started < threads && pthread_create(&ids[started], NULL, ceiling_member, &t) == 0)
        started++;
    if (started < threads)
        atomic_store(&t.failed, GW_ERR_NOMEM);
    atomic_store(&t.members, started > 0 ? started : 1);
    for (int i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    pthread_mutex_destroy(&t.lock);
    free(ids);
    if (atomic_load(&t.failed) != GW_OK)
        return gw_fail(GW_ERR_NOMEM, "ceilings: no memory or threads to measure with %d threads",
                       threads);
    for (int i = 0; i < b->kinds; i++) {
        double best = INFINITY;
        for (int n = 0; n < b->tries; n++)
            best = fmin(best, t.took[i][n]);
        b->out[i]->all = t.work[i] * (double)b->sweeps[i] * threads / best;
    }
    return GW_OK;
}

/* One thread's rates, and those of all; NaN where there is one thread too many. */
static gw_err ceilings_measure(const gw_ceilings *c, bout *b) {
    gw_kernel *k = NULL;
    GW_TRY(gw_kernel_open(&k, b->kind[0], b->one));
    for (int i = 0; i < b->kinds; i++) {
        gw_kernel_turn(k, b->kind[i]);
        double rate = gw_kernel_rate(k, b->tries, RUN_S);
        double share = b->part > 0 && b->part < b->one ? (double)b->one / (double)b->part : 1;
        double sweeps = RUN_S * rate / gw_kernel_work(k) * share;
        b->sweeps[i] = sweeps >= 1 ? (uint64_t)sweeps : 1;
        *b->out[i] = (gw_ceiling_pair){rate, c->all_threads == 1 ? rate : NAN};
    }
    gw_kernel_close(k);
    bool all = c->all_threads > 1 && !c->oversubscribed && b->part > 0;
    return all ? ceiling_measure_all(b, c->all_threads) : GW_OK;
}

/* ---- one level ---- */

/* Threads of `active` that share a cache. */
static int ceilings_sharing(const gw_cache *cache, int active) {
    int sharers = cache->sharers > 0 ? cache->sharers : active;
    return sharers < active ? sharers : active;
}

/* Working sets: half of a cache, which leaves the other half to whatever else is there; and of all
 * threads each its share of that, if it does not fit the level below. In DRAM each thread's is as
 * large as one's alone, while that can be: virtual machines tell of fewer caches than there are. */
static gw_err ceiling_measure_level(gw_ceilings *c, int l) {
    gw_ceiling_level *level = &c->level[l];
    bool dram = l == GW_CACHES;
    bout b = {.kind = {GW_KERNEL_READ, GW_KERNEL_UPDATE, GW_KERNEL_COPY},
              .out = {&level->read, &level->update, &c->copy},
              .kinds = dram ? 3 : 2,
              .tries = TRIES};
    size_t last = 0, threads = (size_t)c->all_threads;
    if (dram) {
        gw_host host;
        gw_host_facts(&host);
        for (int i = 0; i < GW_CACHES; i++)
            last = c->caches[i].bytes > last ? c->caches[i].bytes : last;
        b.one = BEYOND_CACHE * last;
        b.one = b.one < LEAST_DRAM ? LEAST_DRAM : b.one > MOST_DRAM ? MOST_DRAM : b.one;
        b.one = b.one < host.memory / 8 || host.memory == 0 ? b.one : host.memory / 8;
        b.part = MOST_DRAM_OF_ALL / threads < b.one ? MOST_DRAM_OF_ALL / threads : b.one;
    } else {
        b.one = c->caches[l].bytes / 2;
        b.part = b.one / (size_t)ceilings_sharing(&c->caches[l], c->all_threads);
        for (int below = l - 1; below >= 0; below--)
            if (c->caches[below].bytes >= b.part)
                b.part = 0;
    }
    *level = (gw_ceiling_level){b.one, {NAN, NAN}, {NAN, NAN}};
    return b.one > 0 ? ceilings_measure(c, &b) : GW_OK;
}

static gw_err ceiling_measure_fma(gw_ceilings *c) {
    bout b = {
        .kind = {GW_KERNEL_FMA}, .out = {&c->fma}, .kinds = 1, .tries = TRIES, .one = 1, .part = 1};
    return ceilings_measure(c, &b);
}

gw_err gw_ceilings_measure(gw_ceilings *c) {
    gw_host host;
    gw_clock_start();
    gw_host_facts(&host);
    snprintf(c->host, sizeof c->host, "%s", host.name);
    snprintf(c->cpu, sizeof c->cpu, "%s", host.cpu_model);
    c->measured_at = (int64_t)time(NULL);
    c->n_times = 0;
    memset(c->caches, 0, sizeof c->caches);
    ceilings_read_caches(c->caches);
    GW_TRY(ceiling_measure_fma(c));
    for (int l = 0; l < GW_LEVELS; l++)
        GW_TRY(ceiling_measure_level(c, l));
    gw_ceiling_pair first = c->fma; /* a second later, a neighbour may have left the core */
    GW_TRY(ceiling_measure_fma(c));
    c->fma = (gw_ceiling_pair){fmax(first.one, c->fma.one), fmax(first.all, c->fma.all)};
    return GW_OK;
}

bool gw_ceilings_disturbed(const gw_ceilings *c) {
    bool arithmetic = c->fma.all < 0.9 * c->fma.one;
    return arithmetic || c->level[0].read.all < 0.9 * c->level[0].read.one;
}

/* ---- looking up ---- */

static gw_ceiling_time *ceilings_find(const gw_ceilings *c, const char *name) {
    for (int i = 0; i < c->n_times; i++)
        if (strcmp(c->time[i].name, name) == 0)
            return (gw_ceiling_time *)&c->time[i];
    return NULL;
}

double gw_ceilings_time(const gw_ceilings *c, const char *name) {
    const gw_ceiling_time *t = ceilings_find(c, name);
    return t ? t->seconds : NAN;
}

void gw_ceilings_keep(gw_ceilings *c, const char *name, double seconds) {
    gw_ceiling_time *old = ceilings_find(c, name);
    if (!old && c->n_times == GW_CEILING_TIMES)
        old = c->time;
    if (old) { /* the last place is for the latest */
        memmove(old, old + 1, (size_t)(c->time + c->n_times - old - 1) * sizeof *old);
        c->n_times--;
    }
    gw_ceiling_time *t = &c->time[c->n_times++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->seconds = seconds;
    t->used = false;
}

void gw_ceilings_use(gw_ceilings *c, const char *name) {
    gw_ceiling_time *t = ceilings_find(c, name);
    if (t)
        t->used = true;
}

void gw_ceilings_drop_unused(gw_ceilings *c) {
    int kept = 0;
    for (int i = 0; i < c->n_times; i++)
        if (c->time[i].used)
            c->time[kept++] = c->time[i];
    c->n_times = kept;
}

int gw_ceilings_level(const gw_ceilings *c, double bytes, int active) {
    for (int l = 0; l < GW_CACHES; l++)
        if (c->level[l].bytes > 0 &&
            2 * bytes <= (double)c->caches[l].bytes / ceilings_sharing(&c->caches[l], active))
            return l;
    return GW_CACHES;
}

double gw_ceilings_bandwidth(const gw_ceilings *c, int level, int active) {
    for (int l = level; l < GW_LEVELS; l++) {
        const gw_ceiling_pair *p = &c->level[l].update;
        double each = active <= 1 ? p->one : p->all / c->all_threads;
        if (c->level[l].bytes > 0 && isfinite(each))
            return each;
    }
    return NAN;
}
