/* A trial of test_mesh.c: the values of all factors, what opens a pipeline for them, and the whole
 * model that it is compared with. */
#ifndef GW_TESTS_MESH_TRIAL_H
#define GW_TESTS_MESH_TRIAL_H

#include "comm/pipeline/timetable.h"
#include "mesh/pipeline.h"

#include "../mpi/check.h"
#include "../specs.h"

#include "base/mem.h"
#include "tests/simple_step.h"

#include <dlfcn.h>
#include <math.h>

enum { INPUTS = 12, CLASSES = 6, SAMPLES = 97, GLOBAL = 7, TESTED = 11 };

static gw_dataset set;
static gw_session *session;

/* ---- trials ---- */

enum {
    MESH,
    NEST,
    TIMETABLE,
    SPLIT,
    ACTIVATIONS,
    DELTAS,
    RECOMPUTE,
    RUNS,
    MICRO,
    BATCH,
    LAST,
    LAYERS,
    ADD,
    SENDS,
    OUTPUT,
    FACTORS
};

typedef struct trial {
    int v[FACTORS]; /* which of a factor's values */
} trial;

static char meshes[16][2][48];
static const char *timetables[16];
static const char *const codecs[] = {"none", "fp16", "qsgd", "topk:ratio=0.5"};
static const int batches[] = {4, 6, 9}, lasts[] = {0, 1, 5};
static int counts[FACTORS] = {
    [NEST] = 2, [SPLIT] = 2, [ACTIVATIONS] = 4, [DELTAS] = 4, [RECOMPUTE] = 2,
    [RUNS] = 2, [MICRO] = 4, [BATCH] = 3,       [LAST] = 3,   [LAYERS] = 2,
    [ADD] = 2,  [SENDS] = 2, [OUTPUT] = 2};

/* Every shape, in the default nesting and in the opposite one. */
static void list_meshes(void) {
    for (int p = 1; p <= ranks; p++)
        for (int t = 1; t <= ranks; t++) {
            char(*name)[48] = meshes[counts[MESH]];
            if (ranks % (p * t))
                continue;
            snprintf(name[0], sizeof *name, "pipe=%d,tensor=%d", p, t);
            snprintf(name[1], sizeof *name, "tensor=%d,data=%d,pipe=%d", t, ranks / (p * t), p);
            counts[MESH]++;
        }
}

/* All that are registered, and some options. */
static void list_timetables(void) {
    for (const gw_entry *const *e = gw_timetables.entries; *e; e++)
        timetables[counts[TIMETABLE]++] = (*e)->name;
    timetables[counts[TIMETABLE]++] = "1f1b:eager=1";
    timetables[counts[TIMETABLE]++] = "interleaved:chunks=2";
}

static const char *mesh_of(const trial *t) {
    return meshes[t->v[MESH]][t->v[NEST]];
}

static void trial_text(const trial *t, char *out, size_t cap) {
    snprintf(out, cap,
             "%s %s %s %s/%s recompute %d runs %d micro %d batch %d,%d layers %d add %d sends %d "
             "output %d",
             mesh_of(t), timetables[t->v[TIMETABLE]], t->v[SPLIT] ? "columns" : "pairs",
             codecs[t->v[ACTIVATIONS]], codecs[t->v[DELTAS]], t->v[RECOMPUTE], 1 + 2 * t->v[RUNS],
             1 + t->v[MICRO], batches[t->v[BATCH]], lasts[t->v[LAST]], 8 + t->v[LAYERS], t->v[ADD],
             t->v[SENDS], t->v[OUTPUT]);
}

/* ---- what a trial runs on ---- */

static bool synchronous;

/* Below gradwire's own layer. MPI may end a send when the message is copied, or not before it is
 * received: a step ends either way. */
