/** What a checkpoint's manifest says of the run that wrote it, and what that means for a run that
 *  resumes from it. No MPI. */
#ifndef GW_CHECKPOINT_FACTS_H
#define GW_CHECKPOINT_FACTS_H

#include "api/inside.h"
#include "checkpoint/notes.h"
#include "config/config.h"
#include "mesh/pipeline.h"

#include <jansson.h>

/** Of the run that writes, or of the one that reads; plain values. */
typedef struct gw_facts_of {
    const gw_train_config *c;
    const gw_data *data;
    const gw_mesh *mesh;         /* opened */
    const gw_pipeline *pipeline; /* divided; NULL: none */
    const gradwire *g;           /* opened, to write */
    const char *codec, *algo;    /* that it chose for itself; NULL: they were named. To write */
    size_t parameters;
    int ranks, global_batch;
    int64_t schedule; /* the step that the rate's schedule ends with; 0: none */
    const gw_optimizer *optimizer;
} gw_facts_of;

/** A new object, or NULL without memory. */
json_t *gw_facts_make(const gw_facts_of *run);

/** GW_ERR_INPUT: this run cannot resume from such facts: it was trained on other
 * data, with another model, seed or batch. `from` names the checkpoint. */
gw_err gw_facts_check(const json_t *facts, const gw_facts_of *run, const char *from);

/** True if each rank resumes with exactly what it had: as many ranks, the same part of the model on
 *  each of them, the same exchange. */
bool gw_facts_whole(const json_t *facts, const gw_facts_of *run);

/** True if what was collected of the epoch for codec.csv goes on, too. */
bool gw_facts_statistics(const json_t *facts, const gw_facts_of *run);

/** True if the run resumes with all that the checkpoint knows of its best epoch; false: the model
 *  of that epoch is wanted (--save-model best), and is not there. */
bool gw_facts_best(const json_t *facts, const gw_facts_of *run);

/** What each rank's file has of the optimizer's state, and what becomes of it. */
typedef struct gw_facts_state {
    bool same; /* it is the same optimizer, so its count of updates continues */
    int count; /* of vectors, with these names: */
    const char *name[GW_OPTIMIZER_VECTORS];
    int to[GW_OPTIMIZER_VECTORS]; /* which vector of this run it is; -1: none */
} gw_facts_state;
gw_facts_state gw_facts_vectors(const json_t *facts, const gw_optimizer *o);

/** Note what is dropped. `inside`: the checkpoint lies within an epoch. GW_ERR_NOMEM. */
gw_err gw_facts_dropped(const json_t *facts, const gw_facts_of *run, bool inside, gw_notes *to);

/** Note what is other than then and makes the steps before and after differ in kind (a rate, a
 *  strategy, threads, the number of ranks), likewise. */
gw_err gw_facts_changed(const json_t *facts, const gw_facts_of *run, gw_notes *to);

/** Before this run's model is divided: how it was cut into stages, if that was measured on the same
 *  mesh and this run would measure it again; NULL: measure. Owned by `facts`. */
const char *gw_facts_stages(const json_t *facts, const gw_facts_of *run);

/** What was chosen then; NULL, NULL and "": nothing. Owned by `facts`. */
void gw_facts_choices(const json_t *facts, const char **codec, const char **algo,
                      const char **table);

#endif
