/** What a run of `train` and one of the library are told alike, in plain values; config/opts.h and
 *  config/comm_opts.def have the rows of the options. */
#ifndef GW_CONFIG_RUN_H
#define GW_CONFIG_RUN_H

#include "base/args.h"
#include "mpi/guard.h"
#include "prof/ledger.h"

typedef struct gw_run_options {
    const gw_spec *comm, *compress; /* one entry; a list */
    const char *feedback;
    bool wire_check; /* every encoding in a frame, checked before it is decoded */
    bool lazy;       /* finish and update layer by layer before the next forward pass */
    double momentum; /* of an exchange that corrects */
    double clip;     /* the mean gradient's norm, at most; 0: any */
    uint64_t seed;
    int threads;     /* OpenMP threads a rank */
    const char *out; /* run folder; NULL: none */
    bool overwrite, trace;
    bool collectives; /* write collectives.csv */
    gw_on_nan on_nan;
    const char *log; /* as record/live.h has it; NULL: none */
    int log_every;
    int compress_stats;   /* compare the gradient every so many steps; 0: never */
    int64_t verify_every; /* compare the replicas after so many steps, too; 0: each epoch only */
    gw_profile profile;
    double hang_timeout_s; /* end a run that makes no progress for this time; 0: never */
} gw_run_options;

#endif
