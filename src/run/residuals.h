/** The rules of --error-feedback: which codecs keep a residual, where momentum is applied, and what
 *  is exchanged in place of the gradient.
 *
 *  ef21: P. Richtarik, I. Sokolov, I. Fatkhullin, "EF21", NeurIPS 2021, with the momentum of
 *  I. Fatkhullin, A. Tyurin, P. Richtarik, "Momentum provably improves error feedback!",
 *  NeurIPS 2023 (EF21-SGDM). With rank i's gradient g_i
 *
 *      v_i += eta (g_i - v_i);  c_i = C(v_i - e_i);  e_i += c_i;  e += mean of c_i
 *
 *  and e is the result. With r_i = v_i - e_i, what C dropped so far, v_i - e_i of the next step is
 *  r_i plus the change of v_i: plain error feedback on eta (g_i - v_i). So, besides a lane's
 *  residual, it needs only v_i and e. It starts dense: v_i = g_i, and e is the exact mean, by one
 *  more sum in the first step.
 *
 *  loco: X. Xie, Z. Lin, K.-C. Toh, P. Zhou, "LoCo: Low-bit communication adaptor for large-scale
 *  model training", 2024. The residual is a moving average of what was dropped, e = beta e +
 *  (1 - beta) (h - decode(encode(h))) with h = g + e, and is zero again every `reset` steps. */
#ifndef GW_RUN_RESIDUALS_H
#define GW_RUN_RESIDUALS_H

#include "comm/mix.h"
#include "comm/strategy.h"

typedef enum gw_feedback_rule {
    GW_FEEDBACK_PLAIN,
    GW_FEEDBACK_MOMENTUM,
    GW_FEEDBACK_DGC,
    GW_FEEDBACK_EF21,
    GW_FEEDBACK_LOCO
} gw_feedback_rule;

/** The words of --error-feedback. */
extern const gw_registry gw_feedbacks;

typedef struct gw_residuals {
    bool of[GW_MIX_CODECS]; /* for each codec of the mix: it has a residual */
    gw_feedback_rule rule;
    bool corrects;  /* momentum is applied to each rank's own gradient */
    bool masks;     /* and restarts where an element was sent */
    float eta;      /* of ef21 */
    float beta;     /* of loco, */
    int64_t period; /* and its steps between resets; 0: never */
} gw_residuals;

/** Return true if a codec with these caps keeps a residual. */
bool gw_residuals_kept(const char *feedback, unsigned caps);

/** Return true if some codec does. */
bool gw_residuals_any(const gw_residuals *r);

/** Return the rule's name for people; NULL: plain, only what was dropped is added. */
const char *gw_residuals_rule(const gw_residuals *r);
/** Return whether this feedback's rule has a name. */
bool gw_residuals_ruled(const char *feedback);

/** Find the rule. GW_ERR_USAGE: there is no such feedback. Unless the mix has no codecs yet, also
 *  GW_ERR_UNSUPPORTED, GW_ERR_USAGE: it does not go with this strategy, these codecs or their
 *  algorithms. */
gw_err gw_residuals_find(gw_residuals *out, const char *feedback, const gw_strategy *strategy,
                         const gw_mix *mix);

/** True if the backward pass may add its gradient to the residual, on several ranks, so that the
 *  exchange need not. */
bool gw_residuals_add(const gw_residuals *r, const gw_strategy *strategy, const gw_mix *mix);

/** Apply the rule to a rank's gradient g[0..n) in step `step` (1..), before it is exchanged. `m`:
 *  momentum of a rule that corrects; residual: the lane's, or NULL. All at the same place. */
void gw_residuals_before(const gw_residuals *r, float m, int64_t step, float *g, float *own,
                         float *residual, size_t n);

/** e += scale g. */
void gw_residuals_collect(float *estimate, const float *g, float scale, size_t n);

#endif
