#include "run/residuals.h"

#include "base/clones.h"

#include <string.h>

typedef struct word {
    gw_entry head;
    gw_feedback_rule rule;
    enum { NONE, BIASED, LOSSY } keeps; /* a residual: of which codecs */
} word;

static const gw_opt ef21_opts[] = {
    {"eta", GW_OPT_REAL, "0.1", 1e-6, 1, NULL, "X", "weight of a new gradient in the momentum"},
    {0}};
static const gw_opt loco_opts[] = {
    {"beta", GW_OPT_REAL, "0.8", 0, 0.9999, NULL, "X", "decay of the average of what was dropped"},
    {"reset", GW_OPT_INT, "1024", 0, 1e9, NULL, "STEPS", "steps between resets to zero (0: never)"},
    {0}};

static const word words[] = {
    {{0, "off", "a codec's error is lost", NULL}, GW_FEEDBACK_PLAIN, NONE},
    {{0, "on", "added to the next gradient, unless the codec is lossless", NULL},
     GW_FEEDBACK_PLAIN,
     LOSSY},
    {{0, "auto", "likewise, of biased codecs alone", NULL}, GW_FEEDBACK_PLAIN, BIASED},
    {{0, "momentum", "as auto; --momentum is applied to each rank's gradient before", NULL},
     GW_FEEDBACK_MOMENTUM,
     BIASED},
    {{0, "dgc", "as momentum, which restarts where an element was sent", NULL},
     GW_FEEDBACK_DGC,
     BIASED},
    {{0, "ef21", "codes how a momentum of each rank's gradients changes (EF21-SGDM)", ef21_opts},
     GW_FEEDBACK_EF21,
     LOSSY},
    {{0, "loco", "a moving average of the errors is added, and reset at times (LoCo)", loco_opts},
     GW_FEEDBACK_LOCO,
     LOSSY}};

static const gw_entry *const entries[] = {
    &words[0].head, &words[1].head, &words[2].head, &words[3].head,
    &words[4].head, &words[5].head, &words[6].head, NULL};

const gw_registry gw_feedbacks = {.kind = "error feedback", .entries = entries};

/* NULL: none is named so. */
static const word *residual_word(const char *feedback) {
    size_t n = strcspn(feedback, ":");
    for (const gw_entry *const *e = entries; *e; e++)
        if (strlen((*e)->name) == n && memcmp((*e)->name, feedback, n) == 0)
            return (const word *)*e; /* head is the first member */
    return NULL;
}

static bool residual_keeps(const word *f, unsigned caps) {
    return f && f->keeps != NONE && !(caps & GW_CODEC_LOSSLESS) &&
           (f->keeps == LOSSY || caps & GW_CODEC_BIASED);
}

bool gw_residuals_kept(const char *feedback, unsigned caps) {
    return residual_keeps(residual_word(feedback), caps);
}

bool gw_residuals_any(const gw_residuals *r) {
    for (int i = 0; i < GW_MIX_CODECS; i++)
        if (r->of[i])
            return true;
    return false;
}

const char *gw_residuals_rule(const gw_residuals *r) {
    static const char *const names[] = {[GW_FEEDBACK_MOMENTUM] = "momentum first",
                                        [GW_FEEDBACK_DGC] = "DGC",
                                        [GW_FEEDBACK_EF21] = "EF21-SGDM",
                                        [GW_FEEDBACK_LOCO] = "LoCo"};
    return names[r->rule];
}

bool gw_residuals_ruled(const char *feedback) {
    const word *f = residual_word(feedback);
    return f && f->rule != GW_FEEDBACK_PLAIN;
}

/* ---- what goes together ---- */

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

static gw_err residual_check(const gw_residuals *r, const char *feedback,
                             const gw_strategy *strategy, const gw_mix *mix) {
    const gw_strategy_ops *ops = strategy->ops;
    const char *name = strategy->ops->head.name;
    bool ruled = r->rule != GW_FEEDBACK_PLAIN;
    if (ops->traits & GW_STRATEGY_LOSSY && strcmp(feedback, "auto") != 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "error-feedback=%s: --comm %s compresses by itself and keeps its own "
                       "residual: use its options (gradwire list)",
                       feedback, name);
    if (ruled && !gw_strategy_synchronous(ops))
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "error-feedback=%s is about gradients, and --comm %s does not exchange "
                       "those: use error-feedback=auto",
                       feedback, name);
    if ((r->rule >= GW_FEEDBACK_EF21 && ops->gives == GW_GIVES_LATE) ||
        (ruled && ops->gives == GW_GIVES_DIRECTION))
        return gw_fail(
            GW_ERR_UNSUPPORTED,
            "error-feedback=%s is about each step's own mean gradient, and --comm %s hands "
            "out something else: use error-feedback=auto",
            feedback, name);
    if (ruled && !gw_residuals_any(r))
        return gw_fail(GW_ERR_USAGE,
                       "error-feedback=%s: codec %s holds nothing back, so there is nothing to "
                       "correct: use error-feedback=auto",
                       feedback, mix->codec[0].spec);
    return r->masks ? residual_check_masks(r, mix) : GW_OK;
}

