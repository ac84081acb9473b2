#include "prof/matrix.h"

#include "base/file.h"
#include "base/mem.h"
#include "mpi/collect.h"
#include "mpi/wait.h"
#include "mpi/world.h"
#include "prof/ledger.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { DIMS = GW_EXCHANGE_DIMS };

typedef struct cell {
    atomic_uint_fast64_t messages, bytes;
} cell;

/* What MPI's own collectives sent, by dimension. */
typedef struct called {
    uint64_t calls[DIMS], bytes[DIMS];
} called;

static cell *cells; /* [rank of MPI_COMM_WORLD][dimension]; NULL: closed */
static int ranks;
static called before;                  /* when it was opened */
static int names = MPI_KEYVAL_INVALID; /* of a communicator: its ranks' names in MPI_COMM_WORLD */

static called matrix_called(void) {
    called c;
    for (int d = 0; d < DIMS; d++)
        gw_ledger_collectives(d, &c.calls[d], &c.bytes[d]);
    return c;
}

static int matrix_forget(MPI_Comm comm, int keyval, void *table, void *extra) {
    (void)comm, (void)keyval, (void)extra;
    free(table);
    return MPI_SUCCESS;
}

gw_err gw_matrix_open(void) {
    gw_matrix_close();
    if (names == MPI_KEYVAL_INVALID)
        GW_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, matrix_forget, &names, NULL));
    GW_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    before = matrix_called();
    return gw_alloc(&cells, (size_t)ranks * DIMS, sizeof *cells);
}

void gw_matrix_close(void) {
    free(cells);
    cells = NULL;
}

int gw_matrix_peer(int rank, MPI_Comm comm) {
    if (!cells || rank < 0)
        return -1;
    if (comm == MPI_COMM_WORLD)
        return rank;
    int found = 0, *table = NULL;
    if (MPI_Comm_get_attr(comm, names, &table, &found) == MPI_SUCCESS && found)
        return table[rank];
    table = NULL;
    if (gw_world_ranks(comm, &table) == GW_OK &&
        MPI_Comm_set_attr(comm, names, table) == MPI_SUCCESS)
        return table[rank];
    free(table);
    return -1;
}

uint64_t gw_matrix_sent(int peer, uint64_t bytes) {
    if (cells && peer >= 0 && peer < ranks) {
        cell *c = &cells[peer * DIMS + gw_probe_dim];
        atomic_fetch_add_explicit(&c->messages, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->bytes, bytes, memory_order_relaxed);
    }
    return bytes;
}

/* ---- the file ---- */

enum { MEASURED, MODELLED };

typedef struct row {
    int rank;
    long peer; /* -1: whom MPI's own collectives sent to */
    int dim;
    uint64_t messages, bytes;
    int source;
} row;

static const char *const sources[] = {"measured", "modelled", NULL};
static const gw_column columns[] = {
    GW_COLUMN(row, "rank", INT, rank),
    GW_COLUMN(row, "peer", COUNT, peer),
    GW_COLUMN_NAME(row, "dimension", dim, gw_dim_names),
    GW_COLUMN(row, "messages", U64, messages),
    GW_COLUMN(row, "bytes", U64, bytes),
    GW_COLUMN_NAME(row, "source", source, sources),
};
static const gw_table table = GW_TABLE("matrix.csv", row, columns);

static void matrix_add(gw_matrix_total *total, const row *r) {
    bool measured = r->source == MEASURED;
    *(measured ? &total->messages : &total->collectives) += r->messages;
    *(measured ? &total->bytes : &total->collective_bytes) += r->bytes;
}

gw_err gw_matrix_write(const char *dir, gw_matrix_total *total, MPI_Comm comm) {
    int rank, n = 0;
    row *rows = NULL; /* at most one a rank and dimension, and one more a dimension */
    gw_file *file = NULL;
    called now = matrix_called();
    *total = (gw_matrix_total){0};
    GW_MPI(MPI_Comm_rank(comm, &rank));
    gw_err e = gw_alloc(&rows, ((size_t)ranks + 1) * DIMS, sizeof *rows);
    for (int i = 0; e == GW_OK && i < ranks * DIMS; i++) {
        const cell *c = &cells[i];
        rows[n] = (row){
            rank, i / DIMS, i % DIMS, atomic_load(&c->messages), atomic_load(&c->bytes), MEASURED};
        n += rows[n].messages > 0;
    }
    for (int d = 0; e == GW_OK && d < DIMS; d++) {
        rows[n] = (row){
            rank, -1, d, now.calls[d] - before.calls[d], now.bytes[d] - before.bytes[d], MODELLED};
        n += rows[n].messages > 0;
    }
    for (int i = 0; i < n; i++)
        matrix_add(total, &rows[i]);
    if (e == GW_OK && rank == 0 && dir)
        e = gw_file_create(&file, dir, table.file);
    e = gw_agree(comm, e);
    FILE *to = file ? gw_file_stream(file) : NULL;
    if (e == GW_OK && to)
        gw_table_header(&table, to);
    GW_THEN(e, gw_collect_rows(&table, to, rows, n, comm));
    GW_THEN(e, gw_allreduce(MPI_IN_PLACE, total, (int)(sizeof *total / sizeof(uint64_t)),
                            MPI_UINT64_T, MPI_SUM, comm));
    GW_THEN(e, gw_file_commit(&file));
    gw_file_abandon(file);
    free(rows);
    return gw_agree(comm, e);
}

gw_err gw_matrix_read(const char *dir, gw_matrix_total *total) {
    char *path = NULL;
    size_t len;
    row r;
    bool more = true;
    *total = (gw_matrix_total){0};
    if (asprintf(&path, "%s/%s", dir, table.file) < 0)
        return gw_fail(GW_ERR_NOMEM, "out of memory");
    gw_table_reader in = {.table = &table, .path = path};
    gw_err e = gw_file_open(path, &in.in, &len);
    while (e == GW_OK && (e = gw_table_read(&in, &r, &more)) == GW_OK && more)
        matrix_add(total, &r);
    if (in.in)
        fclose(in.in);
    free(path);
    return e;
}
