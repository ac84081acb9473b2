#include "comm/timing.h"

#include "comm/channel.h"

#include <math.h>

/* ---- one ---- */

static void timing_drop(gw_timed *x) {
    gw_schedule_free(x->schedule);
    x->schedule = NULL;
}

gw_err gw_timed_lay(gw_timed *x, gw_verb verb, int root, size_t n) {
    timing_drop(x);
    /* The samples' memory comes now, while all can agree that there is none. */
    gw_err e = gw_samples_add(&x->times, 0);
    GW_THEN(e, gw_schedule_new(&x->schedule, x->lane, x->base, (gw_span){0, n}));
    GW_THEN(e, gw_algo_lay_down(x->algo, x->schedule, verb, root));
    e = gw_lane_agree(x->lane, e);
    x->times.n = 0;
    x->done = e != GW_OK;
    if (x->done)
        timing_drop(x);
    return e;
}

void gw_timed_close(gw_timed *x) {
    timing_drop(x);
    gw_samples_free(&x->times);
}

gw_err gw_timed_run(gw_timed *x, double *s) {
    gw_span span = gw_schedule_span(x->schedule);
    for (size_t i = 0; i < span.n; i++)
        x->base[span.off + i] = (float)((int)(i % 251) - 125);
    gw_fabric *f = gw_lane_channel(x->lane)->fabric;
    GW_TRY(f->ops->barrier(f));
    int64_t start_ns = f->ops->now_ns(f);
    GW_TRY(gw_schedule_run(x->schedule));
    *s = 1e-9 * (double)(f->ops->now_ns(f) - start_ns);
    return GW_OK;
}

gw_err gw_timing_round(gw_timing *t) {
    double s[GW_TIMED_MOST];
    bool in[GW_TIMED_MOST];
    for (int i = 0; i < t->n; i++)
        in[i] = !t->timed[i]->done;
    GW_TRY(gw_rounds_next(&t->rounds, t->n, in, s));
    for (int i = 0; i < t->n; i++) {
        t->spent_s += s[i];
        if (in[i])
            GW_TRY(gw_samples_add(&t->timed[i]->times, s[i]));
    }
    return GW_OK;
}

/* ---- sizes within a budget ---- */

static void timing_drop_hopeless(gw_timing *t, double hopeless) {
    double best = INFINITY;
    for (int i = 0; i < t->n; i++)
        if (!t->timed[i]->done)
            best = fmin(best, t->timed[i]->times.x[0]);
    for (int i = 0; i < t->n; i++)
        if (!t->timed[i]->done && t->timed[i]->times.x[0] > hopeless * best)
            t->timed[i]->done = true;
}

static gw_err timing_one_size(gw_timing *t, const gw_timing_plan *p, size_t n, int sizes_left) {
    for (int i = 0; i < t->n; i++) {
        gw_err e = gw_timed_lay(t->timed[i], GW_ALLREDUCE, 0, n);
        if (e != GW_OK && e != GW_ERR_UNSUPPORTED)
            return e;
    }
    if (p->begin)
        GW_TRY(p->begin(t->rounds.ctx, n));
    bool first = t->rounds.drawn == 0;
    GW_TRY(gw_timing_round(t)); /* connections are made, pages touched */
    for (int i = 0; i < t->n; i++)
        t->timed[i]->times.n = 0;
    if (first) /* not the measuring's own time */
        t->spent_s = 0;
    double end_s = t->spent_s + (p->budget_s - t->spent_s) / sizes_left;
    for (int k = 0; k < p->least || (k < p->most && t->spent_s < end_s); k++) {
        GW_TRY(gw_timing_round(t));
        if (k == 0)
            timing_drop_hopeless(t, p->hopeless);
    }
    return p->end ? p->end(t->rounds.ctx, n) : GW_OK;
}

gw_err gw_timing_sizes(gw_timing *t, const gw_timing_plan *p) {
    size_t sizes[GW_TIMING_SIZES];
    double took_s[GW_TIMING_SIZES]; /* a round */
    int n = 0;
    for (; n < p->n_wanted && p->wanted[n] <= p->arena; n++)
        sizes[n] = p->wanted[n];
    if (n == 0 || p->arena >= 2 * sizes[n - 1])
        sizes[n++] = p->arena; /* the whole arena is what is reduced most */
    for (int i = 0; i < n; i++) {
        double next_s = 0; /* from one size alone none can be told */
        if (i > 1)
            next_s = took_s[i - 1] + fmax(0, took_s[i - 1] - took_s[i - 2]) *
                                         (double)(sizes[i] - sizes[i - 1]) /
                                         (double)(sizes[i - 1] - sizes[i - 2]);
        if (t->spent_s + (p->least + 1) * next_s > p->budget_s)
            break;
        GW_TRY(timing_one_size(t, p, sizes[i] / sizeof(float), n - i));
        took_s[i] = 0;
        for (int k = 0; k < t->n; k++)
            if (t->timed[k]->times.n > 0)
                took_s[i] += gw_stats_typical(t->timed[k]->times.x, t->timed[k]->times.n);
    }
    return GW_OK;
}
