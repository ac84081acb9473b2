/* powersgd: of each layer's matrix of gradients a few factors travel in its place, P (rows x r) and
 * R (cols x r), in two allreduces; their product is the update, and what it lacks is kept and added
 * to the next gradient (T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical low-rank
 * gradient compression for distributed optimization", NeurIPS 2019; the arithmetic is
 * compress/lowrank.h). One step of power iteration a step of training: R of the last step is what
 * the next one starts from (warm=on), so the factors follow the largest singular vectors of the
 * gradients as these change slowly.
 *
 * It cannot be a codec: P has to be summed over the ranks and made orthonormal before R can be
 * computed. But unlike most codecs the factors are plain floats that any algorithm sums. Biases,
 * and matrices that r factors would not make smaller, travel as they are with the first allreduce.
 * Synchronous; not exact. On one rank nothing is sent, so nothing is compressed.
 *
 * Cost: one allreduce of r * rows a matrix and of all else, then one of r * cols a matrix: at r = 2
 * 0.33 bits an element of 784 x 256. With --update lazy two a layer. */
#include "comm/strategy.h"

#include "base/mem.h"
#include "base/probe.h"
#include "base/rng.h"
#include "compress/lowrank.h"
#include "mpi/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POWERSGD_STREAM 0x706f776572u /* the seed's stream for vectors to start from */

typedef struct matrix {
    gw_lowrank l;
    gw_span span; /* of the arena */
    uint64_t key;
} matrix;

typedef struct piece {
    gw_span span; /* of the arena: goes as it is */
    size_t to;    /* offset in `flat` */
} piece;

/* What one finish() exchanges. */
typedef struct group {
    gw_span span;          /* of the arena */
    gw_span first, second; /* of `flat`: pieces, then each matrix's P; each matrix's R */
    matrix *matrices;
    piece *pieces;
    int n_matrices, n_pieces;
    int64_t steps;
} group;

typedef struct self {
    const gw_env *env;
    bool warm, feedback;
    int rank;          /* of the factors */
    float *flat;       /* what is reduced */
    gw_collective sum; /* over it */
    matrix *matrices;  /* in the order of the arena, as are the groups */
    piece *pieces;
    group *groups;
    int n_groups; /* 0 on one rank: nothing to exchange */
} self;

static const char *powersgd_refuses(const gw_args *args, const gw_algo *algo,
                                    const gw_codec *codec) {
    (void)args, (void)algo;
    return codec->caps & GW_CODEC_LOSSLESS
               ? NULL
               : "it compresses by itself; a codec that loses would distort factors that all ranks "
                 "must share: use --compress none, or a lossless one";
}

static void powersgd_close(void *p) {
    self *me = p;
    gw_collective_clear(&me->sum);
    for (int i = 0; me->matrices && i < me->env->n_tensors; i++)
        gw_lowrank_close(&me->matrices[i].l);
    free(me->matrices);
    free(me->pieces);
    free(me->groups);
}

/* ---- laying out ---- */

static bool powersgd_compresses(const self *me, const gw_tensor *t, gw_span within) {
    return t->span.off >= within.off && gw_span_end(t->span) <= gw_span_end(within) &&
           gw_lowrank_pays((size_t)t->rows, (size_t)t->cols, me->rank);
}

static void powersgd_add_piece(group *g, size_t from, size_t end) {
    if (from == end)
        return;
    g->pieces[g->n_pieces++] = (piece){{from, end - from}, g->first.off + g->first.n};
    g->first.n += end - from;
}

/* Which tensors of a group are compressed, and where in `flat` all of it goes. Returns its end. */
static size_t powersgd_lay_out(self *me, group *g, size_t at) {
    const gw_env *env = me->env;
    size_t done = g->span.off, r = (size_t)me->rank;
    g->first.off = at;
    for (int i = 0; i < env->n_tensors; i++) {
        const gw_tensor *t = &env->tensors[i];
        if (!powersgd_compresses(me, t, g->span))
            continue;
        powersgd_add_piece(g, done, t->span.off);
        done = gw_span_end(t->span);
        matrix *m = &g->matrices[g->n_matrices++];
        m->span = t->span;
        m->key = gw_rng_key(gw_rng_key(gw_lane_seed(env->grads), POWERSGD_STREAM), (uint64_t)i);
        m->l.rows = (size_t)t->rows;
        m->l.cols = (size_t)t->cols;
        g->second.n += r * m->l.cols;
    }
    powersgd_add_piece(g, done, gw_span_end(g->span));
    for (int i = 0; i < g->n_matrices; i++)
        g->first.n += r * g->matrices[i].l.rows;
    g->second.off = g->first.off + g->first.n;
    return gw_span_end(g->second);
}

