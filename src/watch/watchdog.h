/** The watchdog of a rank: a thread that makes no MPI call and waits for signs of progress (beats):
 *  a step, a part of an evaluation, a new stage of the run. If none comes for too long, it reports
 *  where this rank is stuck and ends the process, so that the launcher ends the job. The report has
 *  the stage and step, the ledger's phase, the strategy's hook, the MPI calls, the schedules under
 *  way with the ranks that they wait for (comm/schedule/pending.h), and which ranks of this host
 *  are stopped or gone, since those cannot report themselves. It writes to stderr and ends the
 *  process by itself: the thread that would is stuck.
 *
 *  One a process. It adds up time in slices and counts none as longer than two, so that a job that
 *  is stopped as a whole and continued does not look hung. */
#ifndef GW_WATCH_WATCHDOG_H
#define GW_WATCH_WATCHDOG_H

#include "mpi/agree.h"

#include <stdint.h>

typedef struct gw_watchdog_setup {
    double timeout_s;            /* without a beat; 0: no watchdog */
    const char *comm, *compress; /* as on the command line; live as long as the watchdog */
} gw_watchdog_setup;

/** Local, on the main thread: watch from now on. Whether that failed, gw_watchdog_meet says. */
void gw_watchdog_start(const gw_watchdog_setup *setup, MPI_Comm comm);

/** Collective over the ranks of `comm`: let them know who is on the same host. */
gw_err gw_watchdog_meet(MPI_Comm comm);

/** Collective: give back what belongs to MPI. It watches on, over the end of MPI, too. */
void gw_watchdog_leave(void);

/** End it; nothing to do where there is none. */
void gw_watchdog_close(void);

/** The program calls the library's function gradwire_CALL from now on, or (NULL) none: then silence
 *  is the program's own affair, and only what other ranks report counts. A beat. */
void gw_watchdog_inside(const char *call);

/** The run goes on. */
void gw_watchdog_beat(void);
/** So many steps are done, in this epoch (1..). A beat. */
void gw_watchdog_step(int64_t step, int epoch);
/** What the run does from now on, "training", say: a text that lives as long as the program. A
 *  beat. */
void gw_watchdog_stage(const char *stage);

#endif
