/* gradwire plan --mesh: which mesh, timetable and number of microbatches will be the fastest here,
 * predicted from measured parts; with --verify the prediction beside what the same steps take. */
#include "cli/plan.h"

#include "base/json.h"
#include "base/mem.h"
#include "cli/train/step_opts.h"
#include "nn/gemm.h"
#include "optim/optimizer.h"
#include "play/options.h"
#include "predict/chooser.h"
#include "predict/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_mesh {
    gw_train_config c;
    gw_session *session; /* says what goes together */
    gw_mesh_shape shape; /* of a fixed mesh */
    gw_layout_space space;
    size_t parameters;
    gw_dataset set;
    gw_rig_setup setup;
    gw_layout_plays plays;
    gw_parallel *layout;
    gw_layout_forecast *all; /* by predicted step, the shortest first */
    int n, chosen, plain;    /* plain: data alone; -1: it is not among them */
} plan_mesh;

static plan_mesh the; /* a command runs once */

/* ---- the command line ---- */

static gw_err plan_mesh_prepare(gw_bench_run *run) {
    plan_mesh *p = &the;
    const gw_args *a = run->args;
    gw_mix exact;
    GW_TRY(gw_step_opts_read(&p->c, a, "plan"));
    GW_TRY(gw_mix_single(&exact, &gw_codec_exact, p->c.run.wire_check));
    GW_TRY(gw_session_new(&p->session, p->c.run.comm, &exact, p->c.run.feedback));
    run->level = gw_strategy_thread_level(&p->session->strategy);
    p->plays = (gw_layout_plays){.place = &p->setup.at, .session = p->session};
    GW_TRY(gw_layouts_prepare(&p->plays, p->c.run.comm));
    bool fixed = strcmp(gw_args_text(a, "mesh"), "auto") != 0;
    if (fixed)
        GW_TRY(gw_mesh_parse(&p->shape, gw_args_spec(a, "mesh")));
    p->space = (gw_layout_space){.spec = &p->setup.at.spec,
                                 .batch = p->c.batch,
                                 .shape = fixed ? &p->shape : NULL,
                                 .timetables = gw_args_spec(a, "timetables")->parts};
    const char *micros = gw_args_text(a, "microbatches");
    char *end = NULL;
    if (!*micros)
        return gw_fail(GW_ERR_USAGE, "plan: --microbatches is empty: give M,M,..");
    for (; p->space.n_micros == 0 || *end == ','; micros = end + 1)
        p->space.micros[p->space.n_micros++] = (int)strtol(micros, &end, 10);
    /* A rule of whole tensors leaves out the meshes whose ranks hold parts of them. */
    gw_optimizer *rule = NULL;
    GW_TRY(gw_optimizer_open(&rule, &(gw_optimizer_setup){.spec = p->c.optimizer, .command = a}));
    p->space.whole = gw_optimizer_whole(rule);
    gw_optimizer_close(rule);
    /* What `train` would refuse is refused here, with its reason. */
    for (const gw_spec *t = p->space.timetables; t; t = t->next) {
        gw_train_config c = p->c;
        gw_pipeline *pipeline = NULL;
        c.parallel = gw_parallel_plain;
        c.parallel.shape.size[GW_DIM_PIPE] = c.parallel.microbatches = 2;
        c.parallel.timetable = t;
        gw_err e = gw_pipeline_new(&pipeline, &c, p->session);
        gw_pipeline_free(pipeline);
        GW_TRY(e);
    }
    return GW_OK;
}

/* ---- measuring ---- */

/* Nothing fits: the first that was asked for says why. */
static gw_err plan_mesh_refuse(const plan_mesh *p) {
    gw_parallel options = gw_parallel_plain;
    gw_placed placed = {0};
    gw_err e = GW_OK;
    options.shape = p->shape;
    options.timetable = p->shape.size[GW_DIM_PIPE] > 1 ? p->space.timetables : NULL;
    options.microbatches = p->space.micros[0];
    if (p->space.shape)
        e = gw_placed_open(&placed, &p->setup.at, &options, p->session);
    gw_placed_close(&placed);
    GW_TRY(e);
    return gw_fail(GW_ERR_USAGE,
                   "plan: none of these meshes, timetables and microbatches fits %d rank%s and a "
                   "batch of %d",
                   p->space.ranks, p->space.ranks == 1 ? "" : "s", p->c.batch);
}

/* ---- ranking ---- */

static double plan_mesh_ns(const gw_layout_forecast *f) {
    return round(f->step_s * 1e9);
}

