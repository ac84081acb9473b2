#include "comm/algo.h"

#include <stdio.h>
#include <string.h>

#define X(name) extern const gw_algo_ops gw_algo_##name;
#include "comm/algos.def"
#undef X

static const gw_entry *const entries[] = {
#define X(name) &gw_algo_##name.head,
#include "comm/algos.def"
#undef X
    NULL,
};

static const gw_hook needs[] = {GW_HOOK(gw_algo_ops, lay_down), GW_HOOK(gw_algo_ops, cost), {0}};

const gw_registry gw_algos = {.kind = "algorithm",
                              .symbol = "gw_algo_plugin",
                              .abi = GW_ALGO_ABI,
                              .entries = entries,
                              .needs = needs};

bool gw_algo_sends_messages(const gw_algo_ops *ops) {
    return !(ops->caps & (GW_ALGO_ORDERED | GW_ALGO_SHARED));
}

static bool algo_messages_only;
static char algo_replaced[256];

void gw_algo_messages_only(bool on) {
    algo_messages_only = on;
    *algo_replaced = '\0';
}

const char *gw_algo_replaced(void) {
    return algo_replaced;
}

gw_err gw_algo_replace(gw_algo *a, const gw_codec *codec) {
    static gw_spec_arg whole = {"chunk", "0"};
    static const gw_spec halving = {
        .text = "halving:chunk=0", .name = "halving", .arg = &whole, .n_args = 1};
    const char *name = a->ops->head.name;
    gw_algo_close(a);
    GW_TRY(gw_algo_open(a, &halving, codec));
    a->stands_for = name;
    return GW_OK;
}

gw_err gw_algo_open(gw_algo *out, const gw_spec *spec, const gw_codec *codec) {
    gw_algo a = {0};
    const gw_entry *entry = NULL;
    /* The default suits the codec's traits. MPI forms the sums that it can form. Sparse values
     * are not summed on the way, where the sum would be sparse no more. All else errs least where
     * it is encoded twice at most. */
    const char *suits = gw_codec_summable(codec)        ? "native"
                        : codec->caps & GW_CODEC_SPARSE ? "gathersum"
                                                        : "sra";
    spec = spec && *spec->text ? spec : &GW_SPEC_NAMED(suits); /* (): none named */
    GW_TRY(gw_registry_find(&gw_algos, spec->name, &entry));
    GW_TRY(gw_args_of(&a.args, entry->opts, entry->name, spec));
    a.ops = (const gw_algo_ops *)entry; /* head is the first member */
    const char *why = a.ops->refuses ? a.ops->refuses(a.args, codec) : NULL;
    gw_err e = why ? gw_fail(GW_ERR_UNSUPPORTED, "algorithm %s cannot carry codec %s: %s",
                             a.ops->head.name, codec->spec, why)
                   : GW_OK;
    if (a.ops->check)
        GW_THEN(e, a.ops->check(a.args));
    if (e != GW_OK) {
        gw_algo_close(&a);
        return e;
    }
    if (algo_messages_only && !gw_algo_sends_messages(a.ops))
        GW_TRY(gw_algo_replace(&a, codec));
    *out = a;
    return GW_OK;
}

void gw_algo_close(gw_algo *a) {
    gw_args_free(a->args);
    memset(a, 0, sizeof *a);
}

/* Every rank's encoding straight to the root, which adds them up in the order of the ranks. */
gw_err gw_kit_reduce(gw_schedule *s, int root) {
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int ranks = gw_lane_size(lane), slot;
    if (gw_lane_rank(lane) != root) {
        GW_TRY(gw_schedule_pack(s, span, false, &slot));
        return gw_schedule_send(s, slot, root);
    }
    int first = GW_NO_SLOT; /* slots of one loop are numbered on */
    for (int r = 0; r < ranks; r++) {
        if (r == root)
            continue;
        GW_TRY(gw_schedule_recv(s, span, r, false, &slot));
        first = first == GW_NO_SLOT ? slot : first;
    }
    GW_TRY(gw_schedule_round(s));
    for (int i = 0; first != GW_NO_SLOT && i < ranks - 1; i++)
        GW_TRY(gw_schedule_unpack(s, first + i, span, true));
    return GW_OK;
}

/* Binomial tree: in turn 2^k the ranks below 2^k (counted from the root) hold the data and send it
 * to their partner 2^k above. Encoded once, by the root, and forwarded verbatim. */
static gw_err algo_kit_bcast(gw_schedule *s, int root) {
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int ranks = gw_lane_size(lane), slot, step = 1;
    int me = (gw_lane_rank(lane) - root + ranks) % ranks; /* counted from the root */
    if (me == 0) {
        GW_TRY(gw_schedule_pack(s, span, true, &slot));
    } else {
        while (step * 2 <= me)
            step *= 2;
        int from = (me - step + root) % ranks;
        GW_TRY(gw_schedule_recv(s, span, from, true, &slot));
        GW_TRY(gw_schedule_round(s));
        GW_TRY(gw_schedule_unpack(s, slot, span, false));
        step *= 2;
    }
    for (; me + step < ranks; step *= 2)
        GW_TRY(gw_schedule_send(s, slot, (me + step + root) % ranks));
    return GW_OK;
}

