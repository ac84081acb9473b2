/** The machine a rank runs on, as far as it bears on speed: for run.json and `gradwire doctor`. */
#ifndef GW_MACHINE_HOST_H
#define GW_MACHINE_HOST_H

#include "mpi/agree.h"

#include <stdbool.h>
#include <stdint.h>

enum { GW_HOST_PATH = 512, GW_HOST_WORDS = 16 /* of a mask of CPUs, as sched.h has them */ };

/** Facts of the calling process's host. Unknown texts are "", unknown numbers negative or 0 as
 *  said; never a guess. */
typedef struct gw_host {
    char name[64];
    char cpu_model[128];
    int cpus_online;  /* logical CPUs of the host */
    int cpus_usable;  /* logical CPUs that this process may run on (its mask or OpenMP's places) */
    int cores_usable; /* distinct cores among these; 0: the host does not tell */
    double cpu_quota; /* CPUs' worth of time the control group allows; < 0: no limit seen */
    uint64_t memory;  /* bytes of the host */
    bool paranoid_known; /* perf_event_paranoid: who may count what, see perf_event_open(2) */
    int perf_paranoid;
    char governor[32]; /* frequency governor of CPU 0; "": not readable */
} gw_host;

/** Fill *out; never fails. Reads /proc and /sys: not for inside a batch. */
void gw_host_facts(gw_host *out);

/** The tightest CPU quota of this process's control groups, in CPUs' worth of time, and the folder
 *  of the group that sets it; < 0 and "": no limit seen. */
double gw_host_quota(char group[GW_HOST_PATH]);

/** The links between hosts, where they are emulated on one machine (experiments/testbed). */
typedef struct gw_host_link {
    bool emulated;           /* false: the rest is 0 */
    int hosts;               /* network namespaces that the machine plays */
    int64_t rate_bits_per_s; /* of each link, each way; the slowest, where they differ */
    char slow[256];          /* hosts that get only a part of a core: HOST:FRACTION,..; "": none */
    char rates[2048];        /* bit/s of each host in turn: SENDS/RECEIVES,..; "": all the same */
    int segments, mtu; /* packets that TCP hands down in one piece, their bytes; 0: not told */
    int racks;         /* of as many neighbouring hosts each; 0: one switch joins all, */
    int64_t uplink_bits_per_s; /* else the rate that a rack's hosts share to the others, each way */
    int ranks_per_host;        /* neighbouring ranks that were placed together, host by host */
} gw_host_link;

/** Read GRADWIRE_TESTBED (hosts) and GRADWIRE_LINK_RATE (bit/s), which the testbed sets, and what
 * may come with them: GRADWIRE_SLOW_HOSTS, GRADWIRE_HOST_RATES, GRADWIRE_LINK_PIECE (SEGMENTSxMTU),
 * GRADWIRE_RACKS (RACKSxUPLINKxRANKS).
 * Neither of the two set: not emulated. One alone or a text that is none: GW_ERR_USAGE. */
gw_err gw_host_link_read(gw_host_link *out);

/** The ranks of `comm` that share a host with the caller. Emulated hosts share one machine's cores:
 *  `cpus`, `sharers` and what follows then count over all of `comm`. */
typedef struct gw_host_node {
    int nodes;   /* hosts that `comm` spans */
    int ranks;   /* ranks of `comm` on this host */
    int sharers; /* ranks that share these CPUs; `ranks` unless hosts are emulated */
    int cpus;    /* logical CPUs that at least one of the sharers may run on, */
    uint64_t mask[GW_HOST_WORDS]; /* these */
    int threads;                  /* compute threads of all sharers together */
    int threads_per_cpu; /* most threads a CPU must carry, even if well spread; 1: all fit */
} gw_host_node;

/** Collective. `threads`: compute threads of this rank. A rank bound to too few CPUs shows in
 *  threads_per_cpu too. Fails on all ranks alike where gw_host_link_read does on one. */
gw_err gw_host_node_of(gw_host_node *out, int threads, MPI_Comm comm);

/** More threads than CPUs to run them: waiting must then yield rather than spin. */
bool gw_host_oversubscribed(const gw_host_node *node);

#endif
