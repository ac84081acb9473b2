/* demo: each rank keeps a momentum of its own, and sends the largest coefficients of its cosine
 * transform, which then leave the momentum; the sign of their mean moves the parameters (B. Peng,
 * J. Quesnelle, D. P. Kingma, "DeMo: Decoupled momentum optimization", arXiv:2411.19870). Of rank
 * i's mean gradient g_i, by blocks:
 *
 *   m_i = beta m_i + DCT(g_i);  q_i = the k largest of m_i;  m_i -= q_i
 *   u = the inverse DCT of the mean, at each coefficient, over the ranks that sent it
 *
 * and sign(u) is handed out. A matrix is cut into blocks whose sides are the largest divisors of
 * its own up to 64, a vector into such runs. The transform is orthonormal and linear, so m_i is
 * kept as coefficients. The paper multiplies g_i by the learning rate, which the sign does not see
 * unless it changes: under a schedule its old momentum keeps its old weight, and here it does not.
 * `k` is that of a block of 4096, of a smaller one as many in proportion, and one at least: the
 * published code keeps half of a bias of 64. A coefficient is one word: its place in the block, and
 * a bfloat16, whose rounding stays in m_i as well. All ranks add up in the order of the ranks, so
 * they end with the same bits.
 *
 * Cost: an allgather of one word a coefficient and rank. With --update lazy one a layer. */
#include "comm/schedule/collective.h"
#include "comm/strategy.h"

#include "base/mem.h"
#include "base/probe.h"
#include "compress/dct.h"
#include "compress/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = GW_DCT_MOST * GW_DCT_MOST };

/* A tensor, in blocks. */
typedef struct grid {
    const gw_tensor *tensor;
    gw_dct block;
    size_t down, across; /* blocks */
    size_t kept;         /* of a block */
} grid;

/* What one finish() exchanges. */
typedef struct group {
    gw_span span, words; /* of the arena; of `words`, all ranks' */
    const grid *grids;
    int n;
} group;

typedef struct self {
    const gw_env *env;
    const gw_pick_kernels *kernels;
    float beta;
    float *m;     /* coefficients, block by block in the place of their tensor */
    float *words; /* what is gathered */
    grid *grids;
    group *groups;
    float *bases[GW_DCT_MOST + 1]; /* by length */
    uint32_t *room;                /* to select in */
    gw_collective gather;
} self;

static const char *demo_plan(gw_strategy_plan *p) {
    return !p->codec || p->codec->caps & GW_CODEC_LOSSLESS
               ? NULL
               : "it compresses by itself, and what it sends are no numbers that another codec "
                 "could round: use --compress none, or a lossless one";
}

static void demo_close(void *p) {
    self *me = p;
    gw_collective_clear(&me->gather);
    for (int i = 0; i <= GW_DCT_MOST; i++)
        free(me->bases[i]);
    free(me->m);
    free(me->grids);
    free(me->groups);
    free(me->room);
}

/* ---- opening ---- */

static gw_err demo_basis(self *me, size_t n, const float **out) {
    if (!me->bases[n]) {
        GW_TRY(gw_alloc(&me->bases[n], n * n, sizeof(float)));
        gw_dct_basis(me->bases[n], n);
    }
    *out = me->bases[n];
    return GW_OK;
}

static gw_err demo_cut(self *me, const gw_tensor *t, grid *g) {
    size_t rows = (size_t)t->rows, cols = (size_t)t->cols;
    g->tensor = t;
    g->block.rows = gw_dct_side(rows);
    g->block.cols = gw_dct_side(cols);
    g->down = rows / g->block.rows;
    g->across = cols / g->block.cols;
    size_t n = g->block.rows * g->block.cols, k = (size_t)gw_args_int(me->env->args, "k");
    g->kept = (n * k + BLOCK / 2) / BLOCK;
    g->kept = g->kept < 1 ? 1 : g->kept;
    GW_TRY(demo_basis(me, g->block.rows, &g->block.by_row));
    return demo_basis(me, g->block.cols, &g->block.by_col);
}

static size_t demo_kept(const grid *g) {
    return g->down * g->across * g->kept;
}

