/** A thread beside the rank's main one that does one job at a time, such as writing to a disk. Jobs
 *  make no MPI calls. All functions are for the main thread. */
#ifndef GW_CHECKPOINT_WORKER_H
#define GW_CHECKPOINT_WORKER_H

#include "base/err.h"

#include <stdbool.h>

typedef struct gw_worker gw_worker;

gw_err gw_worker_open(gw_worker **out);

/** Waits for the job; w may be NULL. */
void gw_worker_close(gw_worker *w);

/** Begin job(ctx) on the thread; the last one must have been waited for. */
void gw_worker_start(gw_worker *w, gw_err (*job)(void *ctx), void *ctx);

/** False: the job is still being done. */
bool gw_worker_idle(gw_worker *w);

/** Block until the job is done; what it returned, with its message. Without a job GW_OK. */
gw_err gw_worker_wait(gw_worker *w);

#endif
