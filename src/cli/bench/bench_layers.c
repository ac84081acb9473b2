/* bench layers: what each layer of a step takes, on one rank and without any exchange; for
 * `gradwire replay`, as a profile. */
#include "cli/bench/bench.h"

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/bench/step_rig.h"
#include "cli/train/step_opts.h"
#include "folder/history.h"
#include "mesh/pipeline.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "play/profile.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include <math.h>
#include <string.h>

typedef struct state {
    gw_train_config c;
    int steps, warmup;
    gw_rig rig;
    gw_products products;
    gw_pipeline *walk;
    gw_samples forward[GW_MAX_LAYERS], backward[GW_MAX_LAYERS], update, step;
    double forward_s[GW_MAX_LAYERS], backward_s[GW_MAX_LAYERS], update_s; /* medians */
    bool columns; /* of the profile: all layers are cut by columns */
    bool polls;   /* products are cut into pieces, as under an exchange that is to move on */
    /* of the present step: */
    bool timed;
    uint64_t since; /* the last mark */
    gw_err failed;
} state;
static state b;

static const gw_opt opts[] = {
    GW_RIG_OPTS,
#include "cli/train/model_opts.def"
    {"steps", GW_OPT_INT, "50", 3, 1e6, NULL, "N", "timed steps", INTO(steps),
     .group = "Benchmark"},
    {"warmup", GW_OPT_INT, "5", 0, 1e6, NULL, "N", "steps before them", INTO(warmup)},
    {"profile", GW_OPT_TEXT, NULL, 0, 0, NULL, "FILE",
     "write the step's profile, for `replay` and `simulate`"},
    {"tensor-split", GW_OPT_CHOICE, "pairs", 0, 0, "pairs|columns", NULL,
     "of the profile: layers that tensor ranks cut by columns and rows in turn, or all by columns",
     INTO(columns)},
    GW_BENCH_JSON,
    {0}};

static const gw_rule rules[] = {
    {"tensor-split", NULL, true, "profile", NULL, "it says what tensor ranks divide there"}, {0}};

static const char notes[] =
    "Medians over the steps, on random samples at the first weights. 'forward' of the last layer\n"
    "includes the loss; a gradient is ready when 'backward' of its layer is over.\n"
    "docs/benchmarks.md defines every figure.";

/* ---- measuring ---- */

/* What was computed since the last mark is one more sample. */
static void layers_mark(gw_samples *of) {
    if (b.timed)
        GW_THEN(b.failed, gw_samples_add(of, gw_clock_since(b.since)));
    b.since = gw_clock_ticks();
}

static gw_err layers_await(void *ctx, int l) {
    (void)ctx;
    if (l > 0)
        layers_mark(&b.forward[l - 1]);
    return GW_OK;
}

static void layers_begin(void *ctx, float **grads, bool *add) {
    gw_model *m = ctx;
    *grads = gw_model_grads(m);
    *add = false;
    layers_mark(&b.forward[gw_model_layers(m) - 1]);
}

static gw_err layers_ready(void *ctx, int l) {
    (void)ctx;
    layers_mark(&b.backward[l]);
    return GW_OK;
}

/* At rate 0, so that every step is the same. */
static gw_err layers_step(void) {
    gw_rig *r = &b.rig;
    gw_pipeline_job job = {
        .labels = r->stepper.labels, .local = r->local, .global = r->global, .pieces = b.polls};
    gw_batch_cost cost;
    uint64_t start = gw_clock_ticks();
    gw_ledger_begin();
    b.since = gw_clock_ticks();
    GW_TRY(gw_pipeline_step(b.walk, &job, &r->loss));
    b.since = gw_clock_ticks();
    gw_optimizer_begin(r->optimizer);
    gw_optimizer_update(r->optimizer, gw_model_params(r->model), gw_model_grads(r->model),
                        (gw_span){0, gw_model_size(r->model)}, 0, 1);
    layers_mark(&b.update);
    gw_ledger_end(&cost);
    if (b.timed)
        GW_THEN(b.failed, gw_samples_add(&b.step, gw_clock_since(start)));
    GW_TRY(gw_gemm_check());
    return b.failed;
}

static gw_err layers_open(const gw_bench_run *run) {
    gw_rig_setup setup = {.c = &b.c,
                          .place = &run->place,
                          .spec = gw_rig_spec(&b.c, run->args),
                          .polls = b.polls,
                          .products = &b.products};
    gw_mix exact;
    GW_TRY(gw_mix_single(&exact, &gw_codec_exact, false));
    GW_TRY(gw_session_new(&b.rig.session, &GW_SPEC_NAMED(GW_STRATEGY_PLAIN), &exact, "off"));
    GW_TRY(gw_rig_own(&b.rig));
    GW_TRY(gw_rig_open(&b.rig, &setup));
    gw_pipeline_hooks hooks = {
        .ctx = b.rig.model, .await = layers_await, .begin = layers_begin, .ready = layers_ready};
    return gw_pipeline_open_whole(&b.walk, b.rig.model, &hooks);
}

static double layers_median(gw_samples *s) {
    return gw_stats_median(s->x, s->n);
}

/* Steps begin together, as an exchange would make them. */
static gw_err layers_steps(const gw_bench_run *run) {
    gw_err e = GW_OK;
    gw_ledger_start();
    for (int k = -b.warmup; k < b.steps; k++) {
        b.timed = k >= 0;
        GW_TRY(gw_bench_sync(&run->place));
        GW_THEN(e, layers_step());
    }
    if (e == GW_OK && !isfinite(b.rig.loss))
        e = gw_fail(GW_ERR_DIVERGED, "bench: layers: the loss of the first weights is not finite");
    return e;
}