/* Which tensors lie in a span that finish() asks for, and how many words a rank sends of them. */
static gw_err demo_lay_out(self *me, group *g, grid *grids, size_t at) {
    const gw_env *env = me->env;
    size_t words = 0;
    g->grids = grids;
    for (int i = 0; i < env->n_tensors; i++) {
        const gw_tensor *t = &env->tensors[i];
        if (t->span.n == 0 || t->span.off < g->span.off ||
            gw_span_end(t->span) > gw_span_end(g->span))
            continue;
        GW_TRY(demo_cut(me, t, &grids[g->n]));
        words += demo_kept(&grids[g->n++]);
    }
    g->words = (gw_span){at, words * (size_t)gw_lane_size(env->grads)};
    return GW_OK;
}

static gw_err demo_make_room(self *me) {
    const gw_env *env = me->env;
    size_t at = 0;
    int used = 0;
    GW_TRY(gw_pick_open(&me->kernels));
    GW_TRY(gw_alloc(&me->m, env->n, sizeof *me->m));
    GW_TRY(gw_alloc(&me->grids, (size_t)env->n_tensors, sizeof *me->grids));
    GW_TRY(gw_alloc(&me->groups, (size_t)gw_env_spans(env), sizeof *me->groups));
    GW_TRY(gw_alloc(&me->room, gw_select_words(BLOCK, BLOCK), sizeof *me->room));
    for (int i = 0; i < gw_env_spans(env); i++) {
        group *g = &me->groups[i];
        g->span = gw_env_span(env, i);
        GW_TRY(demo_lay_out(me, g, me->grids + used, at));
        used += g->n;
        at = gw_span_end(g->words);
    }
    return GW_OK;
}

static gw_err demo_check(const gw_env *env) {
    if (env->n_tensors == 0)
        return gw_fail(GW_ERR_UNSUPPORTED, "demo: it transforms matrices, and the shapes of this "
                                           "model's tensors are not known");
    if (gw_lane_mixed(env->grads))
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "demo: a mix of codecs is for the model's tensors, but here coefficients "
                       "travel: use one codec");
    return gw_env_refuse_tracked(env);
}

static gw_err demo_open(void *p, const gw_env *env) {
    self *me = p;
    gw_schedule *unused;
    int spans = gw_env_spans(env);
    me->env = env;
    me->beta = (float)gw_args_real(env->args, "beta");
    GW_TRY(demo_check(env));
    gw_lane_reshape(env->grads); /* into coefficients */
    GW_TRY(gw_lane_agree(env->grads, demo_make_room(me)));
    GW_TRY(gw_lane_floats(env->grads, gw_span_end(me->groups[spans - 1].words), &me->words));
    me->gather = (gw_collective){
        .algo = env->algo, .verb = GW_ALLGATHER, .lane = env->grads, .base = me->words};
    for (int i = 0; i < spans; i++)
        GW_TRY(gw_collective_get(&me->gather, me->groups[i].words, &unused));
    return GW_OK;
}

/* ---- a step ---- */

