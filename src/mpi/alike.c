#include "mpi/alike.h"

#include "base/mem.h"
#include "base/version.h"
#include "mpi/agree.h"
#include "mpi/wait.h"
#include "mpi/world.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- facts: a name and a value, each with its terminator ---- */

void gw_alike_add(gw_alike *a, const char *name, const char *format, ...) {
    va_list args;
    if (!a->to)
        return;
    fprintf(a->to, "%s%c", name, '\0');
    va_start(args, format);
    vfprintf(a->to, format, args);
    va_end(args);
    fputc('\0', a->to);
}

/* Whole names, or with what they begin. */
static bool alike_is_watched(const char *variable) {
    static const char *const begin[] = {
        "GW_SIMD=",     "MPIR_CVAR_",        "OMPI_MCA_coll_", "ONEDNN_",
        "DNNL_",        "OPENBLAS_",         "MKL_",           "GOTO_NUM_THREADS=",
        "OMP_DYNAMIC=", "OMP_THREAD_LIMIT=", "OMP_SCHEDULE="};
    /* The program may have set it for its own CPU (nn/openblas.h). */
    if (strncmp(variable, "OPENBLAS_CORETYPE=", 18) == 0 && getenv("GW_OPENBLAS_MENDED"))
        return false;
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (strncmp(variable, begin[i], strlen(begin[i])) == 0)
            return true;
    return false;
}

static int alike_order(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void gw_alike_begin(gw_alike *a, const char *command) {
    enum { MOST = 512 };
    const char *found[MOST]; /* variables of the environment */
    size_t n = 0;
    *a = (gw_alike){0};
    a->to = open_memstream(&a->text, &a->size);
    gw_alike_add(a, "command", "%s", command ? command : "none");
    gw_alike_add(a, "program", "%s", GW_VERSION " (" GW_COMMIT ")");
    for (char **v = environ; v && *v && n < MOST; v++)
        if (alike_is_watched(*v))
            found[n++] = *v;
    qsort(found, n, sizeof *found, alike_order);
    for (size_t i = 0; i < n; i++) {
        char name[128];
        const char *value = strchr(found[i], '=');
        snprintf(name, sizeof name, "$%.*s", (int)(value - found[i]), found[i]);
        gw_alike_add(a, name, "%s", value + 1);
    }
}

/* ---- options, and files ---- */

void gw_alike_file(gw_alike *a, const char *name, const char *path) {
    enum { ROOM = 1 << 16 };
    static unsigned char chunk[ROOM];
    struct stat st;
    char of[128];
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) /* to open a pipe would wait */
        return;
    /* What ends in its own CRC-32, as models do, has always the same one: so there are two sums. */
    uLong sum = crc32_z(0, NULL, 0), adler = adler32_z(0, NULL, 0);
    unsigned long long bytes = 0;
    FILE *in = fopen(path, "rb");
    for (size_t n; in && (n = fread(chunk, 1, ROOM, in)) > 0; bytes += n) {
        sum = crc32_z(sum, chunk, n);
        adler = adler32_z(adler, chunk, n);
    }
    if (in)
        fclose(in);
    snprintf(of, sizeof of, "file%s%s", name ? " of " : "", name ? name : "");
    gw_alike_add(a, of, "%s: %llu bytes, crc32 %08lx, adler32 %08lx", path, bytes, sum, adler);
}

void gw_alike_options(gw_alike *a, const gw_args *args) {
    for (const gw_opt *o = gw_args_opts(args); o && o->name; o++) {
        const char *text = gw_args_text(args, o->name);
        char name[128];
        snprintf(name, sizeof name, "--%s", o->name);
        if (o->type == GW_OPT_FLAG && gw_args_flag(args, o->name))
            gw_alike_add(a, name, "on");
        else if (o->type != GW_OPT_FLAG && text)
            gw_alike_add(a, name, "%s", text);
        if (text && o->type == GW_OPT_FILE)
            gw_alike_file(a, name, text);
        bool spec = text && o->type >= GW_OPT_SPEC && o->type <= GW_OPT_CHAIN;
        char *copy = spec ? strdup(text) : NULL, *rest = copy;
        for (char *word; copy && (word = strsep(&rest, ",;:=+()")) != NULL;)
            if (*word) /* it may name a file: a plugin, a table */
                gw_alike_file(a, name, word);
        free(copy);
    }
}

