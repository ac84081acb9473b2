/* Every interposed MPI call: which phase it is charged to, what it counts and how long it is in
 * flight. The peer's side of a message uses PMPI_*, so that only the call under test shows. */
#include "../timed.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>

enum { N = 3 * 4 * 100, TAG = 7 }; /* floats: divides by every number of ranks */

static int rank, ranks, next, before;
static float in[4 * N], out[4 * N];
static MPI_Comm world, ring, grid;
static const double SPIN_S = 20e-6;

/* Arguments of the vector forms: a share to each rank; as ints, and as MPI_Counts for the _c forms.
 * One element per rank; neighbourhoods, which are no larger than 4, use the same. */
static int icounts[4], iat[4], ibyte_at[4];
static MPI_Count ccounts[4];
static MPI_Aint cat[4], cbyte_at[4];
static MPI_Datatype types[4];

/* What a call must cause: these counts, and time in one phase of MPI only. */
typedef struct owed {
    const char *call;
    uint64_t bytes;
    unsigned messages, collectives;
} owed;

static gw_batch_cost end(owed o) {
    gw_batch_cost c;
    gw_ledger_end(&c);
    CHECK(c.wire_bytes == o.bytes, "%s: %llu bytes, not %llu", o.call,
          (unsigned long long)c.wire_bytes, (unsigned long long)o.bytes);
    CHECK(c.messages == o.messages, "%s: %llu messages, not %u", o.call,
          (unsigned long long)c.messages, o.messages);
    CHECK(c.collectives == o.collectives, "%s: %llu collectives, not %u", o.call,
          (unsigned long long)c.collectives, o.collectives);
    return c;
}

/* A blocking call ended a batch of its own. */
static void blocked(owed o, gw_phase phase) {
    gw_batch_cost c = end(o);
    for (int p = GW_PHASE_MPI_POST; p <= GW_PHASE_MPI_WAIT; p++)
        CHECK((c.phase_s[p] > 0) == (p == (int)phase), "%s: %g s in %s", o.call, c.phase_s[p],
              gw_phase_name((gw_phase)p));
    CHECK(c.inflight_s == 0, "%s: %g s in flight", o.call, c.inflight_s);
}

/* MPICH 4.0.2 fails the second start of a persistent scatter over more than 2 ranks ("Invalid
 * communicator"), even without interposition. So it is started only once. */
static int starts = 3;

/* Compute while the request is in flight, then complete it by a call that counts nothing. */
static void flew(owed o, MPI_Request *r, bool persistent) {
    for (int i = 0; i < (persistent ? starts : 1); i++) {
        if (persistent)
            CHECK_MPI(MPI_Start(r));
        spin_in(GW_PHASE_FORWARD, SPIN_S);
        CHECK_MPI(MPI_Wait(r, MPI_STATUS_IGNORE));
    }
    gw_batch_cost c = end(o);
    CHECK(c.phase_s[GW_PHASE_MPI_POST] > 0, "%s: its start is not charged", o.call);
    CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_FORWARD]) < 1e-9, "%s: %g s in flight, not %g",
          o.call, c.inflight_s, c.phase_s[GW_PHASE_FORWARD]);
}

/* The six forms; `args(k)` are the arguments with k = i (ints) or c (MPI_Counts). */
#define SIX(Name, name, args, bytes)                                                               \
    do {                                                                                           \
        THREE(Name, name, , args(i), bytes);                                                       \
        THREE(Name, name, _c, args(c), bytes);                                                     \
    } while (0)