gw_err gw_kit_reduce_scatter(gw_schedule *s) {
    const gw_lane *lane = gw_schedule_lane(s);
    int ranks = gw_lane_size(lane), me = gw_lane_rank(lane), slot, first = GW_NO_SLOT;
    gw_span span = gw_schedule_span(s), own = gw_span_part(span, me, ranks);
    for (int r = 0; r < ranks; r++) {
        if (r == me)
            continue;
        GW_TRY(gw_schedule_recv(s, own, r, false, &slot));
        first = first == GW_NO_SLOT ? slot : first; /* slots of one loop are numbered on */
    }
    for (int i = 1; i < ranks; i++) {
        int peer = (me + i) % ranks; /* staggered: not everybody to rank 0 first */
        GW_TRY(gw_schedule_pack(s, gw_span_part(span, peer, ranks), false, &slot));
        GW_TRY(gw_schedule_send(s, slot, peer));
    }
    GW_TRY(gw_schedule_round(s));
    for (int i = 0; first != GW_NO_SLOT && i < ranks - 1; i++)
        GW_TRY(gw_schedule_unpack(s, first + i, own, true));
    return GW_OK;
}

gw_err gw_kit_allgather(gw_schedule *s) {
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int ranks = gw_lane_size(lane), me = gw_lane_rank(lane), slot, first = GW_NO_SLOT;
    for (int r = 0; r < ranks; r++) {
        if (r == me)
            continue;
        GW_TRY(gw_schedule_recv(s, gw_span_part(span, r, ranks), r, true, &slot));
        first = first == GW_NO_SLOT ? slot : first;
    }
    GW_TRY(gw_schedule_pack(s, gw_span_part(span, me, ranks), true, &slot));
    for (int i = 1; i < ranks; i++)
        GW_TRY(gw_schedule_send(s, slot, (me + i) % ranks));
    GW_TRY(gw_schedule_round(s));
    for (int r = 0; r < ranks; r++) {
        gw_span part = gw_span_part(span, r, ranks);
        if (r != me && part.n > 0) /* an empty part took no slot */
            GW_TRY(gw_schedule_unpack(s, first++, part, false));
    }
    return GW_OK;
}

gw_cost gw_cost_messages(const gw_lane *lane, uint64_t messages, size_t n) {
    return n ? (gw_cost){messages * gw_codec_bound(gw_lane_codec(lane), n), messages}
             : (gw_cost){0};
}

gw_cost gw_kit_scatter_cost(const gw_lane *lane, size_t n) {
    int ranks = gw_lane_size(lane);
    gw_cost sum = {0};
    for (int r = 0; r < ranks; r++) {
        size_t part = gw_span_part((gw_span){0, n}, r, ranks).n;
        sum = gw_cost_sum(sum, gw_cost_messages(lane, (uint64_t)ranks - 1, part));
    }
    return sum;
}

gw_cost gw_kit_rooted_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args;
    uint64_t others = (uint64_t)gw_lane_size(lane) - 1;
    return gw_cost_messages(lane, what == GW_ALLREDUCE ? 2 * others : others, n);
}

int gw_kit_core(int ranks) {
    int core = 1;
    while (core * 2 <= ranks)
        core *= 2;
    return core;
}

int gw_kit_chunks(const gw_args *args, size_t n) {
    size_t most = gw_args_bytes(args, "chunk") / sizeof(float);
    return most == 0 || n == 0 ? 1 : (int)((n + most - 1) / most);
}

/* Does the algorithm lay that down itself, or the kit? A library's broadcast knows no encodings;
 * the kit's forwards the root's verbatim. */
static bool algo_has(const gw_algo_ops *ops, const gw_lane *lane, gw_verb what) {
    return what == GW_ALLREDUCE ||
           (ops->verbs & GW_VERB(what) && (what != GW_BCAST || gw_lane_exact(lane)));
}

gw_err gw_algo_lay_down(const gw_algo *a, gw_schedule *s, gw_verb what, int root) {
    const gw_lane *lane = gw_schedule_lane(s);
    if (gw_lane_size(lane) == 1 || gw_schedule_span(s).n == 0)
        return GW_OK; /* nobody else, or nothing: nothing is encoded, nothing lost */
    size_t at = strlen(algo_replaced), room = sizeof algo_replaced - at;
    if (a->stands_for && !strstr(algo_replaced, a->stands_for) && strlen(a->stands_for) + 3 < room)
        snprintf(algo_replaced + at, room, "%s%s", at ? ", " : "", a->stands_for);
    if (algo_has(a->ops, lane, what))
        return a->ops->lay_down(a->args, s, what, root);
    switch (what) {
    case GW_REDUCE: return gw_kit_reduce(s, root);
    case GW_BCAST: return algo_kit_bcast(s, root);
    case GW_REDUCE_SCATTER: return gw_kit_reduce_scatter(s);
    default: return gw_kit_allgather(s);
    }
}

gw_cost gw_algo_cost(const gw_algo *a, gw_lane *lane, gw_verb what, size_t n) {
    if (gw_lane_size(lane) == 1 || n == 0)
        return (gw_cost){0};
    if (algo_has(a->ops, lane, what))
        return a->ops->cost(a->args, lane, what, n);
    if (what == GW_REDUCE || what == GW_BCAST)
        return gw_kit_rooted_cost(a->args, lane, what, n);
    return gw_kit_scatter_cost(lane, n);
}