/* Collective: each figure is the slowest rank's. */
static gw_err layers_measure(const gw_bench_run *run) {
    MPI_Comm comm = run->place.comm;
    gw_err e = layers_open(run);
    GW_TRY(gw_agree(comm, e));
    e = layers_steps(run);
    GW_TRY(gw_agree(comm, e));
    for (int l = 0; l < gw_model_layers(b.rig.model); l++) {
        b.forward_s[l] = layers_median(&b.forward[l]);
        b.backward_s[l] = layers_median(&b.backward[l]);
    }
    b.update_s = layers_median(&b.update);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, b.forward_s, GW_MAX_LAYERS, MPI_DOUBLE, MPI_MAX, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, b.backward_s, GW_MAX_LAYERS, MPI_DOUBLE, MPI_MAX, comm));
    return gw_allreduce(MPI_IN_PLACE, &b.update_s, 1, MPI_DOUBLE, MPI_MAX, comm);
}

/* ---- the profile ---- */

static json_t *layers_profile(const gw_args *args) {
    bool mlp = gw_model_spec_dense(gw_model_get_spec(b.rig.model));
    char utc[GW_UTC], model[200];
    gw_host host;
    gw_host_facts(&host);
    gw_utc_now(utc);
    utc[strlen("2026-01-01")] = '\0';
    gw_text_print(model, sizeof model, "%s%s%s", gw_args_text(args, "model"),
                  mlp ? " --layers " : "", mlp ? gw_args_text(args, "layers") : "");
    return gw_json_object(
        "schema:i model:s source:s device:s machine:s date:s torch:s threads:i batch:i steps:i "
        "optimizer_s:f tensors:o",
        1, model, "gradwire bench layers: random samples, first weights", "cpu",
        *host.cpu_model ? host.cpu_model : "unknown", utc, NULL, b.c.run.threads, b.rig.local,
        b.steps, b.update_s,
        gw_step_profile_tensors(gw_model_get_spec(b.rig.model), b.columns, b.forward_s,
                                b.backward_s, gw_model_grads(b.rig.model)));
}

/* ---- results ---- */

static const gw_bench_table table = {.form = "%-8s %8d %12d %12.1u %12.1u %7.1p",
                                     .heads = "layer|tensors|parameters|forward us|backward us|%",
                                     .keys = "layer|tensors|parameters|forward_s|backward_s|share"};

static void layers_report(gw_bench_run *run) {
    const gw_model *m = b.rig.model;
    double step_s = layers_median(&b.step);
    gw_bench_place_say(&run->place, "a step by layers, without exchange");
    printf("%zu parameters, batch %d; GEMM by %s\n", gw_model_size(m), b.rig.global,
           gw_gemm_library());
    gw_rig_say_products(&b.products);
    gw_bench_head(&table);
    for (int l = 0, t = 0; l < gw_model_layers(m); l++) {
        char number[16];
        int first = t;
        while (t < gw_model_tensor_count(m) && gw_model_tensors(m)[t].layer == l)
            t++;
        snprintf(number, sizeof number, "%d", l);
        gw_bench_row(&table, run->results, GW_TEXTS(number),
                     GW_NUMBERS(t - first, (double)gw_model_span(m, l).n, b.forward_s[l],
                                b.backward_s[l], (b.forward_s[l] + b.backward_s[l]) / step_s));
    }
    printf("update %.1f us, whole step %.1f us\n", b.update_s * 1e6, step_s * 1e6);
    gw_json_add(run->facts, "update_s:f step_s:f", b.update_s, step_s);
}

/* ---- the whole ---- */

static void layers_release(void) {
    gw_pipeline_close(b.walk);
    gw_pipeline_free(b.walk);
    gw_rig_free(&b.rig);
    for (int l = 0; l < GW_MAX_LAYERS; l++) {
        gw_samples_free(&b.forward[l]);
        gw_samples_free(&b.backward[l]);
    }
    gw_samples_free(&b.update);
    gw_samples_free(&b.step);
}

gw_err gw_layers_profile(const gw_bench_run *run, const gw_train_config *c, int steps,
                         json_t **profile, double spread[2]) {
    b = (state){.c = *c, .steps = steps, .warmup = 2, .polls = true};
    gw_err e = layers_measure(run);
    if (e == GW_OK) {
        gw_stats s = gw_stats_of(b.step.x, b.step.n);
        spread[0] = s.min / s.median;
        spread[1] = s.p95 / s.median;
        *profile = layers_profile(run->args);
    }
    layers_release();
    return e;
}

static gw_err layers_prepare(gw_bench_run *run) {
    GW_TRY(gw_step_opts_read(&b.c, run->args, "bench"));
    if (b.columns && !gw_model_spec_dense(&b.c.model))
        return gw_fail(GW_ERR_USAGE,
                       "bench: --tensor-split columns: it is of dense layers, and the model %s has "
                       "others: leave it out",
                       gw_model_ops_of(&b.c.model)->head.name);
    return GW_OK;
}

static gw_err layers_run(gw_bench_run *run, bool *own) {
    const char *path = gw_args_text(run->args, "profile");
    gw_file *profile = NULL;
    (void)own;
    if (path)
        GW_TRY(gw_file_create_at(&profile, path));
    gw_err e = layers_measure(run);
    if (e == GW_OK && path)
        return gw_json_commit(profile, layers_profile(run->args), JSON_INDENT(1), "the profile");
    gw_file_abandon(profile);
    return e;
}

const gw_benchmark gw_bench_layers = {
    .name = "layers",
    .summary = "what each layer of a step takes, and its profile for replay and simulate",
    .opts = opts,
    .rules = rules,
    .config = &b,
    .notes = notes,
    .alone = true,
    .prepare = layers_prepare,
    .measure = layers_run,
    .report = layers_report,
    .release = layers_release,
};
