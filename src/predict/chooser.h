/** Choosing codec and algorithm by simulation: `--compress auto`, `--forecast` and `gradwire plan`.
 *
 *  The spec "auto[:codecs=(A;B),algos=(C;D),budget=S,margin=X]" is checked before MPI starts. Then
 *  the parts of a step are measured on the ranks: the model's layers (predict/profile.h), the links
 *  (predict/link.h), each codec's speed and size on a gradient of the model (predict/codec.h), and
 *  whole exchanges where an algorithm sends no messages of its own (predict/exchange.h). Each codec
 *  with each algorithm that can carry it under the strategy is played with these parts
 *  (play/play.h), and the shortest step wins; but `none` does unless the gain exceeds the margin.
 *  All ranks choose by rank 0's figures, so alike. */
#ifndef GW_PREDICT_CHOOSER_H
#define GW_PREDICT_CHOOSER_H

#include "base/probe.h"
#include "config/config.h"
#include "links/curve.h"
#include "predict/profile.h"

#include <jansson.h>

struct gw_codec;
struct gw_session;
struct gw_strategy;

/** Codecs that keep the accuracy of uncompressed training by their defaults. Biased ones do with
 *  error feedback and plain SGD, but lose with momentum: left out of the default there. */
#define GW_CHOOSER_CODECS "none;fp16;qsgd:bits=8;qsgd:bits=4;topk:ratio=0.01"

enum { GW_CHOOSER_MOST = 512 };

/** A codec with an algorithm, and what is predicted for it. */
typedef struct gw_candidate {
    double step_s; /* which comes first, for the order; the sum of the next three: */
    double local_s, codec_s, exposed_s; /* computation, coding and the rest, of which an exchange
                                           that is measured whole is part */
    int nth_codec, nth_algo;            /* of gw_chooser's */
    const char *codec, *algo;           /* their specs */
    bool feedback, plain;               /* plain: no compression, frames aside */
    bool leads;                         /* no other one of its codec is shorter */
    double sent;                        /* bytes that a rank hands to MPI */
    double bytes, price[GW_CODINGS];    /* per float: of an encoding, seconds of coding */
    gw_curve exchange;                  /* measured whole; n == 0: its messages were played */
    double measured_s;                  /* of a step; NaN: not measured */
} gw_candidate;

typedef struct gw_chooser {
    gw_args *args; /* of the spec; NULL: somebody else's */
    gw_spec codec[GW_SPEC_ITEMS];
    int n_codecs;
    const gw_spec *algos; /* the first of those listed; NULL: all there are */
    bool default_codecs;
    bool dropped; /* some of the default codecs, for momentum */
    bool named;   /* codec and algorithm are known: they are predicted, nothing is chosen */
    double budget_s, margin;
    struct gw_session *session;
    const struct gw_strategy *strategy; /* the session's */
    const gw_train_config *config;      /* what it was made of */
    gw_spec algo[GW_SPEC_ITEMS];        /* specs of algorithms */
    int n_algos;
    /* after gw_chooser_settle: */
    gw_layer_times times;
    json_t *link, *memory;   /* between the ranks; null where there is none */
    gw_candidate *candidate; /* by predicted step, the shortest first */
    int n, chosen, plain;    /* plain: the best without compression; -1: there is none */
    int ranks, nodes;
    double measured_s; /* the run's step, for the report; NaN: not yet */
    char why[512];     /* the choice in a line */
} gw_chooser;

/** For a session that has been made of c->comm, c->compress and c->feedback; no MPI call. Where it
 *  has no codec, *out chooses one among what c->compress lists, which is `auto`, or, if not NULL,
 *  `args`: a command's options of the same names. Else *out stays NULL, or, with `forecast`,
 *  predicts the step of the codec named. Free it. GW_ERR_USAGE: a malformed spec, a codec or an
 *  algorithm that does not exist. GW_ERR_UNSUPPORTED: nothing of it can be combined, or steps by
 *  the strategy cannot be predicted. */
gw_err gw_chooser_open(gw_chooser **out, struct gw_session *session, const gw_train_config *c,
                       const gw_args *args, bool forecast);
void gw_chooser_free(gw_chooser *a);

/** The algorithm that the strategy's own option names, so that only the codec is chosen; or
 *  NULL. */
const gw_spec *gw_chooser_named(const gw_chooser *a);

typedef struct gw_chooser_job {
    gw_layer_job steps; /* without `warmup`, `least`, `most` and `enough_s` */
    int nodes;          /* that the ranks are on: those of one exchange through its memory */
    bool yield;         /* a node runs more threads than cores */
    bool check;         /* see only whether there is anything to choose among; measure nothing */
    const char *codec, *algo; /* the choice of an earlier start of the run; NULL: none */
} gw_chooser_job;

/** Before gw_session_open: measure, predict, choose - or, with job->codec, choose that again - and
 *  bind the session. The model's gradients are overwritten, nothing else of it. Nothing to do where
 *  `a` is NULL. GW_ERR_UNSUPPORTED: job->codec is no candidate any more. Collective. */
gw_err gw_chooser_settle(gw_chooser *a, const gw_chooser_job *job);

/** Does it choose the codec, rather than predict, or is it NULL? */
bool gw_chooser_chooses(const gw_chooser *a);

/** Everything predicted, for run.json and `gradwire plan --json`; NULL without memory. */
json_t *gw_chooser_json(const gw_chooser *a);

/** Is a step shorter than a plain one by more than `margin` of that? Never compress for a gain that
 *  a prediction cannot be sure of. */
static inline bool gw_chooser_gains(double step_s, double plain_s, double margin) {
    return step_s < (1 - margin) * plain_s;
}

#endif
