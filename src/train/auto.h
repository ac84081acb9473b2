/** Choosing codec and algorithm by the cost model: `--compress auto` and `gradwire plan`.
 *
 *  The spec "auto[:codecs=(A;B),algos=(C;D),budget=S,margin=X]" is read before MPI starts; then, on
 *  the ranks, everything is measured once (train/survey.h), each codec is combined with each
 *  algorithm that can carry it under the strategy, and the shortest predicted step
 *  (train/forecast.h) wins; but `none` does unless the gain exceeds the margin. All ranks choose by
 *  the same reduced figures, so alike. */
#ifndef GW_TRAIN_AUTO_H
#define GW_TRAIN_AUTO_H

#include "base/list.h"
#include "comm/strategy.h"
#include "train/survey.h"

#include <jansson.h>

/** Codecs that keep the accuracy of uncompressed training by their defaults. Biased ones do with
 *  error feedback and plain SGD, but lose with momentum: left out of the default there. */
#define GW_AUTO_CODECS "none;fp16;qsgd:bits=8;qsgd:bits=4;topk:ratio=0.01"

enum { GW_AUTO_MOST = 512, GW_AUTO_SPEC = 128 };

/** A codec with an algorithm, and what is predicted for it. */
typedef struct gw_candidate {
    char codec[GW_AUTO_SPEC], algo[GW_AUTO_SPEC];
    bool feedback, plain; /* plain: no compression, frames aside */
    gw_way way;
    gw_forecast forecast;
    double measured_s; /* of a step; NaN: not measured */
} gw_candidate;

typedef struct gw_auto {
    gw_args *args;
    gw_list codecs, algos; /* algos.n == 0: all there are */
    bool default_codecs, wire_check;
    bool dropped; /* some of the default codecs, for momentum */
    bool named;   /* codec and algorithm are known: they are predicted, nothing is chosen */
    double budget_s, margin;
    const gw_strategy *strategy; /* the session's */
    char feedback[16];           /* on, off or auto */
    /* after gw_auto_run: */
    gw_local local;
    gw_algo_survey *algo;
    int n_algos;
    gw_candidate *candidate; /* by predicted step, the shortest first */
    int n, chosen, plain;    /* plain: the best without compression; -1: there is none */
    int ranks, nodes;
    double measured_s; /* the run's step, for the report; NaN: not yet */
    float *params, *gradient;
    char why[512]; /* the choice in a line */
} gw_auto;

/** True if this is how `--compress` asks for a choice. */
bool gw_auto_wanted(const char *compress);

/** Read the spec; no MPI call. `strategy` must outlive it; `wire_check` as in
 *  gw_session_new. GW_ERR_USAGE: malformed, or a codec or
 *  algorithm that does not exist, a `feedback` that needs a certain codec. GW_ERR_UNSUPPORTED:
 * nothing of it can be combined, or the cost model does not know the strategy. */
gw_err gw_auto_new(gw_auto **out, const char *compress, const gw_strategy *strategy,
                   const char *feedback, bool wire_check);
/** Likewise for a codec and an algorithm that a session was told by name: only a prediction.
 * `algo`: the one in use, where the strategy's options name none. */
gw_err gw_auto_foresee(gw_auto **out, const gw_strategy *strategy, const char *compress,
                       const char *algo, const char *feedback, bool wire_check);
void gw_auto_free(gw_auto *a);

/** True if the strategy's own option names the algorithm, so that only the codec is chosen. */
bool gw_auto_algo_named(const gw_auto *a);

typedef struct gw_auto_job {
    gw_rehearsal rehearsal;
    bool lazy, yield;
    bool check; /* see only whether there is anything to choose among; measure nothing */
    uint64_t seed;
} gw_auto_job;

/** Collective: measure, predict, choose. Afterwards the model works on a->params and a->gradient,
 * as gw_survey_step leaves it; they live as long as `a`. */
gw_err gw_auto_run(gw_auto *a, const gw_auto_job *job);

/** After gw_auto_run: choose this candidate whatever is predicted, since a run that is taken up
 * again had it before. GW_ERR_UNSUPPORTED: it is none any more. */
gw_err gw_auto_retake(gw_auto *a, const char *codec, const char *algo);

/** After gw_auto_run: the predicted step of what was chosen, seconds. */
double gw_auto_predicted(const gw_auto *a);

/** Everything predicted, for run.json and `gradwire plan --json`; NULL without memory. */
json_t *gw_auto_json(const gw_auto *a);

#endif
