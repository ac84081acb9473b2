/** --paired: what overlap saves, measured in one run. Every step is taken twice from the same state
 * on the same batch, once as the run is set up (overlapped) and once with the same exchange
 * blocking after the backward pass (its twin: --comm allreduce with the same algorithm, codec and
 * error feedback), in an order drawn from the seed. The run goes on from the overlapped step's
 * result. Figures are defined in docs/measurement.md. */
#ifndef GW_TRAIN_PAIRED_H
#define GW_TRAIN_PAIRED_H

#include "base/stats.h"
#include "prof/record.h"
#include "train/config.h"
#include "train/step.h"

#include <jansson.h>

typedef struct gw_paired gw_paired;

/** Medians over the steps after warm-up; the intervals know that steps of one run depend on each
 *  other (gw_stats_series). Seconds. */
typedef struct gw_paired_result {
    int pairs, block; /* 0 pairs: not asked for; block: length of the bootstrap's blocks */
    gw_stats blocking, overlapped; /* walls of the slowest rank */
    gw_stats saved;                /* the one less the other, step by step */
    gw_stats ratio;                /* the one by the other */
    gw_stats interference;         /* computation under overlap less computation alone */
    gw_stats inflight;
    int equal;         /* steps that both variants ended with the same bits */
    double difference; /* the largest between two parameters, of all steps */
} gw_paired_result;

/** Before MPI starts: GW_ERR_USAGE, or GW_ERR_UNSUPPORTED for what has no blocking twin or cannot
 *  be taken twice. */
gw_err gw_paired_check(const gw_train_config *c, const gw_session *session);

/** Collective, after the stepper's session was opened: open the twin, and DIR/paired.csv where
 * c->out is set. `setup`: as that session was opened. All arguments must outlive it. */
gw_err gw_paired_open(gw_paired **out, const gw_train_config *c, gw_stepper *stepper,
                      const gw_session_setup *setup, MPI_Comm comm);

/** Take one step of the stepper, measured; `counts`: it is the one that becomes a row. */
typedef gw_err gw_paired_run(void *ctx, bool counts, gw_batch_row *row, double *loss);

/** Collective, between batches: take step number row->step in both variants. *row and *loss are the
 *  overlapped one's. Where sums of two ranks' exact gradients come out different: GW_ERR_DIVERGED
 * on all ranks. *own: the error is this rank's alone. */
gw_err gw_paired_step(gw_paired *p, gw_paired_run *run, void *ctx, gw_batch_row *row, double *loss,
                      bool *own);

/** Collective: results of all but the first `warmup` steps (if there are enough), and paired.csv
 *  gets its name. */
gw_err gw_paired_finish(gw_paired *p, int warmup, gw_paired_result *out);

/** Collective where the twin is open. p may be NULL. */
void gw_paired_close(gw_paired *p);

json_t *gw_paired_json(const gw_paired_result *r);

#endif
