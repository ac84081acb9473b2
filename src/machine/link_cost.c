#include "machine/link_cost.h"

#include "base/json.h"
#include "machine/host.h"
#include "mpi/wait.h"
#include "prof/ledger.h"

#include <math.h>
#include <stdlib.h>

/* The kernel samples ticks of 1 to 10 ms and tells 10 ms: 5% of a core is 5 of them. */
#define SHORTEST_S 1.0

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
    return GW_OK;
}

/* [[sends, receives], ..] in bit/s; null: one rate for all. */
static json_t *rates_json(const char *text) {
    if (!*text)
        return json_null();
    json_t *all = json_array();
    while (*text) {
        char *end;
        long long sends = strtoll(text, &end, 10);
        long long receives = strtoll(end + 1, &end, 10);
        json_array_append_new(all, json_pack("[I, I]", (json_int_t)sends, (json_int_t)receives));
        text = end + (*end == ',');
    }
    return all;
}

json_t *gw_link_cost_json(const gw_link_cost *c) {
    gw_host_link link; /* what cannot be read was refused before the run */
    if (gw_host_link_read(&link) != GW_OK || !link.emulated)
        return json_null();
    json_t *piece = link.segments > 0
                        ? json_pack("{s:i, s:i}", "packets", link.segments, "mtu", link.mtu)
                        : json_null();
    json_t *cost =
        json_pack("{s:o, s:o, s:o, s:o}", "seconds", gw_json_number(c->seconds), "interrupts_s",
                  gw_json_number(c->interrupts_s), "ranks_system_s", gw_json_number(c->system_s),
                  "cores_per_rank", gw_json_number(c->cores));
    return json_pack("{s:b, s:i, s:I, s:s?, s:o, s:o, s:o}", "emulated", true, "hosts", link.hosts,
                     "rate_bits_per_s", (json_int_t)link.rate_bits_per_s, "slow_hosts",
                     *link.slow ? link.slow : NULL, "host_rates", rates_json(link.rates), "piece",
                     piece, "cost", cost);
}
