/** What emulated links take of the processors that compute (docs/measurement.md). */
#ifndef GW_MACHINE_LINK_COST_H
#define GW_MACHINE_LINK_COST_H

#include "base/err.h"

#include <jansson.h>
#include <mpi.h>
#include <stdbool.h>

/** Processor time that the kernel spends on the network, as /proc/stat and the kernel's accounts of
 * a process have it. A kernel without CONFIG_IRQ_TIME_ACCOUNTING only samples it, 100 to 1000 times
 * a second and core, and never sees hard interrupts: their time is whoever's they interrupt. */
typedef struct gw_kernel_time {
    double interrupts_s; /* in interrupts and what they left to do (softirqs, ksoftirqd), of all
                            cores since the machine began; NaN: this system does not count it */
    double system_s;     /* in system calls and faults of this process; NaN: not known */
} gw_kernel_time;

gw_kernel_time gw_kernel_time_now(void);

/** Seconds in interrupts from the text of /proc/stat, of `ticks` a second; NaN: not counted there.
 */
double gw_kernel_time_parse(const char *stat, long ticks);

typedef struct gw_link_cost {
    bool emulated;
    gw_kernel_time begin;
    double begin_s;
    double seconds; /* between begin and end; the other figures are NaN where it is too short */
    double interrupts_s; /* of the whole machine, and so other programs' too */
    double system_s;     /* all ranks together; copies that real links need, too, and page faults */
    double cores;        /* a rank that trains: interrupts_s / seconds / ranks */
    bool warns;          /* cores is so large that overlap looks worse than it is */
} gw_link_cost;

void gw_link_cost_begin(gw_link_cost *c);

/** Collective. Fills in all of it on rank 0: NaN where it cannot be measured. */
gw_err gw_link_cost_end(gw_link_cost *c, int workers, MPI_Comm comm);

/** run.json's `link`; null: the hosts' own. NULL without memory. */
json_t *gw_link_cost_json(const gw_link_cost *c);

#endif
