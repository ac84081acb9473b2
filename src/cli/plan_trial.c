#include "cli/plan_trial.h"

#include "base/mem.h"
#include "base/steady.h"
#include "base/text.h"
#include "mpi/agree.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "play/player.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The choice is the first. */
static struct {
    gw_plan_trial at[GW_PLAN_VERIFIED + 1];
    int n;
} trials;

gw_plan_trial *gw_plan_trials_add(int of, const double *predicted_s, double *measured_s) {
    for (int i = 0; i < trials.n; i++)
        if (trials.at[i].of == of)
            return NULL;
    gw_plan_trial *t = &trials.at[trials.n++];
    t->of = of;
    t->predicted_s = predicted_s;
    t->measured_s = measured_s;
    return t;
}

int gw_plan_trials_count(void) {
    return trials.n;
}

/* ---- a layout ---- */

static gw_err trial_new_session(gw_plan_trial *t, const gw_train_config *c) {
    gw_mix exact;
    GW_TRY(gw_mix_single(&exact, &gw_codec_exact, c->run.wire_check));
    GW_TRY(gw_session_new(&t->rig.session, c->run.comm, &exact, c->run.feedback));
    return gw_rig_own(&t->rig);
}

static gw_err trial_open_rig(gw_plan_trial *t, const gw_place_setup *s) {
    gw_rig *r = &t->rig;
    gw_placed *p = &t->placed;
    r->local = (int)p->rows.n;
    r->global = (int)s->set->n;
    r->lr = p->c.rate.lr;
    r->stepper = (gw_stepper){.model = p->model,
                              .optimizer = p->optimizer,
                              .g = r->g,
                              .set = s->set,
                              .pipeline = p->pipeline};
    GW_TRY(gw_alloc(&r->stepper.labels, p->rows.n * (size_t)s->set->targets,
                    sizeof *r->stepper.labels));
    GW_TRY(gw_alloc(&r->idx, p->rows.n, sizeof *r->idx));
    for (size_t i = 0; i < p->rows.n; i++)
        r->idx[i] = (uint32_t)(p->rows.off + i);
    return GW_OK;
}

gw_err gw_plan_trial_open(gw_plan_trial *t, const gw_place_setup *s, const gw_layout *l,
                          bool yield) {
    gw_placed *p = &t->placed;
    GW_TRY(gw_agree(s->comm, trial_new_session(t, s->c)));
    GW_TRY(gw_placed_open(p, s, l, t->rig.session));
    GW_TRY(gw_agree(s->comm, trial_open_rig(t, s)));
    gw_step_setup setup = {.c = &p->c,
                           .products = &p->products,
                           .comm = p->mesh.comm[GW_DIM_DATA],
                           .seed = p->c.run.seed,
                           .lazy = p->c.run.lazy,
                           .yield = yield};
    GW_TRY(gw_step_open(&t->rig.stepper, t->rig.g, &setup));
    gw_pipeline_hooks hooks = gw_step_hooks(&t->rig.stepper);
    if (p->pipeline)
        GW_TRY(gw_pipeline_open(p->pipeline, p->model, &hooks, p->c.run.seed, yield, s->comm));
    return GW_OK;
}

gw_err gw_plan_trial_start(gw_plan_trial *t, const gw_rig_setup *s, bool lazy, gw_err e) {
    t->rig.lazy = lazy;
    GW_THEN(e, gw_rig_own(&t->rig));
    GW_TRY(gw_agree(s->place->comm, e));
    GW_TRY(gw_rig_open(&t->rig, s));
    return gw_rig_start(&t->rig, s);
}

/* ---- a profile ---- */

