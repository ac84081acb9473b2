#include "prof/matrix.h"

#include "base/file.h"
#include "base/mem.h"
#include "mpi/wait.h"
#include "prof/ledger.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NAME   "matrix.csv"
#define HEADER "rank,peer,messages,bytes,source\n"
enum { TAG = 3 };

typedef struct cell {
    atomic_uint_fast64_t messages, bytes;
} cell;

static cell *cells; /* by rank of MPI_COMM_WORLD; NULL: closed */
static int ranks;
/* gw_ledger_collectives when it was opened, and what was called since while it paused. */
static uint64_t calls_before, bytes_before;
static uint64_t calls_at_pause, bytes_at_pause;
static atomic_bool paused;
static int names = MPI_KEYVAL_INVALID; /* of a communicator: its ranks' names in MPI_COMM_WORLD */

static int forget(MPI_Comm comm, int keyval, void *table, void *extra) {
    (void)comm, (void)keyval, (void)extra;
    free(table);
    return MPI_SUCCESS;
}

gw_err gw_matrix_open(void) {
    gw_matrix_close();
    if (names == MPI_KEYVAL_INVALID)
        GW_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &names, NULL));
    GW_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    gw_ledger_collectives(&calls_before, &bytes_before);
    return gw_alloc(&cells, (size_t)ranks, sizeof *cells);
}

void gw_matrix_close(void) {
    free(cells);
    cells = NULL;
}

