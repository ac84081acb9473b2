/** Resuming: find the checkpoint, check it, and load its state into a run about to start. */
#ifndef GW_CHECKPOINT_RESUME_H
#define GW_CHECKPOINT_RESUME_H

#include "checkpoint/best.h"
#include "checkpoint/facts.h"
#include "checkpoint/position.h"
#include "folder/store.h"

/** Zeroed before the first use. */
typedef struct gw_resume {
    char path[GW_STORE_PATH];   /* the checkpoint's folder; "": none to resume from */
    gw_store_manifest manifest; /* on all ranks */
    bool whole, statistics;     /* each rank resumes with all that it had; also with its sums */
    bool best;                  /* and with the best epoch so far */
    gw_facts_state state;       /* of the optimizer */
    gw_position at;
    /* Chosen then, for a run that goes on just as it was; NULL: nothing. table: by algo=auto. */
    const char *codec, *algo, *table;
    gw_notes notes;         /* rank 0 has those that it alone could make */
    gw_io_memory collected; /* for gw_resume_statistics */
} gw_resume;

/** Collective: look for the checkpoint that c->resume names. With "auto" there may be none: that is
 *  noted, as are damaged ones that were passed over. GW_ERR_INPUT: there is none, or it is damaged.
 */
gw_err gw_resume_find(gw_resume *r, const gw_train_config *c, MPI_Comm comm);

/** Collective, before the session chooses: GW_ERR_INPUT where the run of the checkpoint could not
 * go on as this one, or, with c->resume_strict, could not with all that it had. What algo=auto
 * chose then is handed to `session`. Nothing to do where nothing was found; likewise below. */
gw_err gw_resume_check(gw_resume *r, const gw_facts_of *run, MPI_Comm comm);

/** Collective over `comm`, all ranks of `mesh`, with session and pipeline open and nothing under
 *  way: put parameters, the optimizer's state and what the exchange carries in place, and fill
 *  r->at. With other ranks, another mesh or another exchange than then, parameters and state are
 *  those that the ranks agreed on, or their mean. */
gw_err gw_resume_load(gw_resume *r, gw_stepper *t, const gw_mesh *mesh, MPI_Comm comm);

/** Collective, right before the first step: what was collected of the epoch. */
gw_err gw_resume_statistics(gw_resume *r, gw_codec_stats *stats, MPI_Comm comm);

/** The best epoch so far; its model into b->params, if that is wanted; `model`: the run's own. */
gw_err gw_resume_best(const gw_resume *r, gw_best *b, const gw_spec *model);

/** Rank 0, in the folder of the run that wrote it, when nothing is left that could be refused:
 *  complete checkpoints that were written after the one resumed from are removed and noted. Their
 *  rows were cut off. */
gw_err gw_resume_forget_later(gw_resume *r, const char *out);

void gw_resume_free(gw_resume *r);

#endif