/* ---- comparing ---- */

typedef struct facts {
    const char *at, *end;
} facts;

static const char *alike_value(const char *name) {
    return name + strlen(name) + 1;
}

static const char *alike_next(const char *name) {
    const char *value = alike_value(name);
    return value + strlen(value) + 1;
}

/* The value of fact `name`, which lies at `hint` if the ranks are alike so far; NULL: none. */
static const char *alike_find(facts f, const char *hint, const char *name) {
    if (hint < f.end && strcmp(hint, name) == 0)
        return alike_value(hint);
    for (; f.at < f.end; f.at = alike_next(f.at))
        if (strcmp(f.at, name) == 0)
            return alike_value(f.at);
    return NULL;
}

/* "--seed '1'" or "no --seed" */
static void alike_print(char out[256], const char *name, const char *value) {
    if (value)
        snprintf(out, 256, "%.120s '%.100s'", name, value);
    else
        snprintf(out, 256, "no %.200s", name);
}

static gw_err alike_tell(const char *owner, const char *name, const char *mine, const char *first,
                         const int *ranks, int rank) {
    char here[256], there[256];
    alike_print(here, name, mine);
    alike_print(there, name, first);
    return gw_fail(GW_ERR_USAGE, "%s: rank %d has %s, and rank %d %s: give all ranks the same",
                   owner, ranks[rank], here, ranks[0], there);
}

/* Of this rank's facts and the first one's. */
static gw_err alike_first_difference(const char *owner, facts mine, facts first, const int *ranks,
                                     int rank) {
    const char *hint = first.at;
    for (const char *name = mine.at; name < mine.end; name = alike_next(name)) {
        const char *here = alike_value(name), *there = alike_find(first, hint, name);
        if (!there || strcmp(here, there) != 0)
            return alike_tell(owner, name, here, there, ranks, rank);
        hint = there + strlen(there) + 1;
    }
    hint = mine.at;
    for (const char *name = first.at; name < first.end; name = alike_next(name)) {
        const char *here = alike_find(mine, hint, name);
        if (!here)
            return alike_tell(owner, name, NULL, alike_value(name), ranks, rank);
        hint = here + strlen(here) + 1;
    }
    return GW_OK;
}

static gw_err alike_look(const gw_alike *a, const char *owner, MPI_Comm comm) {
    int rank, *ranks = NULL;
    uint64_t size = a->size;
    char *first = NULL;
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    gw_err e =
        a->text ? gw_world_ranks(comm, &ranks) : gw_fail(GW_ERR_NOMEM, "%s: out of memory", owner);
    e = gw_agree(comm, e);
    GW_THEN(e, gw_bcast(&size, 1, MPI_UINT64_T, 0, comm));
    if (e == GW_OK)
        e = gw_agree(comm, gw_alloc(&first, size, 1));
    if (e == GW_OK && rank == 0)
        memcpy(first, a->text, size);
    GW_THEN(e, gw_bcast(first, (int)size, MPI_CHAR, 0, comm));
    if (e == GW_OK)
        e = gw_agree(comm, alike_first_difference(owner, (facts){a->text, a->text + a->size},
                                                  (facts){first, first + size}, ranks, rank));
    free(first);
    free(ranks);
    return e;
}

gw_err gw_alike_compare(gw_alike *a, const char *owner, MPI_Comm comm) {
    if (a->to && fclose(a->to) != 0) {
        free(a->text);
        a->text = NULL;
        a->size = 0;
    }
    uint64_t sum = crc32_z(0, (const Bytef *)a->text, a->size);
    uint64_t ends[2] = {sum << 32 | (uint32_t)a->size, 0}; /* greatest, and by its inverse least */
    ends[1] = ~ends[0];
    gw_err e = gw_allreduce(MPI_IN_PLACE, ends, 2, MPI_UINT64_T, MPI_MAX, comm);
    if (e == GW_OK && (ends[0] != ~ends[1] || !a->text))
        e = alike_look(a, owner, comm);
    free(a->text);
    *a = (gw_alike){0};
    return e;
}