#define THREE(Name, name, c, args, bytes)                                                          \
    do {                                                                                           \
        MPI_Request r_;                                                                            \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_##Name##c(args));                                                            \
        blocked((owed){"MPI_" #Name #c, bytes, 0, 1}, GW_PHASE_MPI_WAIT);                          \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_I##name##c(args, &r_));                                                      \
        flew((owed){"MPI_I" #name #c, bytes, 0, 1}, &r_, false);                                   \
        CHECK_MPI(MPI_##Name##_init##c(args, MPI_INFO_NULL, &r_));                                 \
        gw_ledger_begin();                                                                         \
        flew((owed){"MPI_" #Name "_init" #c, (uint64_t)starts * (bytes), 0, (unsigned)starts},     \
             &r_, true);                                                                           \
        CHECK_MPI(MPI_Request_free(&r_));                                                          \
    } while (0)

#define VECTOR(k)         in, out, N, MPI_FLOAT, MPI_SUM, world
#define VECTOR_ROOT(k)    in, out, N, MPI_FLOAT, MPI_SUM, 0, world
#define VECTOR_OWN(k)     in, out, own, MPI_FLOAT, MPI_SUM, world
#define VECTOR_PARTS(k)   in, out, k##counts, MPI_FLOAT, MPI_SUM, world
#define ONE(k)            in, N, MPI_FLOAT, 0, world
#define PARTS(k)          in, own, MPI_FLOAT, out, own, MPI_FLOAT, world
#define PARTS_ROOT(k)     in, own, MPI_FLOAT, out, own, MPI_FLOAT, 0, world
#define GATHER_V(k)       in, own, MPI_FLOAT, out, k##counts, k##at, MPI_FLOAT, world
#define GATHER_V_ROOT(k)  in, own, MPI_FLOAT, out, k##counts, k##at, MPI_FLOAT, 0, world
#define SCATTER_V_ROOT(k) in, k##counts, k##at, MPI_FLOAT, out, own, MPI_FLOAT, 0, world
#define SWAP_V(k)         in, k##counts, k##at, MPI_FLOAT, out, k##counts, k##at, MPI_FLOAT, world
#define SWAP_W(k)         in, k##counts, k##byte_at, types, out, k##counts, k##byte_at, types, world

static void test_collectives(void) {
    const uint64_t p = (uint64_t)ranks, n = N * sizeof(float), part = n / p;
    const int own = N / ranks;
    const uint64_t at_root = rank == 0 ? n - part : 0, off_root = rank == 0 ? 0 : part;
    SIX(Allreduce, allreduce, VECTOR, 2 * (p - 1) * part);
    SIX(Reduce, reduce, VECTOR_ROOT, (p - 1) * part);
    SIX(Bcast, bcast, ONE, (p - 1) * part);
    SIX(Reduce_scatter_block, reduce_scatter_block, VECTOR_OWN, (p - 1) * part);
    SIX(Reduce_scatter, reduce_scatter, VECTOR_PARTS, (p - 1) * part);
    SIX(Scan, scan, VECTOR, (p - 1) * part);
    SIX(Exscan, exscan, VECTOR, (p - 1) * part);
    SIX(Allgather, allgather, PARTS, (p - 1) * part);
    SIX(Allgatherv, allgatherv, GATHER_V, (p - 1) * part);
    SIX(Gather, gather, PARTS_ROOT, off_root);
    SIX(Gatherv, gatherv, GATHER_V_ROOT, off_root);
    starts = 1;
    SIX(Scatter, scatter, PARTS_ROOT, at_root);
    SIX(Scatterv, scatterv, SCATTER_V_ROOT, at_root);
    starts = 3;
    SIX(Alltoall, alltoall, PARTS, (p - 1) * part);
    SIX(Alltoallv, alltoallv, SWAP_V, (p - 1) * part);
    SIX(Alltoallw, alltoallw, SWAP_W, (p - 1) * part);
    MPI_Request r;
    gw_ledger_begin();
    CHECK_MPI(MPI_Barrier(world));
    blocked((owed){"MPI_Barrier", 0, 0, 1}, GW_PHASE_MPI_WAIT);
    gw_ledger_begin();
    CHECK_MPI(MPI_Ibarrier(world, &r));
    flew((owed){"MPI_Ibarrier", 0, 0, 1}, &r, false);
    CHECK_MPI(MPI_Barrier_init(world, MPI_INFO_NULL, &r));
    gw_ledger_begin();
    flew((owed){"MPI_Barrier_init", 0, 0, (unsigned)starts}, &r, true);
    CHECK_MPI(MPI_Request_free(&r));
}

/* Its request is posted and completed like any other: other requests stay in flight. */
static void test_copies(void) {
    MPI_Comm copy;
    MPI_Request open, r;
    for (int with_info = 0; with_info < 2; with_info++) {
        gw_ledger_begin();
        CHECK_MPI(MPI_Irecv(out, 1, MPI_FLOAT, rank, TAG, world, &open));
        if (with_info)
            CHECK_MPI(MPI_Comm_idup_with_info(world, MPI_INFO_NULL, &copy, &r));
        else
            CHECK_MPI(MPI_Comm_idup(world, &copy, &r));
        CHECK_MPI(MPI_Wait(&r, MPI_STATUS_IGNORE));
        spin_in(GW_PHASE_FORWARD, SPIN_S);
        CHECK_MPI(PMPI_Send(in, 1, MPI_FLOAT, rank, TAG, world));
        flew((owed){"MPI_Comm_idup", 0, 0, 0}, &open, false);
        CHECK_MPI(MPI_Comm_free(&copy));
    }
}

/* In place, the receive arguments define what is sent. */
static void test_in_place(void) {
    const uint64_t others = (uint64_t)(ranks - 1) * (uint64_t)icounts[0] * sizeof(float);
    gw_ledger_begin();
    CHECK_MPI(MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, out, icounts, iat,
                            MPI_FLOAT, world));
    blocked((owed){"MPI_Alltoallv in place", others, 0, 1}, GW_PHASE_MPI_WAIT);
    gw_ledger_begin();
    CHECK_MPI(MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, out, icounts, ibyte_at, types, world));
    blocked((owed){"MPI_Alltoallw in place", others, 0, 1}, GW_PHASE_MPI_WAIT);
}

#define NEAR(k)   in, own, MPI_FLOAT, out, own, MPI_FLOAT, near
#define NEAR_G(k) in, own, MPI_FLOAT, out, k##counts, k##at, MPI_FLOAT, near
#define NEAR_V(k) in, k##counts, k##at, MPI_FLOAT, out, k##counts, k##at, MPI_FLOAT, near
#define NEAR_W(k) in, k##counts, cbyte_at, types, out, k##counts, cbyte_at, types, near

/* `to`: how many neighbours this rank sends to. */
static void test_neighbours(MPI_Comm near, int to) {
    const int own = N / ranks;
    const uint64_t bytes = (uint64_t)to * (uint64_t)own * sizeof(float);
    SIX(Neighbor_allgather, neighbor_allgather, NEAR, bytes);
    SIX(Neighbor_allgatherv, neighbor_allgatherv, NEAR_G, bytes);
    SIX(Neighbor_alltoall, neighbor_alltoall, NEAR, bytes);
    SIX(Neighbor_alltoallv, neighbor_alltoallv, NEAR_V, bytes);
    SIX(Neighbor_alltoallw, neighbor_alltoallw, NEAR_W, bytes);
}

/* A directed ring and an open line of ranks: one or two neighbours, fewer at the ends. */
static void test_neighbourhoods(void) {
    const int open = 0, one = 1;
    CHECK_MPI(MPI_Dist_graph_create_adjacent(world, 1, &before, MPI_UNWEIGHTED, 1, &next,
                                             MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring));
    test_neighbours(ring, 1);
    CHECK_MPI(MPI_Cart_create(world, one, &ranks, &open, 0, &grid));
    test_neighbours(grid, (rank > 0) + (rank + 1 < ranks));
    CHECK_MPI(MPI_Comm_free(&ring));
    CHECK_MPI(MPI_Comm_free(&grid));
}

/* A receive from the rank before; all ranks have posted it when this returns. */
static MPI_Request awaited(void) {
    MPI_Request r;
    CHECK_MPI(PMPI_Irecv(out, N, MPI_FLOAT, before, TAG, world, &r));
    CHECK_MPI(PMPI_Barrier(world));
    return r;
}

static void arrive(MPI_Request r) {
    CHECK_MPI(PMPI_Wait(&r, MPI_STATUS_IGNORE));
}

#define TO_NEXT   in, N, MPI_FLOAT, next, TAG, world
#define TO_NOBODY in, N, MPI_FLOAT, MPI_PROC_NULL, TAG, world

#define SENDING(Name, name, c)                                                                     \
    do {                                                                                           \
        const uint64_t n_ = N * sizeof(float);                                                     \
        MPI_Request r_, in_ = awaited();                                                           \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_##Name##c(TO_NEXT));                                                         \
        blocked((owed){"MPI_" #Name #c, n_, 1, 0}, GW_PHASE_MPI_WAIT);                             \
        arrive(in_);                                                                               \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_##Name##c(TO_NOBODY));                                                       \
        blocked((owed){"MPI_" #Name #c " to nobody", 0, 0, 0}, GW_PHASE_MPI_WAIT);                 \
        in_ = awaited();                                                                           \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_I##name##c(TO_NEXT, &r_));                                                   \
        flew((owed){"MPI_I" #name #c, n_, 1, 0}, &r_, false);                                      \
        arrive(in_);                                                                               \
        CHECK_MPI(MPI_##Name##_init##c(TO_NEXT, &r_));                                             \
        in_ = awaited();                                                                           \
        gw_ledger_begin();                                                                         \
        flew((owed){"MPI_" #Name "_init" #c, n_, 1, 0}, &r_, true);                                \
        arrive(in_);                                                                               \
        CHECK_MPI(MPI_Request_free(&r_));                                                          \
    } while (0)

static void test_sends(void) {
    /* One message at a time is buffered, so one's room is enough. */
    int room = (int)(N * sizeof(float)) + MPI_BSEND_OVERHEAD;
    void *buffer = malloc((size_t)room);
    CHECK(buffer, "%d bytes", room);
    SENDING(Send, send, );
    SENDING(Send, send, _c);
    SENDING(Ssend, ssend, );
    SENDING(Ssend, ssend, _c);
    SENDING(Rsend, rsend, );
    SENDING(Rsend, rsend, _c);
    for (int wide = 0; wide < 2; wide++) {
        CHECK_MPI(PMPI_Buffer_attach(buffer, room));
        if (wide)
            SENDING(Bsend, bsend, _c);
        else
            SENDING(Bsend, bsend, );
        void *back = NULL;
        int size = 0;
        MPI_Count size_c = 0;
        gw_ledger_begin();
        if (wide)
            CHECK_MPI(MPI_Buffer_detach_c(&back, &size_c));
        else
            CHECK_MPI(MPI_Buffer_detach(&back, &size));
        blocked((owed){wide ? "MPI_Buffer_detach_c" : "MPI_Buffer_detach", 0, 0, 0},
                GW_PHASE_MPI_WAIT);
    }
    free(buffer);
}

/* A message to this rank itself, which the call under test receives. */
static MPI_Request sent(void) {
    MPI_Request r;
    CHECK_MPI(PMPI_Isend(in, N, MPI_FLOAT, rank, TAG, world, &r));
    return r;
}

static MPI_Message matched(void) {
    MPI_Message m;
    CHECK_MPI(PMPI_Mprobe(rank, TAG, world, &m, MPI_STATUS_IGNORE));
    return m;
}

#define FROM_SELF out, N, MPI_FLOAT, rank, TAG, world

#define RECEIVING(c)                                                                               \
    do {                                                                                           \
        MPI_Request r_, out_ = sent();                                                             \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_Recv##c(FROM_SELF, MPI_STATUS_IGNORE));                                      \
        blocked((owed){"MPI_Recv" #c, 0, 0, 0}, GW_PHASE_MPI_WAIT);                                \
        arrive(out_);                                                                              \
        out_ = sent();                                                                             \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_Irecv##c(FROM_SELF, &r_));                                                   \
        flew((owed){"MPI_Irecv" #c, 0, 0, 0}, &r_, false);                                         \
        arrive(out_);                                                                              \
        CHECK_MPI(MPI_Recv_init##c(FROM_SELF, &r_));                                               \
        out_ = sent();                                                                             \
        gw_ledger_begin();                                                                         \
        flew((owed){"MPI_Recv_init" #c, 0, 0, 0}, &r_, true);                                      \
        CHECK_MPI(MPI_Request_free(&r_));                                                          \
        arrive(out_);                                                                              \
        out_ = sent();                                                                             \
        MPI_Message m_ = matched();                                                                \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_Mrecv##c(out, N, MPI_FLOAT, &m_, MPI_STATUS_IGNORE));                        \
        blocked((owed){"MPI_Mrecv" #c, 0, 0, 0}, GW_PHASE_MPI_WAIT);                               \
        arrive(out_);                                                                              \
        out_ = sent();                                                                             \
        m_ = matched();                                                                            \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_Imrecv##c(out, N, MPI_FLOAT, &m_, &r_));                                     \
        flew((owed){"MPI_Imrecv" #c, 0, 0, 0}, &r_, false);                                        \
        arrive(out_);                                                                              \
    } while (0)

#define BOTH    in, N, MPI_FLOAT, next, TAG, out, N, MPI_FLOAT, before, TAG, world
#define REPLACE in, N, MPI_FLOAT, next, TAG, before, TAG, world

#define EXCHANGING(Name, name, args)                                                               \
    do {                                                                                           \
        const uint64_t n_ = N * sizeof(float);                                                     \
        MPI_Request r_;                                                                            \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_##Name(args, MPI_STATUS_IGNORE));                                            \
        blocked((owed){"MPI_" #Name, n_, 1, 0}, GW_PHASE_MPI_WAIT);                                \
        gw_ledger_begin();                                                                         \
        CHECK_MPI(MPI_I##name(args, &r_));                                                         \
        flew((owed){"MPI_I" #name, n_, 1, 0}, &r_, false);                                         \
    } while (0)

static void test_exchanges(void) {
    EXCHANGING(Sendrecv, sendrecv, BOTH);
    EXCHANGING(Sendrecv_c, sendrecv_c, BOTH);
    EXCHANGING(Sendrecv_replace, sendrecv_replace, REPLACE);
    EXCHANGING(Sendrecv_replace_c, sendrecv_replace_c, REPLACE);
}

static void test_probes(void) {
    int flag = 0;
    MPI_Message m;
    MPI_Request r = sent();
    gw_ledger_begin();
    CHECK_MPI(MPI_Probe(rank, TAG, world, MPI_STATUS_IGNORE));
    blocked((owed){"MPI_Probe", 0, 0, 0}, GW_PHASE_MPI_WAIT);
    gw_ledger_begin();
    CHECK_MPI(MPI_Iprobe(rank, TAG, world, &flag, MPI_STATUS_IGNORE));
    blocked((owed){"MPI_Iprobe", 0, 0, 0}, GW_PHASE_MPI_POLL);
    gw_ledger_begin();
    CHECK_MPI(MPI_Mprobe(rank, TAG, world, &m, MPI_STATUS_IGNORE));
    blocked((owed){"MPI_Mprobe", 0, 0, 0}, GW_PHASE_MPI_WAIT);
    CHECK_MPI(PMPI_Mrecv(out, N, MPI_FLOAT, &m, MPI_STATUS_IGNORE));
    arrive(r);
    gw_ledger_begin();
    CHECK_MPI(MPI_Improbe(rank, TAG, world, &flag, &m, MPI_STATUS_IGNORE));
    blocked((owed){"MPI_Improbe", 0, 0, 0}, GW_PHASE_MPI_POLL);
    CHECK(!flag, "a message that nobody sent");
    CHECK_MPI(PMPI_Irecv(out, N, MPI_FLOAT, rank, TAG, world, &r));
    gw_ledger_begin();
    CHECK_MPI(MPI_Request_get_status(r, &flag, MPI_STATUS_IGNORE));
    blocked((owed){"MPI_Request_get_status", 0, 0, 0}, GW_PHASE_MPI_POLL);
    arrive(sent());
    arrive(r);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    ranks = check_ranks(argc, argv);
    world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    CHECK(ranks <= 4, "made for 1 to 4 ranks");
    next = (rank + 1) % ranks;
    before = (rank + ranks - 1) % ranks;
    for (int i = 0; i < 4; i++) {
        icounts[i] = N / ranks;
        iat[i] = i * icounts[i];
        ibyte_at[i] = iat[i] * (int)sizeof(float);
        ccounts[i] = icounts[i];
        cat[i] = iat[i];
        cbyte_at[i] = ibyte_at[i];
        types[i] = MPI_FLOAT;
    }
    gw_ledger_start();
    test_collectives();
    test_in_place();
    test_neighbourhoods();
    test_copies();
    starts = 1;
    test_sends();
    RECEIVING();
    RECEIVING(_c);
    test_exchanges();
    test_probes();
    MPI_Finalize();
    return 0;
}
