#include "comm/pipeline/hop.h"

#include "base/mem.h"

#include <stdlib.h>

struct gw_hops {
    int boundaries, micro, kinds;
    bool *mine; /* this rank sends or receives it */
    gw_schedule *all[];
};

static int hop_index(const gw_hops *h, gw_hop hop) {
    return ((int)hop.kind * h->boundaries + hop.boundary) * h->micro + hop.micro;
}

static gw_err hop_send(gw_schedule *s, int peer) {
    int slot;
    GW_TRY(gw_schedule_pack(s, gw_schedule_span(s), false, &slot));
    return gw_schedule_send(s, slot, peer);
}

static gw_err hop_receive(gw_schedule *s, int peer) {
    int slot;
    GW_TRY(gw_schedule_recv(s, gw_schedule_span(s), peer, true, &slot));
    GW_TRY(gw_schedule_round(s));
    return gw_schedule_unpack(s, slot, gw_schedule_span(s), false);
}

/* Every rank lays every hop down, empty where it has no part: tags and numbers are the same. */
static gw_err hop_lay_down(gw_hops *h, const gw_hops_setup *setup, gw_hop hop) {
    gw_lane *lane = setup->lane[hop.kind];
    int me = gw_lane_rank(lane), stages = gw_lane_size(lane), i = hop_index(h, hop);
    int below = hop.boundary % stages, above = (hop.boundary + 1) % stages;
    int from = hop.kind == GW_HOP_ACTIVATION ? below : above;
    int to = hop.kind == GW_HOP_ACTIVATION ? above : below;
    int peer = me == from ? to : from;
    gw_span span = {0, 0};
    h->mine[i] = stages > 1 && (me == from || me == to);
    if (h->mine[i])
        span = setup->where(setup->ctx, hop, me == to);
    GW_TRY(gw_schedule_new(&h->all[i], lane, setup->base, span));
    if (!h->mine[i])
        return GW_OK;
    gw_schedule_among(h->all[i], &peer, 1);
    return me == from ? hop_send(h->all[i], to) : hop_receive(h->all[i], from);
}

gw_err gw_hops_open(gw_hops **out, const gw_hops_setup *setup) {
    gw_hops *h = NULL;
    int boundaries = setup->chunks - 1, kinds = setup->deltas ? 2 : 1;
    size_t n = (size_t)kinds * (size_t)boundaries * (size_t)setup->micro;
    GW_TRY(gw_alloc(&h, 1, sizeof *h + n * sizeof h->all[0]));
    h->boundaries = boundaries;
    h->micro = setup->micro;
    h->kinds = kinds;
    gw_err e = gw_alloc(&h->mine, n, sizeof *h->mine);
    for (int k = 0; k < kinds; k++)
        for (int b = 0; b < boundaries; b++)
            for (int j = 0; j < setup->micro; j++)
                GW_THEN(e, hop_lay_down(h, setup, (gw_hop){(gw_hop_kind)k, b, j}));
    GW_OPENED(e, out, h, gw_hops_close);
}

void gw_hops_close(gw_hops *h) {
    if (!h)
        return;
    for (int i = h->kinds * h->boundaries * h->micro - 1; i >= 0; i--)
        gw_schedule_free(h->all[i]);
    free(h->mine);
    free(h);
}

gw_schedule *gw_hops_end(const gw_hops *h, gw_hop hop) {
    int i = hop_index(h, hop);
    return h->mine[i] ? h->all[i] : NULL;
}
