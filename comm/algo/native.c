/* native: the MPI library's own collectives. Exact lanes hand it the floats and MPI_SUM. A codec
 * that can add encoded values (fp16, bf16) is reduced in encoded form with an MPI_Op of its own, so
 * the sum is rounded to the wire's precision at each of the library's hops.
 *
 * Which messages MPI sends is its own affair; `wire_bytes` states what the bandwidth-optimal
 * algorithm sends, 2(P-1)/P of the encoded span a rank, as the ledger does. */
#include "comm/algo.h"

#include "base/mem.h"
#include "comm/mpi_element.h"

#include <stdlib.h>
#include <string.h>

typedef struct native_call {
    gw_verb what;
    const gw_lane *lane;
    void *data; /* the whole span, encoded */
    size_t n;
    int root;
    void *parts; /* the root's own part, apart from where the sum goes; NULL: in place */
    size_t bytes;
} native_call;

static gw_err issue(void *ctx, MPI_Request *request) {
    native_call *c = ctx;
    const gw_lane *lane = c->lane;
    gw_mpi_element e = {MPI_FLOAT, MPI_SUM};
    GW_TRY(gw_mpi_element_of(lane->codec, &e));
    void *data = c->data;
    MPI_Count n = (MPI_Count)c->n;
    bool at_root = lane->rank == c->root;
    const void *send = at_root ? MPI_IN_PLACE : data;
    if (c->parts)
        send = memcpy(c->parts, data, c->bytes);
    switch (c->what) {
    case GW_ALLREDUCE:
        GW_MPI(request ? MPI_Iallreduce_c(MPI_IN_PLACE, data, n, e.type, e.op, lane->comm, request)
                       : MPI_Allreduce_c(MPI_IN_PLACE, data, n, e.type, e.op, lane->comm));
        break;
    case GW_REDUCE:
        GW_MPI(request ? MPI_Ireduce_c(send, data, n, e.type, e.op, c->root, lane->comm, request)
                       : MPI_Reduce_c(send, data, n, e.type, e.op, c->root, lane->comm));
        break;
    default:
        GW_MPI(request ? MPI_Ibcast_c(data, n, e.type, c->root, lane->comm, request)
                       : MPI_Bcast_c(data, n, e.type, c->root, lane->comm));
        break;
    }
    return GW_OK;
}

static gw_err make_room(gw_schedule *s, native_call *c) {
    c->bytes = gw_codec_bound(c->lane->codec, c->n);
    GW_TRY(gw_alloc(&c->parts, c->bytes, 1));
    return gw_schedule_own(s, c->parts, free);
}

static gw_err lay_down(gw_schedule *s, gw_verb what, int root) {
    gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    if (lane->size == 1)
        return GW_OK;
    int slot;
    GW_TRY(gw_schedule_pack(s, span, false, &slot));
    if (slot == GW_NO_SLOT)
        return GW_OK;
    native_call *c = NULL;
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    *c = (native_call){.what = what,
                       .lane = lane,
                       .data = gw_schedule_slot_data(s, slot),
                       .n = span.n,
                       .root = root};
    GW_TRY(gw_schedule_own(s, c, free));
    if (what == GW_REDUCE && root > 0 && lane->rank == root)
        GW_TRY(make_room(s, c)); /* MPICH 4.0's MPI_Reduce reads MPI_IN_PLACE as an address there */
    GW_TRY(gw_schedule_call(s, issue, c));
    GW_TRY(gw_schedule_round(s));
    bool here = what != GW_REDUCE || lane->rank == root;
    return here ? gw_schedule_unpack(s, slot, span, false) : GW_OK;
}

static gw_err allreduce(const gw_args *args, gw_schedule *s) {
    (void)args;
    return lay_down(s, GW_ALLREDUCE, 0);
}

static gw_err reduce(const gw_args *args, gw_schedule *s, int root) {
    (void)args;
    return lay_down(s, GW_REDUCE, root);
}

static gw_err bcast(const gw_args *args, gw_schedule *s, int root) {
    (void)args;
    return lay_down(s, GW_BCAST, root);
}

static gw_cost cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args;
    uint64_t once = (uint64_t)(lane->size - 1) * gw_codec_bound(lane->codec, n);
    return (gw_cost){what == GW_ALLREDUCE ? 2 * once : once, 0};
}

const gw_algo_ops gw_algo_native = {
    .head = {GW_ALGO_ABI, "native", "the MPI library's own collectives", NULL},
    .caps = GW_ALGO_ORDERED,
    .formula = "2(P-1) b bytes (what is optimal; MPI does not tell), no messages of our own",
    .refuses = gw_mpi_element_refuses,
    .allreduce = allreduce,
    .reduce = reduce,
    .bcast = bcast,
    .cost = cost,
};
