/* oktopk: the k largest elements of all gradients, by a sparse allreduce that sends less than 6k
 * words a rank however many ranks there are, where gathering everybody's k elements takes 2k (P-1)
 * (S. Li, T. Hoefler, "Near-optimal sparse allreduce for distributed deep learning", PPoPP 2022).
 * With v = gradient + residual, in each step:
 *
 *  1. Choose. A rank takes the elements of v that reach its threshold: about k.
 *  2. Split and reduce. The arena is cut into a region a rank, in each of which the ranks have
 *     chosen about equally many. Each rank sends a region's elements to its owner, who adds them up
 *     in the order of the ranks.
 *  3. Gather. What reaches the global threshold, again about k, goes to all ranks and is the
 *     update. An element of v in it that this rank has sent leaves the residual; all else stays.
 *
 * Every `every` steps thresholds become the k-th largest magnitude, exactly; the owners gather
 * their k largest then. In between they move by a fortieth where fewer than 4k/5 or more than 5k/4
 * elements reach them. Every `boundaries` steps the arena is cut anew, by an allreduce of P-1
 * numbers: the mean of where each rank would cut its own elements. So regions and the global
 * threshold come from what all ranks know, and are the same on all of them.
 *
 * Two things differ from the paper. If more than 2k elements reach a threshold, it is made exact at
 * once, so messages are bounded while gradients change. And lists are gathered round a ring, on
 * which no rank sends more than all of them together; they need not be balanced before.
 *
 * Synchronous; not exact. On one rank nothing is sent, so nothing is dropped. Cost: P(P-1) lists of
 * k/P elements to the owners, as many round the ring: 2k (P-1)/P elements a rank, of 5 bytes or a
 * little more (compress/sparse_wire.h); with exact thresholds up to k (P-1) more. Memory: the
 * residual, and room for 3P lists of 2k. With --update lazy all that a layer. */
#include "comm/schedule/sparse_sum.h"
#include "comm/strategy.h"

#include "base/mem.h"
#include "base/steady.h"
#include "compress/ratio.h"
#include "compress/sparse_wire.h"

#include <stdlib.h>
#include <string.h>

#define OKTOPK_MOVE 1.025f /* of a threshold in a step */

enum { CHUNK = 4096 }; /* floats: still in L1 when their values are read */

/* What one finish() exchanges. */
typedef struct group {
    gw_span span;          /* of the arena */
    size_t k, most;        /* elements: aimed at; in a list */
    size_t *from;          /* where a region begins in the span, and the last one ends */
    uint32_t local, whole; /* thresholds, as magnitudes above 0: of this rank; of the sums */
    int64_t steps;
    gw_schedule *schedule;
} group;

typedef struct self {
    gw_sparse wire; /* first: of `codec`, which writes the lists */
    gw_codec codec;
    const gw_env *env;
    gw_lane *lane; /* for the lists */
    gw_ratio ratio;
    int64_t every, boundaries;
    float *residual;   /* v, once a step's gradient is added */
    float *cuts;       /* what is reduced: P-1 numbers a group */
    gw_collective sum; /* over it */
    group *groups;
    int n_groups; /* 0 on one rank: nothing to exchange */
    /* of a step */
    group *now;
    bool exact;          /* the thresholds are to become so */
    gw_kept own, piece;  /* chosen of v; of the sums of this rank's region */
    uint32_t *words;     /* both of these, */
    size_t room;         /* so many elements in each */
    int written;         /* lists so far */
    gw_sparse_sum lists; /* what has come, and its sum */
    gw_elements update;
} self;

static const char *oktopk_plan(gw_strategy_plan *p) {
    p->picks = true;
    return !p->codec || p->codec->ops->caps & GW_CODEC_IDENTITY
               ? NULL
               : "it compresses by itself, into lists of places and values that no other codec "
                 "encodes: use --compress none";
}

/* ---- choosing ---- */

/* Those that reach a threshold. More than g->most of them are counted, but not all listed. */
static void oktopk_pick(const self *me, const float *x, float *e, size_t n, uint32_t least,
                        gw_kept *kept) {
    const float *from = e ? e : x;
    size_t most = me->now->most;
    for (size_t lo = 0; lo < n; lo += CHUNK) {
        size_t m = n - lo < CHUNK ? n - lo : CHUNK, had = kept->n < most ? kept->n : most;
        size_t found = gw_pick_chunk(me->wire.kernels, x + lo, e ? e + lo : NULL, m, least,
                                     (uint32_t)lo, kept->at + had);
        for (size_t i = had; i < had + found; i++)
            kept->bits[i] = gw_float_bits(from[kept->at[i]]);
        kept->n += found;
    }
}

