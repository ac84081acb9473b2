/** Who may write into a run's folder: one process at a time, rank 0 of a run, by a lock on
 * DIR/.lock that it holds until the run has ended, however it ends. All ranks of that run write
 * under it; so whatever nobody has finished in a folder that one holds, a dead run has left.
 *
 *  The lock is flock's: it belongs to no process number, and holds between containers and, on a
 *  network file system that passes locks on to its server (NFS does, unless it is mounted with
 *  nolock or local_lock), between hosts. A killed process loses it; the file that it leaves binds
 *  nobody. */
#ifndef GW_RUN_CLAIM_H
#define GW_RUN_CLAIM_H

#include "base/err.h"

#include <stdbool.h>

typedef struct gw_claim gw_claim;

/** Make the folder, or take one that can be written to, and lock it. GW_ERR_INPUT: it is none, its
 *  file system has no locks, or another process holds it; then nothing is changed. */
gw_err gw_claim_take(gw_claim **out, const char *dir);

/** Give it back; DIR/.lock goes, and so does a folder that was made for nothing. c may be NULL. */
void gw_claim_release(gw_claim *c);

#endif
