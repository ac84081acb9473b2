#include "comm/factors.h"

#include "base/mem.h"
#include "base/probe.h"
#include "base/rng.h"
#include "mpi/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *gw_factors_plan(gw_strategy_plan *p) {
    return !p->codec || p->codec->caps & GW_CODEC_LOSSLESS
               ? NULL
               : "it compresses by itself; a codec that loses would distort factors that all ranks "
                 "must share: use --compress none, or a lossless one";
}

void gw_factors_close(void *p) {
    gw_factors *f = p;
    gw_collective_clear(&f->sum);
    for (int i = 0; f->matrices && i < f->env->n_tensors; i++)
        gw_lowrank_close(&f->matrices[i].l);
    free(f->matrices);
    free(f->pieces);
    free(f->groups);
}

/* ---- laying out ---- */

/* Which tensors of each group are compressed, and where in `flat` all of it goes. Returns its
 * floats. */
static size_t factors_lay_out(gw_factors *f) {
    const gw_env *env = f->env;
    gw_factors_matrix *matrices = f->matrices;
    gw_factors_piece *pieces = f->pieces;
    uint64_t seed = gw_rng_key(gw_lane_seed(env->grads), f->setup.stream);
    size_t at = 0;
    for (int i = 0; i < f->n_groups; i++) {
        gw_factors_group *g = &f->groups[i];
        g->span = gw_env_span(env, i);
        g->matrices = matrices;
        g->pieces = pieces;
        g->first.off = at;
        for (const gw_tensor *t = env->tensors; t < env->tensors + env->n_tensors; t++) {
            size_t rows = (size_t)t->rows, cols = (size_t)t->cols;
            gw_span s = gw_span_common(t->span, g->span);
            if (s.n == t->span.n && gw_lowrank_pays(rows, cols, f->rank)) {
                uint64_t key = gw_rng_key(seed, (uint64_t)(t - env->tensors));
                g->matrices[g->n_matrices++] =
                    (gw_factors_matrix){.l = {.rows = rows, .cols = cols}, .tensor = t, .key = key};
                g->second.n += (size_t)f->rank * cols;
            } else if (s.n > 0) {
                g->pieces[g->n_pieces++] =
                    (gw_factors_piece){t, s, gw_span_end(g->first), f->whole};
                g->first.n += s.n;
                f->whole += s.n;
            }
        }
        for (int m = 0; m < g->n_matrices; m++)
            g->first.n += (size_t)f->rank * g->matrices[m].l.rows;
        g->second.off = gw_span_end(g->first);
        at = gw_span_end(g->second);
        matrices += g->n_matrices;
        pieces += g->n_pieces;
    }
    return at;
}

static gw_err factors_open_matrices(gw_factors *f) {
    size_t rank = (size_t)f->rank;
    for (gw_factors_group *g = f->groups; g < f->groups + f->n_groups; g++) {
        float *p = f->flat + gw_span_end(g->first), *q = f->flat + g->second.off;
        for (int i = g->n_matrices - 1; i >= 0; i--) /* P's are the end of the first part */
            p -= rank * g->matrices[i].l.rows;
        for (int i = 0; i < g->n_matrices; i++) {
            gw_factors_matrix *m = &g->matrices[i];
            size_t rows = m->l.rows, cols = m->l.cols;
            GW_TRY(gw_lowrank_open(&m->l, rows, cols, f->rank, f->setup.feedback, p, q));
            m->l.keep = f->setup.keep;
            gw_lowrank_draw(&m->l, m->key);
            p += rank * rows;
            q += rank * cols;
        }
    }
    return GW_OK;
}

static void factors_note(const gw_factors *f) {
    const gw_env *env = f->env;
    size_t out = 0;
    int matrices = 0;
    char line[160];
    for (int i = 0; i < f->n_groups; i++)
        for (int k = 0; k < f->groups[i].n_matrices; k++, matrices++) {
            const gw_lowrank *l = &f->groups[i].matrices[k].l;
            out += (size_t)f->rank * (l->rows + l->cols);
        }
    if (matrices == 0)
        snprintf(line, sizeof line,
                 "%s: nothing is compressed: factors would make no matrix smaller", env->name);
    else
        snprintf(line, sizeof line,
                 "%s: %d matrices of %zu floats travel as %zu, the other %zu floats as they are",
                 env->name, matrices, env->n - f->whole, out, f->whole);
    gw_lane_note(env->grads, line);
}

static bool factors_travel(const gw_factors *f) {
    return gw_lane_size(f->env->grads) > 1;
}

