#include "run/residuals.h"

#include <string.h>

bool gw_residuals_kept(const char *feedback, unsigned caps) {
    bool wanted =
        strcmp(feedback, "on") == 0 || (strcmp(feedback, "off") != 0 && caps & GW_CODEC_BIASED);
    return wanted && !(caps & GW_CODEC_LOSSLESS);
}

bool gw_residuals_any(const gw_residuals *r) {
    for (int i = 0; i < GW_MIX_CODECS; i++)
        if (r->of[i])
            return true;
    return false;
}

bool gw_residuals_correct(const char *feedback) {
    return strcmp(feedback, "momentum") == 0 || strcmp(feedback, "dgc") == 0;
}

/* Momentum can only be masked where it is known what a rank has sent of its own gradient. */
static gw_err residual_check_masks(const gw_residuals *r, const gw_mix *mix) {
    for (int i = 0; i < mix->n; i++) {
        bool sent_once = mix->algo[i].ops->caps & GW_ALGO_ONCE;
        bool sparse = mix->codec[i].caps & GW_CODEC_SPARSE;
        if (r->of[i] && !(sparse && sent_once))
            return gw_fail(GW_ERR_UNSUPPORTED,
                           "error-feedback=dgc masks the momentum of what a rank has sent, which "
                           "needs a sparse codec and an algorithm that sends each rank's own "
                           "gradient once (--comm sparse): %s over %s does not; use "
                           "error-feedback=momentum",
                           mix->codec[i].spec, mix->algo[i].ops->head.name);
    }
    return GW_OK;
}

gw_err gw_residuals_find(gw_residuals *out, const char *feedback, const gw_strategy *strategy,
                         const gw_mix *mix) {
    unsigned traits = strategy->ops->traits;
    const char *name = strategy->ops->head.name;
    *out = (gw_residuals){.masks = strcmp(feedback, "dgc") == 0};
    out->corrects = gw_residuals_correct(feedback);
    for (int i = 0; i < mix->n; i++)
        out->of[i] = gw_residuals_kept(feedback, mix->codec[i].caps);
    if (traits & GW_STRATEGY_LOSSY && strcmp(feedback, "auto") != 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "error-feedback=%s: --comm %s compresses by itself and keeps its own "
                       "residual: use its options (gradwire list)",
                       feedback, name);
    if (out->corrects && !(traits & GW_STRATEGY_SYNCHRONOUS))
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "error-feedback=%s corrects the momentum of gradients, and --comm %s does "
                       "not exchange those: use error-feedback=auto",
                       feedback, name);
    if (out->corrects && !gw_residuals_any(out))
        return gw_fail(GW_ERR_USAGE,
                       "error-feedback=%s: codec %s holds nothing back, so momentum needs no "
                       "correction: use error-feedback=auto",
                       feedback, mix->codec[0].spec);
    return out->masks ? residual_check_masks(out, mix) : GW_OK;
}

bool gw_residuals_add(const gw_residuals *r, const gw_strategy *strategy, const gw_mix *mix) {
    return strategy->ops->traits & GW_STRATEGY_ENCODES && mix->n == 1 && r->of[0] &&
           mix->codec[0].caps & GW_CODEC_SPARSE && mix->algo[0].ops->caps & GW_ALGO_ONCE &&
           !r->corrects;
}