/* Of equally long ones, to the nanosecond, what takes less memory. */
static int plan_mesh_shorter_first(const void *a, const void *b) {
    const gw_layout_forecast *p = a, *q = b;
    double x = plan_mesh_ns(p), y = plan_mesh_ns(q);
    if (x == y) {
        x = p->activation_bytes;
        y = q->activation_bytes;
    }
    return (x > y) - (x < y);
}

/* ---- verifying ---- */

static gw_err plan_mesh_open_trial(plan_mesh *p, int of) {
    gw_layout_forecast *f = &p->all[of];
    gw_rig_setup setup = p->setup;
    gw_plan_trial t = {.of = of,
                       .predicted_s = &f->step_s,
                       .measured_s = &f->measured_s,
                       .strategy = p->c.run.comm,
                       .algo = gw_args_spec(p->session->strategy.args, "algo"),
                       .codec = &gw_codec_exact};
    setup.parallel = f->of;
    return gw_plan_trial_open(t, &setup);
}

/* Equal figures everywhere make equal choices. */
static gw_err plan_mesh_measure(gw_bench_run *run, bool *own) {
    plan_mesh *p = &the;
    gw_place_setup *at = &p->setup.at;
    p->setup = gw_rig_setup_of(&p->c, &run->place);
    at->set = &p->set;
    p->space.ranks = run->place.ranks;
    p->plays.oversubscribed = run->place.oversubscribed;
    gw_err e = gw_model_spec_check(&at->spec, GW_ERR_USAGE, "", &p->parameters);
    GW_THEN(e, gw_batch_open(&p->set, &at->spec, (gw_span){0, (size_t)p->c.batch}, p->c.run.seed));
    GW_THEN(e, gw_alloc(&p->layout, GW_LAYOUTS, sizeof *p->layout));
    GW_THEN(e, gw_layouts_list(&p->space, p->layout, &p->n));
    GW_THEN(e, gw_alloc(&p->all, (size_t)p->n, sizeof *p->all));
    GW_TRY(gw_agree(at->comm, e));
    if (p->n == 0)
        return plan_mesh_refuse(p);
    GW_TRY(gw_layouts_predict(&p->plays, p->layout, p->n, p->all));
    qsort(p->all, (size_t)p->n, sizeof *p->all, plan_mesh_shorter_first);
    for (p->plain = p->n - 1; p->plain >= 0 && !gw_layout_plain(p->all[p->plain].of);)
        p->plain--;
    bool gains =
        p->plain < 0 || gw_chooser_gains(plan_mesh_ns(&p->all[0]), plan_mesh_ns(&p->all[p->plain]),
                                         gw_args_real(p->c.args, "margin"));
    p->chosen = gains ? 0 : p->plain;
    int most = (int)gw_args_int(p->c.args, "verify");
    if (most == 0)
        return GW_OK;
    /* The choice, whatever is predicted fastest, and data alone. */
    GW_TRY(plan_mesh_open_trial(p, p->chosen));
    for (int i = 0; i < p->n && gw_plan_trials_count() < most; i++)
        GW_TRY(plan_mesh_open_trial(p, i));
    if (p->plain >= 0)
        GW_TRY(plan_mesh_open_trial(p, p->plain));
    return gw_plan_trials_measure(&p->setup, own);
}

/* ---- results; rank 0 ---- */

static const char *plan_mesh_split(const gw_parallel *l) {
    return l->shape.size[GW_DIM_TENSOR] == 1 ? "-" : l->columns ? "columns" : "pairs";
}

/* The row that `train` takes for a layout. */
static void plan_mesh_command(const plan_mesh *p, const gw_parallel *l, FILE *to) {
    char mesh[GW_LAYOUT_TEXT];
    gw_layout_mesh(l, mesh);
    fprintf(to, "mpiexec -n %d gradwire train", p->setup.place->ranks);
    gw_plan_print_given(p->c.args, "", to);
    fprintf(to, " --mesh '%s'", mesh);
    if (l->microbatches > 1)
        fprintf(to, " --microbatches %d", l->microbatches);
    if (l->timetable)
        fprintf(to, " --timetable '%s'", l->timetable->text);
    if (l->columns)
        fprintf(to, " --tensor-split columns");
}

