#include "comm/algo.h"

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

const gw_registry gw_algos = {
    .kind = "algorithm", .symbol = "gw_algo_plugin", .abi = GW_ALGO_ABI, .entries = entries};

static const char *refusal(const gw_algo_ops *ops, const gw_codec *codec) {
    return ops->refuses ? ops->refuses(codec->ops) : NULL;
}

gw_err gw_algo_open(gw_algo *out, const char *spec, const gw_codec *codec) {
    if (!spec || !*spec)
        spec = refusal(&gw_algo_native, codec) ? "sra" : "native";
    gw_algo a = {0};
    const gw_entry *entry = NULL;
    GW_TRY(gw_registry_find(&gw_algos, spec, &entry, &a.args));
    a.ops = (const gw_algo_ops *)entry; /* head is the first member */
    const char *why = refusal(a.ops, codec);
    if (why) {
        gw_args_free(a.args);
        return gw_fail(GW_ERR_UNSUPPORTED, "algorithm %s cannot carry codec %s: %s", entry->name,
                       codec->ops->head.name, why);
    }
    *out = a;
    return GW_OK;
}

void gw_algo_close(gw_algo *a) {
    gw_args_free(a->args);
    memset(a, 0, sizeof *a);
}

/* Every rank's encoding straight to the root, which adds them up in the order of the ranks. */
static gw_err kit_reduce(gw_schedule *s, int root) {
    gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int slot;
    if (lane->rank != root) {
        GW_TRY(gw_schedule_pack(s, span, false, &slot));
        return gw_schedule_send(s, slot, root);
    }
    int first = GW_NO_SLOT; /* slots of one loop are numbered on */
    for (int r = 0; r < lane->size; r++) {
        if (r == root)
            continue;
        GW_TRY(gw_schedule_recv(s, span, r, false, &slot));
        first = first == GW_NO_SLOT ? slot : first;
    }
    GW_TRY(gw_schedule_round(s));
    for (int i = 0; first != GW_NO_SLOT && i < lane->size - 1; i++)
        GW_TRY(gw_schedule_unpack(s, first + i, span, true));
    return GW_OK;
}

/* Binomial tree: in turn 2^k the ranks below 2^k (counted from the root) hold the data and send it
 * to their partner 2^k above. Encoded once, by the root, and forwarded verbatim. */
static gw_err kit_bcast(gw_schedule *s, int root) {
    gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int me = (lane->rank - root + lane->size) % lane->size, slot, step = 1;
    if (me == 0) {
        GW_TRY(gw_schedule_pack(s, span, true, &slot));
    } else {
        while (step * 2 <= me)
            step *= 2;
        int from = (me - step + root) % lane->size;
        GW_TRY(gw_schedule_recv(s, span, from, true, &slot));
        GW_TRY(gw_schedule_round(s));
        GW_TRY(gw_schedule_unpack(s, slot, span, false));
        step *= 2;
    }
    for (; me + step < lane->size; step *= 2)
        GW_TRY(gw_schedule_send(s, slot, (me + step + root) % lane->size));
    return GW_OK;
}

gw_err gw_algo_reduce(const gw_algo *a, gw_schedule *s, int root) {
    return a->ops->reduce ? a->ops->reduce(a->args, s, root) : kit_reduce(s, root);
}

gw_err gw_algo_bcast(const gw_algo *a, gw_schedule *s, int root) {
    /* A library's broadcast knows no encodings; the kit's forwards the root's verbatim. */
    bool own = a->ops->bcast && gw_lane_exact(gw_schedule_lane(s));
    return own ? a->ops->bcast(a->args, s, root) : kit_bcast(s, root);
}
