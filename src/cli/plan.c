/* gradwire plan: which codec and algorithm will be the fastest here, predicted from measured parts;
 * with --verify the prediction beside what the same steps take. */
#include "cli/plan.h"
#include "cli/cli.h"
#include "cli/train/step_opts.h"
#include "nn/gemm.h"
#include "play/options.h"
#include "predict/layout.h"

#include <math.h>
#include <string.h>

static const gw_opt opts[] = {
#include "cli/train/step_opts.def"
    {"codecs", GW_OPT_SPECS, GW_CHOOSER_CODECS, 0, 0, NULL, "CODEC;CODEC..", "codecs to compare",
     .group = "Plan"},
    {"algos", GW_OPT_SPECS, "", 0, 0, NULL, "ALGO;ALGO..",
     "algorithms to compare, where --comm names none [all]"},
    {"budget", GW_OPT_TIME, "5", 1e-3, 3600, NULL, NULL, "time for measuring algorithms"},
    {"margin", GW_OPT_REAL, "0.05", 0, 1, NULL, "X",
     "recommend compression (with --mesh: more than data alone) only for a larger gain"},
    GW_RIG_OPTS,
    {"top", GW_OPT_INT, "15", 1, GW_LAYOUTS, NULL, "N", "rows of the table"},
    {"verify", GW_OPT_INT, "0", 0, GW_PLAN_VERIFIED, NULL, "N",
     "measure steps of the recommendation, the best of each codec and the best others, N in all; "
     "with --mesh of the first N, and of data alone"},
    {"steps", GW_OPT_INT, "50", 1, 1e7, NULL, "N", "--verify: timed steps per candidate"},
    {"block", GW_OPT_INT, "5", 1, GW_RIG_BLOCK, NULL, "N", "--verify: timed steps per turn"},
    {"mesh", GW_OPT_COMMAS, "", 0, 0, NULL, "auto|DIM=N,..",
     "compare ways to spread the model over the ranks: all meshes, or this one", .group = "Meshes"},
    {"timetables", GW_OPT_SPECS, "1f1b;1f1b:eager=1;gpipe;interleaved;zb", 0, 0, NULL,
     "TIMETABLE;..", "timetables to compare where there are stages"},
    {"microbatches", GW_OPT_LIST, "1,2,4,8,16", 1, 4096, NULL, "M,M,..",
     "numbers of microbatches to compare where there are stages",
     .size = (GW_LAYOUT_MICROS + 1) * sizeof(int)},
    {"ranks", GW_OPT_INT, NULL, 1, GW_SIM_MOST_RANKS, NULL, "N",
     "play all candidates on N ranks of a modelled network, in one process",
     .group = "More ranks than here"},
    {"strategies", GW_OPT_SPECS, "", 0, 0, NULL, "STRATEGY;..",
     "strategies to compare [all that exchange exact gradients in every step]"},
    {"coding-ns", GW_OPT_REAL, NULL, 0, 1e6, NULL, "X",
     "time that a float takes which is encoded, decoded or added [measured here, for each codec]"},
#include "play/options.def"
    GW_BENCH_JSON,
    {0}};

static const char notes[] =
    "Each candidate's step is simulated with parts that are measured here: the model's layers,\n"
    "the links between the ranks, codec speeds on a gradient of this model, and whole exchanges\n"
    "where an algorithm sends no messages of its own. 'local' is computation, 'exposed' the wait\n"
    "for communication that nothing hides; an exchange that was measured whole is in it.\n"
    "With --mesh it compares ways to spread the model over the ranks, without compression.\n"
    "docs/benchmarks.md defines every figure; `train --compress auto` chooses by the same plays.";

typedef struct plan {
    gw_train_config c;
    gw_rig rig; /* of the prediction */
    gw_rig_setup setup;
} plan;

static plan the; /* a command runs once */

/* ---- the command line ---- */

