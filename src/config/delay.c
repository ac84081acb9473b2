#include "config/delay.h"

#include "base/rng.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHORTEST 1e-9 /* s */
#define LONGEST  60
#define A_TIME(name, def, least, help)                                                             \
    { name, GW_OPT_TIME, def, least, LONGEST, NULL, NULL, help }

struct gw_delay_law {
    gw_entry head;
    double (*quantile)(const double x[GW_DELAY_NUMBERS], double u);
};

static double delay_constant(const double x[GW_DELAY_NUMBERS], double u) {
    (void)u;
    return x[0];
}

static double delay_uniform(const double x[GW_DELAY_NUMBERS], double u) {
    return x[0] + u * (x[1] - x[0]);
}

static double delay_exp(const double x[GW_DELAY_NUMBERS], double u) {
    return -x[0] * log1p(-u);
}

static double delay_pareto(const double x[GW_DELAY_NUMBERS], double u) {
    double s = x[1] * pow(1 - u, -1 / x[0]);
    return x[2] > 0 && s > x[2] ? x[2] : s;
}

static const gw_opt of_constant[] = {A_TIME("time", "1ms", SHORTEST, "the delay of each step"),
                                     {0}},
                    of_uniform[] = {A_TIME("low", "0", 0, "the shortest delay"),
                                    A_TIME("high", "1ms", SHORTEST, "the longest delay"),
                                    {0}},
                    of_exp[] = {A_TIME("mean", "1ms", SHORTEST, "the mean delay"), {0}},
                    of_pareto[] = {
                        {"alpha", GW_OPT_REAL, "1.5", 0.01, 1000, NULL, NULL,
                         "a fraction (scale/t)^alpha of the delays is longer than t"},
                        A_TIME("scale", "1ms", SHORTEST, "the shortest delay"),
                        A_TIME("cap", NULL, SHORTEST, "longest delay: longer ones are cut to it"),
                        {0}};

enum { ABI = 1 };
static const gw_delay_law constant = {{ABI, "constant", "the same in each step", of_constant},
                                      delay_constant},
                          uniform = {{ABI, "uniform", "uniform between two times", of_uniform},
                                     delay_uniform},
                          exponential = {{ABI, "exp", "exponential", of_exp}, delay_exp},
                          pareto = {{ABI, "pareto", "Pareto: rare long delays", of_pareto},
                                    delay_pareto};
static const gw_entry *const laws[] = {&constant.head, &uniform.head, &exponential.head,
                                       &pareto.head, NULL};
const gw_registry gw_delays = {.kind = "delay", .abi = ABI, .entries = laws};

bool gw_delay_varies(const gw_delay *d) {
    return d->law && d->law != &constant;
}

double gw_delay_quantile(const gw_delay *d, double u) {
    return d->law->quantile(d->x, u);
}

double gw_delay_draw(const gw_delay *d, uint64_t seed, int rank, int64_t step) {
    enum { SALT = 0x64656c61 };
    if (!d->law || (d->rank != GW_DELAY_ALL && d->rank != rank))
        return 0;
    uint64_t key = gw_rng_key(gw_rng_key(seed, SALT), (uint64_t)rank);
    return gw_delay_quantile(d, gw_rng_unit(key, (uint64_t)step));
}

/* ---- reading ---- */

static gw_err delay_check(const gw_delay *d, const char *owner, const char *text) {
    if (d->law == &pareto && d->x[0] <= 1 && d->x[2] == 0)
        return gw_fail(GW_ERR_USAGE,
                       "%s: --inject-skew %s: the mean of such delays is infinite: give alpha "
                       "above 1, or a cap",
                       owner, text);
    if (d->law != &constant && !(gw_delay_quantile(d, 0) < gw_delay_quantile(d, 0.5)))
        return gw_fail(GW_ERR_USAGE,
                       "%s: --inject-skew %s: high must be above low, and cap above scale", owner,
                       text);
    return GW_OK;
}

gw_err gw_delay_suits(const gw_delay *d, const char *owner, int ranks) {
    if (!d->law || d->rank < ranks)
        return GW_OK;
    return gw_fail(GW_ERR_USAGE, "%s: --inject-skew delays rank %d, but the ranks are 0 to %d",
                   owner, d->rank, ranks - 1);
}

/* Of "LAW:option=value,..", or of a time. GW_OK without a law: it is neither. */
static gw_err delay_read_law(gw_delay *d, const char *owner, const char *text) {
    const gw_entry *found = &constant.head;
    gw_spec *spec = NULL;
    gw_args *args = NULL;
    gw_err e = GW_OK;
    if (isdigit((unsigned char)*text)) {
        GW_TRY(gw_args_new(&args, of_constant));
        if (gw_args_set(args, "", "time", text) != GW_OK)
            found = NULL;
    } else {
        GW_TRY(gw_spec_parse(&spec, owner, "inject-skew", text, GW_SPEC_ONE));
        if (gw_registry_find(&gw_delays, spec->name, &found) != GW_OK)
            found = NULL;
        else
            e = gw_args_of(&args, found->opts, found->name, spec);
    }
    for (int i = 0; e == GW_OK && found && found->opts[i].name; i++)
        d->x[i] = gw_args_real(args, found->opts[i].name);
    d->law = (const gw_delay_law *)found; /* head is the first member */
    gw_args_free(args);
    gw_spec_free(spec);
    return e;
}

gw_err gw_delay_read(gw_delay *d, const char *owner, const char *text) {
    *d = (gw_delay){.rank = GW_DELAY_ALL};
    if (!text)
        return GW_OK;
    size_t digits = strspn(text, "0123456789");
    const char *colon = strchr(text, ':');
    bool all = strncmp(text, "all:", 4) == 0;
    bool one = digits > 0 && digits < 10 && text[digits] == ':';
    if (one)
        d->rank = atoi(text);
    if ((all || one) && colon[1])
        GW_TRY(delay_read_law(d, owner, colon + 1));
    if (!d->law)
        return gw_fail(GW_ERR_USAGE,
                       "%s: inject-skew=%s: must be RANK:TIME, e.g. 1:1ms, from %g to %d s, or "
                       "RANK:LAW:.., e.g. all:pareto:alpha=1.5,scale=5ms; laws are constant, "
                       "uniform, exp and pareto",
                       owner, text, SHORTEST, LONGEST);
    return delay_check(d, owner, text);
}
