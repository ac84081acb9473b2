/* Many steps of every strategy with every codec, of every algorithm, and of models over a mesh with
 * every timetable and both splits: what one step makes, a step frees, and what opening makes,
 * closing frees. Counted are MPI's objects (objects.h), open descriptors and resident memory: after
 * a tenth of the steps, in the middle and at the end nothing may have become more, and after
 * MPI_Finalize none of the program's MPI objects is left.
 *
 * leaks RANKS STEPS [COMM CODEC]    all of them, or this one (a mesh: pipe=2 zb,
 *                                   tensor=2 pairs); a line each
 * leaks RANKS STEPS leak WHAT       lose one in the middle: the program must find it */
#include "objects.h"

#include "base/mem.h"
#include "base/registry.h"
#include "comm/algo.h"
#include "comm/pipeline/timetable.h"
#include "mesh/pipeline.h"
#include "mpi/wait.h"
#include "prof/ledger.h"

#include "../mpi/check.h"
#include "../specs.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 3, N = 2003, LOOKS = 3 };
/* Growth of resident memory, checked only after enough steps: a short run still touches pages for
 * the first time. */
enum { ENOUGH = 1000 };
static const double grown_most = 0.01;

static int steps;
static const char *to_lose = ""; /* of one object, in the middle */

typedef struct look {
    object_count objects[OBJECT_KINDS];
    int descriptors;
    long rss_kib;
} look;

static int count_descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir, "no /proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static long resident_kib(void) {
    long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &total, &pages) == 2, "cannot read /proc/self/statm");
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static look take_look(void) {
    look now = {.descriptors = count_descriptors(), .rss_kib = resident_kib()};
    object_counts(now.objects);
    return now;
}

/* ---- a step ---- */

static gw_span layers[LAYERS];
static gw_tensor tensors[LAYERS];

static gw_err session_step(void *ctx, int number) {
    gw_session *s = ctx;
    gw_update u;
    gw_span all = {0, N};
    float *grad = s->env.grad, *param = s->env.param;
    gw_session_begin(s, 1.0 / ranks);
    for (int l = LAYERS - 1; l >= 0; l--) {
        for (size_t i = layers[l].off; i < gw_span_end(layers[l]); i++)
            grad[i] = (float)((int)(i * 7 + (size_t)number * 13) % 17 - 8);
        GW_TRY(gw_session_ready(s, layers[l]));
        GW_TRY(gw_session_progress(s));
    }
    GW_TRY(gw_session_finish(s, all, &u));
    for (size_t i = u.own.off; i < gw_span_end(u.own); i++)
        param[i] -= 1e-3f * u.scale * u.grad[i];
    GW_TRY(gw_session_publish(s, all));
    return gw_session_await(s, all);
}

/* ---- losing one ---- */