#if MPI_VERSION >= 4
int PMPI_Isend_c(const void *data, MPI_Count n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                 MPI_Request *request) {
    return synchronous ? PMPI_Issend_c(data, n, type, to, tag, comm, request)
                       : PMPI_Isend(data, (int)n, type, to, tag, comm, request);
}
#else
int PMPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request) {
    static int (*real)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "PMPI_Isend");
    return synchronous ? PMPI_Issend(data, n, type, to, tag, comm, request)
                       : real(data, n, type, to, tag, comm, request);
}
#endif

typedef struct rig {
    gw_train_config c;
    gw_model_spec spec;
    gw_mesh mesh;
    gw_pipeline *pipeline;
    gw_model *model;
    bool add;
    double told; /* by the loss hook */
    int awaited, ready, begun, losses;
    int local[2]; /* samples of this replica in a full step, and in the last one */
    char text[220];
} rig;

#define RIG_CHECK(r, cond, ...)                                                                    \
    do {                                                                                           \
        char what_[256];                                                                           \
        snprintf(what_, sizeof what_, __VA_ARGS__);                                                \
        CHECK(cond, "%s: %s", (r)->text, what_);                                                   \
    } while (0)

static gw_err rig_await(void *ctx, int l) {
    rig *r = ctx;
    RIG_CHECK(r, r->awaited++ == l && !r->begun, "layer %d awaited", l);
    return GW_OK;
}

/* Gradients are added to what lies there, whatever it is, or written over it. */
static gw_err rig_begin(void *ctx, float **grads, bool *add) {
    rig *r = ctx;
    RIG_CHECK(r, r->begun++ == 0 && r->awaited == gw_model_layers(r->model), "begun too soon");
    *add = r->add;
    for (size_t i = 0; i < gw_model_size(r->model); i++)
        (*grads)[i] = r->add ? 0.5f : NAN;
    return GW_OK;
}

static gw_err rig_ready(void *ctx, int l, float *grads) {
    rig *r = ctx;
    RIG_CHECK(r, grads == gw_model_grads(r->model), "layer %d is ready elsewhere", l);
    RIG_CHECK(r, r->losses == 1, "layer %d is ready before the loss is known", l);
    r->ready += 1 << l;
    return GW_OK;
}

static void rig_loss(void *ctx, double sum) {
    rig *r = ctx;
    r->losses++;
    r->told = sum;
}

/* Each layer has a neuron for each rank. */
static gw_model_spec spec_of(const trial *t) {
    gw_model_spec s = {.inputs = INPUTS,
                       .classes = ranks > CLASSES ? ranks : CLASSES,
                       .n_hidden = 7 + t->v[LAYERS],
                       .hidden = {70, 4 - !t->v[SPLIT], 20, 5, 33, 4, 17, 6},
                       .activation = GW_TANH,
                       .output = (gw_output)t->v[OUTPUT],
                       .init = {GW_INIT_XAVIER},
                       .seed = 3};
    for (int l = 0; l < s.n_hidden; l++)
        s.hidden[l] += ranks > 4 ? ranks - 3 : 0;
    return s;
}

static gw_parallel parallel_of(const trial *t) {
    gw_parallel p = {.microbatches = 1 + t->v[MICRO],
                     .tensor_chunks = 1 + 2 * t->v[RUNS],
                     .stages = "flops",
                     .recompute = t->v[RECOMPUTE],
                     .columns = t->v[SPLIT]};
    CHECK_OK(keep_spec(&p.mesh, mesh_of(t), GW_SPEC_COMMAS));
    CHECK_OK(gw_mesh_parse(&p.shape, p.mesh));
    bool whole = !gw_mesh_divides(&p.shape) && p.microbatches == 1;
    if (p.shape.size[GW_DIM_TENSOR] == 1) { /* what would change nothing is refused */
        p.tensor_chunks = 1;
        p.columns = false;
    }
    p.recompute &= !whole;
    CHECK_OK(keep_spec(&p.timetable, whole ? "1f1b" : timetables[t->v[TIMETABLE]], GW_SPEC_ONE));
    CHECK_OK(keep_spec(&p.codec[GW_HOP_ACTIVATION], codecs[t->v[ACTIVATIONS]], GW_SPEC_ONE));
    if (t->v[DELTAS] != t->v[ACTIVATIONS]) /* else the same, unsaid */
        CHECK_OK(keep_spec(&p.codec[GW_HOP_DELTA], codecs[t->v[DELTAS]], GW_SPEC_ONE));
    return p;
}

