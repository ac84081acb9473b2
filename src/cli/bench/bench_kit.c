#include "cli/bench/bench_kit.h"

#include "base/mem.h"
#include "base/version.h"
#include "machine/host.h"
#include "mpi/wait.h"

#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- sizes ---- */

static gw_err one_size(const char *text, size_t *bytes) {
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

static gw_err add_size(gw_bench_sizes *out, size_t bytes) {
    if (out->n == GW_BENCH_ITEMS)
        return gw_fail(GW_ERR_USAGE, "bench: more than %d sizes", GW_BENCH_ITEMS);
    out->bytes[out->n++] = bytes;
    out->most = bytes > out->most ? bytes : out->most;
    return GW_OK;
}

static gw_err add_sizes(gw_bench_sizes *out, char *item) {
    char *dots = strstr(item, "..");
    size_t low, high;
    if (dots)
        *dots = '\0';
    GW_TRY(one_size(item, &low));
    if (!dots)
        return add_size(out, low);
    GW_TRY(one_size(dots + 2, &high));
    if (high < low)
        return gw_fail(GW_ERR_USAGE, "bench: sizes=%s..%s: the range ends before it begins", item,
                       dots + 2);
    for (size_t bytes = low; bytes <= high; bytes *= 2)
        GW_TRY(add_size(out, bytes));
    return GW_OK;
}

gw_err gw_bench_sizes_read(gw_bench_sizes *out, const char *text) {
    char *copy = strdup(text), *rest = copy, *item;
    gw_err e = copy ? GW_OK : gw_fail(GW_ERR_NOMEM, "bench: out of memory");
    *out = (gw_bench_sizes){0};
    while (e == GW_OK && (item = strsep(&rest, ",")) != NULL)
        e = add_sizes(out, item);
    free(copy);
    return e;
}

/* ---- where it runs ---- */

gw_err gw_bench_place_crowded(gw_bench_place *p, int helpers, bool *crowded) {
    gw_host_node node;
    GW_TRY(gw_host_node_of(&node, p->threads + helpers, p->comm));
    p->nodes = node.nodes;
    int over = gw_host_oversubscribed(&node);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &over, 1, MPI_INT, MPI_MAX, p->comm));
    *crowded = over;
    return GW_OK;
}

gw_err gw_bench_place_open(gw_bench_place *out, MPI_Comm comm, int threads) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int len = 0;
    *out = (gw_bench_place){.comm = comm, .threads = threads};
    GW_MPI(MPI_Comm_rank(comm, &out->rank));
    GW_MPI(MPI_Comm_size(comm, &out->ranks));
    omp_set_num_threads(threads);
    gw_flush_denormals();
    GW_TRY(gw_bench_place_crowded(out, 0, &out->oversubscribed));
    GW_TRY(gw_bench_place_crowded(out, 1, &out->crowded));
    gw_wait_yields(out->oversubscribed);
    GW_MPI(MPI_Get_library_version(library, &len));
    library[strcspn(library, "\n")] = '\0';
    for (char *c = library; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
    snprintf(out->mpi, sizeof out->mpi, "%.63s", library);
    return GW_OK;
}

void gw_bench_place_say(const gw_bench_place *p, const char *what) {
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
 * International Journal of Parallel Programming, 1988), polled. */
static gw_err barrier(const gw_bench_place *p) {
    enum { TAG = 0 };
    for (int far = 1; far < p->ranks; far *= 2) {
        MPI_Request both[2];
        MPI_Status status[2];
        int done = 0, to = (p->rank + far) % p->ranks, from = (p->rank - far + p->ranks) % p->ranks;
        GW_MPI(MPI_Irecv(NULL, 0, MPI_BYTE, from, TAG, p->comm, &both[0]));
        GW_MPI(MPI_Isend(NULL, 0, MPI_BYTE, to, TAG, p->comm, &both[1]));
        while (true) {
            GW_MPI(MPI_Testall(2, both, &done, status));
            if (done)
                break;
            if (p->oversubscribed)
                sched_yield();
        }
    }
    return GW_OK;
}

gw_err gw_bench_sync(const gw_bench_place *p) {
    GW_TRY(barrier(p)); /* absorbs what the ranks did before, */
    return barrier(p);  /* so that all enter this one together and leave it a message apart */
}

/* ---- the JSON file ---- */

static gw_err create(gw_file **file, const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!dir)
        return gw_fail(GW_ERR_NOMEM, "bench: out of memory");
    gw_err e = *name ? gw_file_create(file, dir, name)
                     : gw_fail(GW_ERR_USAGE, "--json %s: names no file", path);
    free(dir);
    return e;
}

gw_err gw_bench_json_open(gw_file **out, const char *path, MPI_Comm comm) {
    int rank;
    *out = NULL;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    gw_err e = gw_agree(comm, path && rank == 0 ? create(out, path) : GW_OK);
    return e;
}

static json_t *options(const gw_opt *opts, const gw_args *args) {
    json_t *all = json_object();
    for (const gw_opt *o = opts; o->name; o++) {
        const char *text = gw_args_text(args, o->name);
        json_t *v = o->type == GW_OPT_FLAG ? json_boolean(gw_args_flag(args, o->name))
                    : text                 ? json_string(text)
                                           : json_null();
        json_object_set_new(all, o->name, v);
    }
    return all;
}

json_t *gw_bench_document(const char *benchmark, const gw_bench_place *p, const gw_opt *opts,
                          const gw_args *args, json_t *results) {
    char utc[32];
    struct tm broken;
    time_t now = time(NULL);
    gw_host host;
    gw_host_facts(&host);
    strftime(utc, sizeof utc, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &broken));
    return json_pack("{s:i, s:s, s:s, s:s, s:o, s:i, s:i, s:i, s:b, s:s, s:s, s:s, s:o}", "schema",
                     1, "benchmark", benchmark, "version", GW_VERSION " (" GW_COMMIT ")",
                     "finished_utc", utc, "options", options(opts, args), "ranks", p->ranks,
                     "nodes", p->nodes, "threads", p->threads, "oversubscribed", p->oversubscribed,
                     "mpi_library", p->mpi, "host", host.name, "cpu", host.cpu_model, "results",
                     results);
}

gw_err gw_bench_json_close(gw_file *file, json_t *document) {
    if (!file) {
        json_decref(document);
        return GW_OK;
    }
    FILE *to = gw_file_stream(file);
    bool written =
        document && json_dumpf(document, to, JSON_INDENT(2)) == 0 && fputc('\n', to) != EOF;
    json_decref(document);
    if (written)
        return gw_file_commit(file);
    gw_file_abandon(file);
    return gw_fail(GW_ERR_IO, "cannot write the figures: is the disk full?");
}

json_t *gw_bench_number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}
