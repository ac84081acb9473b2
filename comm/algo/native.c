/* native: the MPI library's own collectives. Exact lanes pass the floats with MPI_SUM. A codec that
 * can add encoded values (fp16, bf16) passes encodings with its own MPI_Op, so the sum is rounded
 * to the wire's precision at each hop inside the library.
 *
 * MPI does not tell which messages it sends; `wire_bytes` states the bandwidth-optimal count,
 * 2(P-1)/P of the encoded span a rank, as the ledger does. */
#include "comm/algo.h"

#include "base/mem.h"
#include "comm/mpi_element.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#if MPI_VERSION >= 4
typedef MPI_Count native_count;
#else
typedef int native_count;
#define MPI_Allreduce_c  MPI_Allreduce
#define MPI_Iallreduce_c MPI_Iallreduce
#define MPI_Reduce_c     MPI_Reduce
#define MPI_Ireduce_c    MPI_Ireduce
#define MPI_Bcast_c      MPI_Bcast
#define MPI_Ibcast_c     MPI_Ibcast
#endif

typedef struct native_call {
    gw_verb what;
    MPI_Comm comm;
    bool at_root;
    gw_mpi_element e;
    void *data; /* the units of the whole span */
    size_t n;
    int root;
    void *parts; /* copy of the root's part, apart from the sum; NULL: in place */
    size_t bytes;
} native_call;

static gw_err native_issue(void *ctx, MPI_Request *request) {
    native_call *c = ctx;
    void *data = c->data;
    native_count n = (native_count)c->n;
    MPI_Datatype type = c->e.type;
    MPI_Op op = c->e.op;
    const void *send = c->at_root ? MPI_IN_PLACE : data;
    if (c->parts)
        send = memcpy(c->parts, data, c->bytes);
    switch (c->what) {
    case GW_ALLREDUCE:
        GW_MPI(request ? MPI_Iallreduce_c(MPI_IN_PLACE, data, n, type, op, c->comm, request)
                       : MPI_Allreduce_c(MPI_IN_PLACE, data, n, type, op, c->comm));
        break;
    case GW_REDUCE:
        GW_MPI(request ? MPI_Ireduce_c(send, data, n, type, op, c->root, c->comm, request)
                       : MPI_Reduce_c(send, data, n, type, op, c->root, c->comm));
        break;
    default:
        GW_MPI(request ? MPI_Ibcast_c(data, n, type, c->root, c->comm, request)
                       : MPI_Bcast_c(data, n, type, c->root, c->comm));
        break;
    }
    return GW_OK;
}

static gw_err native_lay_call(gw_schedule *s, const native_call *call) {
    native_call *c = NULL;
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    *c = *call;
    GW_TRY(gw_schedule_own(s, c, free));
    if (c->what == GW_REDUCE && c->root > 0 && c->at_root) {
        /* MPICH 4.0's MPI_Reduce takes MPI_IN_PLACE for an address here */
        GW_TRY(gw_alloc(&c->parts, c->bytes, 1));
        GW_TRY(gw_schedule_own(s, c->parts, free));
    }
    GW_TRY(gw_schedule_call(s, native_issue, c));
    return gw_schedule_round(s);
}

/* The sum starts when its scales' maximum is there, so overlapped exchanges may start in different
 * orders on different ranks: each exchange has its own communicator for both. */
static gw_err native_agree(gw_schedule *s, gw_span span, int *slot, MPI_Comm *comm) {
    gw_lane *lane = gw_schedule_lane(s), *aside;
    GW_TRY(gw_schedule_measure(s, span, slot));
    gw_err e = gw_lane_split(lane, 0, &aside);
    if (e == GW_ERR_MPI) /* MPICH has 2048 communicators; the same call fails on all ranks */
        return gw_fail(
            GW_ERR_UNSUPPORTED,
            "algo=native: %s needs a communicator per bucket, and the MPI library has no "
            "more: use larger buckets (bucket=) or another algorithm (algo=sra)",
            gw_lane_codec(lane)->ops->head.name);
    GW_TRY(e);
    *comm = gw_lane_comm(aside);
    size_t prefix = gw_codec_prefix(gw_lane_codec(lane), span.n);
    native_call most = {.what = GW_ALLREDUCE,
                        .comm = *comm,
                        .e = {MPI_FLOAT, MPI_MAX},
                        .data = gw_schedule_slot_data(s, *slot),
                        .n = prefix / sizeof(float)};
    GW_TRY(native_lay_call(s, &most));
    return gw_schedule_pack_agreed(s, *slot, span);
}

static gw_err native_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args;
    const gw_lane *lane = gw_schedule_lane(s);
    const gw_codec *codec = gw_lane_codec(lane);
    gw_span span = gw_schedule_span(s);
    int slot;
    MPI_Comm comm = gw_lane_comm(lane);
    GW_TRY(gw_codec_agrees(codec) ? native_agree(s, span, &slot, &comm)
                                  : gw_schedule_pack(s, span, false, &slot));
    gw_mpi_units u = gw_mpi_units_of(codec, span.n);
    if (sizeof(native_count) == sizeof(int) && u.count > INT_MAX)
        return gw_fail(
            GW_ERR_UNSUPPORTED,
            "algo=native: %zu elements: an MPI library of version %d.%d sums at most %d: "
            "use algo=ring or another that sends messages",
            u.count, MPI_VERSION, MPI_SUBVERSION, INT_MAX);
    native_call sum = {.what = what,
                       .comm = comm,
                       .at_root = gw_lane_rank(lane) == root,
                       .data = (char *)gw_schedule_slot_data(s, slot) + u.prefix,
                       .n = u.count,
                       .root = root,
                       .bytes = u.count * codec->ops->unit_bytes};
    GW_TRY(gw_mpi_element_of(codec, &sum.e));
    GW_TRY(native_lay_call(s, &sum));
    bool here = what != GW_REDUCE || sum.at_root;
    return here ? gw_schedule_unpack(s, slot, span, false) : GW_OK;
}

static gw_cost native_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args;
    const gw_codec *codec = gw_lane_codec(lane);
    uint64_t others = (uint64_t)gw_lane_size(lane) - 1, prefix = gw_codec_prefix(codec, n);
    uint64_t units = others * (gw_codec_bound(codec, n) - prefix);
    uint64_t agreed = gw_codec_agrees(codec) ? 2 * others * prefix : 0;
    return (gw_cost){agreed + (what == GW_ALLREDUCE ? 2 * units : units), 0};
}

const gw_algo_ops gw_algo_native = {
    .head = {GW_ALGO_ABI, "native", "the MPI library's own collectives", NULL},
    .caps = GW_ALGO_ORDERED | GW_ALGO_ONCE,
    .verbs = GW_VERB(GW_REDUCE) | GW_VERB(GW_BCAST),
    .formula = "2(P-1) b bytes (the optimum; MPI does not say), no messages of its own",
    .refuses = gw_mpi_element_refuses,
    .lay_down = native_lay_down,
    .cost = native_cost,
};
