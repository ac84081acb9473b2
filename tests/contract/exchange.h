/* One trial of the contract: some steps of a strategy, algorithm and codec on all ranks, with the
 * checks that every combination must pass. */
#ifndef GW_TESTS_EXCHANGE_H
#define GW_TESTS_EXCHANGE_H

#include "run/session.h"

enum { SPEC = 4096 }; /* a plugin is named by its path */

typedef struct trial {
    char comm[2 * SPEC], codec[SPEC];
    const char *feedback;
    size_t n;
    bool lazy;
    bool adds;  /* gradients are added to the residual where that can be, and the arena is NaN */
    bool voids; /* one step is void, as with --on-nan skip; then only `crc` counts */
} trial;

typedef struct outcome {
    bool refused;
    bool fed;      /* `adds` applied; else nothing was tried */
    uint32_t crc;  /* of the parameters, settled after the steps */
    double error;  /* relative, of the summed updates */
    double most;   /* error of a strategy that compresses by itself; else 0 */
    bool exact;    /* largest error of an element is rounding */
    bool residual; /* there is error feedback */
    bool kept;     /* and the residual was found to hold all of the error */
    bool directs;  /* no gradients, but directions of updates: no value was checked */
} outcome;

/* Once, after MPI_Init. */
void exchange_start(int ranks);

/* From now on all encodings travel in frames. */
void exchange_frames(void);

/* Run a trial. A refusal must give its reason in one line; everything else must send what its
 * formula says, keep the replicas equal and compute the right sums. */
outcome exchange_try(const trial *t);

/** The steps of a trial that was not refused, by whoever exchange_be has said that this is. */
gw_err exchange_run(const trial *t, outcome *o);

/** From now on this process is rank `rank` of `comm`, which gives its core away while it waits if
 *  it `yields`. Returns the rank that it was. */
int exchange_be(int rank, MPI_Comm comm, bool yields);

/** Run a trial that was not refused, of an algorithm of own messages, on `ranks` simulated ranks of
 *  this process: its messages carry the same bytes. Checks what exchange_try checks of each step;
 *  returns the checksum of the settled parameters. Local. */
uint32_t exchange_simulate(const trial *t, int ranks);

#endif
