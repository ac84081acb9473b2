/** --paired: what overlap saves, measured in one run. Steps are taken twice from the same state on
 * the same batches, once as the run is set up (overlapped) and once by a twin that blocks, in an
 * order drawn from the seed. The run continues from the overlapped result.
 *
 *  Where a step's exchange ends within the step (`--update eager`), each step is a pair. Where it
 *  ends within the next one (`--update lazy`, `delayed`), a pair is a block of steps: the first
 *  fills the pipeline, the last drains it, and those between are timed.
 *
 *  The twin makes the same updates. Of a strategy that only sums gradients it is `--comm allreduce`
 *  with the same algorithm, codec and error feedback. Of one that also decides who updates what,
 *  or when, it is the same strategy, whose exchange starts after the backward pass and ends before
 *  the step does. Figures are defined in docs/measurement.md. */
#ifndef GW_TRAIN_PAIRED_H
#define GW_TRAIN_PAIRED_H

#include "base/stats.h"
#include "config/config.h"
#include "prof/record.h"
#include "step/step.h"

#include <jansson.h>

typedef struct gw_paired gw_paired;

/** Medians over the steps after warm-up; the intervals know that steps of one run depend on each
 *  other (gw_stats_series). Seconds. */
typedef struct gw_paired_result {
    int pairs, block; /* 0 pairs: not asked for; block: length of the bootstrap's blocks */
    int steps;        /* timed steps of a full pair */
    gw_stats blocking, overlapped; /* walls of the slowest rank */
    gw_stats saved;                /* blocking - overlapped, step by step */
    gw_stats ratio;                /* blocking / overlapped */
    gw_stats interference;         /* computation under overlap less computation alone */
    gw_stats inflight;
    int equal;         /* pairs that both variants ended with the same bits */
    double difference; /* the largest between two parameters, of all steps */
} gw_paired_result;

/** Before MPI starts: GW_ERR_USAGE, or GW_ERR_UNSUPPORTED for what has no blocking twin or cannot
 *  be taken twice. */
gw_err gw_paired_check(const gradwire *g);

/** Collective, after the stepper's handle was opened: open the twin, and DIR/paired.csv where
 * c->out is set. `setup`: as that handle was opened. `cut`: overlapped steps compute some product
 * in pieces, so that their bits may differ. All arguments must outlive it. */
gw_err gw_paired_open(gw_paired **out, const gw_train_config *c, gw_stepper *stepper,
                      const gw_step_setup *setup, bool cut, MPI_Comm comm);

/** Which step to take. */
typedef struct gw_paired_take {
    int at;      /* so many steps after the present one, in the same epoch */
    bool counts; /* it is a step of the run, which becomes a row */
    bool drain;  /* nothing may be in flight afterwards; within the step */
} gw_paired_take;

/** Take that step, number batch->step, with the stepper, measured: fill in what it came to. */
typedef gw_err gw_paired_run(void *ctx, const gw_paired_take *take, gw_batch_parts *batch);

/** Steps of a pair, and 0 unless the next step begins one. */
int gw_paired_wants(const gw_paired *p);

/** Collective, between batches: take step number batch->step, in both variants sooner or later.
 *  `ahead` >= 1, looked at where a pair begins: how many steps lie before the next at whose end
 *  nothing may be pending, that one included; a longer pair is cut. *batch is the
 *  overlapped step. Where sums of two ranks' exact gradients come out different:
 *  GW_ERR_DIVERGED on all ranks. *own: the error is this rank's alone. */
gw_err gw_paired_step(gw_paired *p, gw_paired_run *run, void *ctx, int ahead, gw_batch_parts *batch,
                      bool *own);

/** Collective: results of all pairs but those of the first `warmup` steps (if there are enough),
 *  and paired.csv gets its name. */
gw_err gw_paired_finish(gw_paired *p, int warmup, gw_paired_result *out);

/** Collective where the twin is open. p may be NULL. */
void gw_paired_close(gw_paired *p);

json_t *gw_paired_json(const gw_paired_result *r);

#endif
