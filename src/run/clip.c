#include "run/clip.h"

#include "base/json.h"
#include "base/norm.h"
#include "base/probe.h"
#include "mpi/wait.h"

#include <math.h>

gw_err gw_clip_check(double most, bool lazy, bool ruled, bool directs) {
    const char *why =
        lazy    ? "--update lazy updates a layer before the whole norm is known: use --update eager"
        : ruled ? "--error-feedback momentum, dgc and ef21 hand out momentum, not a gradient: use "
                  "another one"
        : directs ? "this --comm hands out the direction of an update, not a gradient: use another "
                    "one"
                  : NULL;
    return most > 0 && why ? gw_fail(GW_ERR_UNSUPPORTED, "--clip-norm: %s", why) : GW_OK;
}

/* Ranks that update parts have the norm's parts, too; else each has the whole gradient. */
void gw_clip_open(gw_clip *c, const gw_clip_setup *setup, const gw_strategy_ops *ops,
                  MPI_Comm comm) {
    *c = (gw_clip){.most = setup->most, .own = ops->gives == GW_GIVES_OWN, .by = 1};
    if (ops->gives == GW_GIVES_PARTS || ops->gives == GW_GIVES_ROOT)
        c->over[c->n++] = comm;
    for (int i = 0; i < setup->n; i++)
        c->over[c->n++] = setup->all[i];
}

static gw_err clip_sum(const gw_clip *c, double *squares) {
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = GW_OK;
    for (int i = 0; i < c->n; i++)
        GW_THEN(e, gw_allreduce(MPI_IN_PLACE, squares, 1, MPI_DOUBLE, MPI_SUM, c->over[i]));
    gw_phase_leave();
    return e;
}

gw_err gw_clip_update(gw_clip *c, gw_update *u) {
    double squares = 0;
    if (c->most == 0)
        return GW_OK;
    gw_phase_enter(GW_PHASE_UPDATE);
    if (u->own.n > 0)
        squares =
            (double)u->scale * (double)u->scale * gw_norm_squares(u->grad + u->own.off, u->own.n);
    gw_phase_leave();
    if (c->n > 0)
        GW_TRY(clip_sum(c, &squares));
    double by = c->most / (sqrt(squares) + 1e-6);
    c->by = by < 1 ? (float)by : 1;
    c->counts = squares > 0;
    u->scale *= c->by;
    return GW_OK;
}

void gw_clip_count(gw_clip *c) {
    c->updates += c->counts;
    c->clipped += c->counts && c->by < 1;
}

json_t *gw_clip_json(const gw_clip *c) {
    return c->most == 0
               ? json_null()
               : gw_json_object("norm:f of:s updates:I clipped:I", c->most,
                                c->own ? "each replica's own gradient" : "the mean gradient",
                                c->updates, c->clipped);
}
