#include "machine/busy.h"

#include "base/file.h"
#include "base/json.h"
#include "base/nap.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SHORTEST_S 0.2 /* twenty of the kernel's hundredths of a second a CPU */

/* ---- what the kernel counts ---- */

/* cpuN user nice system idle iowait irq softirq steal .., in ticks since the machine began. gVisor
 * has zeros. */
static void busy_read_stat(const char *proc, const uint64_t *cpus, gw_busy_counts *out) {
    char path[GW_HOST_PATH], line[512];
    double all = 0, busy = 0, steal = 0, tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
    snprintf(path, sizeof path, "%s/stat", proc);
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof line, in) && strncmp(line, "cpu", 3) == 0) {
        unsigned long long t[8];
        unsigned cpu;
        if (sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &cpu, &t[0], &t[1], &t[2],
                   &t[3], &t[4], &t[5], &t[6], &t[7]) != 9 ||
            cpu >= 64 * GW_HOST_WORDS || !(cpus[cpu / 64] >> cpu % 64 & 1))
            continue;
        for (int i = 0; i < 8; i++)
            all += (double)t[i];
        busy += (double)t[0] + (double)t[1] + (double)t[2];
        steal += (double)t[7];
    }
    if (in)
        fclose(in);
    out->busy_s = all > 0 ? busy * tick_s : NAN;
    out->steal_s = steal > 0 ? steal * tick_s : NAN;
}

/* The numbers after `key` at the beginning of the line that has it. */
static bool busy_find(const char *path, const char *key, double *value) {
    char line[256];
    bool found = false;
    FILE *in = fopen(path, "r");
    while (in && !found && fgets(line, sizeof line, in)) {
        char *at = line + strlen(key), *end = at;
        if (strncmp(line, key, strlen(key)) == 0)
            *value = strtod(at, &end);
        found = end != at && isfinite(*value) && *value >= 0;
    }
    if (in)
        fclose(in);
    return found;
}

gw_busy_counts gw_busy_read(const char *proc, const char *group, const uint64_t *cpus) {
    gw_busy_counts c = {gw_nap_now(), NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    char path[GW_HOST_PATH + 32], line[256];
    double load, runnable, us;
    busy_read_stat(proc, cpus, &c);
    snprintf(path, sizeof path, "%s/loadavg", proc);
    if (gw_file_first_line(path, line, sizeof line) &&
        sscanf(line, "%lf %*f %*f %lf/", &load, &runnable) == 2) {
        c.load = load;
        c.runnable = runnable;
    }
    snprintf(path, sizeof path, "%s/pressure/cpu", proc);
    if (gw_file_first_line(path, line, sizeof line) &&
        sscanf(line, "some avg10=%*f avg60=%*f avg300=%*f total=%lf", &us) == 1)
        c.pressure_s = us * 1e-6;
    snprintf(path, sizeof path, "%s/cpu.stat", group);
    if (!*group || !busy_find(path, "nr_periods ", &c.periods) ||
        !busy_find(path, "nr_throttled ", &c.throttled))
        c.periods = c.throttled = NAN;
    return c;
}

/* ---- what that means ---- */

static double busy_within(double x, double most) {
    return x < 0 ? 0 : x > most ? most : x; /* NaN stays */
}

gw_busy gw_busy_between(const gw_busy_counts *from, const gw_busy_counts *to, double own_s,
                        int cpus, int threads) {
    double s = to->at_s - from->at_s, per_s = s >= SHORTEST_S ? 1 / s : NAN;
    double need = threads < cpus ? threads : cpus;
    gw_busy b = {.seconds = s,
                 .cpus = cpus,
                 .need = need,
                 .others = busy_within((to->busy_s - from->busy_s - own_s) * per_s, cpus),
                 .steal = busy_within((to->steal_s - from->steal_s) * per_s, cpus),
                 .pressure = busy_within((to->pressure_s - from->pressure_s) * per_s, 1),
                 .throttled = busy_within(
                     (to->throttled - from->throttled) / (to->periods - from->periods), 1),
                 .load = to->load,
                 .runnable = busy_within(to->runnable - threads, INFINITY)};
    double taken = b.others + (isnan(b.steal) ? 0 : b.steal);
    b.lack = busy_within(1 - (cpus - taken) / need, 1);
    return b;
}

bool gw_busy_warns(const gw_busy *b) {
    return b->lack > GW_BUSY_LACK || b->throttled > GW_BUSY_LACK;
}

static void busy_put(FILE *to, const char *before, double x, const char *form, const char *after) {
    fputs(before, to);
    if (isnan(x))
        fputs("absent", to);
    else
        fprintf(to, form, x);
    fputs(isnan(x) ? "" : after, to);
}

void gw_busy_text(const gw_busy *b, char *out, size_t room) {
    char after[32];
    FILE *to = fmemopen(out, room, "w");
    *out = '\0';
    if (!to)
        return;
    snprintf(after, sizeof after, " of %.0f CPUs", b->cpus);
    busy_put(to, "other processes took ", b->others, "%.2f", after);
    busy_put(to, ", a hypervisor ", b->steal, "%.2f", "");
    fprintf(to, " (over %.2f s", b->seconds);
    busy_put(to, "; load ", b->load, "%.1f", "");
    busy_put(to, ", other tasks runnable ", b->runnable, "%.0f", "");
    busy_put(to, ", CPU pressure ", 100 * b->pressure, "%.0f", "%");
    busy_put(to, ", throttled ", 100 * b->throttled, "%.0f", "% of the time");
    fputs(")", to);
    fclose(to);
}

json_t *gw_busy_json(const gw_busy *b) {
    char text[GW_BUSY_TEXT];
    gw_busy_text(b, text, sizeof text);
    return gw_json_object("seconds:f cpus:f need:f others:f steal:f pressure:f throttled:f load:f "
                          "runnable:f lack:f warned:b text:s",
                          b->seconds, b->cpus, b->need, b->others, b->steal, b->pressure,
                          b->throttled, b->load, b->runnable, b->lack, gw_busy_warns(b), text);
}

json_t *gw_busy_run_json(const gw_busy *before, const gw_busy *during) {
    return gw_json_object("before:o during:o", before ? gw_busy_json(before) : json_null(),
                          gw_busy_json(during));
}

/* ---- on all ranks ---- */

static double busy_own_s(void) {
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    return (double)own.ru_utime.tv_sec + 1e-6 * (double)own.ru_utime.tv_usec +
           (double)own.ru_stime.tv_sec + 1e-6 * (double)own.ru_stime.tv_usec;
}

static gw_busy_counts busy_now(const gw_busy_watch *w) {
    const char *proc = getenv("GRADWIRE_PROC");
    return gw_busy_read(proc && *proc ? proc : "/proc", w->group, w->node.mask);
}

gw_err gw_busy_open(gw_busy_watch *w, const gw_host_node *node, MPI_Comm comm) {
    int size, rank;
    *w = (gw_busy_watch){.comm = comm, .machine = comm, .node = *node};
    if (gw_team_of(comm)) /* nobody disturbs simulated ranks */
        return GW_OK;
    GW_TRY(gw_comm_place(comm, NULL, &size));
    w->splits = node->sharers < size;
    if (w->splits)
        GW_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &w->machine));
    GW_TRY(gw_comm_place(w->machine, &rank, NULL));
    w->reads = rank == 0;
    if (gw_host_quota(w->group) < 0)
        w->group[0] = '\0';
    GW_TRY(gw_barrier(w->machine)); /* what ranks use before they count it would be others' */
    w->own_s = busy_own_s();
    if (w->reads)
        w->from = busy_now(w);
    return GW_OK;
}

