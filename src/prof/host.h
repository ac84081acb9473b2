/** The machine a rank runs on, as far as it bears on speed: for run.json and `gradwire doctor`. */
#ifndef GW_PROF_HOST_H
#define GW_PROF_HOST_H

#include "base/agree.h"

#include <stdbool.h>
#include <stdint.h>

/** Facts of the calling process's host. Unknown texts are "", unknown numbers negative or 0 as
 *  said; never a guess. */
typedef struct gw_host {
    char name[64];
    char cpu_model[128];
    int cpus_online;     /* logical CPUs of the host */
    int cpus_usable;     /* logical CPUs that this process may run on (affinity mask) */
    int cores_usable;    /* distinct cores among these; 0: the host does not tell */
    double cpu_quota;    /* CPUs' worth of time the control group allows; < 0: no limit seen */
    uint64_t memory;     /* bytes of the host */
    bool paranoid_known; /* perf_event_paranoid: who may count what, see perf_event_open(2) */
    int perf_paranoid;
    char governor[32]; /* frequency governor of CPU 0; "": not readable */
} gw_host;

/** Fill *out; never fails. Reads /proc and /sys: not for inside a batch. */
void gw_host_facts(gw_host *out);

/** The ranks of `comm` that share a host with the caller. */
typedef struct gw_host_node {
    int nodes;           /* hosts that `comm` spans */
    int ranks;           /* ranks of `comm` on this host */
    int cpus;            /* logical CPUs that at least one of them may run on */
    int threads;         /* compute threads of all of them together */
    int threads_per_cpu; /* most threads a CPU must carry, even if well spread; 1: all fit */
} gw_host_node;

/** Collective. `threads`: compute threads of this rank. A rank bound to too few CPUs shows in
 *  threads_per_cpu too. */
gw_err gw_host_node_of(gw_host_node *out, int threads, MPI_Comm comm);

/** More threads than CPUs to run them: waiting must then yield rather than spin. */
bool gw_host_oversubscribed(const gw_host_node *node);

#endif
