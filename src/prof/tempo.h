/** The tempo of a pipeline's stage: what its actions take, and its hops once both ends are
 *  there. Medians over the run: it listens to the ledger, prof/waits tells it of hops, and of a
 *  long run it keeps a random sample, so it has a fixed size. One a process. */
#ifndef GW_PROF_TEMPO_H
#define GW_PROF_TEMPO_H

#include "base/err.h"

/** Forget all, and listen: after gw_ledger_start, between batches. `chunks`: of this stage. */
gw_err gw_tempo_open(int chunks);

/** Close; does nothing if none is open. */
void gw_tempo_close(void);

/** Report that an exchange of this name along the pipe took `s` seconds after both ends had reached
 *  it. Between batches; does nothing if no tempo is open. */
void gw_tempo_hop(const char *name, double s);

/** Return medians so far, in seconds; NaN: none was seen. `letter`: F, B, I or W. */
double gw_tempo_action_s(char letter, int chunk);
double gw_tempo_hop_s(const char *name);

#endif