/* The elements of x, or of e after e += x, that reach *least, or if `exact` the k largest, by which
 * *least is set. Zeros never. */
static void oktopk_choose(const self *me, const float *x, float *e, size_t n, bool exact,
                          uint32_t *least, gw_kept *kept) {
    const group *g = me->now;
    const gw_pick_kernels *kernels = me->wire.kernels;
    uint32_t *words = me->words + (kept == &me->own ? 0 : 2 * me->room);
    *kept = (gw_kept){.at = words, .bits = words + me->room};
    if (n == 0)
        return;
    if (!exact) {
        oktopk_pick(me, x, e, n, *least, kept);
        if (kept->n <= g->most)
            return;
        x = e ? e : x;
        e = NULL;
    }
    gw_select_largest(kernels, x, e, n, g->k < n ? g->k : n, words, kept);
    kept->n = kernels->filter(kept->at, kept->bits, kept->n, 1);
    *least = kept->n < g->k ? 1 : GW_MAGNITUDE;
    for (size_t i = 0; i < kept->n; i++)
        *least = gw_magnitude(kept->bits[i]) < *least ? gw_magnitude(kept->bits[i]) : *least;
}

/* A threshold that `found` elements reached. */
static uint32_t oktopk_move(uint32_t least, size_t found, size_t k) {
    float t = gw_float_of(least);
    if (5 * found < 4 * k)
        t /= OKTOPK_MOVE;
    else if (4 * found > 5 * k)
        t *= OKTOPK_MOVE;
    uint32_t moved = gw_magnitude(gw_float_bits(t));
    return moved ? moved : 1;
}

/* ---- regions ---- */

static gw_err oktopk_cut(self *me) {
    group *g = me->now;
    size_t ranks = (size_t)me->lists.ranks, n = g->span.n;
    gw_span s = {(size_t)(g - me->groups) * (ranks - 1), ranks - 1};
    for (size_t r = 1; r < ranks; r++)
        me->cuts[s.off + r - 1] =
            (float)(me->own.n ? me->own.at[me->own.n * r / ranks] : n * r / ranks);
    GW_TRY(gw_collective_run(&me->sum, s));
    for (size_t r = 1; r < ranks; r++) { /* rounded, it may fall behind the one before */
        size_t at = (size_t)(me->cuts[s.off + r - 1] / (float)ranks);
        g->from[r] = at < g->from[r - 1] ? g->from[r - 1] : at < n ? at : n;
    }
    return GW_OK;
}

/* ---- the lists' codec ---- */

/* In a step it writes what is for the regions, this rank's first, with places from the beginning of
 * each, and at last the largest sums. */
static gw_err oktopk_write(gw_sparse *s, gw_turn turn, const float *x, float *e, size_t n,
                           gw_kept *kept, gw_block **block) {
    self *me = (self *)(void *)s;
    int ranks = me->lists.ranks, r = (gw_lane_rank(me->lane) + me->written) % ranks;
    const size_t *from = &me->now->from[r];
    const gw_kept *own = &me->own;
    size_t i = 0;
    (void)turn, (void)x, (void)e, (void)n;
    *block = NULL;
    *kept = me->piece;
    if (me->written++ == ranks)
        return GW_OK;
    while (i < own->n && own->at[i] < from[0])
        i++;
    *kept = (gw_kept){.at = me->words + 2 * me->room, .bits = own->bits + i};
    for (; i < own->n && own->at[i] < from[1]; i++)
        kept->at[kept->n++] = own->at[i] - (uint32_t)from[0];
    return GW_OK;
}

static size_t oktopk_fewest(const gw_sparse *s, size_t n) {
    (void)s, (void)n;
    return 0;
}

static size_t oktopk_most(const gw_sparse *s, size_t n) {
    const self *me = (const self *)(const void *)s;
    size_t k = gw_ratio_least(&me->ratio, n);
    return k < n / 2 ? 2 * k : n;
}

static const gw_codec_ops oktopk_lists = {
    .head = {GW_CODEC_ABI, "oktopk", "lists of elements", NULL},
    .caps = GW_CODEC_SPARSE | GW_CODEC_BIASED,
    .bound = gw_sparse_bound,
    .encode = gw_sparse_encode,
    .decode = gw_sparse_decode,
    .list = gw_sparse_list,
};

/* ---- between messages ---- */

