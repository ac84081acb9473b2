#include "cli/plan.h"

#include "base/steady.h"
#include "base/text.h"
#include "mpi/agree.h"
#include "mpi/wait.h"
#include "play/player.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct trial {
    gw_plan_trial is;
    gw_rig rig;
} trial;

/* The choice is the first. */
static struct {
    trial at[GW_PLAN_VERIFIED + 1];
    int n;
} trials;

/* NULL: there is such a one. */
static trial *trial_add(gw_plan_trial t) {
    for (int i = 0; i < trials.n; i++)
        if (trials.at[i].is.of == t.of)
            return NULL;
    trials.at[trials.n].is = t;
    return &trials.at[trials.n++];
}

int gw_plan_trials_count(void) {
    return trials.n;
}

/* ---- steps of the trainer's model ---- */

gw_err gw_plan_trial_open(gw_plan_trial t, const gw_rig_setup *s) {
    trial *one = trial_add(t);
    if (!one)
        return GW_OK;
    const gw_train_config *c = s->at.c;
    gw_mix mix = {.framed = c->run.wire_check};
    one->rig.lazy = c->run.lazy;
    gw_err e = gw_rig_new(&one->rig, t.strategy, &mix, c->run.feedback);
    GW_THEN(e, gw_mix_single(&mix, t.codec, c->run.wire_check));
    GW_THEN(e, gw_session_bind(one->rig.session, &mix, t.algo));
    GW_TRY(gw_agree(s->at.comm, e));
    GW_TRY(gw_rig_open(&one->rig, s));
    return gw_rig_start(&one->rig);
}

/* ---- a profile's ---- */

gw_err gw_plan_trial_replay(gw_plan_trial t, const gw_sim_play *of, const gw_rig_setup *s,
                            bool *own) {
    const gw_train_config *c = s->at.c;
    gw_player p = {.script = of->script,
                   .from = "normal",
                   .seed = c->run.seed,
                   .steps = 1 + (long)gw_args_int(c->args, "steps")};
    char words[1024];
    if (!trial_add(t))
        return GW_OK;
    gw_text_print(words, sizeof words,
                  "--comm '%s%calgo=(%s)' --compress '%s' --error-feedback '%s' --update %s",
                  t.strategy->text, strchr(t.strategy->text, ':') ? ',' : ':', t.algo->text,
                  t.codec->text, c->run.feedback, of->script.lazy ? "lazy" : "eager");
    GW_TRY(gw_player_play(&p, words, s->at.comm, own));
    *t.measured_s = p.step_s / s->place->ranks;
    return gw_allreduce(MPI_IN_PLACE, t.measured_s, 1, MPI_DOUBLE, MPI_SUM, s->at.comm);
}

/* ---- turns ---- */

static gw_rig *trial_turn(int i) {
    return &trials.at[i].rig;
}

gw_err gw_plan_trials_measure(const gw_rig_setup *s, bool *own) {
    const gw_args *args = s->at.c->args;
    int block = (int)gw_args_int(args, "block");
    gw_rig_turns turns = {.place = s->place,
                          .rig = trial_turn,
                          .n = trials.n,
                          .steps = (int)gw_args_int(args, "steps"),
                          .block = block,
                          .warmup = block,
                          .seed = s->at.c->run.seed};
    gw_err e = gw_rig_take_turns(&turns);
    for (int i = 0; e == GW_OK && i < trials.n; i++) {
        const trial *t = &trials.at[i];
        e = gw_steady_of(t->rig.mean.x, t->rig.mean.n, t->is.measured_s);
    }
    *own = e != GW_OK; /* the others wait in an exchange */
    return e;
}

void gw_plan_print_given(const gw_args *args, const char *but, FILE *to) {
    for (const gw_opt *o = gw_args_opts(args); strcmp(o->name, "codecs") != 0; o++)
        if (gw_args_given(args, o->name) && strcmp(o->name, but) != 0)
            fprintf(to, " --%s '%s'", o->name, gw_args_text(args, o->name));
}

void gw_plan_print_command(const gw_args *args, int ranks, gw_plan_trial t) {
    static const char *const played[] = {"update", "compute", "speed", "bucket-mb"};
    const char *profile = gw_args_text(args, "profile"), *comm = t.strategy->text;
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
    if (t.algo)
        printf("%calgo=(%s)", strchr(comm, ':') ? ',' : ':', t.algo->text);
    printf("' --compress '%s'\n", t.codec->text);
}

void gw_plan_trials_print(void) {
    double best = INFINITY, worst = 1;
    for (int i = 0; i < trials.n; i++) {
        const gw_plan_trial *t = &trials.at[i].is;
        double measured_s = *t->measured_s, off = *t->predicted_s / measured_s;
        best = fmin(best, measured_s);
        worst = fmax(off, 1 / off) > fmax(worst, 1 / worst) ? off : worst;
    }
    if (trials.n > 0)
        printf("prediction farthest off: %.2f of the measured; the choice took %.2f of the best "
               "measured\n",
               worst, *trials.at[0].is.measured_s / best);
}

void gw_plan_trials_close(void) {
    for (; trials.n > 0; trials.n--) {
        gw_rig_stop(&trials.at[trials.n - 1].rig);
        gw_rig_free(&trials.at[trials.n - 1].rig);
    }
}