/* The options of the word, which is checked. */
static gw_err residual_read(gw_residuals *r, const char *feedback) {
    gw_spec *spec = NULL;
    gw_args *args = NULL;
    const gw_entry *entry = NULL;
    gw_err e = gw_spec_parse(&spec, "gradients", "error-feedback", feedback, GW_SPEC_ONE);
    GW_THEN(e, gw_registry_find(&gw_feedbacks, spec->name, &entry));
    GW_THEN(e, gw_args_of(&args, entry->opts, entry->name, spec));
    if (e == GW_OK) {
        r->rule = ((const word *)entry)->rule;
        r->eta = r->rule == GW_FEEDBACK_EF21 ? (float)gw_args_real(args, "eta") : 0;
        r->beta = r->rule == GW_FEEDBACK_LOCO ? (float)gw_args_real(args, "beta") : 0;
        r->period = r->rule == GW_FEEDBACK_LOCO ? gw_args_int(args, "reset") : 0;
    }
    gw_args_free(args);
    gw_spec_free(spec);
    return e;
}

gw_err gw_residuals_find(gw_residuals *out, const char *feedback, const gw_strategy *strategy,
                         const gw_mix *mix) {
    *out = (gw_residuals){0};
    GW_TRY(residual_read(out, feedback));
    out->masks = out->rule == GW_FEEDBACK_DGC;
    out->corrects = out->masks || out->rule == GW_FEEDBACK_MOMENTUM;
    for (int i = 0; i < mix->n; i++)
        out->of[i] = gw_residuals_kept(feedback, mix->codec[i].caps);
    return mix->n > 0 ? residual_check(out, feedback, strategy, mix) : GW_OK;
}

bool gw_residuals_add(const gw_residuals *r, const gw_strategy *strategy, const gw_mix *mix) {
    return strategy->ops->traits & GW_STRATEGY_ENCODES && mix->n == 1 && r->of[0] &&
           mix->codec[0].caps & GW_CODEC_SPARSE && mix->algo[0].ops->caps & GW_ALGO_ONCE &&
           r->rule == GW_FEEDBACK_PLAIN;
}

/* ---- a step ---- */

GW_CLONES static void residual_momentum(float *restrict g, float *restrict u, float m, size_t n) {
    for (size_t i = 0; i < n; i++)
        g[i] = u[i] = m * u[i] + g[i];
}

GW_CLONES static void residual_change(float *restrict g, float *restrict v, float eta, size_t n) {
    for (size_t i = 0; i < n; i++) {
        g[i] = eta * (g[i] - v[i]);
        v[i] += g[i];
    }
}

GW_CLONES static void residual_average(float *restrict e, float *restrict mean, float beta,
                                       float by, size_t n) {
    for (size_t i = 0; i < n; i++)
        e[i] = mean[i] = beta * mean[i] + by * e[i];
}

/* The first step is sent as it is: nothing of it is left to be coded. */
static void residual_start(float *g, float *v, size_t n) {
    memcpy(v, g, n * sizeof *v);
    memset(g, 0, n * sizeof *g);
}

void gw_residuals_before(const gw_residuals *r, float m, int64_t step, float *g, float *own,
                         float *residual, size_t n) {
    bool resets = r->period > 0 && (step - 1) % r->period == 0;
    if (r->corrects)
        residual_momentum(g, own, m, n);
    else if (r->rule == GW_FEEDBACK_EF21 && step == 1)
        residual_start(g, own, n);
    else if (r->rule == GW_FEEDBACK_EF21)
        residual_change(g, own, r->eta, n);
    else if (r->rule == GW_FEEDBACK_LOCO && residual)
        residual_average(residual, own, resets ? 0 : r->beta, resets ? 0 : 1 - r->beta, n);
}

GW_CLONES void gw_residuals_collect(float *restrict estimate, const float *restrict g, float scale,
                                    size_t n) {
    for (size_t i = 0; i < n; i++)
        estimate[i] += scale * g[i];
}
