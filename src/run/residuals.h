/** What --error-feedback asks for: which codecs keep a residual, and where momentum is applied.
 *  gw_session_new (run/session.h) has the words. */
#ifndef GW_RUN_RESIDUALS_H
#define GW_RUN_RESIDUALS_H

#include "comm/mix.h"
#include "comm/strategy.h"

typedef struct gw_residuals {
    bool of[GW_MIX_CODECS]; /* of the mix's codecs: has one */
    bool corrects;          /* momentum is applied to each rank's own gradient */
    bool masks;             /* and starts anew where an element was sent */
} gw_residuals;

/** True if a codec of these caps keeps a residual. */
bool gw_residuals_kept(const char *feedback, unsigned caps);

/** True if some codec does. */
bool gw_residuals_any(const gw_residuals *r);

/** True if momentum is applied to each rank's own gradient. */
bool gw_residuals_correct(const char *feedback);

/** GW_ERR_UNSUPPORTED, GW_ERR_USAGE: it does not go with this strategy, these codecs or their
 *  algorithms. */
gw_err gw_residuals_find(gw_residuals *out, const char *feedback, const gw_strategy *strategy,
                         const gw_mix *mix);

/** True if the backward pass may add its gradient to the residual, on several ranks, so that the
 *  exchange need not. */
bool gw_residuals_add(const gw_residuals *r, const gw_strategy *strategy, const gw_mix *mix);

#endif
