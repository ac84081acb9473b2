#include "mpi/collect.h"

#include "base/mem.h"
#include "mpi/wait.h"

#include <stdlib.h>

enum { CHUNK = 2048 /* rows a message */, TAG = 2 };

/* What cannot be written is received all the same: the others send it. */
static gw_err collect_from(const gw_table *t, FILE *to, char *chunk, int n, int rank,
                           MPI_Comm comm) {
    for (int done = 0; done < n; done += CHUNK) {
        int rows = n - done < CHUNK ? n - done : CHUNK;
        GW_TRY(gw_message(chunk, rows * (int)t->row, rank, TAG, false, comm));
        gw_table_write(t, to, chunk, (size_t)rows);
    }
    return GW_OK;
}

gw_err gw_collect_rows(const gw_table *t, FILE *to, void *rows, int n, MPI_Comm comm) {
    int rank, ranks, *count = NULL;
    char *chunk = NULL;
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    gw_err e = gw_alloc(&count, (size_t)ranks, sizeof *count);
    GW_THEN(e, gw_alloc(&chunk, CHUNK, t->row));
    e = gw_agree(comm, e);
    GW_THEN(e, gw_gather(&n, count, (int)sizeof n, comm));
    for (int done = 0; e == GW_OK && rank > 0 && done < n; done += CHUNK) {
        int bytes = (n - done < CHUNK ? n - done : CHUNK) * (int)t->row;
        e = gw_message((char *)rows + (size_t)done * t->row, bytes, 0, TAG, true, comm);
    }
    if (e == GW_OK && rank == 0)
        gw_table_write(t, to, rows, (size_t)n);
    for (int r = 1; e == GW_OK && rank == 0 && r < ranks; r++)
        e = collect_from(t, to, chunk, count[r], r, comm);
    GW_THEN(e, gw_table_write(t, to, NULL, 0));
    free(count);
    free(chunk);
    return gw_agree(comm, e);
}