static gw_err plan_prepare_codecs(gw_bench_run *run) {
    plan *p = &the;
    const gw_args *a = run->args;
    GW_TRY(gw_step_opts_read(&p->c, a, "plan"));
    if (gw_args_given(a, "compress"))
        return gw_fail(GW_ERR_USAGE, "plan: --compress is what it recommends: list what it may "
                                     "choose among with --codecs");
    gw_mix none_yet = {.framed = p->c.run.wire_check};
    p->rig.lazy = p->c.run.lazy;
    GW_TRY(gw_rig_new(&p->rig, p->c.run.comm, &none_yet, p->c.run.feedback));
    GW_TRY(gw_chooser_open(&p->rig.choice, p->rig.session, &p->c, a, false));
    run->level = gw_strategy_thread_level(&p->rig.session->strategy);
    return GW_OK;
}

/* ---- verifying ---- */

static gw_plan_trial plan_trial(const gw_chooser *a, int i) {
    gw_candidate *c = &a->candidate[i];
    return (gw_plan_trial){.of = i,
                           .predicted_s = &c->step_s,
                           .measured_s = &c->measured_s,
                           .strategy = a->config->run.comm,
                           .algo = &a->algo[c->nth_algo],
                           .codec = &a->codec[c->nth_codec]};
}

/* With --verify the choice, then the best of each codec, then whatever is predicted fastest. */
static gw_err plan_measure_codecs(gw_bench_run *run, bool *own) {
    plan *p = &the;
    int most = (int)gw_args_int(run->args, "verify");
    p->setup = gw_rig_setup_of(&p->c, &run->place);
    GW_TRY(gw_rig_open(&p->rig, &p->setup));
    if (most == 0)
        return GW_OK;
    gw_chooser *a = p->rig.choice;
    GW_TRY(gw_plan_trial_open(plan_trial(a, a->chosen), &p->setup));
    for (int others = 0; others < 2; others++)
        for (int i = 0; i < a->n && gw_plan_trials_count() < most; i++)
            if (a->candidate[i].leads == !others)
                GW_TRY(gw_plan_trial_open(plan_trial(a, i), &p->setup));
    GW_TRY(gw_plan_trials_measure(&p->setup, own));
    a->measured_s = a->candidate[a->chosen].measured_s;
    return GW_OK;
}

/* ---- results; rank 0 ---- */

static void plan_report_codecs(gw_bench_run *run) {
    plan *p = &the;
    const gw_chooser *a = p->rig.choice;
    gw_plan_trial t = plan_trial(a, a->chosen);
    gw_bench_place_say(p->setup.place, "plan of a training step");
    printf("%zu parameters, global batch %d, strategy %s; GEMM by %s\n",
           gw_model_size(p->rig.at.model), p->rig.at.global,
           p->rig.session->strategy.ops->head.name, gw_gemm_library());
    gw_rig_say_warning();
    int top = (int)gw_args_int(p->c.args, "top");
    printf("\n  %-18s %-14s %-3s %10s %10s %10s %10s %11s%s\n", "codec", "algorithm", "ef",
           "step ms", "local", "codec", "exposed", "sent bytes",
           gw_plan_trials_count() ? "   measured pred/meas" : "");
    for (int i = 0; i < a->n; i++) {
        const gw_candidate *c = &a->candidate[i];
        bool measured = !isnan(c->measured_s);
        if (i >= top && i != a->chosen && i != a->plain && !measured)
            continue;
        printf("%c %-18s %-14s %-3s %10.3f %10.3f %10.3f %10.3f %11.0f", i == a->chosen ? '*' : ' ',
               c->codec, c->algo, c->feedback ? "yes" : "no", c->step_s * 1e3, c->local_s * 1e3,
               c->codec_s * 1e3, c->exposed_s * 1e3, c->sent);
        if (measured)
            printf(" %10.3f %10.2f", c->measured_s * 1e3, c->step_s / c->measured_s);
        printf("\n");
    }
    if (a->n > top)
        printf("(%d candidates in all: --top N shows more, --json all)\n", a->n);
    gw_plan_trials_print();
    if (gw_chooser_named(a))
        t.algo = NULL;
    printf("\nrecommended: ");
    gw_plan_print_command(p->c.args, p->setup.place->ranks, t);
    if (a->chosen != 0)
        printf("%s with %s would be shorter by %.1f%%, within the margin of %.3g%%\n",
               a->candidate[0].codec, a->candidate[0].algo,
               100 * (1 - a->candidate[0].step_s / *t.predicted_s), 100 * a->margin);
    json_decref(run->results);
    run->results = gw_chooser_json(a);
}

