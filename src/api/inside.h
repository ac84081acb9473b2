/** What the program that lives in one binary with the library asks of a handle beyond the public
 *  header: to make it of what it has parsed, to see results where they lie instead of having them
 *  copied, to leave out a step, and to tell of the exchange in its reports. The trainer includes
 *  this and <gradwire.h>, and nothing else of the library.
 *
 *  A handle of gw_inside_new is as any other, with four exceptions. A process may have several.
 *  Parameters and gradients lie in the library's memory, gradients divided by the global batch. It
 *  has no files and no ledger: those of the run are the program's. And errors are gw_err, which do
 *  not end the exchange: the program knows what other ranks learn of, and when to stop. */
#ifndef GW_API_INSIDE_H
#define GW_API_INSIDE_H

#include "base/io.h"
#include "comm/strategy.h"
#include "optim/optimizer.h"
#include "run/codec_stats.h"
#include "run/unmet.h"

#include <gradwire.h>
#include <jansson.h>

struct gw_session;

/** A handle over a session that is not open yet, owned from now on, after an error too. No MPI
 *  call; gradwire_close it. */
gw_err gw_inside_new(gradwire **out, struct gw_session *session);

/** A handle for the blocking twin of one that was made of `comm`, `compress` and `feedback`. The
 *  twin's strategy is allreduce or, where that would not repeat the updates, the same. */
gw_err gw_inside_twin(gradwire **out, const gradwire *of, const gw_spec *comm,
                      const gw_spec *compress, const char *feedback);
bool gw_inside_repeats(const gradwire *of); /* it is the same */

/** What is exchanged, and how, in plain values. */
typedef struct gw_inside_facts {
    const char *strategy, *algorithm; /* algorithm NULL: as long as nothing is bound */
    const gw_codec *codec;            /* the first; likewise */
    bool one;                         /* codec for all tensors */
    bool lossless;                    /* so are all codecs */
    bool ordered;                     /* the first algorithm calls collectives of MPI */
    bool framed;
    unsigned traits; /* of the strategy, as comm/strategy.h has them, */
    gw_strategy_shape shape;
    struct {
        bool ready, publish, await, state;
    } hooks;                     /* those that it has */
    bool polls;                  /* progress has something to do */
    bool agrees;                 /* replicas do at times, without being settled */
    bool feedback;               /* error feedback, of any codec that encodes */
    const gw_unmet *unmet;       /* what was asked for and does not happen; once it is open */
    bool corrects;               /* it applies momentum in the optimizer's place, */
    bool masks;                  /* and starts it anew where an element was sent */
    const char *rule;            /* of error feedback, for people; NULL: the plain one */
    bool adds;                   /* gw_inside_sums finds a place; of several ranks */
    bool residual;               /* one is kept; once it is open */
    float most;                  /* gw_session_most; likewise */
    int servers, helpers, level; /* see run/session.h */
    const char *notes;           /* for people; once it is open */
    const gw_args *options;      /* the strategy's own */
} gw_inside_facts;
gw_inside_facts gw_inside_know(const gradwire *g);
bool gw_inside_cuts(const gradwire *g); /* this rank updates parts of tensors; once it is open */
/** Once it is open. GW_ERR_UNSUPPORTED: the strategy hands out directions of an update, and this
 *  rule would make something else of them. */
gw_err gw_inside_suits(const gradwire *g, const gw_optimizer *o);

/** Before gradwire_open: the tensor's layer in a whole model, in which groups are others, and
 *  whether it tracks (gw_tensor). */
void gw_inside_tensor(gradwire *g, int tensor, int layer, bool tracks);

