/* sra: scatter-reduce-allgather of encodings.
 *
 *  1. Scatter-reduce. The span is cut into P slices; rank r owns slice r. Each rank encodes its
 *     part of every foreign slice and sends it to the owner. An owner decodes the P-1 encodings
 *     that arrive and adds them to its own, unencoded part, in the order of the ranks.
 *  2. Allgather. Each owner encodes the sum once, adopts what its own encoding decodes to, and
 * sends it to all; every rank decodes the same bytes, so all replicas hold the same bits.
 *
 * Each element is encoded at most once per exchange and rank, so a lossy codec errs twice on the
 * way whatever P is (a ring that decodes and encodes at each hop errs P-1 times). Bytes: every rank
 * sends (P-1) slices twice, 2(P-1)/P of the span: as few as any allreduce can (Thakur,
 * Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA
 * 2005); messages: 2(P-1) a rank, where a ring would need as many in as many rounds instead of 2.
 */
#include "comm/algo.h"

static gw_err allreduce(const gw_args *args, gw_schedule *s) {
    (void)args;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s), own = gw_span_part(span, lane->rank, lane->size);
    int ranks = lane->size, me = lane->rank, slot, first = GW_NO_SLOT;

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
    int gathered = GW_NO_SLOT;
    for (int r = 0; r < ranks; r++) {
        if (r == me)
            continue;
        /* An empty slice has no slot; the numbering below skips it the same way. */
        GW_TRY(gw_schedule_recv(s, gw_span_part(span, r, ranks), r, true, &slot));
        gathered = gathered == GW_NO_SLOT ? slot : gathered;
    }
    if (ranks > 1) {
        GW_TRY(gw_schedule_pack(s, own, true, &slot));
        for (int i = 1; i < ranks; i++)
            GW_TRY(gw_schedule_send(s, slot, (me + i) % ranks));
    }
    GW_TRY(gw_schedule_round(s));

    for (int r = 0; r < ranks; r++) {
        gw_span part = gw_span_part(span, r, ranks);
        if (r != me && part.n > 0)
            GW_TRY(gw_schedule_unpack(s, gathered++, part, false));
    }
    return GW_OK;
}

static uint64_t wire_bytes(const gw_args *args, const gw_codec *codec, size_t n, int ranks) {
    (void)args;
    uint64_t bytes = 0;
    for (int r = 0; r < ranks; r++) {
        size_t part = gw_span_part((gw_span){0, n}, r, ranks).n;
        if (part > 0)
            bytes += 2 * (uint64_t)(ranks - 1) * gw_codec_bound(codec, part);
    }
    return bytes;
}

const gw_algo_ops gw_algo_sra = {
    .head = {GW_ALGO_ABI, "sra", "scatter-reduce-allgather of encodings: carries every codec",
             NULL},
    .allreduce = allreduce,
    .wire_bytes = wire_bytes,
};
