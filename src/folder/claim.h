/** One process at a time may write into a run's folder: rank 0 of a run locks DIR/.lock until the
 *  run ends, in whatever way. All ranks of the run write under this lock, so unfinished files in a
 *  folder that is locked by us are left from a dead run.
 *
 *  The lock is flock's. It holds between containers, and between hosts if the network file system
 *  passes locks on to its server (NFS does, unless it is mounted with nolock or local_lock). A
 *  killed process loses the lock; its DIR/.lock does not stop the next run.
 *
 *  The folder is held by its descriptor (base/hold.h): who removes it while a run is writing there,
 *  and begins another of its name, meets nothing of that run, which ends at its next commit. */
#ifndef GW_FOLDER_CLAIM_H
#define GW_FOLDER_CLAIM_H

#include "base/err.h"

typedef struct gw_claim gw_claim;

/** Make the folder, or take one that can be written to, and lock it. GW_ERR_INPUT: it is none, its
 *  file system has no locks, or another process holds it; then nothing is changed. */
gw_err gw_claim_take(gw_claim **out, const char *dir);

/** Give it back; DIR/.lock goes, and so does a folder that was made for nothing. c may be NULL. */
void gw_claim_release(gw_claim *c);

#endif