/** Before gradwire_open: what it does not take from words. Pointers must outlive the handle. */
typedef struct gw_inside_setup {
    MPI_Comm comm;       /* the replicas' */
    int model_layers;    /* of the whole model, of which the tensors are a part; 0: all */
    bool in_rows;        /* a matrix has a row for each input of its layer */
    bool lazy;           /* groups are finished one by one */
    bool lists;          /* gw_update may list what it touches */
    bool undo;           /* steps may be left out */
    bool yield;          /* the node runs more threads than cores */
    const float *params; /* initial values, copied; NULL: zeros */
    gw_vectors vectors;  /* the optimizer's state */
    float correction;    /* momentum of an exchange that corrects */
    double clip; /* of the mean gradient's norm, over this exchange and over the ranks that */
    const MPI_Comm *rest; /* hold the rest of the model, by n_rest communicators; 0: nothing is */
    int n_rest;
    gw_pace pace; /* zeros: not known */
    uint64_t seed;
    const char *note, *table; /* a line for its notes; choices of algo=auto; both may be NULL */
} gw_inside_setup;
void gw_inside_tell(gradwire *g, const gw_inside_setup *setup);

/** In a batch, before the backward pass: the exchange begins, unless it has. Where the pass is to
 *  add gradients; NULL: it writes them to gradwire_memory. */
gw_err gw_inside_sums(gradwire *g, float **sums);

/** What the last gradwire_finish came to: gradients that still lack the factor `scale`. */
const gw_update *gw_inside_update(const gradwire *g);

/** The present step is void, or not: after its backward pass, and before its update. */
void gw_inside_leave_out(gradwire *g, bool out);
/** Is it void as a whole on all ranks? Then, unless the strategy starts its exchange in `ready`,
 *  gw_inside_abandon ends the exchange that has not begun: nothing is pending any more. */
bool gw_inside_leaves_out(const gradwire *g);
void gw_inside_abandon(gradwire *g);
/** Nothing of the void step is under way: what it changed of the exchange is as before it. */
void gw_inside_undo(gradwire *g);

/** With nothing pending, within a batch: settle, as gradwire_settle does between batches. */
gw_err gw_inside_drain(gradwire *g);

/** Will replicas agree without being settled, once `steps` more are published? */
bool gw_inside_agrees(const gradwire *g, int steps);

/** With nothing pending: drain, then save or load all that the exchange carries. */
gw_err gw_inside_state(gradwire *g, gw_io *io);
/** `steps` were done by an exchange whose state is not loaded. */
void gw_inside_count_on(gradwire *g, int64_t steps);

/** Bytes of float32 that were exchanged so far; `bytes` more are, by others. */
uint64_t gw_inside_logical(const gradwire *g);
void gw_inside_count(gradwire *g, uint64_t bytes);
/** Frames that were checked so far. */
uint64_t gw_inside_frames(const gradwire *g);

/** Of a handle with a ledger, on rank 0: gradwire_close leaves what is in run.json in *run, also
 *  where there is no --out; NULL after an error. */
void gw_inside_keep(gradwire *g, json_t **run);

/** What an exchange of `span`, of gradients or of parameters, is in the log of exchanges. */
gw_exchange gw_inside_exchange(const gradwire *g, gw_span span, bool params);

/** Collective: statistics of its codecs; see run/codec_stats.h. */
gw_err gw_inside_stats(gw_codec_stats **out, gradwire *g, int every, gw_rows *files, MPI_Comm comm);

/** Collective over `comm`, of which the replicas' is a part: find anew what is unmet; see
 *  run/unmet.h. Then add to it. */
gw_err gw_inside_unmet(gradwire *g, gw_unmet_ask ask, MPI_Comm comm);
void gw_inside_unmet_add(gradwire *g, const char *option, const char *value, const char *what,
                         const char *why);
/** What was encoded so far was a rehearsal: it counts from here on. */
void gw_inside_recount(gradwire *g);

/** For run.json, with rows of gw_codec_stats_epoch or NULL. */
json_t *gw_inside_json(const gradwire *g, const gw_codec_row *rows, const char *warning);
/** What algo=auto chose, if it did: to algo.csv in the folder `dir`; its text, for free(). */
gw_err gw_inside_write_choices(const gradwire *g, const char *dir);
char *gw_inside_choices(const gradwire *g);

#endif