/* The table of a communicator that has none yet; NULL: cannot. */
static int *make_table(MPI_Comm comm) {
    int n = 0;
    MPI_Group here, world;
    PMPI_Comm_size(comm, &n);
    int *own = calloc((size_t)n, sizeof *own), *table = malloc((size_t)n * sizeof *table);
    if (!own || !table) {
        free(own);
        free(table);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        own[i] = i;
    PMPI_Comm_group(comm, &here);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(here, n, own, world, table);
    PMPI_Group_free(&here);
    PMPI_Group_free(&world);
    free(own);
    if (PMPI_Comm_set_attr(comm, names, table) != MPI_SUCCESS) {
        free(table);
        return NULL;
    }
    return table;
}

int gw_matrix_peer(int rank, MPI_Comm comm) {
    if (!cells || rank < 0)
        return -1;
    if (comm == MPI_COMM_WORLD)
        return rank;
    int found = 0, *table = NULL;
    if (PMPI_Comm_get_attr(comm, names, &table, &found) != MPI_SUCCESS || !found)
        table = make_table(comm);
    return table ? table[rank] : -1;
}

void gw_matrix_pause(void) {
    gw_ledger_collectives(&calls_at_pause, &bytes_at_pause);
    atomic_store(&paused, true);
}

void gw_matrix_resume(void) {
    uint64_t calls, bytes;
    gw_ledger_collectives(&calls, &bytes);
    calls_before += calls - calls_at_pause;
    bytes_before += bytes - bytes_at_pause;
    atomic_store(&paused, false);
}

uint64_t gw_matrix_sent(int peer, uint64_t bytes) {
    if (cells && !atomic_load_explicit(&paused, memory_order_relaxed) && peer >= 0 &&
        peer < ranks) {
        atomic_fetch_add_explicit(&cells[peer].messages, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&cells[peer].bytes, bytes, memory_order_relaxed);
    }
    return bytes;
}

/* ---- the file ---- */

/* A row: messages and bytes to each rank, then calls and modelled bytes of collectives. */
static void fill(uint64_t *row) {
    for (int r = 0; r < ranks; r++) {
        row[2 * r] = atomic_load(&cells[r].messages);
        row[2 * r + 1] = atomic_load(&cells[r].bytes);
    }
    uint64_t calls, bytes;
    gw_ledger_collectives(&calls, &bytes);
    row[2 * ranks] = calls - calls_before;
    row[2 * ranks + 1] = bytes - bytes_before;
}

static void print(FILE *to, int rank, const uint64_t *row) {
    for (int r = 0; r < ranks; r++)
        if (row[2 * r] > 0)
            fprintf(to, "%d,%d,%" PRIu64 ",%" PRIu64 ",measured\n", rank, r, row[2 * r],
                    row[2 * r + 1]);
    if (row[2 * ranks] > 0)
        fprintf(to, "%d,,%" PRIu64 ",%" PRIu64 ",modelled\n", rank, row[2 * ranks],
                row[2 * ranks + 1]);
}

static void add(gw_matrix_total *total, const uint64_t *row) {
    for (int r = 0; r < ranks; r++) {
        total->messages += row[2 * r];
        total->bytes += row[2 * r + 1];
    }
    total->collectives += row[2 * ranks];
    total->collective_bytes += row[2 * ranks + 1];
}

/* Rank by rank, so that rank 0's memory is a row, not a matrix. */
static gw_err write_rows(FILE *to, uint64_t *row, gw_matrix_total *total, MPI_Comm comm) {
    int n;
    GW_MPI(MPI_Comm_size(comm, &n));
    for (int r = 0; r < n; r++) {
        MPI_Request request;
        if (r > 0) {
            GW_MPI(MPI_Irecv(row, 2 * ranks + 2, MPI_UINT64_T, r, TAG, comm, &request));
            GW_TRY(gw_wait(&request));
        }
        add(total, row);
        if (to)
            print(to, r, row);
    }
    return to && ferror(to) ? gw_fail(GW_ERR_IO, "cannot write matrix.csv: is the disk full?")
                            : GW_OK;
}

gw_err gw_matrix_write(const char *dir, gw_matrix_total *total, MPI_Comm comm) {
    int rank;
    uint64_t *row = NULL;
    gw_file *file = NULL;
    MPI_Request request;
    *total = (gw_matrix_total){0};
    GW_MPI(MPI_Comm_rank(comm, &rank));
    gw_err e = gw_alloc(&row, 2 * (size_t)ranks + 2, sizeof *row);
    if (e == GW_OK && rank == 0 && dir)
        e = gw_file_create(&file, dir, NAME);
    e = gw_agree(comm, e);
    if (e == GW_OK) {
        fill(row);
        if (file)
            fprintf(gw_file_stream(file), HEADER);
        e = rank == 0
                ? write_rows(file ? gw_file_stream(file) : NULL, row, total, comm)
                : gw_mpi_check(MPI_Isend(row, 2 * ranks + 2, MPI_UINT64_T, 0, TAG, comm, &request),
                               "MPI_Isend");
    }
    if (e == GW_OK && rank > 0)
        e = gw_wait(&request);
    if (e == GW_OK && file) {
        e = gw_file_commit(file);
        file = NULL;
    }
    gw_file_abandon(file);
    free(row);
    return gw_agree(comm, e);
}

/* A row of `line`: with a peer a measured one, without one of collectives. */
static bool add_line(gw_matrix_total *total, const char *line) {
    uint64_t messages, bytes;
    int peer = 0;
    if (sscanf(line, "%*d,%d,%" SCNu64 ",%" SCNu64 ",measured", &peer, &messages, &bytes) == 3) {
        total->messages += messages;
        total->bytes += bytes;
        return true;
    }
    if (sscanf(line, "%*d,,%" SCNu64 ",%" SCNu64 ",modelled", &messages, &bytes) != 2)
        return false;
    total->collectives += messages;
    total->collective_bytes += bytes;
    return true;
}

gw_err gw_matrix_read(const char *dir, gw_matrix_total *total) {
    char line[128], *path = NULL;
    FILE *in = NULL;
    size_t len;
    *total = (gw_matrix_total){0};
    if (asprintf(&path, "%s/" NAME, dir) < 0)
        return gw_fail(GW_ERR_NOMEM, "out of memory");
    gw_err e = gw_file_open(path, &in, &len);
    bool good = e == GW_OK && fgets(line, sizeof line, in) && strcmp(line, HEADER) == 0;
    while (good && fgets(line, sizeof line, in))
        good = add_line(total, line);
    if (e == GW_OK && !good)
        e = gw_fail(GW_ERR_INPUT, "%s: is no communication matrix", path);
    if (in)
        fclose(in);
    free(path);
    return e;
}
