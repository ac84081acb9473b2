/** What a run looks at so that it reports no wrong number: whether loss and gradients are finite in
 *  each step, whether the replicas agree after each epoch and after as many steps as asked for, and
 *  how many frames were checked on the way. */
#ifndef GW_STEP_CHECKS_H
#define GW_STEP_CHECKS_H

#include "api/inside.h"
#include "config/config.h"
#include "mesh/pipeline.h"
#include "mpi/guard.h"

/** What of it a resumed run keeps, on this rank; whole 8-byte fields. */
typedef struct gw_checks_mark {
    int64_t bad_steps, out_steps; /* as gw_guard has them */
    gw_fault first;               /* no step: none */
    int64_t comparisons;          /* the same on all ranks, and the step of the last: */
    int64_t compared;
    double compare_s;
    uint64_t frames;
} gw_checks_mark;

typedef struct gw_checks {
    MPI_Comm comm, replicas; /* all ranks; those that hold equal parameters */
    gradwire *g;
    const gw_pipeline *pipeline; /* the caller's to set: its frames count, too; NULL: none */
    const gw_span *layers;
    int n_layers, ranks;
    gw_guard guard;
    int64_t every;       /* steps between two comparisons; 0: each epoch only */
    gw_checks_mark mark; /* so far; of the guard's fields and of frames: of earlier starts */
    uint64_t rehearsed;  /* frames before the run, on this rank */
} gw_checks;

/** Over all ranks, for reports. */
typedef struct gw_checks_total {
    int64_t comparisons;
    double compare_s; /* of this rank, of all comparisons */
    int ranks;
    gw_guard_total nan;
    bool framed;
    uint64_t frames; /* checked; 0 if not framed */
} gw_checks_total;

/** Before MPI starts: GW_ERR_UNSUPPORTED for --verify-every and --eval-every where replicas agree
 *  at the end of an epoch only. */
gw_err gw_checks_refuse(const gw_train_config *c, const gradwire *g);

/** For a handle that is open; the layers must outlive it, as must `number`, what they are in the
 *  whole model (NULL: these are all). `replicas`: the ranks that hold equal parameters. No
 *  communication. */
void gw_checks_open(gw_checks *k, const gw_train_config *c, gradwire *g, MPI_Comm comm,
                    MPI_Comm replicas, const gw_span *layers, int n_layers, const int *number);

gw_checks_mark gw_checks_keep(const gw_checks *k);
void gw_checks_resume(gw_checks *k, const gw_checks_mark *mark);

/** Add another rank's mark to *sum, except for what each rank counts for itself (bad_steps): for a
 *  run that resumes with another number of ranks. */
void gw_checks_add(gw_checks_mark *sum, const gw_checks_mark *other);
/** Clear what the sum already holds, for the ranks that do not hold the sum. */
void gw_checks_clear(gw_checks_mark *mark);

/** The next step is the first of this start of the run: frames so far were of rehearsals. */
void gw_checks_begin(gw_checks *k);

/** True if the replicas are to be compared after this step (if they agree then). Nothing may be
 *  pending. */
bool gw_checks_due(const gw_checks *k, int64_t step);

/** Collective, with nothing pending: compare the replicas, and see that they are finite.
 *  GW_ERR_DIVERGED on all ranks, as gw_replicas_compare and gw_guard_params say it. */
gw_err gw_checks_compare(gw_checks *k, int64_t step, uint32_t *hash);

/** After a step, with nothing pending if a comparison is due: compare. Where replicas agree only
 *  after some steps, the comparison waits for the next of these. */
gw_err gw_checks_step(gw_checks *k, int64_t step);

/** Collective. gw_checks_free also after a failure. */
gw_err gw_checks_collect(const gw_checks *k, gw_checks_total *out);
void gw_checks_free(gw_checks_total *t);

/** For run.json, at rank 0. */
json_t *gw_checks_json(const gw_checks_total *t);

#endif
