#include "machine/host.h"

#include "base/file.h"
#include "base/text.h"
#include "mpi/wait.h"

#include <ctype.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = GW_HOST_PATH };

_Static_assert(CPU_SETSIZE == 64 * GW_HOST_WORDS, "a bit for each CPU of a mask");

static bool host_read_number(const char *path, long long *out) {
    char line[LINE];
    char *end = line;
    if (!gw_file_first_line(path, line, sizeof line))
        return false;
    *out = strtoll(line, &end, 10);
    return end != line;
}

/* "model name" on x86; arm64 has none and tells its implementer and part numbers instead. */
static void host_cpu_model(char *out, size_t room) {
    FILE *in = fopen("/proc/cpuinfo", "r");
    char line[LINE], implementer[32] = "", part[32] = "";
    while (in && !*out && fgets(line, sizeof line, in)) {
        char *value = strchr(line, ':');
        if (!value)
            continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        if (strncmp(line, "model name", 10) == 0)
            gw_text_print(out, room, "%.120s", value);
        else if (strncmp(line, "CPU implementer", 15) == 0)
            snprintf(implementer, sizeof implementer, "%.31s", value);
        else if (strncmp(line, "CPU part", 8) == 0)
            snprintf(part, sizeof part, "%.31s", value);
    }
    if (in)
        fclose(in);
    if (!*out && *part)
        gw_text_print(out, room, "implementer %s part %s", implementer, part);
}

/* Is `cpu` the lowest of its core's threads within `mask`? 1, 0, or -1: the host does not tell. */
static int host_leads_core(int cpu, const cpu_set_t *mask) {
    char path[128], list[LINE];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!gw_file_first_line(path, list, sizeof list))
        return -1;
    for (char *at = list; isdigit((unsigned char)*at);) {
        long from = strtol(at, &at, 10), to = from;
        if (*at == '-')
            to = strtol(at + 1, &at, 10);
        for (long c = from; c <= to && c < cpu; c++)
            if (CPU_ISSET((int)c, mask))
                return 0;
        at += *at == ',';
    }
    return 1;
}

/* CPUs that this process may use; false: they cannot be told (more than CPU_SETSIZE). Where OpenMP
 * binds threads, its runtime has bound the main thread already, to one place: the places tell. */
static bool host_usable_cpus(cpu_set_t *mask) {
    CPU_ZERO(mask);
    int places = omp_get_proc_bind() == omp_proc_bind_false ? 0 : omp_get_num_places();
    for (int p = 0; p < places; p++) {
        int ids[CPU_SETSIZE];
        int n = omp_get_place_num_procs(p);
        if (n > CPU_SETSIZE)
            return false;
        omp_get_place_proc_ids(p, ids);
        for (int i = 0; i < n; i++)
            if (ids[i] < CPU_SETSIZE)
                CPU_SET(ids[i], mask);
    }
    return CPU_COUNT(mask) > 0 || sched_getaffinity(0, sizeof *mask, mask) == 0;
}

static int host_count_cores(const cpu_set_t *mask) {
    int cores = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int leads = CPU_ISSET(cpu, mask) ? host_leads_core(cpu, mask) : 0;
        if (leads < 0)
            return 0;
        cores += leads;
    }
    return cores;
}

/* Quota that the control group `dir` sets, in CPUs; < 0: none. Version 2 (cpu.max), else 1. */
static double host_quota_of(const char *dir) {
    char path[2 * LINE], line[LINE];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (gw_file_first_line(path, line, sizeof line))
        return sscanf(line, "%lld %lld", &quota, &period) == 2 && period > 0
                   ? (double)quota / (double)period
                   : -1;
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!host_read_number(path, &quota) || quota <= 0)
        return -1;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    return host_read_number(path, &period) && period > 0 ? (double)quota / (double)period : -1;
}

/* Of `group` below `mount` and of all groups above it the one with the tightest quota, if that is
 * less than *least. */
static void host_tightest_quota(const char *mount, const char *group, double *least,
                                char where[GW_HOST_PATH]) {
    char dir[LINE];
    snprintf(dir, sizeof dir, "%s%.400s", mount, group);
    for (;;) {
        double q = host_quota_of(dir);
        if (q >= 0 && (*least < 0 || q < *least)) {
            *least = q;
            memcpy(where, dir, sizeof dir);
        }
        char *slash = strrchr(dir, '/');
        if (!slash || strlen(dir) <= strlen(mount))
            return;
        *slash = '\0';
    }
}