/* Places of a damaged list may lie outside its region. */
static gw_err oktopk_check(const self *me, int rank, int region) {
    const gw_elements *l = &me->lists.of[rank];
    size_t n = me->now->from[region + 1] - me->now->from[region];
    if (l->n > 0 && l->at[l->n - 1] >= n)
        return gw_fail(GW_ERR_CORRUPT, "oktopk: from rank %d: element %u of a region of %zu",
                       gw_lane_root_rank(me->lane, rank), l->at[l->n - 1], n);
    return GW_OK;
}

/* All ranks' elements of this rank's region are there. */
static gw_err oktopk_reduce(void *p) {
    self *me = p;
    gw_sparse_sum *t = &me->lists;
    gw_err e = GW_OK;
    int rank = gw_lane_rank(me->lane);
    size_t *from = &me->now->from[rank];
    uint32_t least = me->now->whole; /* a region's own is of no use */
    gw_work_enter(GW_PHASE_DECODE);
    for (int r = 0; r < t->ranks; r++)
        GW_THEN(e, oktopk_check(me, r, rank));
    t->span = (gw_span){0, from[1] - from[0]};
    GW_THEN(e, gw_sparse_sum_add_up(t));
    if (e == GW_OK)
        oktopk_choose(me, t->sum.value, NULL, t->sum.n, me->exact, &least, &me->piece);
    for (size_t i = 0; e == GW_OK && i < me->piece.n; i++)
        me->piece.at[i] = t->sum.at[me->piece.at[i]];
    gw_work_leave();
    return e;
}

/* All regions' largest sums, one behind another. */
static gw_err oktopk_join(self *me) {
    const gw_elements *of = me->lists.of;
    gw_elements *all = &me->update;
    size_t n = 0;
    for (int r = 0; r < me->lists.ranks; r++)
        n += of[r].n;
    GW_TRY(gw_elements_reserve(all, n));
    all->n = 0;
    for (int r = 0; r < me->lists.ranks; r++) {
        GW_TRY(oktopk_check(me, r, r));
        for (size_t i = 0; i < of[r].n; i++, all->n++) {
            all->at[all->n] = (uint32_t)(me->now->span.off + me->now->from[r]) + of[r].at[i];
            all->value[all->n] = of[r].value[i];
        }
    }
    return GW_OK;
}

/* Drop what does not reach the new global threshold, which all ranks find alike. */
static void oktopk_drop(self *me) {
    group *g = me->now;
    gw_elements *all = &me->update;
    if (me->exact || all->n > g->most) {
        oktopk_choose(me, all->value, NULL, all->n, true, &g->whole, &me->piece);
        all->n = me->piece.n;
        for (size_t i = 0; i < all->n; i++) { /* they ascend, so none is overwritten before */
            all->at[i] = all->at[me->piece.at[i]];
            all->value[i] = gw_float_of(me->piece.bits[i]);
        }
    }
    g->whole = oktopk_move(g->whole, all->n, g->k);
}

/* What this rank has sent of the update is in it. */
static void oktopk_keep_rest(const self *me) {
    const gw_elements *all = &me->update;
    size_t j = 0;
    for (size_t i = 0; i < me->own.n; i++) {
        size_t at = me->now->span.off + me->own.at[i];
        while (j < all->n && all->at[j] < at)
            j++;
        if (j < all->n && all->at[j] == at)
            me->residual[at] -= gw_float_of(me->own.bits[i]);
    }
}

/* All ranks have the lists that were gathered. */
static void oktopk_take(self *me, gw_update *u) {
    const gw_elements *all = &me->update;
    float *grad = me->env->grad;
    oktopk_drop(me);
    oktopk_keep_rest(me);
    if (me->env->lists) {
        u->lists = all;
        u->n_lists = 1;
        return;
    }
    memset(grad + u->own.off, 0, u->own.n * sizeof *grad);
    for (size_t i = 0; i < all->n; i++)
        grad[all->at[i]] = all->value[i];
}

/* ---- opening ---- */

static void oktopk_close(void *p) {
    self *me = p;
    gw_collective_clear(&me->sum);
    for (int i = 0; i < me->n_groups; i++) {
        gw_schedule_free(me->groups[i].schedule);
        free(me->groups[i].from);
    }
    gw_sparse_sum_free(&me->lists);
    gw_elements_free(&me->update);
    free(me->words);
    free(me->residual);
    free(me->groups);
}

