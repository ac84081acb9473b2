/* The matrix counts by ranks of MPI_COMM_WORLD, for messages on any communicator. It holds exactly
 * what batches sent from point to point. */
#include "mpi/wait.h"
#include "prof/ledger.h"
#include "prof/matrix.h"

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `count` ints to the next rank of comm, received from the one before. */
static void around(MPI_Comm comm, int count, bool persistent) {
    int rank, size, out[64] = {0}, in[64];
    MPI_Request r[2];
    CHECK_MPI(MPI_Comm_rank(comm, &rank));
    CHECK_MPI(MPI_Comm_size(comm, &size));
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    CHECK_MPI(MPI_Irecv(in, count, MPI_INT, before, 0, comm, &r[0]));
    if (persistent) {
        CHECK_MPI(MPI_Send_init(out, count, MPI_INT, next, 0, comm, &r[1]));
        CHECK_MPI(MPI_Start(&r[1]));
    } else {
        CHECK_MPI(MPI_Isend(out, count, MPI_INT, next, 0, comm, &r[1]));
    }
    CHECK_OK(gw_wait(&r[0]));
    CHECK_OK(gw_wait(&r[1]));
    if (persistent)
        CHECK_MPI(MPI_Request_free(&r[1]));
}

/* How many lines of the file are about `rank` and `peer` ("" for collectives). */
static void check_line(const char *path, int rank, const char *peer, int dim, long messages,
                       long bytes, const char *source) {
    char want[96], line[96], lead[32];
    FILE *in = fopen(path, "r");
    CHECK(in != NULL, "%s is not there", path);
    int lead_len = snprintf(lead, sizeof lead, "%d,%s,%s,", rank, peer, gw_dim_names[dim]);
    snprintf(want, sizeof want, "%s%ld,%ld,%s\n", lead, messages, bytes, source);
    bool found = false;
    while (fgets(line, sizeof line, in))
        if (strncmp(line, lead, (size_t)lead_len) == 0) {
            CHECK(strcmp(line, want) == 0, "'%s' instead of '%s'", line, want);
            found = true;
        }
    CHECK(found, "no line that begins with %s", lead);
    fclose(in);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    gw_wait_yields(ranks > 2);
    MPI_Comm back, copy; /* back: the ranks in opposite order */
    CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &back));
    CHECK_MPI(MPI_Comm_dup(back, &copy));
    CHECK_OK(gw_matrix_open());
    around(MPI_COMM_WORLD, 50, false); /* between batches: not counted */
    gw_batch_cost cost;
    gw_ledger_begin();
    around(MPI_COMM_WORLD, 10, false);
    around(back, 3, false);
    around(back, 4, true);
    int dim = gw_dim_turn(1);
    around(copy, 5, false);
    gw_dim_turn(dim);
    double x = 1;
    CHECK_MPI(MPI_Send(&me, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
    CHECK_OK(gw_allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    gw_ledger_end(&cost);
    MPI_Comm_free(&copy);

    char dir[] = "/tmp/gradwire-matrix-XXXXXX", path[64] = "";
    if (me == 0)
        CHECK(mkdtemp(dir) != NULL, "no folder");
    gw_matrix_total total;
    CHECK_OK(gw_matrix_write(dir, &total, MPI_COMM_WORLD));
    uint64_t sum[2] = {cost.wire_bytes, cost.messages};
    CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, sum, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    if (me == 0) {
        CHECK(total.bytes + total.collective_bytes == sum[0] && total.messages == sum[1],
              "the totals are not the batch's");
        CHECK(total.collectives == (uint64_t)ranks, "%llu collectives",
              (unsigned long long)total.collectives);
        snprintf(path, sizeof path, "%s/matrix.csv", dir);
        for (int r = 0; r < ranks; r++) {
            char next[16], before[16];
            snprintf(next, sizeof next, "%d", (r + 1) % ranks);
            snprintf(before, sizeof before, "%d", (r + ranks - 1) % ranks);
            bool same = strcmp(next, before) == 0;
            check_line(path, r, next, 0, same ? 3 : 1, same ? 68 : 40, "measured");
            if (!same)
                check_line(path, r, before, 0, 2, 28, "measured");
            check_line(path, r, before, 1, 1, 20, "measured");
            check_line(path, r, "", 0, 1, 2 * (ranks - 1) * 8 / ranks, "modelled");
        }
        unlink(path);
        rmdir(dir);
    }
    gw_matrix_close();
    gw_ledger_begin();
    around(back, 4, false); /* nobody listens */
    gw_ledger_end(&cost);
    MPI_Comm_free(&back);
    MPI_Finalize();
    return 0;
}
