/** What a program in the same binary as the library needs beyond the public header: to make a
 *  handle from parsed options, to read results in place, without copies, to leave out a step, and
 *  to report on the exchange. The trainer includes this and <gradwire.h>, and nothing else of the
 *  library.
 *
 *  A handle of gw_inside_new differs from others in four ways. A process may have several.
 *  Parameters and gradients lie in the library's memory, gradients divided by the global batch. It
 *  has no files and no ledger: the program has those of the run. Errors are gw_err and do not end
 *  the exchange: the program knows which errors reach other ranks, and when to stop. */
#ifndef GW_API_INSIDE_H
#define GW_API_INSIDE_H

#include "base/io.h"
#include "base/steady.h"
#include "comm/strategy.h"
#include "optim/optimizer.h"
#include "run/codec_stats.h"
#include "run/unmet.h"

#include <gradwire.h>
#include <jansson.h>

struct gw_session;

/** Make a handle over a session that is not open yet. It owns the session from now on, also after
 *  an error. No MPI call; gradwire_close it. */
gw_err gw_inside_new(gradwire **out, struct gw_session *session);

/** What is exchanged, and how, in plain values. */
typedef struct gw_inside_facts {
    const char *strategy, *algorithm; /* algorithm NULL: nothing is bound yet */
    const gw_codec *codec;            /* the first; likewise */
    bool one;                         /* one codec for all tensors */
    bool lossless;                    /* all codecs are */
    bool ordered;                     /* the first algorithm calls collectives of MPI */
    bool framed;
    gw_strategy_plan plan; /* of the strategy (comm/strategy.h), */
    gw_strategy_shape shape;
    gw_gives gives;
    int level; /* the MPI thread level that it needs */
    struct {
        bool ready, await, state;
    } hooks;           /* those that it has */
    bool synchronous;  /* replicas agree after each step */
    bool lossy;        /* it compresses by itself */
    bool feedback;     /* error feedback, for any codec that encodes */
    gw_unmet *unmet;   /* what was asked for and does not happen; may be added to */
    bool corrects;     /* it applies momentum in place of the optimizer, */
    bool masks;        /* and restarts it where an element was sent */
    const char *rule;  /* of error feedback, for people; NULL: the plain one */
    bool residual;     /* one is kept; once it is open */
    float most;        /* gw_session_most of equal shares; likewise */
    const char *notes; /* for people; once it is open */
} gw_inside_facts;
gw_inside_facts gw_inside_know(const gradwire *g);
bool gw_inside_cuts(const gradwire *g); /* this rank updates parts of tensors; once it is open */
/** Check, once it is open, that the rule suits the exchange. GW_ERR_UNSUPPORTED: the strategy
 *  returns directions of an update, which this rule would change. */
gw_err gw_inside_suits(const gradwire *g, const gw_optimizer *o);

/** Before gradwire_open: set the tensor's layer in the whole model, if groups are not its layers,
 *  and whether it tracks (gw_tensor). */
void gw_inside_tensor(gradwire *g, int tensor, int layer, bool tracks);

/** What it does not take from words, set before gradwire_open. Pointers must outlive the handle. */
typedef struct gw_inside_setup {
    MPI_Comm comm;       /* the replicas' */
    int model_layers;    /* of the whole model, if the tensors are a part of it; 0: they are all */
    bool in_rows;        /* a matrix has a row for each input of its layer */
    bool lazy;           /* groups are finished one by one */
    bool lists;          /* gw_update may list what it touches */
    bool undo;           /* steps may be left out */
    bool yield;          /* the node runs more threads than cores */
    const float *params; /* initial values, copied; NULL: zeros */
    gw_vectors vectors;  /* the optimizer's state, */
    float most;          /* and its limit (optim/optimizer.h) */
    float correction;    /* momentum of an exchange that corrects */
    double clip;         /* most norm of the mean gradient, over this exchange and the ranks with */
    const MPI_Comm *rest; /* the rest of the model, in n_rest communicators; clip 0: none */
    int n_rest;
    double link_bytes_per_s; /* 0: not known */
    uint64_t seed;
    const char *note, *table; /* a line for its notes; choices of algo=auto; both may be NULL */
} gw_inside_setup;
void gw_inside_tell(gradwire *g, const gw_inside_setup *setup);

/** In a batch, before the backward pass: begin the exchange, unless it has begun. *sums: where the
 *  pass must add gradients; NULL: it writes them to gradwire_memory. */
gw_err gw_inside_sums(gradwire *g, float **sums);

/** Return the update of the last gradwire_finish: gradients still to be multiplied by `scale`. */
const gw_update *gw_inside_update(const gradwire *g);

/** Say whether the present step is void: after its backward pass, and before its update. */
void gw_inside_leave_out(gradwire *g, bool out);
/** Is it void as a whole on all ranks? Then, unless the strategy starts its exchange in `ready`,
 *  gw_inside_abandon ends the exchange that has not begun: nothing is pending any more. */
bool gw_inside_leaves_out(const gradwire *g);
void gw_inside_abandon(gradwire *g);
/** Undo what a void step, with nothing under way, has changed in the exchange. */
void gw_inside_undo(gradwire *g);

/** With nothing pending, within a batch: settle, as gradwire_settle does between batches. */
gw_err gw_inside_drain(gradwire *g);

/** Will replicas agree without being settled, once `steps` more are published? */
bool gw_inside_agrees(const gradwire *g, int steps);

/** Do all ranks decide whether the present step is void, and leave it out as one? */
bool gw_inside_together(const gradwire *g);
/** Is it void, so that there is nothing to update? */
bool gw_inside_voids(const gradwire *g);

/** With nothing pending: drain, then save or load all that the exchange carries. */
gw_err gw_inside_state(gradwire *g, gw_io *io);
/** Continue after `steps` of an exchange whose state is not loaded. */
void gw_inside_count_on(gradwire *g, int64_t steps);

/** Return the float32 bytes that were exchanged so far. */
uint64_t gw_inside_logical(const gradwire *g);
/** Return the number of frames checked so far. */
uint64_t gw_inside_frames(const gradwire *g);

/** For a handle with a ledger, on rank 0: make gradwire_close leave the contents of run.json in
 *  *run, also without --out; NULL after an error. */
void gw_inside_keep(gradwire *g, json_t **run);

/** Return how the exchange repeats from step number `from` (0, 1, ..) on. */
gw_repeat gw_inside_repeat(const gradwire *g, int64_t from);

/** Return its session, for record/recorder.h. */
struct gw_session *gw_inside_session(const gradwire *g);

/** Find anew what is unmet; see run/unmet.h. Collective over `comm`, which has the replicas. */
gw_err gw_inside_unmet(gradwire *g, gw_unmet_ask ask, MPI_Comm comm);
/** Count encodings from here on: all before was a rehearsal. */
void gw_inside_recount(gradwire *g);

/** Put its codecs into out[0..n), at most GW_INSIDE_CODECS; return n. */
int gw_inside_codecs(gradwire *g, gw_codec **out);
enum { GW_INSIDE_CODECS = GW_MIX_CODECS + 1 };

/** For run.json, with rows of gw_codec_stats_epoch or NULL. */
json_t *gw_inside_json(const gradwire *g, const gw_codec_row *rows, const char *warning);
/** Write what algo=auto chose, if it did, to algo.csv in folder `dir`; return its text; free(). */
gw_err gw_inside_write_choices(const gradwire *g, const char *dir);
char *gw_inside_choices(const gradwire *g);

#endif
