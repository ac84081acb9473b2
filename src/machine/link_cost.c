#include "machine/link_cost.h"

#include "base/file.h"
#include "base/json.h"
#include "machine/host.h"
#include "mpi/wait.h"
#include "prof/ledger.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The kernel samples ticks of 1 to 10 ms and tells 10 ms: 5% of a core is 5 of them. */
#define SHORTEST_S 1.0
#define MOST_CORES 0.05

double gw_kernel_time_parse(const char *stat, long ticks) {
    unsigned long long irq, softirq;
    /* user nice system idle iowait irq softirq, the sums over all cores */
    if (ticks <= 0 || strncmp(stat, "cpu ", 4) != 0 ||
        sscanf(stat + 4, "%*u %*u %*u %*u %*u %llu %llu", &irq, &softirq) != 2)
        return NAN;
    /* None since the machine began: gVisor's, or a container's, that has no figure for it. */
    return softirq > 0 ? (double)(irq + softirq) / (double)ticks : NAN;
}

gw_kernel_time gw_kernel_time_now(void) {
    gw_kernel_time now = {NAN, NAN};
    char line[512];
    if (gw_file_first_line("/proc/stat", line, sizeof line))
        now.interrupts_s = gw_kernel_time_parse(line, sysconf(_SC_CLK_TCK));
    struct rusage own;
    if (getrusage(RUSAGE_SELF, &own) == 0)
        now.system_s = (double)own.ru_stime.tv_sec + 1e-6 * (double)own.ru_stime.tv_usec;
    return now;
}

void gw_link_cost_begin(gw_link_cost *c) {
    *c = (gw_link_cost){.begin = gw_kernel_time_now(), .begin_s = gw_ledger_now()};
}

gw_err gw_link_cost_end(gw_link_cost *c, int workers, MPI_Comm comm) {
    gw_kernel_time now = gw_kernel_time_now();
    c->seconds = gw_ledger_now() - c->begin_s;
    gw_host_link link;
    c->emulated = gw_host_link_read(&link) == GW_OK && link.emulated;
    double system_s = now.system_s - c->begin.system_s;
    GW_TRY(gw_allreduce(&system_s, &c->system_s, 1, MPI_DOUBLE, MPI_SUM, comm));
    c->interrupts_s = now.interrupts_s - c->begin.interrupts_s;
    if (!(c->seconds >= SHORTEST_S))
        c->interrupts_s = c->system_s = NAN;
    c->cores = c->interrupts_s / c->seconds / workers;
    c->warns = c->emulated && c->cores > MOST_CORES;
    return GW_OK;
}

json_t *gw_link_cost_json(const gw_link_cost *c) {
    gw_host_link link; /* what cannot be read was refused before the run */
    if (gw_host_link_read(&link) != GW_OK || !link.emulated)
        return json_null();
    json_t *piece = link.segments > 0 ? gw_json_object("packets:i mtu:i", link.segments, link.mtu)
                                      : json_null();
    json_t *racks = link.racks == 0
                        ? json_null()
                        : gw_json_object("count:i uplink_bits_per_s:I ranks_per_host:i", link.racks,
                                         link.uplink_bits_per_s, link.ranks_per_host);
    json_t *rates = *link.rates ? json_array() : json_null(); /* one rate for all */
    for (const char *at = link.rates; *at;) {                 /* [[sends, receives], ..] in bit/s */
        char *end;
        long long sends = strtoll(at, &end, 10);
        long long receives = strtoll(end + 1, &end, 10);
        json_array_append_new(rates, json_pack("[I, I]", (json_int_t)sends, (json_int_t)receives));
        at = end + (*end == ',');
    }
    json_t *cost =
        gw_json_object("seconds:f interrupts_s:f ranks_system_s:f cores_per_rank:f warned:b",
                       c->seconds, c->interrupts_s, c->system_s, c->cores, c->warns);
    return gw_json_object(
        "emulated:b hosts:i rate_bits_per_s:I slow_hosts:t host_rates:o piece:o racks:o cost:o",
        true, link.hosts, link.rate_bits_per_s, link.slow, rates, piece, racks, cost);
}
