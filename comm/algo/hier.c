/* hier: shared memory within a group of ranks, messages between the groups' leaders.
 *
 *  1. Within each group, as in shm: all meet; each rank sums its part of the members' arenas, in
 *     the order of the ranks, and stores the sum straight into the leader's arena.
 *  2. When all parts are there, the leaders sum over the groups by another algorithm (`inner`), on
 *     a lane of their own. Only this step encodes, so only here the codec drops and feeds back.
 *  3. The others copy the result from their leader's arena.
 *
 * A group is a node's ranks, or K consecutive ranks of a node (`group=K`, for example a NUMA
 * domain; with a single group there is no step 2, and step 1 stores into all arenas). Bytes and
 * messages are those of `inner` over one rank a group: on G nodes of K ranks, K times fewer streams
 * share a node's link. The plan is that of Karonis et al., "Exploiting hierarchy in parallel
 * computer networks to optimize collective operation performance", IPDPS 2000. */
#include "comm/algo.h"

#include "base/mem.h"
#include "comm/channel.h"
#include "comm/schedule/crew.h"
#include "comm/sum.h"

#include <stdlib.h>
#include <string.h>

/* How a lane's ranks are grouped; made once and attached to the lane. */
typedef struct nest {
    int groups;       /* on the whole lane */
    int first, n, me; /* my group: the node's ranks [first, first + n); I am number `me` */
    gw_lane *leaders; /* lane of the groups' first ranks; others only ask it what is sent */
    gw_algo inner;
} nest;

static void hier_release_nest(void *p) {
    nest *h = p;
    gw_algo_close(&h->inner);
    free(h);
}

/* ---- valid combinations ---- */

static gw_err hier_open_inner(const gw_args *args, const gw_codec *codec, gw_algo *inner) {
    const gw_spec *spec = gw_args_spec(args, "inner");
    GW_TRY(gw_algo_open(inner, spec, codec));
    unsigned caps = inner->ops->caps;
    if (!(caps & (GW_ALGO_SHARED | GW_ALGO_ORDERED)))
        return GW_OK;
    gw_algo_close(inner);
    if (caps & GW_ALGO_SHARED)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "inner=%s works on shared memory, which leaders on other nodes lack: "
                       "choose one that sends messages",
                       spec->text);
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "inner=%s starts MPI's collectives, which the leaders of several exchanges in "
                   "flight may reach in different orders: choose one that sends messages",
                   spec->text);
}

static const char *hier_refuses(const gw_args *args, const gw_codec *codec) {
    static _Thread_local char why[512];
    gw_algo inner;
    if (hier_open_inner(args, codec, &inner) == GW_OK) {
        gw_algo_close(&inner);
        return NULL;
    }
    snprintf(why, sizeof why, "%s", gw_err_text());
    return why;
}

/* ---- groups ---- */

/* My group among the lane's ranks on my node, in their order. */
static gw_err hier_find_group(const gw_lane *lane, int each, nest *h) {
    const gw_channel *c = gw_lane_channel(lane);
    int here = gw_shared_size(c->shared), mine = gw_shared_rank(c->shared);
    *h = (nest){.first = 0, .n = here, .me = mine};
    if (each == 0)
        return GW_OK;
    int rank = gw_lane_rank(lane), size = gw_lane_size(lane), lo = rank - rank % each;
    const int *world = c->fabric->world;
    h->n = size - lo < each ? size - lo : each;
    h->me = rank - lo;
    h->first = mine - h->me;
    for (int i = 0; i < h->n; i++) {
        int at = h->first + i;
        if (at < 0 || at >= here || gw_shared_world(c->shared, at) != world[lo + i])
            return gw_fail(GW_ERR_UNSUPPORTED,
                           "algorithm hier: group=%d: ranks %d to %d lie on several nodes: choose "
                           "a divisor of the ranks a node, or group=0",
                           each, lo, lo + h->n - 1);
    }
    return GW_OK;
}

static gw_err hier_make_nest(const gw_args *args, gw_lane *lane, nest *h) {
    gw_channel *c = gw_lane_channel(lane);
    if (!c->shared)
        return gw_fail(GW_ERR_UNSUPPORTED, "algorithm hier: these ranks share no memory");
    GW_TRY(gw_lane_agree(lane, hier_find_group(lane, (int)gw_args_int(args, "group"), h)));
    GW_TRY(gw_lane_agree(lane, hier_open_inner(args, gw_lane_codec(lane), &h->inner)));
    h->groups = h->me == 0;
    GW_TRY(c->fabric->ops->sum(c->fabric, &h->groups));
    if (h->groups == 1)
        return GW_OK;
    GW_TRY(gw_lane_split(lane, h->me == 0 ? 0 : -1, &h->leaders));
    gw_err e = h->leaders ? GW_OK : gw_lane_stand_in(lane, h->groups, &h->leaders);
    return gw_lane_agree(lane, e);
}

/* Collective at the first call on a lane. */
static gw_err hier_nest(const gw_args *args, gw_lane *lane, nest **out) {
    *out = gw_lane_attached(lane, args);
    if (*out)
        return GW_OK;
    nest *h = NULL;
    GW_TRY(gw_alloc(&h, 1, sizeof *h));
    gw_err e = hier_make_nest(args, lane, h);
    if (e != GW_OK) {
        hier_release_nest(h);
        return e;
    }
    GW_TRY(gw_lane_attach(lane, args, h, hier_release_nest));
    *out = h;
    return GW_OK;
}

