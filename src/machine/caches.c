#include "machine/caches.h"

#include "base/file.h"

#include <ctype.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 256, MOST_INDICES = 16, LEAST_L1 = 32 << 10 };

/* A line of /sys/devices/system/cpu/cpuN/cache/indexI/NAME. */
static bool cache_fact(int cpu, int index, const char *name, char out[LINE]) {
    char path[LINE];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index, name);
    return gw_file_first_line(path, out, LINE);
}

/* "32K", "1M", "512" */
static size_t cache_size_of(const char *text) {
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    return (size_t)(*end == 'K' ? n << 10 : *end == 'M' ? n << 20 : n);
}

/* CPUs in a list such as "0-3,8". */
static int cache_count_list(const char *at) {
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

static void cache_read_sys(gw_cache out[GW_CACHES]) {
    int here = sched_getcpu(), cpu = here < 0 ? 0 : here;
    for (int i = 0; i < MOST_INDICES; i++) {
        char level[LINE], type[LINE], size[LINE], list[LINE];
        if (!cache_fact(cpu, i, "level", level) || !cache_fact(cpu, i, "type", type) ||
            !cache_fact(cpu, i, "size", size))
            continue;
        int l = atoi(level) - 1;
        if (l < 0 || l >= GW_CACHES || strcmp(type, "Instruction") == 0)
            continue;
        out[l].bytes = cache_size_of(size);
        if (cache_fact(cpu, i, "shared_cpu_list", list))
            out[l].sharers = cache_count_list(list);
    }
}

static void cache_read_sysconf(gw_cache out[GW_CACHES]) {
#ifdef _SC_LEVEL1_DCACHE_SIZE
    static const int names[GW_CACHES] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                         _SC_LEVEL3_CACHE_SIZE};
    for (int l = 0; l < GW_CACHES; l++) {
        long bytes = sysconf(names[l]);
        if (out[l].bytes == 0 && bytes > 0)
            out[l].bytes = (size_t)bytes;
    }
#else
    (void)out;
#endif
}

void gw_caches_read(gw_cache out[GW_CACHES]) {
    memset(out, 0, GW_CACHES * sizeof *out);
    cache_read_sys(out);
    cache_read_sysconf(out);
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