/* Replicas have fewer samples the higher their number, the last ones perhaps none. */
static int rig_local(const rig *r, int most) {
    int local = most - r->mesh.at[GW_DIM_DATA];
    return local > 0 ? local : 0;
}

static void rig_open(rig *r, const trial *t) {
    *r = (rig){.spec = spec_of(t), .add = t->v[ADD], .c = {.parallel = parallel_of(t)}};
    trial_text(t, r->text, sizeof r->text);
    synchronous = t->v[SENDS];
    CHECK_OK(gw_pipeline_new(&r->pipeline, &r->c, session));
    CHECK_OK(gw_mesh_open(&r->mesh, &r->c.parallel.shape, MPI_COMM_WORLD));
    if (!r->pipeline)
        return;
    r->local[0] = rig_local(r, batches[t->v[BATCH]]);
    r->local[1] = rig_local(r, lasts[t->v[LAST]]);
    gw_pipeline_rows rows = {r->local[0], r->local[1]};
    RIG_CHECK(r, gw_pipeline_divide(r->pipeline, &r->mesh, &r->spec, rows, MPI_COMM_WORLD) == GW_OK,
              "%s", gw_err_text());
    gw_pipeline_hooks hooks = {r, rig_await, rig_begin, rig_ready, rig_loss, NULL};
    CHECK_OK(gw_model_open_shard(&r->model, gw_pipeline_shard(r->pipeline),
                                 gw_pipeline_room(r->pipeline)));
    RIG_CHECK(r, gw_pipeline_open(r->pipeline, r->model, &hooks, 5, true, MPI_COMM_WORLD) == GW_OK,
              "%s", gw_err_text());
}

static void rig_close(rig *r) {
    gw_pipeline_close(r->pipeline);
    gw_pipeline_free(r->pipeline);
    gw_model_close(r->model);
    gw_mesh_close(&r->mesh);
}

/* ---- the whole model ---- */

typedef struct whole {
    gw_model *model;
    size_t n;
    float *grads, *own; /* gradient; room for a shard's part of it */
    gw_label labels[TESTED];
} whole;

static void whole_open(whole *w, const gw_model_spec *spec) {
    *w = (whole){0};
    CHECK_OK(gw_model_open(&w->model, spec, TESTED));
    w->n = gw_model_size(w->model);
    w->grads = gw_model_grads(w->model);
    CHECK_OK(gw_alloc(&w->own, w->n, sizeof *w->own));
}

static void whole_close(whole *w) {
    free(w->own);
    gw_model_close(w->model);
}

static double whole_forward(whole *w, const uint32_t *idx, int n, int *correct) {
    gw_dataset_gather(&set, idx, n, simple_input(w->model), w->labels);
    for (int l = 0; l < gw_model_layers(w->model); l++)
        simple_forward(w->model, l, n);
    return simple_loss(w->model, w->labels, n, 1.0f / GLOBAL, correct);
}

/* Added to `sums`; NULL: to 0. */
static double whole_step(whole *w, const uint32_t *idx, int n, float *sums) {
    double loss = whole_forward(w, idx, n, NULL);
    for (int l = gw_model_layers(w->model) - 1; l >= 0; l--) {
        if (sums)
            simple_backward_onto(w->model, l, n, sums);
        else
            simple_backward(w->model, l, n);
        simple_descend(w->model, l, n);
    }
    return loss;
}

#endif
