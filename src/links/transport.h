/** What moving messages costs a core that computes: the time in MPI's calls that is not waiting,
 *  and the time that the kernel takes on the core meanwhile (interrupts, packets, the transport's
 *  threads).
 *
 *  This shows only on a busy core, and spinning in MPI would hide it. So the rank reads the clock
 *  without a pause between two tests, which are as far apart as polls in a training step: in a gap
 *  between two readings somebody else had the core. Then
 *
 *      transport = in calls + in gaps - what as many tests, and as long a wait, take with nothing
 *                  on its way
 *
 *  Other load on the machine is in the gaps of both, so measure on a quiet machine. Slowed caches
 *  and a lower clock are in neither, so the result is a lower bound. */
#ifndef GW_LINKS_TRANSPORT_H
#define GW_LINKS_TRANSPORT_H

#include "mpi/agree.h"

#include <stdbool.h>

/** Something that moves messages, again and again. */
typedef struct gw_transport_job {
    void (*prepare)(void *ctx); /* before each run, not timed; NULL: nothing to do */
    gw_err (*start)(void *ctx);
    gw_err (*test)(void *ctx, bool *done); /* must not block */
    void *ctx;
} gw_transport_job;

/** Collective: run the job some times, about 0.1 s in all, all ranks at once; *out: seconds of a
 *  core each, the median over the runs on the rank where it is longest; NaN: cannot be told (one
 *  rank, ranks that share cores, or less than what disturbs the measurement). */
gw_err gw_transport_measure(const gw_transport_job *job, bool oversubscribed, MPI_Comm comm,
                            double *out);

/** Collective: likewise of a byte that is sent and one that is received at the same time, by
 *  messages to the next rank. */
gw_err gw_transport_byte(bool oversubscribed, MPI_Comm comm, double *s);

#endif
