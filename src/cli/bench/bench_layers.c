/* bench layers: what each layer of a step takes, on one rank and without any exchange; for
 * `gradwire replay`, as a profile. */
#include "cli/bench/bench.h"

#include "base/file.h"
#include "base/json.h"
#include "cli/bench/step_rig.h"
#include "cli/train/step_opts.h"
#include "nn/gemm.h"

#include <math.h>
#include <string.h>

typedef struct state {
    gw_train_config c;
    int steps, warmup;
    gw_rig rig;
    gw_layer_times times;
    bool columns; /* of the profile: all layers are cut by columns */
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

static gw_err layers_measure(const gw_bench_run *run) {
    gw_rig_setup setup = gw_rig_setup_of(&b.c, &run->place);
    gw_mix exact;
    gw_err e = gw_mix_single(&exact, &gw_codec_exact, false);
    GW_THEN(e, gw_rig_new(&b.rig, &GW_SPEC_NAMED(GW_STRATEGY_PLAIN), &exact, "off"));
    GW_THEN(e, gw_rig_open(&b.rig, &setup));
    GW_TRY(gw_agree(run->place.comm, e));
    gw_layer_job job = gw_placed_layers(&b.rig.at);
    job.warmup = b.warmup;
    job.least = job.most = b.steps;
    GW_TRY(gw_layers_time(&job, &b.times));
    if (!isfinite(b.times.loss))
        e = gw_fail(GW_ERR_DIVERGED, "bench: layers: the loss of the first weights is not finite");
    return gw_agree(run->place.comm, e);
}

static gw_err layers_profile(const gw_args *args, gw_step_profile *out) {
    const gw_model_spec *spec = gw_model_get_spec(b.rig.at.model);
    bool dense = gw_model_spec_dense(spec);
    gw_layers_about about = {.spec = spec,
                             .grads = gw_model_grads(b.rig.at.model),
                             .name = gw_args_text(args, "model"),
                             .layers = dense ? gw_args_text(args, "layers") : NULL,
                             .threads = b.c.run.threads,
                             .batch = (int)b.rig.at.rows.n,
                             .columns = b.columns};
    return gw_layers_profile(&about, &b.times, out);
}

/* ---- results ---- */

static const gw_bench_table table = {
    .form = "%-8s %8d %12d %12.1u %12.1u %7.1p %8.1f %12.1f",
    .heads = "layer|tensors|parameters|forward us|backward us|%|GFLOP/s|update GB/s",
    .kept = "f",
    .keys = "layer|tensors|parameters|forward_s|backward_s|share|gflop_per_s|update_gb_per_s|"
            "update_s"};

static double layers_rate(double work, double seconds) {
    return work > 0 ? 1e-9 * work / seconds : NAN;
}

static void layers_report(gw_bench_run *run) {
    const gw_model *m = b.rig.at.model;
    /* The optimizer reads the gradient, and reads and writes the parameter and its vectors. */
    double moved = sizeof(float) * (3.0 + 2 * b.rig.at.optimizer->state.count);
    gw_bench_place_say(&run->place, "a step by layers, without exchange");
    printf("%zu parameters, batch %d; GEMM by %s\n", gw_model_size(m), b.rig.at.global,
           gw_gemm_library());
    gw_rig_say_warning();
    gw_bench_head(&table);
    for (int l = 0, t = 0; l < gw_model_layers(m); l++) {
        char number[16];
        int first = t;
        while (t < gw_model_tensor_count(m) && gw_model_tensors(m)[t].layer == l)
            t++;
        snprintf(number, sizeof number, "%d", l);
        double parameters = (double)gw_model_spans(m)[l].n,
               passes_s = b.times.forward_s[l] + gw_layer_backward_s(&b.times, l);
        gw_bench_row(
            &table, run->results, GW_TEXTS(number),
            GW_NUMBERS(
                t - first, parameters, b.times.forward_s[l], gw_layer_backward_s(&b.times, l),
                passes_s / b.times.step_s,
                layers_rate(gw_shard_flops(gw_model_get_spec(m), l) * b.rig.at.global, passes_s),
                layers_rate(moved * parameters, b.times.moved_s[l]), b.times.moved_s[l]));
    }
    printf("update %.1f us, whole step %.1f us\n", b.times.update_s * 1e6, b.times.step_s * 1e6);
    gw_json_add(run->facts, "update_s:f step_s:f", b.times.update_s, b.times.step_s);
}

/* ---- the whole ---- */

static void layers_release(void) {
    gw_rig_free(&b.rig);
}

gw_err gw_rig_profile(const gw_bench_run *run, const gw_train_config *c, gw_step_profile *profile,
                      double spread[2]) {
    b = (state){.c = *c, .steps = 20, .warmup = 2};
    gw_err e = layers_measure(run);
    memcpy(spread, b.times.spread, sizeof b.times.spread);
    GW_THEN(e, layers_profile(run->args, profile));
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
    gw_step_profile profile = {0};
    gw_file *file = NULL;
    (void)own;
    if (path)
        GW_TRY(gw_file_create_at(&file, path));
    gw_err e = layers_measure(run);
    if (path)
        GW_THEN(e, layers_profile(run->args, &profile));
    if (e == GW_OK && path)
        e = gw_json_commit(file, json_incref(profile.document), JSON_INDENT(1), "the profile");
    else
        gw_file_abandon(file);
    gw_step_profile_free(&profile);
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
