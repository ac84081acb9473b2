/** What --error-feedback asks for: which codecs keep a residual, where momentum is applied, and
 *  what is exchanged in the gradient's place.
 *
 *  ef21: P. Richtarik, I. Sokolov, I. Fatkhullin, "EF21", NeurIPS 2021, with the momentum of
 *  I. Fatkhullin, A. Tyurin, P. Richtarik, "Momentum provably improves error feedback!",
 *  NeurIPS 2023 (EF21-SGDM). Of rank i's gradient g_i
 *
 *      v_i += eta (g_i - v_i);  c_i = C(v_i - e_i);  e_i += c_i;  e += mean of c_i
 *
 *  and e is handed out. With r_i = v_i - e_i, what C dropped so far, v_i - e_i of the next step is
 *  r_i and the change of v_i: plain error feedback on eta (g_i - v_i). So v_i and e are all that it
 *  needs beside a lane's residual. It starts dense: v_i = g_i, and e is the exact mean, in one more
 *  sum of the first step.
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
    bool of[GW_MIX_CODECS]; /* of the mix's codecs: has one */
    gw_feedback_rule rule;
    bool corrects;  /* momentum is applied to each rank's own gradient */
    bool masks;     /* and starts anew where an element was sent */
    float eta;      /* of ef21 */
    float beta;     /* of loco, */
    int64_t period; /* which resets so often; 0: never */
} gw_residuals;

/** True if a codec of these caps keeps a residual. */
bool gw_residuals_kept(const char *feedback, unsigned caps);

/** True if some codec does. */
bool gw_residuals_any(const gw_residuals *r);

/** Its name for people; NULL: what was dropped is added, and no more. */
const char *gw_residuals_rule(const gw_residuals *r);
/** Has this one a name? */
bool gw_residuals_ruled(const char *feedback);

/** GW_ERR_USAGE: there is no such feedback. Of a mix without codecs no more is checked. Else
 *  GW_ERR_UNSUPPORTED, GW_ERR_USAGE: it does not go with
 *  this strategy, these codecs or their algorithms. */
gw_err gw_residuals_find(gw_residuals *out, const char *feedback, const gw_strategy *strategy,
                         const gw_mix *mix);

/** True if the backward pass may add its gradient to the residual, on several ranks, so that the
 *  exchange need not. */
bool gw_residuals_add(const gw_residuals *r, const gw_strategy *strategy, const gw_mix *mix);

/** What the rule makes of a rank's gradient g[0..n) in step number `step`, from 1 on, before it
 *  is exchanged; residual: the lane's, or NULL. `m`: of a rule that corrects. All at one place. */
void gw_residuals_before(const gw_residuals *r, float m, int64_t step, float *g, float *own,
                         float *residual, size_t n);

/** e += scale g. */
void gw_residuals_collect(float *estimate, const float *g, float scale, size_t n);

#endif