/* Sleep where it pays: see gw_busy_look. All ranks do alike. */
static gw_err busy_nap(const gw_busy_watch *w, double least_s) {
    int naps = 0;
    double due_s = w->from.at_s + (least_s > 0 ? least_s : SHORTEST_S);
    if (w->reads && !isnan(w->from.busy_s))
        naps = gw_nap_now() < due_s && (least_s > 0 || busy_now(w).runnable > w->node.threads);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &naps, 1, MPI_INT, MPI_MAX, w->comm));
    if (naps) {
        GW_TRY(gw_bcast(&due_s, 1, MPI_DOUBLE, 0, w->machine));
        gw_nap_until(due_s);
    }
    return GW_OK;
}

gw_err gw_busy_look(gw_busy_watch *w, double least_s, gw_busy *out) {
    enum { MEMBERS = sizeof *out / sizeof(double) };
    if (gw_team_of(w->comm))
        return GW_OK;
    GW_TRY(busy_nap(w, least_s));
    GW_TRY(gw_barrier(w->machine));
    double now_s = busy_own_s(), own_s = now_s - w->own_s;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &own_s, 1, MPI_DOUBLE, MPI_SUM, w->machine));
    struct {
        double lack;
        int rank;
    } worst = {-2, 0};
    GW_TRY(gw_comm_place(w->comm, &worst.rank, NULL));
    if (w->reads) {
        gw_busy_counts now = busy_now(w);
        *out = gw_busy_between(&w->from, &now, own_s, w->node.cpus, w->node.threads);
        w->from = now;
        worst.lack = isnan(out->lack) ? -1 : out->lack;
    }
    w->own_s = now_s;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &worst, 1, MPI_DOUBLE_INT, MPI_MAXLOC, w->comm));
    return gw_bcast(out, MEMBERS, MPI_DOUBLE, worst.rank, w->comm);
}

void gw_busy_close(gw_busy_watch *w) {
    if (w->splits)
        MPI_Comm_free(&w->machine);
    w->splits = false;
}

gw_err gw_busy_for(gw_busy *out, double s, const gw_host_node *node, MPI_Comm comm) {
    gw_busy_watch w;
    GW_TRY(gw_busy_open(&w, node, comm));
    gw_err e = gw_busy_look(&w, s, out);
    gw_busy_close(&w);
    return e;
}