static size_t powersgd_lay_out_all(self *me) {
    matrix *matrices = me->matrices;
    piece *pieces = me->pieces;
    size_t at = 0;
    for (int i = 0; i < me->n_groups; i++) {
        group *g = &me->groups[i];
        g->span = gw_env_span(me->env, i);
        g->matrices = matrices;
        g->pieces = pieces;
        at = powersgd_lay_out(me, g, at);
        matrices += g->n_matrices;
        pieces += g->n_pieces;
    }
    return at;
}

static gw_err powersgd_make_room(self *me) {
    const gw_env *env = me->env;
    int groups = gw_env_spans(env);
    GW_TRY(gw_alloc(&me->matrices, (size_t)env->n_tensors, sizeof *me->matrices));
    GW_TRY(gw_alloc(&me->pieces, (size_t)(env->n_tensors + groups), sizeof *me->pieces));
    GW_TRY(gw_alloc(&me->groups, (size_t)groups, sizeof *me->groups));
    me->n_groups = groups;
    return GW_OK;
}

static gw_err powersgd_open_group(self *me, group *g) {
    float *p = me->flat + gw_span_end(g->first), *q = me->flat + g->second.off;
    for (int i = g->n_matrices - 1; i >= 0; i--) /* P's are the end of the first part */
        p -= (size_t)me->rank * g->matrices[i].l.rows;
    for (int i = 0; i < g->n_matrices; i++) {
        matrix *m = &g->matrices[i];
        size_t rows = m->l.rows, cols = m->l.cols;
        GW_TRY(gw_lowrank_open(&m->l, rows, cols, me->rank, me->feedback, p, q));
        gw_lowrank_draw(&m->l, m->key);
        p += (size_t)me->rank * rows;
        q += (size_t)me->rank * cols;
    }
    return GW_OK;
}

static gw_err powersgd_open_matrices(self *me) {
    for (int i = 0; i < me->n_groups; i++)
        GW_TRY(powersgd_open_group(me, &me->groups[i]));
    return GW_OK;
}

static void powersgd_note(const self *me) {
    size_t in = 0, out = 0;
    int matrices = 0;
    char line[160];
    for (int i = 0; i < me->n_groups; i++)
        for (int k = 0; k < me->groups[i].n_matrices; k++, matrices++) {
            const matrix *m = &me->groups[i].matrices[k];
            in += m->span.n;
            out += (size_t)me->rank * (m->l.rows + m->l.cols);
        }
    snprintf(line, sizeof line,
             "powersgd: %d matrices of %zu floats travel as %zu, the other %zu floats as they are",
             matrices, in, out, me->env->n - in);
    gw_lane_note(me->env->grads, line);
    if (matrices == 0)
        gw_lane_unmet(me->env->grads, "nothing is compressed",
                      "factors would make no matrix smaller");
}

static gw_err powersgd_open(void *p, const gw_env *env) {
    self *me = p;
    gw_schedule *unused;
    if (env->n_tensors == 0)
        return gw_fail(GW_ERR_UNSUPPORTED, "powersgd: it compresses matrices, and the shapes "
                                           "of this model's tensors are not known");
    if (gw_lane_mixed(env->grads))
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "powersgd: a mix of codecs is for the model's tensors, but here factors "
                       "travel: use one codec");
    me->env = env;
    me->rank = (int)gw_args_int(env->args, "rank");
    me->warm = strcmp(gw_args_text(env->args, "warm"), "on") == 0;
    me->feedback = strcmp(gw_args_text(env->args, "feedback"), "on") == 0;
    if (gw_lane_size(env->grads) == 1)
        return GW_OK;
    gw_lane_reshape(env->grads); /* into factors */
    GW_TRY(gw_lane_agree(env->grads, powersgd_make_room(me)));
    GW_TRY(gw_lane_floats(env->grads, powersgd_lay_out_all(me), &me->flat));
    GW_TRY(gw_lane_agree(env->grads, powersgd_open_matrices(me)));
    me->sum = (gw_collective){.algo = env->algo, .lane = env->grads, .base = me->flat};
    for (int i = 0; i < me->n_groups; i++) {
        GW_TRY(gw_collective_get(&me->sum, me->groups[i].first, &unused));
        GW_TRY(gw_collective_get(&me->sum, me->groups[i].second, &unused));
    }
    powersgd_note(me);
    return GW_OK;
}

/* ---- a step ---- */

static void powersgd_prepare(const self *me, const group *g) {
    const float *grad = me->env->grad;
    for (int i = 0; i < g->n_pieces; i++)
        memcpy(me->flat + g->pieces[i].to, grad + g->pieces[i].span.off,
               g->pieces[i].span.n * sizeof *grad);
    for (int i = 0; i < g->n_matrices; i++) {
        matrix *m = &g->matrices[i];
        uint64_t key = gw_rng_key(m->key, (uint64_t)g->steps);
        if (g->steps > 0)
            (me->warm ? gw_lowrank_warm : gw_lowrank_draw)(&m->l, key);
        gw_lowrank_project(&m->l, me->env->grad + m->span.off);
    }
}

