/* dion: a momentum of each matrix, of which a few factors are exchanged and made orthonormal (K.
 * Ahn, B. Xu, N. Abreu, J. Langford and others, "Dion: Distributed Orthonormalized Updates", 2025,
 * arXiv 2504.05295). Of ranks k with gradients G_k whose sum is the mean gradient:
 *
 *     M_k += G_k
 *     P    = orthonormal columns of sum_k M_k Q
 *     R_k  = M_k^T P,  R = sum_k R_k
 *     M_k -= (1 - momentum) P R_k^T
 *     Q    = R with columns of length 1 (orth=column), or orthonormal ones (orth=qr)
 *
 * and sqrt(outputs / inputs) P Q^T is what the matrix moves by, times the rate. Orthonormal columns
 * of R are Orth-Dion's (T. Nakamori and others, "Orth-Dion: Eliminating Geometric Mismatch in
 * Distributed Low-Rank Spectral Optimization", 2026, arXiv 2605.16341).
 *
 * Each rank keeps its own M_k, and only P and R travel ("decoupled momentum"). All M_k together are
 * the momentum of the mean gradient, so any number of ranks makes the updates of one. The paper's
 * ranks all subtract the mean of what was sent. The sum is the same, but then what sets a rank's
 * gradient apart would never leave its M_k. The paper's matrices have a row for each output. Where
 * they have one for each input, P and Q change sides; the factor does not. Of a matrix that a mesh
 * cuts each part is one. First and last layer are matrices as all others.
 *
 * The paper gives all else to another rule. Here vectors, and matrices that factors would not make
 * smaller, travel as they are and move by Lion's sign (X. Chen et al., "Symbolic discovery of
 * optimization algorithms", NeurIPS 2023), times `rest` and for a matrix 1 / sqrt(inputs), the
 * paper's factor for the last layer. Running means are handed out as they are. */
#include "base/mem.h"
#include "base/probe.h"
#include "comm/factors.h"
#include "mpi/agree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct self {
    gw_factors factors;
    bool columns; /* of Q have length 1, but are not orthogonal */
    double rest;
    float *momentum; /* of the pieces */
} self;

static void dion_close(void *p) {
    self *me = p;
    gw_factors_close(&me->factors);
    free(me->momentum);
}

static gw_err dion_open(void *p, const gw_env *env) {
    self *me = p;
    gw_factors_setup setup = {.stream = 0x64696f6eu,
                              .feedback = true,
                              .keep = (float)gw_args_real(env->args, "momentum"),
                              .alone = true};
    me->columns = strcmp(gw_args_text(env->args, "orth"), "column") == 0;
    me->rest = gw_args_real(env->args, "rest");
    GW_TRY(gw_factors_open(&me->factors, env, &setup));
    return gw_lane_agree(env->grads,
                         gw_alloc(&me->momentum, me->factors.whole, sizeof *me->momentum));
}

static double dion_inputs(const self *me, const gw_tensor *t) {
    return me->factors.env->in_rows ? t->rows : t->cols;
}

/* The length goes into Q: what the next step makes orthonormal does not depend on it. */
static void dion_make_direction(const self *me, const gw_factors_matrix *m) {
    const gw_tensor *t = m->tensor;
    double inputs = dion_inputs(me, t), outputs = (double)t->rows * t->cols / inputs;
    if (!me->columns)
        gw_lowrank_orthonormalise(m->l.q, m->l.cols, m->l.rank);
    gw_lowrank_normalise(m->l.q, m->l.cols, m->l.rank, sqrt(outputs / inputs));
}

static void dion_lion(float *restrict g, float *restrict m, size_t n, float rate) {
    for (size_t i = 0; i < n; i++) {
        float to = 0.9f * m[i] + 0.1f * g[i]; /* 0 and NaN stay what they are */
        m[i] = 0.99f * m[i] + 0.01f * g[i];
        g[i] = to > 0 ? rate : to < 0 ? -rate : to;
    }
}

static void dion_move_rest(const self *me, const gw_factors_group *g) {
    for (const gw_factors_piece *p = g->pieces; p < g->pieces + g->n_pieces; p++) {
        const gw_tensor *t = p->tensor;
        double rate = t->rows == 1 ? me->rest : me->rest / sqrt(dion_inputs(me, t));
        if (!t->tracks)
            dion_lion(me->factors.env->grad + p->span.off, me->momentum + p->nth, p->span.n,
                      (float)rate);
    }
}

static gw_err dion_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    gw_factors_group *g;
    (void)u;
    GW_TRY(gw_factors_sum(&me->factors, s, &g));
    gw_work_enter(GW_PHASE_DECODE);
    for (int i = 0; i < g->n_matrices; i++)
        dion_make_direction(me, &g->matrices[i]);
    gw_work_leave();
    gw_factors_hand_out(&me->factors, g);
    gw_work_enter(GW_PHASE_DECODE);
    dion_move_rest(me, g);
    gw_work_leave();
    return GW_OK;
}

static gw_err dion_state(void *p, gw_io *io) {
    self *me = p;
    GW_TRY(gw_factors_state(&me->factors, io));
    return gw_io_field(io, "momentum", me->momentum, me->factors.whole * sizeof *me->momentum);
}

static gw_cost dion_cost(const void *p, int64_t exchange, int64_t *period) {
    return gw_factors_cost(&((const self *)p)->factors, exchange, period);
}

static const gw_opt opts[] = {GW_FACTORS_RANK("8"),
                              {"momentum", GW_OPT_REAL, "0.95", 0, 0.9999, NULL, "X",
                               "fraction of what was sent that stays in a matrix's momentum"},
                              {"orth", GW_OPT_CHOICE, "column", 0, 0, "column|qr", NULL,
                               "second factor: columns of length 1, or orthonormal ones"},
                              {"rest", GW_OPT_REAL, "0.3", 0, 1e6, NULL, "X",
                               "rate of parameters without factors, times --lr"},
                              GW_STRATEGY_ALGO,
                              {0}};

const gw_strategy_ops gw_strategy_dion = {
    .head = {GW_STRATEGY_ABI, "dion",
             "orthonormal low-rank factors of each matrix's momentum, in two small allreduces",
             opts},
    .gives = GW_GIVES_DIRECTION,
    .traits = GW_STRATEGY_LOSSY,
    .shape = GW_SHAPE_WHOLE,
    .formula = GW_FACTORS_FORMULA,
    .plan = gw_factors_plan,
    .size = sizeof(self),
    .open = dion_open,
    .close = dion_close,
    .finish = dion_finish,
    .state = dion_state,
    .cost = dion_cost,
    .most = GW_FACTORS_MOST,
};
