#include "cli/train/checkpoint_opts.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* STEPS, or a time with a unit. */
static gw_err read_every(gw_train_config *c, const char *text) {
    static const struct {
        const char *unit;
        double s;
    } units[] = {{"s", 1}, {"min", 60}, {"h", 3600}};
    const double least_s = 0.1, most_s = 1e9, most_steps = 1e12;
    char *end = NULL;
    double value = isdigit((unsigned char)*text) ? strtod(text, &end) : NAN;
    if (end && !*end && value >= 1 && value <= most_steps && value == floor(value)) {
        c->checkpoint_steps = (int64_t)value;
        return GW_OK;
    }
    for (size_t i = 0; end && i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].unit) == 0 && value * units[i].s >= least_s &&
            value * units[i].s <= most_s) {
            c->checkpoint_s = value * units[i].s;
            return GW_OK;
        }
    return gw_fail(GW_ERR_USAGE,
                   "train: --checkpoint-every '%s': must be a whole number of steps, e.g. 500, or "
                   "a time of at least %g s with its unit (s, min, h), e.g. 30s",
                   text, least_s);
}

static gw_err check(const gw_train_config *c, const gw_args *a) {
    bool writes = gw_args_given(a, "checkpoint-every");
    bool automatic = c->resume && strcmp(c->resume, "auto") == 0;
    if (writes && !c->out)
        return gw_fail(GW_ERR_USAGE, "train: --checkpoint-every needs --out DIR to write "
                                     "model.ckpt.d to");
    if (gw_args_given(a, "checkpoint-keep") && !writes)
        return gw_fail(GW_ERR_USAGE, "train: --checkpoint-keep says how many of what "
                                     "--checkpoint-every writes: give that, too");
    if (c->resume && !*c->resume)
        return gw_fail(GW_ERR_USAGE, "train: --resume is empty: auto, a checkpoint, a model.ckpt.d "
                                     "or a run's folder");
    if (automatic && !c->out)
        return gw_fail(GW_ERR_USAGE, "train: --resume auto needs --out DIR, in whose model.ckpt.d "
                                     "it looks; or name the checkpoint");
    if (automatic && c->overwrite)
        return gw_fail(GW_ERR_USAGE, "train: --resume auto resumes the run that --out holds, "
                                     "and --overwrite replaces it: remove one of them");
    if (c->resume_strict && !c->resume)
        return gw_fail(GW_ERR_USAGE, "train: --resume-strict is about --resume: give that, too");
    if (c->paired && (writes || c->resume))
        return gw_fail(GW_ERR_USAGE,
                       "train: --paired compares steps of one run, and %s would cut it in two: "
                       "remove one of them",
                       writes ? "--checkpoint-every" : "--resume");
    return GW_OK;
}

gw_err gw_checkpoint_opts_read(gw_train_config *c, const gw_args *a) {
    c->checkpoint_keep = (int)gw_args_int(a, "checkpoint-keep");
    c->resume = gw_args_text(a, "resume");
    c->resume_strict = gw_args_flag(a, "resume-strict");
    const char *every = gw_args_text(a, "checkpoint-every");
    if (every)
        GW_TRY(read_every(c, every));
    return check(c, a);
}
