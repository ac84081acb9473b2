/** What the ranks decide together while they train: one small collective between two steps, after
 *  steps that all ranks know beforehand. One call begins it and another ends it, a step later: by
 *  then its messages have travelled beside the gradients, and nobody waits for either. The number
 *  of steps between two votes follows from how long steps take, so that a vote comes about every
 *  GW_VOTE_S seconds: soon enough for a signal or a time limit, and too rarely to cost anything. */
#ifndef GW_WATCH_VOTE_H
#define GW_WATCH_VOTE_H

#include "mpi/agree.h"

#include <stdbool.h>
#include <stdint.h>

#define GW_VOTE_S 0.2

/** What a rank puts in; what comes out is the greatest of each over the ranks. */
typedef struct gw_ballot {
    int64_t signal;     /* its number, if one was seen; 0: none */
    int64_t time_over;  /* --time-limit, by rank 0's clock; on the others 0 */
    int64_t keep_due;   /* a checkpoint is, by rank 0's clock; on the others 0 */
    int64_t writing;    /* this rank's part of a checkpoint is still being written */
    int64_t not_finite; /* this rank's loss or gradient was, in a run that stops then */
} gw_ballot;

typedef struct gw_vote {
    MPI_Comm comm;
    int rank;
    bool open; /* begun, not ended */
    struct {
        gw_ballot ballot;
        int64_t interval; /* to the next vote, by rank 0 */
    } all;
    MPI_Request request;
    int64_t next; /* the step after which the next vote is; the same on all ranks */
    int64_t last; /* of the last one */
    double last_s;
} gw_vote;

/** The next vote is after step `step` + 1. `now_s`: by any clock that goes on like later ones. */
gw_err gw_vote_open(gw_vote *v, MPI_Comm comm, int64_t step, double now_s);

/** Collective, after step v->next, with no vote open; does not block. v->next becomes the step of
 *  the next vote when this one ends. */
gw_err gw_vote_begin(gw_vote *v, double now_s, const gw_ballot *ballot);

/** Collective: the end of an open vote; *ballot: what all ranks have in common. */
gw_err gw_vote_end(gw_vote *v, gw_ballot *ballot);

#endif
