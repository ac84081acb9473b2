/* Benchmarks share these: sizes of spans, where they run, a start together, and a table. */
#include "cli/bench/bench.h"

#include "base/json.h"
#include "mpi/wait.h"

#include <math.h>
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
    if (out->n == GW_SPEC_ITEMS)
        return gw_fail(GW_ERR_USAGE, "bench: more than %d sizes", GW_SPEC_ITEMS);
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

/* ---- its table ---- */

enum { LONGEST = 32 };

typedef struct column {
    int blanks, width, digits; /* width: negative to the left */
    char type, head[LONGEST], key[LONGEST];
    bool printed;
} column;

static void table_next_field(const char **at, char out[LONGEST]) {
    size_t len = strcspn(*at, "|");
    snprintf(out, LONGEST, "%.*s", (int)len, *at);
    *at += len + ((*at)[len] == '|');
}

/* Take the next column off what is left of a table. */
static bool table_next_column(gw_bench_table *left, column *c) {
    *c = (column){.blanks = (int)strspn(left->form, " "), .printed = *left->form};
    if (c->printed) {
        char *end;
        c->width = (int)strtol(left->form + c->blanks + 1, &end, 10);
        c->digits = *end == '.' ? (int)strtol(end + 1, &end, 10) : 0;
        c->type = *end;
        left->form = end + 1;
        table_next_field(&left->heads, c->head);
    } else if (left->kept && *left->kept) {
        c->type = *left->kept++;
    }
    table_next_field(&left->keys, c->key);
    return c->type;
}

/* One cell behind `blanks` that are not printed yet, or fewer than none, where a cell took more
 * than its column; those that it leaves. `gap`: what stands for a blank within it. */
static int table_print_cell(const column *c, const char *text, char gap, int blanks) {
    int len = (int)strlen(text), pad = abs(c->width) - len;
    blanks += c->blanks + (c->width > 0 ? pad : 0);
    int left = c->width < 0 ? pad : 0;
    if (len == 0)
        return blanks + left;
    int least = blanks < c->blanks ? c->blanks : blanks;
    printf("%*s", least, "");
    for (const char *at = text; *at; at++)
        putchar(*at == ' ' ? gap : *at);
    return left + blanks - least;
}

void gw_bench_head(const gw_bench_table *t) {
    gw_bench_table left = *t;
    column c;
    printf("\n");
    for (int blanks = 0; table_next_column(&left, &c) && c.printed;)
        blanks = table_print_cell(&c, c.head, ' ', blanks);
    printf("\n");
}

json_t *gw_bench_row(const gw_bench_table *t, json_t *rows, const char *const *texts,
                     const double *numbers) {
    gw_bench_table left = *t;
    json_t *row = json_object();
    column c;
    for (int blanks = 0; table_next_column(&left, &c);) {
        bool is_text = c.type == 's';
        const char *text = is_text ? *texts++ : NULL;
        double x = is_text ? NAN : *numbers++;
        char number[LONGEST];
        if (isfinite(x))
            snprintf(number, sizeof number, c.type == 'e' ? "%.*e" : "%.*f", c.digits,
                     x * (c.type == 'u'   ? 1e6
                          : c.type == 'm' ? 1e3
                          : c.type == 'p' ? 100
                                          : 1));
        if (c.printed)
            blanks = table_print_cell(&c,
                                      text          ? text
                                      : isfinite(x) ? number
                                                    : "-",
                                      *left.form ? '_' : ' ', blanks);
        if (*c.key)
            json_object_set_new(row, c.key,
                                text                           ? json_string(text)
                                : is_text                      ? json_null()
                                : c.type == 'b'                ? json_boolean(x > 0)
                                : c.type == 'd' && isfinite(x) ? json_integer((json_int_t)x)
                                                               : gw_json_number(x));
    }
    printf("\n");
    fflush(stdout);
    if (rows)
        json_array_append(rows, row);
    json_decref(row);
    return row;
}