/* The library's errors are gw_err here; those of one rank alone end the job. */
gw_err gw_plan_trial_replay(gw_plan_trial *t, const gw_sim_play *of, const gw_train_config *c,
                            const char *const way[3], const gw_bench_place *place, bool *own) {
    gw_gradients drawn = {0};
    gw_player p = {.script = gw_sim_play_script(of, NULL),
                   .gradients = &drawn,
                   .ranks = place->ranks,
                   .steps = 1 + (long)gw_args_int(c->args, "steps")};
    gradwire *g = NULL;
    char words[1024];
    gw_text_print(words, sizeof words,
                  "--comm '%s%calgo=(%s)' --compress '%s' --error-feedback '%s' --update %s",
                  way[0], strchr(way[0], ':') ? ',' : ':', way[1], way[2], c->run.feedback,
                  of->lazy ? "lazy" : "eager");
    int e = gw_gradients_open(&drawn, p.script.profile, "normal", c->run.seed, place->rank);
    e = gw_agree(place->comm, (gw_err)e);
    GW_THEN(e, gradwire_new(&g, MPI_Comm_c2f(place->comm), words));
    GW_THEN(e, gw_player_declare(g, p.script.profile, 0));
    GW_THEN(e, gradwire_open(g));
    GW_THEN(e, gw_agree(place->comm, gw_player_open(&p, g, place->comm)));
    GW_THEN(e, gw_player_run(&p));
    *own = e != GW_OK && gradwire_alone(e);
    GW_THEN(e, gradwire_close(g));
    gw_player_free(&p);
    gw_gradients_close(&drawn);
    GW_TRY((gw_err)e);
    *t->measured_s = p.step_s / place->ranks;
    return gw_allreduce(MPI_IN_PLACE, t->measured_s, 1, MPI_DOUBLE, MPI_SUM, place->comm);
}

/* ---- turns ---- */

static gw_rig *trial_turn(int i) {
    gw_plan_trial *t = &trials.at[i];
    if (t->placed.model)
        gw_gemm_adopt(&t->placed.products.plan);
    return &t->rig;
}

gw_err gw_plan_trials_measure(const gw_args *args, const gw_bench_place *place, uint64_t seed,
                              bool *own) {
    int block = (int)gw_args_int(args, "block");
    gw_rig_turns turns = {.place = place,
                          .rig = trial_turn,
                          .n = trials.n,
                          .steps = (int)gw_args_int(args, "steps"),
                          .block = block,
                          .warmup = block,
                          .seed = seed};
    gw_err e = gw_rig_take_turns(&turns);
    for (int i = 0; e == GW_OK && i < trials.n; i++) {
        const gw_plan_trial *t = &trials.at[i];
        e = gw_steady_of(t->rig.mean.x, t->rig.mean.n, t->measured_s);
    }
    *own = e != GW_OK; /* the others wait in an exchange */
    return e;
}

void gw_plan_print_given(const gw_args *args, const char *but, FILE *to) {
    for (const gw_opt *o = gw_args_opts(args); strcmp(o->name, "codecs") != 0; o++)
        if (gw_args_given(args, o->name) && strcmp(o->name, but) != 0)
            fprintf(to, " --%s '%s'", o->name, gw_args_text(args, o->name));
}

void gw_plan_print_command(const gw_args *args, int ranks, const char *comm, const char *algo,
                           const char *codec) {
    static const char *const played[] = {"update", "compute", "speed", "bucket-mb"};
    const char *profile = gw_args_text(args, "profile");
    bool bytes = gw_args_given(args, "bytes"); /* which no program exchanges: its options alone */
    if (!bytes)
        printf("mpiexec -n %d gradwire ", ranks);
    if (profile)
        printf("replay '%s' --out DIR", profile);
    for (int i = 0; profile && i < 4; i++)
        if (gw_args_given(args, played[i]))
            printf(" --%s '%s'", played[i], gw_args_text(args, played[i]));
    if (!profile && !bytes) {
        printf("train");
        gw_plan_print_given(args, "comm", stdout);
    }
    printf("%s--comm '%s", bytes ? "" : " ", comm);
    if (algo)
        printf("%calgo=(%s)", strchr(comm, ':') ? ',' : ':', algo);
    printf("' --compress '%s'\n", codec);
}

void gw_plan_trials_print(void) {
    double best = INFINITY, worst = 1;
    for (int i = 0; i < trials.n; i++) {
        double measured_s = *trials.at[i].measured_s, off = *trials.at[i].predicted_s / measured_s;
        best = fmin(best, measured_s);
        worst = fmax(off, 1 / off) > fmax(worst, 1 / worst) ? off : worst;
    }
    if (trials.n > 0)
        printf("prediction farthest off: %.2f of the measured; the choice took %.2f of the best "
               "measured\n",
               worst, *trials.at[0].measured_s / best);
}

void gw_plan_trials_close(void) {
    for (; trials.n > 0; trials.n--) {
        gw_plan_trial *last = &trials.at[trials.n - 1];
        if (last->placed.pipeline) { /* else the stepper has its own */
            gw_pipeline_close(last->placed.pipeline);
            gw_pipeline_free(last->placed.pipeline);
            last->placed.pipeline = last->rig.stepper.pipeline = NULL;
        }
        gw_rig_stop(&last->rig);
        gw_placed_close(&last->placed);
        gw_rig_free(&last->rig);
    }
}
