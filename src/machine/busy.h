/** What else a machine does while ranks compute on it: cores that other processes have, time that a
 *  hypervisor takes away (steal), waiting for a core (pressure), and a control group's throttling.
 *  docs/measurement.md, "A busy machine", says how it is judged. A figure that the kernel does not
 *  tell is NaN, never 0. */
#ifndef GW_MACHINE_BUSY_H
#define GW_MACHINE_BUSY_H

#include "machine/host.h"

#include <jansson.h>

/** Ranks that lack more of their cores than this have times that say little: the slowest of them
 *  needs at least 1.1 times as long, as much as GW_GAUGE_DRIFT allows a machine to change. */
#define GW_BUSY_LACK 0.1

/** The kernel's counts so far, of the CPUs of one mask. */
typedef struct gw_busy_counts {
    double at_s;    /* CLOCK_MONOTONIC */
    double busy_s;  /* of all processes and threads of the kernel; without interrupts, which may be
                      the ranks' own network */
    double steal_s; /* NaN where there has been none since the machine began */
    double pressure_s;         /* time in which some task waited for a core */
    double periods, throttled; /* of the control group's quota, and those that used it up */
    double load, runnable; /* of the last minute; tasks at this moment, the reader one of them */
} gw_busy_counts;

/** Read PROC/stat, PROC/loadavg, PROC/pressure/cpu and GROUP/cpu.stat ("": no quota). */
gw_busy_counts gw_busy_read(const char *proc, const char *group, const uint64_t *cpus);

/** Between two readings. All members are double, for MPI. */
typedef struct gw_busy {
    double seconds;
    double cpus, need;     /* CPUs that the ranks may use; of these as many as they have threads */
    double others, steal;  /* CPUs, on average */
    double pressure;       /* share of the time in which some task waited for a core */
    double throttled;      /* share of the quota's periods */
    double load, runnable; /* at the end; runnable: tasks beyond the ranks' threads, at least */
    double lack;           /* share of `need` that was not free; NaN: not known */
} gw_busy;

/** Both readings are of the same CPUs; own_s: processor time of all ranks on them in between.
 *  `threads`: theirs. An interval below 0.2 s only has load and runnable: the kernel counts in
 *  ticks. */
gw_busy gw_busy_between(const gw_busy_counts *from, const gw_busy_counts *to, double own_s,
                        int cpus, int threads);

/** Are times not to be trusted? */
bool gw_busy_warns(const gw_busy *b);

enum { GW_BUSY_TEXT = 320 };

/** "other processes took 1.7 of 2 CPUs, ..": what is known of it. */
void gw_busy_text(const gw_busy *b, char *out, size_t room);

json_t *gw_busy_json(const gw_busy *b);

/** run.json's machine.busy: before the first step (NULL: nobody looked), and from there on. */
json_t *gw_busy_run_json(const gw_busy *before, const gw_busy *during);

/** Readings of all machines that `comm` spans. */
typedef struct gw_busy_watch {
    MPI_Comm comm, machine; /* machine: the ranks that share these CPUs */
    bool reads, splits;     /* this rank reads; `machine` is not comm itself */
    gw_host_node node;
    char group[GW_HOST_PATH];
    gw_busy_counts from;
    double own_s;
} gw_busy_watch;

/** Collective: what the machines do for the next s seconds, through which the ranks sleep. */
gw_err gw_busy_for(gw_busy *out, double s, const gw_host_node *node, MPI_Comm comm);

/** Collective: begin. `node`: as gw_host_node_of(.., comm) has it. GRADWIRE_PROC names the folder
 *  that stands for /proc, for tests. */
gw_err gw_busy_open(gw_busy_watch *w, const gw_host_node *node, MPI_Comm comm);

/** Collective: *out on all ranks, since the last such call or the opening, of the machine whose
 *  ranks lack most. With `least_s` > 0 the ranks sleep until so much has passed; at 0 only until
 *  something can be told, and only if other tasks are runnable. Where the kernel tells of no CPUs
 *  they never sleep. */
gw_err gw_busy_look(gw_busy_watch *w, double least_s, gw_busy *out);

/** Free a watch; one that was never opened may be all zero. Not collective in effect. */
void gw_busy_close(gw_busy_watch *w);

#endif
