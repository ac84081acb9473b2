#include "optim/lr.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

struct gw_lr {
    const gw_lr_ops *ops;
    gw_args *args;
    int64_t warmup, steps; /* steps: 0: all of the run's */
};

/* ---- schedules ---- */

static double lr_constant(const gw_args *args, int64_t at, int64_t steps) {
    (void)args, (void)at, (void)steps;
    return 1;
}

/* What is left of a line from 1, at x = 0, to the option `to`, at 1. */
static double lr_fall(const gw_args *args, double left) {
    double to = gw_args_real(args, "to");
    return to + (1 - to) * left;
}

static double lr_linear(const gw_args *args, int64_t at, int64_t steps) {
    return lr_fall(args, 1 - (double)at / (double)steps);
}

/* I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017,
 * without restarts. */
static double lr_cosine(const gw_args *args, int64_t at, int64_t steps) {
    return lr_fall(args, (1 + cos(M_PI * (double)at / (double)steps)) / 2);
}

static double lr_step(const gw_args *args, int64_t at, int64_t steps) {
    (void)steps;
    return pow(gw_args_real(args, "factor"), (double)(at / gw_args_int(args, "every")));
}

/* S. Hu et al., "MiniCPM: unveiling the potential of small language models with scalable training
 * strategies", 2024: warm-up, stable, decay. */
static double lr_wsd(const gw_args *args, int64_t at, int64_t steps) {
    double left = (1 - (double)at / (double)steps) / gw_args_real(args, "decay");
    return lr_fall(args, fmin(left, 1));
}

#define WARMUP                                                                                     \
    {                                                                                              \
        "warmup", GW_OPT_STEPS, "0", 0, 1e12, NULL, "STEPS",                                       \
            "steps of linear warm-up; or --lr-warmup"                                              \
    }
#define TO                                                                                         \
    { "to", GW_OPT_REAL, "0", 0, 1, NULL, "X", "final rate, as a fraction of the highest" }
#define STEPS                                                                                      \
    {                                                                                              \
        "steps", GW_OPT_INT, "0", 0, 1e12, NULL, "N",                                              \
            "step at which it ends (0: the last of the run)"                                       \
    }

static const gw_opt constant_opts[] = {WARMUP, {0}};
static const gw_opt ends_opts[] = {WARMUP, TO, STEPS, {0}};
static const gw_opt step_opts[] = {
    WARMUP,
    {"every", GW_OPT_STEPS, "1000", 1, 1e12, NULL, "STEPS", "steps between two falls"},
    {"factor", GW_OPT_REAL, "0.1", 0, 1, NULL, "X", "factor of each fall"},
    {0}};
static const gw_opt wsd_opts[] = {WARMUP,
                                  TO,
                                  STEPS,
                                  {"decay", GW_OPT_REAL, "0.2", 1e-6, 1, NULL, "X",
                                   "fraction of the steps, the last ones, in which it falls"},
                                  {0}};

static const gw_lr_ops all[] = {
    {{0, "constant", "the same rate in all steps after the warm-up", constant_opts},
     lr_constant,
     false},
    {{0, "linear", "a line down to the end", ends_opts}, lr_linear, true},
    {{0, "cosine", "half a period of a cosine down to the end", ends_opts}, lr_cosine, true},
    {{0, "step", "falls by a factor, again and again", step_opts}, lr_step, false},
    {{0, "wsd", "warm-up, stable, decay: a line down over the last part", wsd_opts}, lr_wsd, true}};

static const gw_entry *const entries[] = {&all[0].head, &all[1].head, &all[2].head,
                                          &all[3].head, &all[4].head, NULL};

const gw_registry gw_lr_schedules = {.kind = "schedule", .entries = entries};

/* ---- one of them ---- */

static gw_err lr_read(gw_lr *s, const gw_spec *spec, const gw_args *command) {
    const gw_entry *entry = NULL;
    GW_TRY(gw_registry_find(&gw_lr_schedules, spec->name, &entry));
    s->ops = (const gw_lr_ops *)entry; /* head is the first member */
    GW_TRY(gw_args_of(&s->args, entry->opts, entry->name, spec));
    if (command && gw_args_given(command, "lr-warmup")) {
        if (gw_args_given(s->args, "warmup"))
            return gw_fail(GW_ERR_USAGE,
                           "--lr-warmup and --lr-schedule %s:warmup=%s: remove one of them",
                           entry->name, gw_args_text(s->args, "warmup"));
        GW_TRY(gw_args_set(s->args, entry->name, "warmup", gw_args_text(command, "lr-warmup")));
    }
    s->warmup = gw_args_int(s->args, "warmup");
    s->steps = s->ops->ends ? gw_args_int(s->args, "steps") : 0;
    if (s->steps > 0 && s->steps <= s->warmup)
        return gw_fail(GW_ERR_USAGE,
                       "--lr-schedule %s: it ends with step %lld, and its warm-up takes %lld: give "
                       "it more steps",
                       entry->name, (long long)s->steps, (long long)s->warmup);
    return GW_OK;
}

gw_err gw_lr_open(gw_lr **out, const gw_spec *spec, const gw_args *command) {
    gw_lr *s = NULL;
    gw_err e = gw_alloc(&s, 1, sizeof *s);
    GW_THEN(e, lr_read(s, spec ? spec : &GW_SPEC_NAMED("constant"), command));
    GW_OPENED(e, out, s, gw_lr_close);
}

void gw_lr_close(gw_lr *s) {
    if (s)
        gw_args_free(s->args);
    free(s);
}

int64_t gw_lr_end(const gw_lr *s, int64_t steps) {
    return !s || !s->ops->ends ? 0 : s->steps > 0 ? s->steps : steps;
}

const gw_args *gw_lr_args(const gw_lr *s) {
    return s->args;
}

int64_t gw_lr_zero(const gw_lr *s, int64_t steps) {
    int64_t first = s->warmup + 1, last = steps;
    if (first > last || (float)gw_lr_rate(s, 0, 1, last, steps) > 0)
        return 0;
    while (first < last) {
        int64_t at = first + (last - first) / 2;
        if ((float)gw_lr_rate(s, 0, 1, at, steps) > 0)
            first = at + 1;
        else
            last = at;
    }
    return first;
}

double gw_lr_rate(const gw_lr *s, double from, double full, int64_t step, int64_t steps) {
    if (step <= s->warmup)
        return from + (full - from) * (double)step / (double)s->warmup;
    int64_t at = step - s->warmup - 1, end = gw_lr_end(s, steps) - s->warmup;
    end = end > 1 ? end : 1;
    return full * s->ops->factor(s->args, at > end && s->ops->ends ? end : at, end);
}