static json_t *plan_mesh_json(const plan_mesh *p) {
    const gw_sim_setup *w = &p->plays.play.world;
    json_t *all = json_array();
    char *text = NULL;
    size_t length;
    FILE *command = open_memstream(&text, &length);
    for (const gw_layout_forecast *f = p->all; f < p->all + p->n; f++) {
        const int *size = f->of->shape.size;
        const double *sent = f->sent;
        char mesh[GW_LAYOUT_TEXT];
        gw_layout_mesh(f->of, mesh);
        json_t *row = gw_json_object(
            "mesh:s data:i pipe:i tensor:i split:t timetable:s microbatches:i step_s:f compute_s:f "
            "bubble_s:f tensor_s:f data_s:f activation_bytes:f sent_bytes:o measured_step_s:f",
            mesh, size[GW_DIM_DATA], size[GW_DIM_PIPE], size[GW_DIM_TENSOR],
            size[GW_DIM_TENSOR] > 1 ? plan_mesh_split(f->of) : "",
            f->of->timetable ? f->of->timetable->text : NULL, f->of->microbatches, f->step_s,
            f->compute_s, f->bubble_s, f->tensor_s, f->exchange_s, f->activation_bytes,
            gw_json_object("data:f pipe:f tensor:f", sent[GW_DIM_DATA], sent[GW_DIM_PIPE],
                           sent[GW_DIM_TENSOR]),
            f->measured_s);
        json_array_append_new(all, row);
    }
    if (command) {
        plan_mesh_command(p, p->all[p->chosen].of, command);
        fclose(command);
    }
    json_t *o = gw_json_object(
        "chosen:i command:s margin:f per_host:i link:o memory_link:o layouts:o", p->chosen, text,
        gw_args_real(p->c.args, "margin"), w->per_host, gw_sim_link_json(&w->link, "byte_s"),
        gw_sim_link_json(&w->memory, "byte_s"), all);
    free(text);
    return o;
}

static void plan_mesh_report(gw_bench_run *run) {
    plan_mesh *p = &the;
    gw_bench_place_say(p->setup.place, "plan of a mesh");
    printf("%zu parameters, global batch %d, strategy %s; GEMM by %s\n", p->parameters, p->c.batch,
           p->session->strategy.ops->head.name, gw_gemm_library());
    int top = (int)gw_args_int(p->c.args, "top");
    printf("\n  %-22s %-7s %-13s %3s %9s %9s %9s %9s %9s %8s %11s%s\n", "mesh", "split",
           "timetable", "M", "step ms", "compute", "bubble", "tensor", "data", "MiB", "sent bytes",
           gw_plan_trials_count() ? "  measured pred/meas" : "");
    for (int i = 0; i < p->n; i++) {
        const gw_layout_forecast *f = &p->all[i];
        bool measured = !isnan(f->measured_s);
        char mesh[GW_LAYOUT_TEXT];
        if (i >= top && i != p->chosen && i != p->plain && !measured)
            continue;
        gw_layout_mesh(f->of, mesh);
        printf("%c %-22s %-7s %-13s %3d %9.3f %9.3f %9.3f %9.3f %9.3f %8.2f %11.0f",
               i == p->chosen ? '*' : ' ', mesh, plan_mesh_split(f->of),
               f->of->timetable ? f->of->timetable->text : "-", f->of->microbatches,
               f->step_s * 1e3, f->compute_s * 1e3, f->bubble_s * 1e3, f->tensor_s * 1e3,
               f->exchange_s * 1e3, f->activation_bytes / (1 << 20),
               f->sent[GW_DIM_DATA] + f->sent[GW_DIM_PIPE] + f->sent[GW_DIM_TENSOR]);
        if (measured)
            printf(" %9.3f %9.2f", f->measured_s * 1e3, f->step_s / f->measured_s);
        printf("\n");
    }
    if (p->n > top)
        printf("(%d ways in all: --top N shows more, --json all)\n", p->n);
    gw_plan_trials_print();
    printf("\nrecommended: ");
    plan_mesh_command(p, p->all[p->chosen].of, stdout);
    printf("\n");
    if (p->chosen != 0)
        printf("the first of them would be shorter by %.1f%%, within the margin of %.3g%%\n",
               100 * (1 - p->all[0].step_s / p->all[p->chosen].step_s),
               100 * gw_args_real(p->c.args, "margin"));
    json_decref(run->results);
    run->results = plan_mesh_json(p);
}

/* ---- the end ---- */

static void plan_mesh_release(void) {
    gw_sim_play_close(&the.plays.play);
    gw_session_free(the.session);
    gw_batch_close(&the.set);
    free(the.layout);
    free(the.all);
}

const gw_benchmark gw_plan_mesh = {.prepare = plan_mesh_prepare,
                                   .measure = plan_mesh_measure,
                                   .report = plan_mesh_report,
                                   .release = plan_mesh_release};