static void powersgd_gather(const self *me, const group *g) {
    for (int i = 0; i < g->n_matrices; i++) {
        gw_lowrank *l = &g->matrices[i].l;
        gw_lowrank_orthonormalise(l->p, l->rows, l->rank);
        gw_lowrank_gather(l, me->env->grad + g->matrices[i].span.off);
    }
}

static void powersgd_expand(const self *me, const group *g) {
    float *grad = me->env->grad;
    for (int i = 0; i < g->n_matrices; i++)
        gw_lowrank_expand(&g->matrices[i].l, grad + g->matrices[i].span.off);
    for (int i = 0; i < g->n_pieces; i++)
        memcpy(grad + g->pieces[i].span.off, me->flat + g->pieces[i].to,
               g->pieces[i].span.n * sizeof *grad);
}

static void powersgd_in_phase(gw_phase phase, void (*work)(const self *, const group *),
                              const self *me, const group *g) {
    gw_phase_enter(phase);
    work(me, g);
    gw_phase_leave();
}

static group *powersgd_group(self *me, gw_span s) {
    for (int i = 0; i < me->n_groups; i++)
        if (me->groups[i].span.off == s.off && me->groups[i].span.n == s.n)
            return &me->groups[i];
    return NULL;
}

static gw_err powersgd_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    *u = (gw_update){.grad = me->env->grad, .own = s, .scale = 1.0f};
    if (me->n_groups == 0)
        return GW_OK;
    group *g = powersgd_group(me, s);
    if (!g)
        return gw_fail(GW_ERR_INTERNAL, "powersgd: span [%zu, %zu) was not announced", s.off,
                       gw_span_end(s));
    powersgd_in_phase(GW_PHASE_ENCODE, powersgd_prepare, me, g);
    GW_TRY(gw_collective_run(&me->sum, g->first));
    powersgd_in_phase(GW_PHASE_ENCODE, powersgd_gather, me, g);
    GW_TRY(gw_collective_run(&me->sum, g->second));
    powersgd_in_phase(GW_PHASE_DECODE, powersgd_expand, me, g);
    g->steps++;
    return GW_OK;
}

static gw_err powersgd_matrix_state(matrix *m, gw_io *io) {
    gw_lowrank *l = &m->l;
    GW_TRY(gw_io_field(io, "r", l->q, (size_t)l->rank * l->cols * sizeof *l->q));
    if (!l->m)
        return GW_OK;
    gw_lowrank_settle(l);
    return gw_io_field(io, "residual", l->m, l->rows * l->cols * sizeof *l->m);
}

static gw_err powersgd_state(void *p, gw_io *io) {
    self *me = p;
    for (int i = 0; i < me->n_groups; i++) {
        group *g = &me->groups[i];
        GW_TRY(gw_io_alike(io, "steps", &g->steps, sizeof g->steps));
        for (int k = 0; k < g->n_matrices; k++)
            GW_TRY(powersgd_matrix_state(&g->matrices[k], io));
    }
    return GW_OK;
}

static gw_cost powersgd_cost(const void *p, int64_t exchange) {
    const self *me = p;
    gw_cost sum = {0};
    (void)exchange;
    for (int i = 0; i < me->n_groups; i++) {
        sum = gw_cost_sum(sum, gw_collective_cost(&me->sum, me->groups[i].first));
        sum = gw_cost_sum(sum, gw_collective_cost(&me->sum, me->groups[i].second));
    }
    return sum;
}

static const gw_opt opts[] = {
    {"rank", GW_OPT_INT, "2", 1, GW_LOWRANK_MOST, NULL, "R", "rank of the factors of a matrix"},
    {"feedback", GW_OPT_CHOICE, "on", 0, 0, "on|off", NULL,
     "add what the factors dropped to the next gradient"},
    {"warm", GW_OPT_CHOICE, "on", 0, 0, "on|off", NULL,
     "start from the factors of the last step instead of random ones"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_powersgd = {
    .head = {GW_STRATEGY_ABI, "powersgd",
             "low-rank factors of each weight matrix, in two small allreduces; error feedback",
             opts},
    .traits = GW_STRATEGY_SYNCHRONOUS | GW_STRATEGY_LOSSY | GW_STRATEGY_MEAN,
    .shape = GW_SHAPE_WHOLE,
    .formula = "one allreduce of R * rows per matrix + all else, one of R * cols per matrix",
    .refuses = powersgd_refuses,
    .size = sizeof(self),
    .open = powersgd_open,
    .close = powersgd_close,
    .finish = powersgd_finish,
    .state = powersgd_state,
    .cost = powersgd_cost,
    .most = 0x1p80f, /* products with factors, summed over a matrix, stay far from 2^128 */
};