static void lose(const char *what) {
    static char to_nowhere;
    MPI_Comm comm;
    MPI_Datatype type;
    MPI_Request request;
    MPI_Win window;
    char *base;
    if (strcmp(what, "communicator") == 0)
        CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &comm));
    else if (strcmp(what, "request") == 0)
        CHECK_MPI(MPI_Irecv(&to_nowhere, 1, MPI_BYTE, 0, 4711, MPI_COMM_WORLD, &request));
    else if (strcmp(what, "type") == 0)
        CHECK_MPI(MPI_Type_contiguous(3, MPI_BYTE, &type));
    else if (strcmp(what, "window") == 0)
        CHECK_MPI(MPI_Win_allocate_shared(8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
    else if (strcmp(what, "descriptor") == 0)
        CHECK(open("/dev/null", O_RDONLY) >= 0, "cannot open /dev/null");
    else if (strcmp(what, "memory") == 0)
        CHECK_OK(gw_alloc(&base, 16 << 20, 1)); /* which writes to all of it */
    else
        CHECK(!*what, "'%s': communicator, request, type, window, descriptor or memory", what);
}

/* ---- a combination ---- */

static void compare(const char *name, const look *was, const look *is, bool memory) {
    for (int k = 0; k < OBJECT_KINDS; k++) {
        if (was->objects[k].live != is->objects[k].live)
            object_list(stderr);
        CHECK(was->objects[k].live == is->objects[k].live, "%s: %lld %s, then %lld", name,
              (long long)was->objects[k].live, object_name(k), (long long)is->objects[k].live);
    }
    CHECK(was->descriptors == is->descriptors, "%s: %d open descriptors, then %d", name,
          was->descriptors, is->descriptors);
    CHECK(!memory || (double)is->rss_kib <= (1 + grown_most) * (double)was->rss_kib,
          "%s: %ld KiB resident, then %ld", name, was->rss_kib, is->rss_kib);
}

static void report(const char *comm, const char *codec, const look *from, const look *to) {
    if (me != 0)
        return;
    printf("%-28s %-12s", comm, codec);
    for (int k = 0; k < OBJECT_KINDS; k++)
        printf(" %lld/%lld", (long long)to->objects[k].live,
               (long long)(to->objects[k].made - from->objects[k].made));
    printf(" %d %ld %+ld\n", to->descriptors, to->rss_kib, to->rss_kib - from->rss_kib);
    fflush(stdout);
}

static gw_err session_settle(void *ctx) {
    return gw_session_settle(ctx);
}

/* What takes a step, and what brings it to rest. */
typedef struct living {
    gw_err (*step)(void *ctx, int number), (*settle)(void *ctx);
    void *ctx;
} living;

/* `n` steps between opening and closing; checks each time that everything is settled. */
static void live(const living *it, const char *comm, const char *codec, int n) {
    char name[4200];
    look looks[LOOKS];
    snprintf(name, sizeof name, "%s %s", comm, codec);
    const int at[LOOKS] = {n / 10 + 1, n / 2 + 1, n - 1};
    for (int k = 0, seen = 0; k < n; k++) {
        CHECK_OK(it->step(it->ctx, k));
        if (k != at[seen])
            continue;
        CHECK_OK(it->settle(it->ctx));
        CHECK_OK(gw_barrier(MPI_COMM_WORLD)); /* a neighbour may still use shared memory */
        looks[seen++] = take_look();
        if (seen == 1)
            lose(to_lose);
        else
            compare(name, &looks[0], &looks[seen - 1], n >= ENOUGH);
    }
    if (n == steps)
        report(comm, codec, &looks[0], &looks[LOOKS - 1]);
}

/* False: the strategy, algorithm or codec refuses this combination. */
static bool session_once(const char *comm, const char *codec, int n) {
    gw_session *s;
    gw_session_setup setup = {.n = N,
                              .layers = layers,
                              .n_layers = LAYERS,
                              .tensors = tensors,
                              .n_tensors = LAYERS,
                              .seed = 5,
                              .yield = true};
    if (new_session(&s, comm, codec, "auto", false) != GW_OK)
        return false;
    gw_err e = gw_session_open(s, MPI_COMM_WORLD, &setup);
    if (e == GW_OK)
        live(&(living){session_step, session_settle, s}, comm, codec, n);
    gw_session_close(s);
    gw_session_free(s);
    return e == GW_OK;
}

/* ---- over a mesh ---- */

enum { SAMPLES = 6, INPUTS = 12 };

typedef struct meshed {
    gw_train_config c;
    gw_mesh mesh;
    gw_pipeline *pipeline;
    gw_model *model;
    float *whole;
    uint8_t images[SAMPLES * INPUTS];
    gw_label labels[SAMPLES];
    gw_dataset set;
} meshed;

/* A step, an evaluation, and the model collected. */
static gw_err mesh_step(void *ctx, int number) {
    static const uint32_t idx[SAMPLES] = {3, 0, 4, 1, 5, 2};
    meshed *m = ctx;
    gw_batch_cost cost;
    double loss;
    gw_pipeline_result found;
    gw_label room[SAMPLES];
    gw_pipeline_job job = {.set = &m->set,
                           .idx = idx,
                           .labels = room,
                           .local = SAMPLES,
                           .global = SAMPLES,
                           .pieces = true,
                           .step = (uint64_t)number};
    gw_pipeline_samples some = {&m->set, idx, SAMPLES / 2, m->labels};
    gw_ledger_begin();
    GW_TRY(gw_pipeline_step(m->pipeline, &job, &loss));
    gw_ledger_end(&cost);
    GW_TRY(gw_pipeline_test(m->pipeline, &some, &found));
    GW_TRY(gw_pipeline_tested(m->pipeline));
    return gw_pipeline_collect(m->pipeline, gw_model_params(m->model), m->whole, MPI_COMM_WORLD);
}

static gw_err mesh_settle(void *ctx) {
    (void)ctx;
    return GW_OK;
}

static void mesh_open(meshed *m, gw_session *s) {
    gw_model_spec spec = {.inputs = INPUTS, .classes = 6, .n_hidden = 2 * ranks - 1, .seed = 1};
    gw_pipeline_hooks hooks = {0};
    for (int l = 0; l < spec.n_hidden; l++)
        spec.hidden[l] = 8;
    m->set =
        (gw_dataset){SAMPLES, SAMPLES, 0, SAMPLES, 1, INPUTS, 1, INPUTS, m->images, m->labels, 1};
    CHECK_OK(gw_pipeline_new(&m->pipeline, &m->c, s));
    CHECK_OK(gw_mesh_open(&m->mesh, &m->c.parallel.shape, MPI_COMM_WORLD));
    gw_pipeline_rows rows = {SAMPLES, SAMPLES};
    CHECK_OK(gw_pipeline_divide(m->pipeline, &m->mesh, &spec, rows, MPI_COMM_WORLD));
    CHECK_OK(gw_model_open_shard(&m->model, gw_pipeline_shard(m->pipeline),
                                 gw_pipeline_room(m->pipeline)));
    CHECK_OK(gw_pipeline_open(m->pipeline, m->model, &hooks, 5, true, MPI_COMM_WORLD));
    CHECK_OK(gw_alloc(&m->whole, gw_pipeline_shard(m->pipeline)->whole, sizeof *m->whole));
}

/* `how`: a timetable for stages, or how tensor ranks cut layers. */
static bool mesh_once(const char *mesh, const char *how, int n) {
    meshed m = {.c.parallel = {.microbatches = 2 * ranks, .tensor_chunks = 1, .stages = "flops"}};
    gw_parallel *p = &m.c.parallel;
    gw_session *s;
    bool tensor = *mesh == 't';
    p->columns = strcmp(how, "columns") == 0;
    CHECK_OK(keep_spec(&p->mesh, mesh, GW_SPEC_COMMAS));
    CHECK_OK(gw_mesh_parse(&p->shape, p->mesh));
    CHECK_OK(keep_spec(&p->timetable, tensor ? "1f1b" : how, GW_SPEC_ONE));
    CHECK_OK(keep_spec(&p->codec[GW_HOP_ACTIVATION], "qsgd:bits=4", GW_SPEC_ONE));
    CHECK_OK(new_session(&s, "allreduce", "none", "auto", false));
    mesh_open(&m, s);
    live(&(living){mesh_step, mesh_settle, &m}, mesh, how, n);
    gw_pipeline_close(m.pipeline);
    gw_pipeline_free(m.pipeline);
    gw_model_close(m.model);
    gw_mesh_close(&m.mesh);
    gw_session_free(s);
    free(m.whole);
    return true;
}

/* ---- all of them ---- */

typedef bool once_fn(const char *comm, const char *codec, int n);

/* The first open and close fills caches that stay (types, the node's communicator). After the
 * second, no more may be left than after the first. */
static bool combination(once_fn *once, const char *comm, const char *codec) {
    enum { SHORT = 20 };
    char name[256];
    snprintf(name, sizeof name, "after %s %s", comm, codec);
    const char *then = to_lose;
    to_lose = "";
    bool there = once(comm, codec, SHORT);
    to_lose = then;
    if (!there)
        return false;
    look before = take_look();
    CHECK(once(comm, codec, steps), "%s", gw_err_text());
    look after = take_look();
    for (int k = 0; k < OBJECT_KINDS; k++)
        CHECK(before.objects[k].live == after.objects[k].live, "%s: %lld %s, before %lld", name,
              (long long)after.objects[k].live, object_name(k), (long long)before.objects[k].live);
    return true;
}

static void all_meshes(void) {
    char mesh[32];
    snprintf(mesh, sizeof mesh, "pipe=%d", ranks);
    for (const gw_entry *const *t = gw_timetables.entries; *t; t++)
        combination(mesh_once, mesh, (*t)->name);
    snprintf(mesh, sizeof mesh, "tensor=%d", ranks);
    combination(mesh_once, mesh, "pairs");
    combination(mesh_once, mesh, "columns");
}

/* Each strategy with each codec; each algorithm, blocking and overlapped, with a codec that it
 * carries. */
static void all(void) {
    static const char *const carried[] = {"qsgd:bits=4", "int8sum", "bf16", "none"};
    char comm[4096];
    int tried = 0;
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++) {
        int ran = 0;
        for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
            ran += combination(session_once, (*s)->name, (*c)->name);
        CHECK(ran > 0, "%s goes with no codec", (*s)->name);
        tried += ran;
    }
    for (const gw_entry *const *a = gw_algos.entries; *a; a++)
        for (int overlap = 0; overlap < 2; overlap++) {
            size_t c = 0;
            if (MPI_VERSION < 4 && strcmp((*a)->name, "persistent") == 0)
                continue; /* refused by name */
            int n = snprintf(comm, sizeof comm, "%s:algo=%s", overlap ? "iallreduce" : "allreduce",
                             (*a)->name);
            if (strcmp((*a)->name, "file") == 0)
                snprintf(comm + n, sizeof comm - (size_t)n, ":path=%s/%d.json", SCHEDULES, ranks);
            while (c < sizeof carried / sizeof *carried &&
                   !combination(session_once, comm, carried[c]))
                c++;
            CHECK(c < sizeof carried / sizeof *carried, "%s carries none of the codecs", comm);
            tried++;
        }
    CHECK(combination(session_once, "iallreduce:bucket=1K,progress=thread", "topk"), "%s",
          gw_err_text());
    if (ranks > 1)
        all_meshes();
    if (tried == 0)
        exit(1);
}

