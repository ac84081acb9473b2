/* The byte formulas of pmpi.h. They ask the library by PMPI_*, which is not charged. */
#include "prof/pmpi.h"

uint64_t gw_pmpi_bytes(MPI_Count count, MPI_Datatype type) {
    MPI_Count size = 0;
    if (count <= 0 || PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size <= 0)
        return 0;
    return (uint64_t)count * (uint64_t)size;
}

uint64_t gw_pmpi_sent(MPI_Count count, MPI_Datatype type, int dest) {
    return dest == MPI_PROC_NULL ? 0 : gw_pmpi_bytes(count, type);
}

static uint64_t bytes_ranks(MPI_Comm comm) {
    int n = 1;
    PMPI_Comm_size(comm, &n);
    return (uint64_t)n;
}

static int bytes_rank_in(MPI_Comm comm) {
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

gw_pmpi_counts gw_pmpi_ints(const int counts[]) {
    return (gw_pmpi_counts){.ints = counts};
}

gw_pmpi_counts gw_pmpi_wides(const MPI_Count counts[]) {
    return (gw_pmpi_counts){.wides = counts};
}

static MPI_Count bytes_at(gw_pmpi_counts counts, int i) {
    return counts.ints ? counts.ints[i] : counts.wides ? counts.wides[i] : counts.each;
}

uint64_t gw_pmpi_share(uint64_t bytes, unsigned passes, MPI_Comm comm) {
    uint64_t p = bytes_ranks(comm);
    return passes * (p - 1) * bytes / p;
}

uint64_t gw_pmpi_others(uint64_t bytes, MPI_Comm comm) {
    return (bytes_ranks(comm) - 1) * bytes;
}

static uint64_t bytes_sum_but(gw_pmpi_counts counts, MPI_Datatype type, int skip, MPI_Comm comm) {
    MPI_Count sum = 0;
    int n = (int)bytes_ranks(comm);
    for (int i = 0; i < n; i++)
        sum += i == skip ? 0 : bytes_at(counts, i);
    return gw_pmpi_bytes(sum, type);
}

uint64_t gw_pmpi_sum(gw_pmpi_counts counts, MPI_Datatype type, MPI_Comm comm) {
    return bytes_sum_but(counts, type, -1, comm);
}

uint64_t gw_pmpi_gathered(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    return bytes_rank_in(comm) == root ? 0 : gw_pmpi_bytes(count, type);
}

uint64_t gw_pmpi_scattered(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    return bytes_rank_in(comm) == root ? gw_pmpi_others(gw_pmpi_bytes(count, type), comm) : 0;
}

uint64_t gw_pmpi_scattered_v(gw_pmpi_counts counts, MPI_Datatype type, int root, MPI_Comm comm) {
    return bytes_rank_in(comm) == root ? bytes_sum_but(counts, type, root, comm) : 0;
}

uint64_t gw_pmpi_swapped_v(const void *sendbuf, gw_pmpi_counts sendcounts, MPI_Datatype sendtype,
                           gw_pmpi_counts recvcounts, MPI_Datatype recvtype, MPI_Comm comm) {
    if (sendbuf == MPI_IN_PLACE)
        return bytes_sum_but(recvcounts, recvtype, bytes_rank_in(comm), comm);
    return bytes_sum_but(sendcounts, sendtype, bytes_rank_in(comm), comm);
}

uint64_t gw_pmpi_swapped_w(const void *sendbuf, gw_pmpi_counts sendcounts,
                           const MPI_Datatype sendtypes[], gw_pmpi_counts recvcounts,
                           const MPI_Datatype recvtypes[], MPI_Comm comm) {
    bool in_place = sendbuf == MPI_IN_PLACE;
    uint64_t sum = 0;
    int n = (int)bytes_ranks(comm), self = bytes_rank_in(comm);
    for (int i = 0; i < n; i++)
        if (i != self)
            sum += gw_pmpi_bytes(bytes_at(in_place ? recvcounts : sendcounts, i),
                                 (in_place ? recvtypes : sendtypes)[i]);
    return sum;
}

/* How many neighbours a rank sends to, by the kind of its communicator (MPI 4.0, section 8.6). On a
 * Cartesian grid they are, for each dimension, the one below and the one above. */
static int bytes_near_neighbours(MPI_Comm comm, int kind) {
    int n = 0, in = 0, weighted = 0;
    if (kind == MPI_CART) {
        PMPI_Cartdim_get(comm, &n);
        return 2 * n;
    }
    if (kind == MPI_GRAPH)
        PMPI_Graph_neighbors_count(comm, bytes_rank_in(comm), &n);
    else if (kind == MPI_DIST_GRAPH)
        PMPI_Dist_graph_neighbors_count(comm, &in, &n, &weighted);
    return n;
}

/* False behind the border of a grid that is not periodic: nothing is sent there. */
static bool bytes_near_exists(MPI_Comm comm, int kind, int i) {
    if (kind != MPI_CART)
        return true;
    int below = MPI_PROC_NULL, above = MPI_PROC_NULL;
    PMPI_Cart_shift(comm, i / 2, 1, &below, &above);
    return (i % 2 ? above : below) != MPI_PROC_NULL;
}

/* A type for each neighbour, or (types NULL) one for all. */
static uint64_t bytes_near_sum(gw_pmpi_counts counts, const MPI_Datatype types[], MPI_Datatype type,
                               MPI_Comm comm) {
    int kind = MPI_UNDEFINED;
    uint64_t sum = 0;
    PMPI_Topo_test(comm, &kind);
    for (int i = bytes_near_neighbours(comm, kind) - 1; i >= 0; i--)
        if (bytes_near_exists(comm, kind, i))
            sum += gw_pmpi_bytes(bytes_at(counts, i), types ? types[i] : type);
    return sum;
}

uint64_t gw_pmpi_near(MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
    return bytes_near_sum((gw_pmpi_counts){.each = count}, NULL, type, comm);
}

uint64_t gw_pmpi_near_v(gw_pmpi_counts counts, MPI_Datatype type, MPI_Comm comm) {
    return bytes_near_sum(counts, NULL, type, comm);
}

uint64_t gw_pmpi_near_w(gw_pmpi_counts counts, const MPI_Datatype types[], MPI_Comm comm) {
    return bytes_near_sum(counts, types, MPI_DATATYPE_NULL, comm);
}