double gw_host_quota(char group[GW_HOST_PATH]) {
    FILE *in = fopen("/proc/self/cgroup", "r");
    char line[LINE];
    double least = -1;
    *group = '\0';
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        controllers++;
        if (*controllers == '\0')
            host_tightest_quota("/sys/fs/cgroup", path, &least, group);
        else if (strcmp(controllers, "cpu") == 0 || strcmp(controllers, "cpu,cpuacct") == 0)
            host_tightest_quota("/sys/fs/cgroup/cpu", path, &least, group);
    }
    if (in)
        fclose(in);
    return least;
}

void gw_host_facts(gw_host *out) {
    char group[GW_HOST_PATH];
    *out = (gw_host){.cpu_quota = gw_host_quota(group)};
    cpu_set_t mask;
    gethostname(out->name, sizeof out->name - 1);
    host_cpu_model(out->cpu_model, sizeof out->cpu_model);
    out->cpus_online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (host_usable_cpus(&mask)) {
        out->cpus_usable = CPU_COUNT(&mask);
        out->cores_usable = host_count_cores(&mask);
    } else { /* a host of more than CPU_SETSIZE CPUs */
        out->cpus_usable = out->cpus_online;
    }
    out->memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    long long paranoid;
    out->paranoid_known = host_read_number("/proc/sys/kernel/perf_event_paranoid", &paranoid);
    if (out->paranoid_known)
        out->perf_paranoid = (int)paranoid;
    if (!gw_file_first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", out->governor,
                            sizeof out->governor))
        out->governor[0] = '\0';
}

static int host_threads_a_cpu(int threads, int cpus) {
    return cpus > 0 ? (threads + cpus - 1) / cpus : threads;
}

/* `sharers`: the ranks whose threads compete for the same CPUs. */
static gw_err host_fill_node(gw_host_node *out, int threads, MPI_Comm sharers) {
    uint64_t mine[GW_HOST_WORDS] = {0}, *all = out->mask; /* CPUs that they may use, as bits */
    cpu_set_t mask;
    if (!host_usable_cpus(&mask))
        for (int cpu = 0; cpu < (int)sysconf(_SC_NPROCESSORS_ONLN) && cpu < CPU_SETSIZE; cpu++)
            CPU_SET(cpu, &mask);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mask))
            mine[cpu / 64] |= (uint64_t)1 << (cpu % 64);
    int own = host_threads_a_cpu(threads, CPU_COUNT(&mask)), worst;
    GW_TRY(gw_comm_place(sharers, NULL, &out->sharers));
    GW_TRY(gw_allreduce(mine, all, GW_HOST_WORDS, MPI_UINT64_T, MPI_BOR, sharers));
    GW_TRY(gw_allreduce(&threads, &out->threads, 1, MPI_INT, MPI_SUM, sharers));
    GW_TRY(gw_allreduce(&own, &worst, 1, MPI_INT, MPI_MAX, sharers));
    for (int w = 0; w < GW_HOST_WORDS; w++)
        out->cpus += __builtin_popcountll(all[w]);
    int together = host_threads_a_cpu(out->threads, out->cpus);
    out->threads_per_cpu = together > worst ? together : worst;
    return GW_OK;
}

gw_err gw_host_node_of(gw_host_node *out, int threads, MPI_Comm comm) {
    *out = (gw_host_node){0};
    MPI_Comm host;
    int rank_on_host, lead;
    gw_host_link link;
    GW_TRY(gw_agree(comm, gw_host_link_read(&link)));
    int emulated = link.emulated; /* one rank's word counts: all must take the same branch */
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &emulated, 1, MPI_INT, MPI_MAX, comm));
    GW_TRY(gw_comm_split_host(comm, &host));
    gw_err e = host_fill_node(out, threads, emulated ? comm : host);
    GW_THEN(e, gw_comm_place(host, &rank_on_host, &out->ranks));
    gw_comm_free(&host);
    GW_TRY(e);
    lead = rank_on_host == 0;
    return gw_allreduce(&lead, &out->nodes, 1, MPI_INT, MPI_SUM, comm);
}

bool gw_host_oversubscribed(const gw_host_node *node) {
    return node->threads_per_cpu > 1;
}