static void cut_layers(void) {
    for (int l = 0; l < LAYERS; l++) {
        layers[l] = gw_span_part((gw_span){0, N}, l, LAYERS);
        tensors[l] = (gw_tensor){layers[l], l, 1, (int)layers[l].n};
    }
}

int main(int argc, char **argv) {
    int left = 0;
    object_count at_end[OBJECT_KINDS];
    check_start(argc, argv);
    CHECK(argc == 3 || argc == 5, "usage: leaks RANKS STEPS [COMM CODEC | leak WHAT]");
    steps = atoi(argv[2]);
    CHECK(steps >= 30 && steps <= 1 << 24, "%s steps: must be 30 to 16777216", argv[2]);
    cut_layers();
    if (argc == 5 && strcmp(argv[3], "leak") == 0) {
        to_lose = argv[4];
        CHECK(combination(session_once, "iallreduce", "qsgd"), "%s", gw_err_text());
    } else if (argc == 5) {
        once_fn *once = strchr(argv[3], '=') && !strchr(argv[3], ':') ? mesh_once : session_once;
        CHECK(combination(once, argv[3], argv[4]), "%s", gw_err_text());
    } else {
        all();
    }
    CHECK_MPI(MPI_Finalize());
    object_counts(at_end);
    for (int k = 0; k < OBJECT_KINDS; k++)
        left += at_end[k].live != 0;
    object_list(stderr);
    return left > 0;
}
