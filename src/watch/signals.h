/** Signals that ask a run to end: SIGTERM, which batch systems send some time before they kill, and
 *  SIGINT, Ctrl-C. A handler only notes the signal; the run ends where all ranks can agree to. */
#ifndef GW_WATCH_SIGNALS_H
#define GW_WATCH_SIGNALS_H

#include "base/err.h"

#include <mpi.h>

/** From now on SIGTERM and SIGINT are noted, by a thread that is started for it. A SIGINT that
 *  follows another signal ends the process at once, as it would have without this. There is no way
 *  back: what comes while MPI_Finalize is at work finds everything done, and is to do no harm. Call
 *  it once, from the thread that starts all others that compute. */
gw_err gw_signals_watch(void);

/** The number of the first signal noted; 0: none. From any thread, at any moment. */
int gw_signals_seen(void);

/** Collective: *sig is the highest number that any rank has noted; 0: none. */
gw_err gw_signals_agree(int *sig, MPI_Comm comm);

/** "SIGTERM" or "SIGINT". */
const char *gw_signals_name(int sig);

#endif