/* ---- within a group ---- */

typedef struct job {
    gw_span span;
    gw_crew *crew;
    float **values; /* base[span] of each member, as mapped here */
    float **rows;   /* scratch: one part of each */
    bool one_group;
} job;

static void hier_release_job(void *ctx) {
    job *j = ctx;
    free(j->crew);
    free(j->values);
    free(j->rows);
    free(j);
}

static gw_err hier_sum(void *ctx) {
    job *j = ctx;
    gw_span part = gw_sum_part(j->span, j->crew->me, j->crew->n);
    for (int i = 0; i < j->crew->n; i++)
        j->rows[i] = j->values[i] + (part.off - j->span.off);
    gw_sum_rows(j->rows, NULL, j->crew->n, j->rows, j->one_group ? j->crew->n : 1, part.n, NULL);
    return GW_OK;
}

static gw_err hier_copy(void *ctx) {
    job *j = ctx;
    memcpy(j->values[j->crew->me], j->values[0], j->span.n * sizeof(float));
    return GW_OK;
}

/* Nothing goes between groups, whatever codec or inner algorithm was asked for. */
static void hier_note_one_group(const gw_args *args, gw_lane *lane) {
    char line[128];
    bool node = gw_args_int(args, "group") == 0;
    if (gw_lane_exact(lane) && !gw_args_given(args, "inner"))
        return;
    snprintf(line, sizeof line, "hier sums plain floats within a %s, and all %d ranks are %s one",
             node ? "node" : "group", gw_lane_size(lane), node ? "on" : "in");
    gw_lane_note(lane, line);
}

static gw_err hier_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)what, (void)root;
    gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    nest *h;
    job *j = NULL;
    GW_TRY(hier_nest(args, lane, &h));
    GW_TRY(gw_alloc(&j, 1, sizeof *j));
    GW_TRY(gw_schedule_own(s, j, hier_release_job));
    j->span = span;
    j->one_group = h->groups == 1;
    GW_TRY(gw_crew_new(&j->crew, gw_lane_channel(lane)->shared, h->first, h->n));
    GW_TRY(gw_alloc(&j->values, (size_t)h->n, sizeof *j->values));
    GW_TRY(gw_alloc(&j->rows, (size_t)h->n, sizeof *j->rows));
    for (int i = 0; i < h->n; i++)
        j->values[i] = gw_crew_twin(j->crew, gw_schedule_base(s) + span.off, i);
    if (!j->values[0])
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "algorithm hier: the span is not in memory that the ranks share: take it "
                       "from gw_lane_floats, or use another algorithm");
    bool leader = h->me == 0;
    GW_TRY(gw_schedule_work(s, gw_crew_signal, j->crew));
    GW_TRY(gw_schedule_await(s, gw_crew_all, j->crew));
    GW_TRY(gw_schedule_work(s, hier_sum, j));
    GW_TRY(gw_schedule_work(s, gw_crew_signal, j->crew));
    if (leader || j->one_group)
        GW_TRY(gw_schedule_await(s, gw_crew_all, j->crew));
    if (j->one_group) {
        hier_note_one_group(args, lane);
        return GW_OK;
    }
    /* The leaders' exchange is a stage; every rank reserves as many tags on the whole lane. */
    GW_TRY(gw_schedule_stage(s));
    if (leader) {
        gw_schedule_on(s, h->leaders);
        GW_TRY(gw_algo_lay_down(&h->inner, s, GW_ALLREDUCE, 0));
        gw_schedule_narrow(s, span);
        gw_schedule_on(s, lane);
    } else {
        gw_channel_tag(gw_lane_channel(lane));
    }
    GW_TRY(gw_schedule_stage(s));
    GW_TRY(gw_schedule_work(s, gw_crew_signal, j->crew));
    if (!leader) {
        GW_TRY(gw_schedule_await(s, gw_crew_lead, j->crew));
        GW_TRY(gw_schedule_work(s, hier_copy, j));
    }
    GW_TRY(gw_schedule_work(s, gw_crew_signal, j->crew));
    return leader ? gw_schedule_await(s, gw_crew_all, j->crew) : GW_OK;
}

static gw_cost hier_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    nest *h;
    if (hier_nest(args, lane, &h) != GW_OK || h->groups == 1)
        return (gw_cost){0};
    return gw_algo_cost(&h->inner, h->leaders, what, n);
}

static const gw_opt hier_opts[] = {{"inner", GW_OPT_SPEC, "ring", 0, 0, NULL, "NAME",
                                    "algorithm between the groups; its options in parentheses"},
                                   {"group", GW_OPT_INT, "0", 0, 1 << 20, NULL, "K",
                                    "consecutive ranks of a node per group (0: all of a node)"},
                                   {0}};

const gw_algo_ops gw_algo_hier = {
    .head = {GW_ALGO_ABI, "hier", "shared memory within a node, another algorithm between nodes",
             hier_opts},
    .caps = GW_ALGO_SHARED,
    .formula = "what `inner` sends over one rank per group",
    .refuses = hier_refuses,
    .lay_down = hier_lay_down,
    .cost = hier_cost,
};
