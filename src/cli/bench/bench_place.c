/* What benchmarks measure with: sizes of spans, where they run, and a start together. */
#include "cli/bench/bench.h"

#include "mpi/wait.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* ---- sizes ---- */

static gw_err bench_one_size(const char *text, size_t *bytes) {
    static const gw_opt one[] = {
        {"sizes", GW_OPT_BYTES, "4", sizeof(float), 1u << 30, NULL, NULL, ""}, {0}};
    gw_args *args = NULL;
    GW_TRY(gw_args_new(&args, one));
    gw_err e = gw_args_set(args, "bench", "sizes", text);
    *bytes = gw_args_bytes(args, "sizes");
    gw_args_free(args);
    if (e == GW_OK && *bytes % sizeof(float) != 0)
        return gw_fail(GW_ERR_USAGE, "bench: sizes=%s: floats take a multiple of %zu bytes", text,
                       sizeof(float));
    return e;
}

static gw_err bench_add_size(gw_bench_sizes *out, size_t bytes) {
    if (out->n == GW_BENCH_ITEMS)
        return gw_fail(GW_ERR_USAGE, "bench: more than %d sizes", GW_BENCH_ITEMS);
    out->bytes[out->n++] = bytes;
    out->most = bytes > out->most ? bytes : out->most;
    return GW_OK;
}

static gw_err bench_add_sizes(gw_bench_sizes *out, char *item) {
    char *dots = strstr(item, "..");
    size_t low, high;
    if (dots)
        *dots = '\0';
    GW_TRY(bench_one_size(item, &low));
    if (!dots)
        return bench_add_size(out, low);
    GW_TRY(bench_one_size(dots + 2, &high));
    if (high < low)
        return gw_fail(GW_ERR_USAGE, "bench: sizes=%s..%s: the range ends before it begins", item,
                       dots + 2);
    for (size_t bytes = low; bytes <= high; bytes *= 2)
        GW_TRY(bench_add_size(out, bytes));
    return GW_OK;
}

gw_err gw_bench_sizes_read(gw_bench_sizes *out, const char *text) {
    char *copy = strdup(text), *rest = copy, *item;
    gw_err e = copy ? GW_OK : gw_fail(GW_ERR_NOMEM, "bench: out of memory");
    *out = (gw_bench_sizes){0};
    while (e == GW_OK && (item = strsep(&rest, ",")) != NULL)
        e = bench_add_sizes(out, item);
    free(copy);
    return e;
}

/* ---- where it runs ---- */

gw_err gw_bench_place_crowded(gw_bench_place *p, int helpers, bool *crowded) {
    GW_TRY(gw_host_node_of(&p->node, p->threads + helpers, p->comm));
    p->nodes = p->node.nodes;
    int over = gw_host_oversubscribed(&p->node);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &over, 1, MPI_INT, MPI_MAX, p->comm));
    *crowded = over;
    return GW_OK;
}

gw_err gw_bench_place_open(gw_bench_place *out, MPI_Comm comm, int threads) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int len = 0;
    *out = (gw_bench_place){.comm = comm, .threads = threads};
    GW_TRY(gw_comm_place(comm, &out->rank, &out->ranks));
    omp_set_num_threads(threads);
    GW_TRY(gw_bench_place_crowded(out, 1, &out->crowded));
    GW_TRY(gw_bench_place_crowded(out, 0, &out->oversubscribed));
    gw_wait_yields(out->oversubscribed);
    GW_MPI(MPI_Get_library_version(library, &len));
    library[strcspn(library, "\n")] = '\0';
    for (char *c = library; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
    snprintf(out->mpi, sizeof out->mpi, "%.63s", library);
    return GW_OK;
}

void gw_bench_place_say(const gw_bench_place *p, const char *what) {
    if (p->rank != 0)
        return;
    printf("%s: %d rank%s x %d thread%s on %d node%s, %s\n", what, p->ranks,
           p->ranks == 1 ? "" : "s", p->threads, p->threads == 1 ? "" : "s", p->nodes,
           p->nodes == 1 ? "" : "s", p->mpi);
    if (p->ranks == 1)
        printf("note: one rank: nothing is sent\n");
    if (p->oversubscribed)
        printf("note: oversubscribed: more threads than cores, waits give the core away and times "
               "say little\n");
}

/* ---- a synchronised start ---- */

/* Dissemination barrier (Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization",
 * International Journal of Parallel Programming, 1988). */
static gw_err bench_barrier(const gw_bench_place *p) {
    enum { TAG = 0 };
    for (int far = 1; far < p->ranks; far *= 2) {
        MPI_Request both[2];
        int to = (p->rank + far) % p->ranks, from = (p->rank - far + p->ranks) % p->ranks;
        GW_MPI(MPI_Irecv(NULL, 0, MPI_BYTE, from, TAG, p->comm, &both[0]));
        GW_MPI(MPI_Isend(NULL, 0, MPI_BYTE, to, TAG, p->comm, &both[1]));
        GW_TRY(gw_wait(&both[1]));
        GW_TRY(gw_wait(&both[0]));
    }
    return GW_OK;
}

gw_err gw_bench_sync(const gw_bench_place *p) {
    GW_TRY(bench_barrier(p)); /* absorbs what the ranks did before, */
    return bench_barrier(p);  /* so that all enter this one together and leave it a message apart */
}