static gw_err oktopk_lay_down(self *me, gw_schedule *s, int *slots) {
    gw_span span = gw_schedule_span(s);
    int rank = gw_lane_rank(me->lane), ranks = me->lists.ranks;
    for (int i = 0; i < ranks; i++) { /* staggered: not everybody to rank 0 first */
        int peer = (rank + ranks - i) % ranks, region;
        GW_TRY(gw_schedule_pack(s, span, false, i == 0 ? &slots[rank] : &region));
        if (i == 0)
            continue;
        GW_TRY(gw_schedule_recv(s, span, peer, false, &slots[peer]));
        GW_TRY(gw_schedule_send(s, region, (rank + i) % ranks));
    }
    GW_TRY(gw_schedule_round(s));
    for (int r = 0; r < ranks; r++)
        GW_TRY(gw_schedule_list(s, slots[r], span, &me->lists.of[r]));
    GW_TRY(gw_schedule_work(s, oktopk_reduce, me));
    GW_TRY(gw_schedule_pack(s, span, false, &slots[rank]));
    for (int i = 1; i < ranks; i++) {
        int at = (rank + ranks - i) % ranks, next = (rank + 1) % ranks;
        GW_TRY(gw_schedule_recv(s, span, (rank + ranks - 1) % ranks, false, &slots[at]));
        GW_TRY(gw_schedule_send(s, slots[(at + 1) % ranks], next));
        GW_TRY(gw_schedule_round(s));
    }
    for (int r = 0; r < ranks; r++)
        GW_TRY(gw_schedule_list(s, slots[r], span, &me->lists.of[r]));
    return GW_OK;
}

static gw_err oktopk_make_room(self *me) {
    const gw_env *env = me->env;
    size_t ranks = (size_t)gw_lane_size(env->grads);
    GW_TRY(gw_alloc(&me->groups, (size_t)gw_env_spans(env), sizeof *me->groups));
    GW_TRY(gw_alloc(&me->residual, env->n, sizeof *me->residual));
    GW_TRY(gw_sparse_sum_open(&me->lists, (int)ranks));
    while (me->n_groups < gw_env_spans(env)) {
        gw_span span = gw_env_span(env, me->n_groups);
        size_t k = gw_ratio_least(&me->ratio, span.n), most = oktopk_most(&me->wire, span.n);
        size_t room = span.n ? gw_select_words(span.n, most) / 2 : 0;
        group *g = &me->groups[me->n_groups++];
        *g = (group){.span = span, .k = k, .most = most, .local = 1, .whole = 1};
        GW_TRY(gw_alloc(&g->from, ranks + 1, sizeof *g->from));
        g->from[ranks] = span.n;
        me->room = me->room > room ? me->room : room;
    }
    GW_TRY(gw_alloc(&me->words, 4 * me->room, sizeof *me->words));
    return gw_pick_open(&me->wire.kernels);
}

static gw_err oktopk_lay_down_all(self *me) {
    const gw_env *env = me->env;
    size_t others = (size_t)me->lists.ranks - 1;
    int *slots = NULL;
    GW_TRY(gw_lane_floats(env->grads, (size_t)me->n_groups * others, &me->cuts));
    me->sum = (gw_collective){.algo = env->algo, .lane = env->grads, .base = me->cuts};
    gw_err e = gw_alloc(&slots, others + 1, sizeof *slots);
    GW_TRY(gw_lane_agree(env->grads, e));
    for (int i = 0; i < me->n_groups; i++) {
        group *g = &me->groups[i];
        gw_schedule *unused;
        GW_THEN(e, gw_collective_get(&me->sum, (gw_span){(size_t)i * others, others}, &unused));
        GW_THEN(e, gw_schedule_new(&g->schedule, me->lane, env->grad, g->span));
        GW_THEN(e, oktopk_lay_down(me, g->schedule, slots));
    }
    free(slots);
    return e;
}

/* Why elements of this arena cannot go as lists. */
static const char *oktopk_lacks(const gw_env *env) {
    if (gw_lane_mixed(env->grads))
        return "it takes the largest elements of all tensors, whatever a mix of codecs says: use "
               "--compress none";
    return env->n > GW_SELECT_MOST ? "so many parameters are too many for 32-bit places" : NULL;
}