gw_err gw_factors_open(gw_factors *f, const gw_env *env, const gw_factors_setup *setup) {
    *f = (gw_factors){.env = env, .setup = *setup, .rank = (int)gw_args_int(env->args, "rank")};
    if (env->n_tensors == 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "%s: it compresses matrices, and the shapes "
                       "of this model's tensors are not known",
                       env->name);
    if (gw_lane_mixed(env->grads))
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "%s: a mix of codecs is for the model's tensors, but here factors "
                       "travel: use one codec",
                       env->name);
    if (!factors_travel(f) && !setup->alone)
        return GW_OK;
    gw_lane_reshape(env->grads); /* into factors */
    f->n_groups = gw_env_spans(env);
    size_t tensors = (size_t)env->n_tensors, groups = (size_t)f->n_groups;
    gw_err e = gw_alloc(&f->matrices, tensors, sizeof *f->matrices);
    GW_THEN(e, gw_alloc(&f->pieces, tensors + groups, sizeof *f->pieces));
    GW_THEN(e, gw_alloc(&f->groups, groups, sizeof *f->groups));
    GW_TRY(gw_lane_agree(env->grads, e));
    GW_TRY(gw_lane_floats(env->grads, factors_lay_out(f), &f->flat));
    GW_TRY(gw_lane_agree(env->grads, factors_open_matrices(f)));
    f->sum = (gw_collective){.algo = env->algo, .lane = env->grads, .base = f->flat};
    for (int i = 0; factors_travel(f) && i < f->n_groups; i++) {
        gw_schedule *unused;
        GW_TRY(gw_collective_get(&f->sum, f->groups[i].first, &unused));
        GW_TRY(gw_collective_get(&f->sum, f->groups[i].second, &unused));
    }
    if (factors_travel(f))
        factors_note(f);
    return GW_OK;
}

/* ---- a step ---- */

static void factors_prepare(const gw_factors *f, const gw_factors_group *g) {
    const float *grad = f->env->grad;
    for (const gw_factors_piece *p = g->pieces; p < g->pieces + g->n_pieces; p++)
        memcpy(f->flat + p->to, grad + p->span.off, p->span.n * sizeof *grad);
    for (int i = 0; i < g->n_matrices; i++) {
        gw_factors_matrix *m = &g->matrices[i];
        uint64_t key = gw_rng_key(m->key, (uint64_t)g->steps);
        if (g->steps > 0)
            (f->setup.cold ? gw_lowrank_draw : gw_lowrank_warm)(&m->l, key);
        gw_lowrank_project(&m->l, f->env->grad + m->tensor->span.off);
    }
}

static void factors_gather(const gw_factors *f, const gw_factors_group *g) {
    for (int i = 0; i < g->n_matrices; i++) {
        gw_lowrank *l = &g->matrices[i].l;
        gw_lowrank_orthonormalise(l->p, l->rows, l->rank);
        gw_lowrank_gather(l, f->env->grad + g->matrices[i].tensor->span.off);
    }
}

static gw_err factors_run(gw_factors *f, void (*make)(const gw_factors *, const gw_factors_group *),
                          const gw_factors_group *g, gw_span s) {
    gw_work_enter(GW_PHASE_ENCODE);
    make(f, g);
    gw_work_leave();
    return factors_travel(f) ? gw_collective_run(&f->sum, s) : GW_OK;
}

gw_err gw_factors_sum(gw_factors *f, gw_span s, gw_factors_group **out) {
    int i;
    GW_TRY(gw_env_find(f->env, s, &i));
    gw_factors_group *g = &f->groups[i];
    GW_TRY(factors_run(f, factors_prepare, g, g->first));
    GW_TRY(factors_run(f, factors_gather, g, g->second));
    *out = g;
    return GW_OK;
}

void gw_factors_hand_out(const gw_factors *f, gw_factors_group *g) {
    float *grad = f->env->grad;
    gw_work_enter(GW_PHASE_DECODE);
    for (int i = 0; i < g->n_matrices; i++)
        gw_lowrank_expand(&g->matrices[i].l, grad + g->matrices[i].tensor->span.off);
    for (const gw_factors_piece *p = g->pieces; p < g->pieces + g->n_pieces; p++)
        memcpy(grad + p->span.off, f->flat + p->to, p->span.n * sizeof *grad);
    gw_work_leave();
    g->steps++;
}

gw_err gw_factors_state(void *p, gw_io *io) {
    gw_factors *f = p;
    for (int i = 0; i < f->n_groups; i++) {
        gw_factors_group *g = &f->groups[i];
        GW_TRY(gw_io_alike(io, "steps", &g->steps, sizeof g->steps));
        for (int k = 0; k < g->n_matrices; k++) {
            gw_lowrank *l = &g->matrices[k].l;
            GW_TRY(gw_io_field(io, "r", l->q, (size_t)l->rank * l->cols * sizeof *l->q));
            if (!l->m)
                continue;
            gw_lowrank_settle(l);
            GW_TRY(gw_io_field(io, "residual", l->m, l->rows * l->cols * sizeof *l->m));
        }
    }
    return GW_OK;
}

gw_cost gw_factors_cost(const void *p, int64_t exchange, int64_t *period) {
    const gw_factors *f = p;
    gw_cost sum = {0};
    (void)exchange, (void)period;
    for (int i = 0; i < f->n_groups; i++) {
        sum = gw_cost_sum(sum, gw_collective_cost(&f->sum, f->groups[i].first));
        sum = gw_cost_sum(sum, gw_collective_cost(&f->sum, f->groups[i].second));
    }
    return sum;
}
