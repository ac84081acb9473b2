/* sparse: for codecs that drop most values. Two sparse gradients have their values in different
 * places, so a sum that is formed on the way grows denser at every hop and each hop would drop
 * some of it again. Here nothing is summed on the way: the encodings of all ranks are gathered and
 * every rank adds them up itself, in the order of the ranks. Each value is encoded once and errs
 * once, and error feedback at its origin catches all that was dropped (Lin et al., "Deep gradient
 * compression", ICLR 2018). Layer by layer: the choice of values is made within a layer, whose
 * gradients are of one scale, and an exchange starts as soon as the backward pass has completed its
 * layer. Synchronous, exact as its codec.
 *
 * The sum of sparse gradients is sparse. Where the codec lists its elements and the trainer takes
 * an update as lists, the arena is neither cleared nor read again once a layer is encoded.
 *
 * Cost: P-1 encodings of each layer to and from every rank. That grows with P where an allreduce
 * does not, so it pays while P times the codec's density is small; a dense codec is refused. */
#include "comm/overlap.h"
#include "comm/schedule/sparse_sum.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct self {
    gw_overlapped layers;
    gw_sparse_sum *sums; /* a layer each; NULL: the arena takes the sums */
    gw_elements *lists;  /* of the layers that the last finish() was for; not owned */
} self;

static const char *sparse_plan(gw_strategy_plan *p) {
    gw_overlap_plan(p);
    if (!p->codec)
        return NULL;
    if (strcmp(p->algo->ops->head.name, "gathersum") != 0)
        return "it gathers encodings and sums them locally, which is algo=gathersum and no other";
    if (!(p->codec->caps & GW_CODEC_SPARSE) && !p->codec->partial)
        return "it gathers an encoding from each rank, and those of a dense codec have full size: "
               "name a sparse one, as --compress topk, or use allreduce:algo=gathersum";
    return NULL;
}

static void sparse_close(void *p) {
    self *me = p;
    gw_overlapped_close(me);
    for (int l = 0; me->sums && l < me->layers.env->n_layers; l++)
        gw_sparse_sum_free(&me->sums[l]);
    free(me->sums);
    free(me->lists);
}

static gw_err sparse_lay_down(void *ctx, gw_schedule *s) {
    self *me = ctx;
    int l = 0;
    while (me->layers.env->layers[l].off != gw_schedule_span(s).off)
        l++;
    return gw_sparse_sum_lay_down(&me->sums[l], s);
}

/* Nothing walks over the arena where the trainer takes lists: not to clear what no rank has sent,
 * nor to update by zeros. Of a mix each tensor has a codec of its own, which may not be sparse. */
static gw_err sparse_make_lists(self *me, const gw_env *env) {
    const gw_lane *lane = env->grads;
    if (!env->lists || gw_lane_size(lane) == 1 || gw_lane_mixed(lane) ||
        !gw_codec_lists(gw_lane_codec(lane)))
        return GW_OK;
    GW_TRY(gw_alloc(&me->sums, (size_t)env->n_layers, sizeof *me->sums));
    GW_TRY(gw_alloc(&me->lists, (size_t)env->n_layers, sizeof *me->lists));
    me->layers.grads.collective.lay_down = sparse_lay_down;
    me->layers.grads.collective.ctx = me;
    return GW_OK;
}

static gw_err sparse_open(void *p, const gw_env *env) {
    self *me = p;
    me->layers.env = env;
    GW_TRY(sparse_make_lists(me, env));
    return gw_overlapped_open(&me->layers, env, GW_OVERLAP_LAYERS, false);
}

static gw_err sparse_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    const gw_env *env = me->layers.env;
    GW_TRY(gw_overlapped_finish(me, s, u));
    u->lists = me->lists;
    for (int l = 0; me->lists && l < env->n_layers; l++)
        if (gw_span_overlap(env->layers[l], s))
            me->lists[u->n_lists++] = me->sums[l].sum;
    return GW_OK;
}

static const gw_opt opts[] = {
    {"algo", GW_OPT_SPEC, "gathersum", 0, 0, NULL, "NAME", "algorithm: gathersum, with options"},
    GW_OVERLAP_PROGRESS,
    {0}};

const gw_strategy_ops gw_strategy_sparse = {
    .head = {GW_STRATEGY_ABI, "sparse",
             "encodings of each layer gathered and summed locally, overlapped; for sparse codecs",
             opts},
    .gives = GW_GIVES_MEAN,
    .traits = GW_STRATEGY_ENCODES,
    .shape = GW_SHAPE_LAYERS,
    .formula = "P(P-1) b bytes, P(P-1) messages per layer (an allreduce by gathersum)",
    .plan = sparse_plan,
    .size = sizeof(self),
    .open = sparse_open,
    .close = sparse_close,
    .ready = gw_overlapped_ready,
    .progress = gw_overlapped_progress,
    .finish = sparse_finish,
    .cost = gw_overlapped_cost,
};