static gw_err oktopk_open(void *p, const gw_env *env) {
    self *me = p;
    const char *why = oktopk_lacks(env);
    if (why)
        return gw_fail(GW_ERR_UNSUPPORTED, "oktopk: %s", why);
    GW_TRY(gw_env_refuse_tracked(env));
    me->env = env;
    me->ratio.ratio = gw_args_real(env->args, "ratio");
    me->every = gw_args_int(env->args, "every");
    me->boundaries = gw_args_int(env->args, "boundaries");
    me->wire = (gw_sparse){
        .name = "oktopk", .select = oktopk_write, .least = oktopk_fewest, .most = oktopk_most};
    me->codec = (gw_codec){
        .ops = &oktopk_lists, .self = me, .caps = oktopk_lists.caps, .spec = me->wire.name};
    if (gw_lane_size(env->grads) == 1)
        return GW_OK;
    if (gw_lane_codec(env->grads)->framed)
        gw_codec_frame(&me->codec);
    gw_lane_reshape(env->grads); /* into lists of regions */
    GW_TRY(gw_lane_branch(env->grads, &me->codec, true, false, &me->lane));
    GW_TRY(gw_lane_agree(env->grads, oktopk_make_room(me)));
    return oktopk_lay_down_all(me);
}

/* ---- a step ---- */

static gw_err oktopk_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    int i;
    if (me->n_groups == 0 || s.n == 0)
        return GW_OK;
    GW_TRY(gw_env_find(me->env, s, &i));
    group *g = me->now = &me->groups[i];
    me->exact = g->steps % me->every == 0;
    me->written = 0;
    gw_work_enter(GW_PHASE_ENCODE);
    oktopk_choose(me, me->env->grad + s.off, me->residual + s.off, s.n, me->exact, &g->local,
                  &me->own);
    g->local = oktopk_move(g->local, me->own.n, g->k);
    gw_work_leave();
    if (g->steps++ % me->boundaries == 0)
        GW_TRY(oktopk_cut(me));
    GW_TRY(gw_schedule_run(g->schedule));
    gw_work_enter(GW_PHASE_DECODE);
    gw_err e = oktopk_join(me);
    if (e == GW_OK)
        oktopk_take(me, u);
    gw_work_leave();
    return e;
}

static gw_err oktopk_state(void *p, gw_io *io) {
    self *me = p;
    if (me->n_groups == 0)
        return GW_OK;
    GW_TRY(gw_io_field(io, "residual", me->residual, me->env->n * sizeof *me->residual));
    for (int i = 0; i < me->n_groups; i++) {
        group *g = &me->groups[i];
        GW_TRY(gw_io_alike(io, "steps", &g->steps, sizeof g->steps));
        GW_TRY(
            gw_io_alike(io, "regions", g->from, ((size_t)me->lists.ranks + 1) * sizeof *g->from));
        GW_TRY(gw_io_alike(io, "threshold", &g->whole, sizeof g->whole));
        GW_TRY(gw_io_field(io, "local threshold", &g->local, sizeof g->local));
    }
    return GW_OK;
}

static gw_cost oktopk_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    uint64_t ranks = (uint64_t)me->lists.ranks;
    gw_cost sum = {0};
    gw_repeat both = gw_repeat_of(me->every); /* until both recur at once */
    gw_repeat_also(&both, me->boundaries, INT64_MAX);
    *period = both.all;
    for (int i = 0; i < me->n_groups; i++) {
        size_t n = me->groups[i].span.n;
        sum = gw_cost_sum(sum, gw_cost_messages(me->lane, 2 * ranks * (ranks - 1), n));
        if (n > 0 && exchange % me->boundaries == 0)
            sum = gw_cost_sum(sum, gw_collective_cost(&me->sum, (gw_span){0, ranks - 1}));
    }
    return sum;
}

static const gw_opt opts[] = {
    {"ratio", GW_OPT_REAL, "0.01", 1e-9, 1, NULL, NULL,
     "k, the elements of an update, as a fraction of all"},
    {"every", GW_OPT_INT, "128", 1, 1e9, NULL, "STEPS", "steps between two exact thresholds"},
    {"boundaries", GW_OPT_INT, "64", 1, 1e9, NULL, "STEPS",
     "steps between two cuts of the arena into the ranks' regions"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_oktopk = {
    .head = {GW_STRATEGY_ABI, "oktopk",
             "the largest elements of all ranks' sums, whose owners share the work; error feedback",
             opts},
    .gives = GW_GIVES_MEAN,
    .traits = GW_STRATEGY_LOSSY | GW_STRATEGY_VARIES,
    .shape = GW_SHAPE_WHOLE,
    .formula = "about 10 k (P-1) bytes, k = ratio * n, 2P(P-1) messages; at times an allreduce of "
               "P-1",
    .plan = oktopk_plan,
    .size = sizeof(self),
    .open = oktopk_open,
    .close = oktopk_close,
    .finish = oktopk_finish,
    .state = oktopk_state,
    .cost = oktopk_cost,
};