/* Place and bfloat16, to the nearest even; a NaN stays one. */
static uint32_t demo_word(uint32_t at, uint32_t bits) {
    uint32_t half = (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40
                                                     : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return at << 16 | (half & 0xffff);
}

static float demo_value(uint32_t word) {
    return gw_float_of(word << 16);
}

/* Where a block begins in its tensor of the arena. */
static size_t demo_corner(const grid *g, size_t block) {
    size_t row = block / g->across * g->block.rows, col = block % g->across * g->block.cols;
    return g->tensor->span.off + row * (size_t)g->tensor->cols + col;
}

/* The words of this rank: what leaves the momentum of a block. */
static void demo_pick(self *me, const grid *g, size_t block, float scale, float *out) {
    float c[BLOCK];
    size_t n = g->block.rows * g->block.cols;
    float *m = me->m + g->tensor->span.off + block * n;
    gw_kept kept;
    gw_dct_forward(&g->block, me->env->grad + demo_corner(g, block), (size_t)g->tensor->cols, c);
    for (size_t i = 0; i < n; i++)
        m[i] = me->beta * m[i] + scale * c[i];
    gw_select_largest(me->kernels, m, NULL, n, g->kept, me->room, &kept);
    for (size_t i = 0; i < g->kept; i++) {
        uint32_t word = demo_word(kept.at[i], kept.bits[i]);
        memcpy(out + i, &word, sizeof word);
        m[kept.at[i]] -= demo_value(word);
    }
}

/* The direction of a block, from all ranks' words; `apart` of one rank from the next. */
static void demo_put(const self *me, const grid *g, size_t block, const float *in, size_t apart) {
    float sum[BLOCK] = {0}, u[BLOCK];
    int senders[BLOCK] = {0};
    size_t n = g->block.rows * g->block.cols, cols = (size_t)g->tensor->cols;
    float *to = me->env->grad + demo_corner(g, block);
    for (int r = 0; r < gw_lane_size(me->env->grads); r++, in += apart)
        for (size_t i = 0; i < g->kept; i++) {
            uint32_t word;
            memcpy(&word, in + i, sizeof word);
            size_t at = word >> 16 & (BLOCK - 1);
            /* Zeros are all that a rank has that had no samples yet. */
            sum[at] += demo_value(word);
            senders[at] += demo_value(word) != 0;
        }
    for (size_t i = 0; i < n; i++)
        sum[i] /= (float)(senders[i] > 1 ? senders[i] : 1);
    gw_dct_inverse(&g->block, sum, u, g->block.cols);
    for (size_t i = 0; i < g->block.rows; i++)
        for (size_t j = 0; j < g->block.cols; j++) {
            float x = u[i * g->block.cols + j];
            to[i * cols + j] = x > 0 ? 1.0f : x < 0 ? -1.0f : x;
        }
}

static void demo_encode(self *me, const group *g, float *out) {
    /* A rank's mean gradient: all ranks count the same. */
    float scale = me->env->share > 0 ? (float)(1 / me->env->share) : 0;
    gw_work_enter(GW_PHASE_ENCODE);
    for (int i = 0; i < g->n; i++)
        for (size_t k = 0; k < g->grids[i].down * g->grids[i].across; k++) {
            demo_pick(me, &g->grids[i], k, scale, out);
            out += g->grids[i].kept;
        }
    gw_work_leave();
}

static void demo_decode(const self *me, const group *g, const float *in, size_t apart) {
    gw_work_enter(GW_PHASE_DECODE);
    for (int i = 0; i < g->n; i++)
        for (size_t k = 0; k < g->grids[i].down * g->grids[i].across; k++) {
            demo_put(me, &g->grids[i], k, in, apart);
            in += g->grids[i].kept;
        }
    gw_work_leave();
}

static gw_err demo_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    int i;
    (void)u;
    GW_TRY(gw_env_find(me->env, s, &i));
    const group *g = &me->groups[i];
    size_t apart = g->words.n / (size_t)gw_lane_size(me->env->grads);
    float *words = me->words + g->words.off;
    demo_encode(me, g, words + (size_t)gw_lane_rank(me->env->grads) * apart);
    GW_TRY(gw_collective_run(&me->gather, g->words));
    demo_decode(me, g, words, apart);
    return GW_OK;
}

static gw_err demo_state(void *p, gw_io *io) {
    self *me = p;
    return gw_io_field(io, "momentum", me->m, me->env->n * sizeof *me->m);
}

static gw_cost demo_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    gw_cost sum = {0};
    (void)exchange, (void)period;
    for (int i = 0; i < gw_env_spans(me->env); i++)
        sum = gw_cost_sum(sum, gw_collective_cost(&me->gather, me->groups[i].words));
    return sum;
}

static const gw_opt opts[] = {
    {"k", GW_OPT_INT, "32", 1, BLOCK, NULL, "N",
     "coefficients sent per 4096; from smaller blocks in proportion, at least one"},
    {"beta", GW_OPT_REAL, "0.999", 0, 0.999999, NULL, "X", "decay of the momentum"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_demo = {
    .head = {GW_STRATEGY_ABI, "demo",
             "the largest cosine coefficients of each rank's own momentum; signs move parameters",
             opts},
    .gives = GW_GIVES_DIRECTION,
    .traits = GW_STRATEGY_LOSSY,
    .formula = "one allgather of P words of 4 bytes a coefficient",
    .plan = demo_plan,
    .size = sizeof(self),
    .open = demo_open,
    .close = demo_close,
    .finish = demo_finish,
    .state = demo_state,
    .cost = demo_cost,
    .most = 0x1p80f, /* sums over a block and over old gradients stay far from 2^128 */
};