/* ---- codecs, or meshes, or more ranks than here ---- */

static const gw_benchmark codecs = {
    .prepare = plan_prepare_codecs, .measure = plan_measure_codecs, .report = plan_report_codecs};

static gw_benchmark all; /* of which one is prepared */

static gw_err plan_prepare(gw_bench_run *run) {
    bool played = gw_args_given(run->args, "ranks");
    const gw_benchmark *kind = gw_args_given(run->args, "mesh") ? &gw_plan_mesh
                               : played                         ? &gw_plan_scale
                                                                : &codecs;
    const gw_opt *o = opts;
    while (strcmp(o->name, "ranks") != 0)
        o++;
    for (; !played && strcmp(o->name, "json") != 0; o++)
        if (gw_args_given(run->args, o->name))
            return gw_fail(GW_ERR_USAGE, "plan: --%s says what is played: give --ranks", o->name);
    all.measure = kind->measure;
    all.report = kind->report;
    return kind->prepare(run);
}

static void plan_free(void) {
    gw_rig_free(&the.rig);
    gw_plan_mesh.release();
    gw_plan_scale.release();
}

static const char no_codecs[] = "meshes are compared without compression";

static const gw_rule rules[] = {
    {"timetables", NULL, true, "mesh", NULL, "it says what to compare"},
    {"microbatches", NULL, true, "mesh", NULL, "it says what to compare"},
    {"mesh", NULL, false, "codecs", NULL, no_codecs},
    {"mesh", NULL, false, "algos", NULL, "name one in --comm"},
    {"mesh", NULL, false, "compress", NULL, no_codecs},
    {"mesh", NULL, false, "local-batch", NULL, "replicas differ in number: give --batch"},
    {"mesh", NULL, false, "wire-check", "on", "exchanges are predicted without frames"},
    {"mesh", NULL, false, "update", "lazy", "steps are predicted as eager ones"},
    {"ranks", NULL, false, "mesh", NULL, "meshes are predicted for the ranks that are here"},
    {"ranks", NULL, false, "comm", NULL, "list what to compare in --strategies"},
    {"ranks", NULL, false, "compress", NULL, "list what to compare in --codecs"},
    {"ranks", NULL, false, "wire-check", "on", "exchanges are played without frames"},
    {"mesh", NULL, false, "budget", NULL, "exchanges are played, not measured"},
    {"ranks", NULL, false, "budget", NULL, "algorithms are played, not measured"},
    {"ranks", NULL, false, "top", NULL, "the table has the fastest of each kind"},
    {"bytes", NULL, false, "profile", NULL, "a profile has its own gradients"},
    {0}};

static int run_plan(const gw_args *none, int argc, char **argv) {
    (void)none;
    all = (gw_benchmark){.name = "plan",
                         .opts = opts,
                         .prepare = plan_prepare,
                         .rules = rules,
                         .close = gw_plan_trials_close,
                         .release = plan_free};
    return gw_bench_main(&all, "plan", argc, argv);
}

const gw_command gw_command_plan = {
    .name = "plan",
    .summary = "predict the step time of codecs and algorithms here, and recommend one",
    .usage = "[options]        e.g. mpiexec -n 2 gradwire plan --layers 2048,2048 --verify 8",
    .notes = notes,
    .opts = opts,
    .parses = true,
    .run = run_plan,
};
