/** Choosing codec and algorithm by the cost model: `--compress auto` and `gradwire plan`.
 *
 *  The spec "auto[:codecs=(A;B),algos=(C;D),budget=S,margin=X]" is checked before MPI starts; then,
 *  on the ranks, everything is measured once (select/survey.h), each codec is combined with each
 *  algorithm that can carry it under the strategy, and the shortest predicted step
 *  (select/forecast.h) wins; but `none` does unless the gain exceeds the margin. All ranks choose
 *  by the same reduced figures, so alike. */
#ifndef GW_SELECT_CHOOSER_H
#define GW_SELECT_CHOOSER_H

#include "config/config.h"
#include "select/survey.h"

#include <jansson.h>

struct gw_session;
struct gw_strategy;
struct gw_strategy_ops;

/** Codecs that keep the accuracy of uncompressed training by their defaults. Biased ones do with
 *  error feedback and plain SGD, but lose with momentum: left out of the default there. */
#define GW_CHOOSER_CODECS "none;fp16;qsgd:bits=8;qsgd:bits=4;topk:ratio=0.01"

enum { GW_CHOOSER_MOST = 512 };

/** Whether the cost model knows the strategy's exchange. */
bool gw_chooser_knows(const struct gw_strategy_ops *ops);

/** What a strategy that it knows exchanges, and when: all of `shape` that follows from its layers
 *  and `lazy`. */
gw_err gw_chooser_shape(const struct gw_strategy *strategy, gw_shape *shape);

/** A codec with an algorithm, and what is predicted for it. */
typedef struct gw_candidate {
    int nth_codec, nth_algo;  /* of gw_chooser's */
    const char *codec, *algo; /* their specs */
    bool feedback, plain;     /* plain: no compression, frames aside */
    gw_way way;
    gw_forecast forecast;
    double measured_s; /* of a step; NaN: not measured */
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
    /* after gw_chooser_settle: */
    gw_local local;
    gw_algo_survey *algo;
    int n_algos;
    gw_candidate *candidate; /* by predicted step, the shortest first */
    int n, chosen, plain;    /* plain: the best without compression; -1: there is none */
    int ranks, nodes;
    double measured_s; /* the run's step, for the report; NaN: not yet */
    float *params, *gradient;
    char why[512]; /* the choice in a line */
} gw_chooser;

/** For a session that has been made of c->comm, c->compress and c->feedback; no MPI call. Where it
 *  has no codec, *out chooses one among what c->compress lists, which is `auto`, or, if not NULL,
 *  `args`: a command's options of the same names. Else *out stays NULL, or, with `forecast`,
 *  predicts the step of the codec named. Free it. GW_ERR_USAGE: a malformed spec, a codec or an
 *  algorithm that does not exist. GW_ERR_UNSUPPORTED: nothing of it can be
 *  combined, or the cost model does not know it. */
gw_err gw_chooser_open(gw_chooser **out, struct gw_session *session, const gw_train_config *c,
                       const gw_args *args, bool forecast);
void gw_chooser_free(gw_chooser *a);

/** After gw_chooser_settle: a session of a candidate's own, beside the one chosen for. */
gw_err gw_chooser_session(const gw_chooser *a, const gw_candidate *c, struct gw_session **out);

/** The algorithm that the strategy's own option names, so that only the codec is chosen; or
 *  NULL. */
const gw_spec *gw_chooser_named(const gw_chooser *a);

/** *ok: that codec can be had by this algorithm under the strategy; if not, the last message tells
 *  why. */
gw_err gw_chooser_combine(const gw_chooser *a, const gw_codec *codec, const gw_spec *spec,
                          bool *ok);

typedef struct gw_chooser_job {
    gw_rehearsal rehearsal;
    int nodes; /* that the ranks are on: those of one exchange through its memory */
    bool lazy, yield;
    bool check; /* see only whether there is anything to choose among; measure nothing */
    uint64_t seed;
    const char *codec, *algo; /* the choice of an earlier start of the run; NULL: none */
} gw_chooser_job;

/** Collective, before gw_session_open: measure, predict, choose - or, with job->codec, choose that
 *  again - and bind the session. Afterwards the model works on a->params and a->gradient, as
 *  gw_survey_step leaves it; they live as long as `a`. Nothing to do where `a` is NULL.
 *  GW_ERR_UNSUPPORTED: job->codec is no candidate any more. */
gw_err gw_chooser_settle(gw_chooser *a, const gw_chooser_job *job);

/** Does it choose the codec, rather than predict, or is it NULL? */
bool gw_chooser_chooses(const gw_chooser *a);

/** What it chose; NULL: nothing yet, or it only predicts, or `a` is NULL. */
const gw_candidate *gw_chooser_choice(const gw_chooser *a);

/** After gw_chooser_settle: the predicted step of what was chosen, seconds. */
double gw_chooser_predicted(const gw_chooser *a);

/** Everything predicted, for run.json and `gradwire plan --json`; NULL without memory. */
json_t *gw_chooser_json(const gw_chooser *a);
json_t *gw_chooser_points(const gw_curve *c); /* of a curve, for either */

#endif
