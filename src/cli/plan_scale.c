#include "cli/plan_scale.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/plan_trial.h"
#include "cli/simulate/contest.h"
#include "cli/simulate/network.h"
#include "cli/simulate/steps.h"
#include "cli/train/step_opts.h"
#include "mpi/wait.h"
#include "run/residuals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLAYED_STEPS = 2, TIMED_STEPS = 20, SURVEYED = 1 << 20, PART = 1 << 16 };

typedef struct scale {
    const gw_args *args;
    gw_train_config c;
    gw_sim_steps steps;
    gw_contest contest;
    gw_products products;
    gw_plan_trials trials;
} scale;

static scale the; /* a command runs once */

/* The lists that were given: `codecs` has those that `train` would choose among, otherwise. */
gw_err gw_plan_scale_prepare(gw_bench_run *run) {
    static const char *const lists[GW_CONTEST_PARTS] = {"strategies", "algos", "codecs"};
    gw_contest *c = &the.contest;
    const gw_args *a = the.args = run->args;
    const char *list[GW_CONTEST_PARTS];
    GW_TRY(gw_step_opts_read(&the.c, a, "plan"));
    GW_TRY(gw_sim_network_read(&c->play.world, &c->network, a, "plan"));
    c->margin = gw_args_real(a, "margin");
    c->play.steps = PLAYED_STEPS;
    c->play.lazy = the.c.run.lazy;
    c->play.most_played = (int)gw_args_int(a, "most-played");
    if (gw_args_given(a, "profile") || gw_args_given(a, "bytes"))
        GW_TRY(gw_sim_steps_read(&c->play, &the.steps, a, "plan"));
    for (int i = 0; i < GW_CONTEST_PARTS; i++)
        list[i] = gw_args_given(a, lists[i]) ? gw_args_text(a, lists[i]) : NULL;
    return gw_contest_open(c, list);
}

/* ---- what is measured here, on each rank by itself ---- */

/* The step of the trainer's own model at the batch that each of the ranks will have. */
static gw_err scale_measure_steps(const gw_bench_run *run) {
    gw_bench_run alone = *run;
    gw_train_config c = the.c;
    gw_sim_play *play = &the.contest.play;
    json_t *profile = NULL;
    alone.place.comm = MPI_COMM_SELF;
    alone.place.rank = 0;
    alone.place.ranks = alone.place.nodes = 1;
    c.batch = c.local_batch ? c.batch : (c.batch + play->world.ranks - 1) / play->world.ranks;
    GW_TRY(gw_layers_profile(&alone, &c, TIMED_STEPS, &profile));
    GW_TRY(gw_step_profile_take(&the.steps.profile, profile, "the measured step"));
    GW_TRY(gw_sim_steps_read(play, &the.steps, the.args, "plan"));
    play->sleeps &= gw_args_given(the.args, "compute"); /* else this core computes */
    return GW_OK;
}

static gw_err scale_measure_codecs(void) {
    gw_contest *c = &the.contest;
    float *gradient = NULL;
    GW_TRY(gw_alloc(&gradient, SURVEYED, sizeof *gradient));
    for (int i = 0; i < SURVEYED; i++)
        gradient[i] = (float)gw_rng_normal(the.c.run.seed, (uint64_t)i);
    gw_err e = GW_OK;
    for (int k = 0; k < c->n_specs[GW_CONTEST_CODEC] && e == GW_OK; k++) {
        gw_codec_price price = {.part = PART};
        gw_codec *codec = &c->codec[k];
        if (gw_args_given(the.args, "coding-ns"))
            gw_sim_coding(price.price, 1e-9 * gw_args_real(the.args, "coding-ns"));
        else
            e = gw_survey_codec(codec, gw_residuals_kept(the.c.run.feedback, codec->caps), gradient,
                                SURVEYED, &price, 1, MPI_COMM_SELF);
        memcpy(c->coded_s[k], price.price, sizeof price.price);
    }
    free(gradient);
    return e;
}

/* ---- verifying ---- */

static gw_err scale_new_session(const gw_contestant *x, gw_session **out) {
    const gw_contest *c = &the.contest;
    gw_mix mix = {.framed = the.c.run.wire_check};
    GW_TRY(gw_session_new(out, c->spec[GW_CONTEST_STRATEGY][x->part[GW_CONTEST_STRATEGY]], &mix,
                          the.c.run.feedback));
    GW_TRY(gw_mix_single(&mix, c->spec[GW_CONTEST_CODEC][x->part[GW_CONTEST_CODEC]],
                         the.c.run.wire_check));
    return gw_session_bind(*out, &mix, c->spec[GW_CONTEST_ALGO][x->part[GW_CONTEST_ALGO]]);
}

/* The fastest lossy way, if it is worth it; else the fastest exact one. */
static int scale_choice(void) {
    const gw_contest *c = &the.contest;
    bool pays = c->n > c->n_exact && c->at[c->n_exact].step_s < (1 - c->margin) * c->at[0].step_s;
    return pays ? c->n_exact : 0;
}

/* The choice, the baseline, the fastest exact and the fastest lossy way, then what is shown. */
static gw_err scale_verify(const gw_bench_run *run, bool *own) {
    gw_contest *c = &the.contest;
    gw_rig_setup setup = {.c = &the.c,
                          .place = &run->place,
                          .spec = gw_rig_spec(&the.c, the.args),
                          .polls = true,
                          .products = &the.products};
    int most = (int)gw_args_int(the.args, "verify"),
        first[] = {c->n_exact, 0, c->base, scale_choice()};
    for (int i = -4; i < c->n && the.trials.n < most; i++) {
        gw_contestant *x = &c->at[i < 0 ? first[-1 - i] : i];
        bool there = x == c->at + c->n || (i >= 0 && !x->shown);
        for (int j = 0; j < the.trials.n; j++)
            there |= the.trials.at[j].measured_s == &x->measured_s;
        if (there)
            continue;
        gw_plan_trial *t = gw_plan_trials_add(&the.trials, i, &x->step_s, &x->measured_s);
        gw_err e = scale_new_session(x, &t->rig.session);
        GW_TRY(gw_plan_trial_start(t, &setup, the.c.run.lazy, e));
    }
    return gw_plan_trials_measure(&the.trials, the.args, &run->place, the.c.run.seed, own);
}

static gw_err scale_check_place(const gw_bench_place *p, bool verify) {
    int ranks = the.contest.play.world.ranks;
    if (p->ranks == (verify ? ranks : 1))
        return GW_OK;
    return gw_fail(GW_ERR_USAGE,
                   verify ? "plan: --ranks %d --verify: steps are measured on as many ranks, and "
                            "here %s %d: start it by mpiexec -n %d"
                          : "plan: --ranks %d is played in one process, and here %s %d: start it "
                            "without mpiexec, or give --verify N",
                   ranks, p->ranks == 1 ? "is" : "are", p->ranks, ranks);
}

gw_err gw_plan_scale_measure(gw_bench_run *run, bool *own) {
    gw_contest *c = &the.contest;
    MPI_Comm comm = run->place.comm;
    bool verify = gw_args_int(the.args, "verify") > 0;
    GW_TRY(scale_check_place(&run->place, verify));
    GW_TRY(gw_agree(comm, the.steps.profile.model ? GW_OK : scale_measure_steps(run)));
    GW_TRY(gw_agree(comm, scale_measure_codecs()));
    GW_TRY(gw_agree(comm, run->place.rank == 0 ? gw_contest_play(c) : GW_OK));
    int counts[] = {c->n, c->n_exact, c->base};
    GW_TRY(gw_bcast(counts, 3, MPI_INT, 0, comm));
    c->n = counts[0];
    c->n_exact = counts[1];
    c->base = counts[2];
    GW_TRY(gw_bcast(c->at, c->n * (int)sizeof *c->at, MPI_BYTE, 0, comm));
    return verify ? scale_verify(run, own) : GW_OK;
}

/* ---- results; rank 0 ---- */

/* The last two columns are printed where steps were measured. */
#define COLUMNS "%-12s %-16s %-14s %10.3m %10.3m %10.3m %10.3m %12.0f  %-24s"
#define HEADS   "strategy|algorithm|codec|step ms|at least|at most|exposed|sent bytes|is faster"
#define KEYS                                                                                       \
    "strategy|algorithm|codec|step_s|least_s|most_s|exposed_s|sent_bytes|faster|measured_step_s|"  \
    "predicted_over_measured|exact|baseline|leads|encode_s"

static const gw_bench_table tables[] = {
    {.form = COLUMNS, .heads = HEADS, .kept = "ffbbbf", .keys = KEYS},
    {.form = COLUMNS " %10.3m %9.2f",
     .heads = HEADS "|measured|pred/meas",
     .kept = "bbbf",
     .keys = KEYS}};

static const char *scale_text(const gw_contestant *x, int part) {
    return the.contest.spec[part][x->part[part]]->text;
}

/* "below 2.1gbit, above 40gbit". */
static void scale_say_faster(const gw_contestant *x, char *text, size_t size) {
    size_t at = gw_text_print(text, size, "%s",
                              x->turns   ? ""
                              : x->leads ? "at every rate"
                                         : "at none");
    for (int i = 0; i < x->turns; i++) {
        double mbit = x->turn[i] * 8e-6;
        at += gw_text_print(text + at, size - at, "%s%s %.3g%s", i ? ", " : "",
                            x->leads == (i % 2 == 0) ? "below" : "above",
                            mbit < 1e3 ? mbit : mbit * 1e-3, mbit < 1e3 ? "mbit" : "gbit");
    }
}

static void scale_print_rows(int from, int to, json_t *rows) {
    const gw_contest *c = &the.contest;
    const gw_bench_table *table = &tables[the.trials.n > 0];
    gw_bench_head(table);
    for (int i = from; i < to; i++) {
        const gw_contestant *x = &c->at[i];
        char faster[128] = "(the baseline)";
        if (!x->shown && i != c->base)
            continue;
        if (i != c->base)
            scale_say_faster(x, faster, sizeof faster);
        json_t *row = gw_bench_row(
            table, rows, GW_TEXTS(scale_text(x, 0), scale_text(x, 1), scale_text(x, 2), faster),
            GW_NUMBERS(x->step_s, x->least_s, x->most_s, x->exposed_s, x->sent_bytes, x->measured_s,
                       x->step_s / x->measured_s, i < c->n_exact, i == c->base, x->leads,
                       c->coded_s[x->part[GW_CONTEST_CODEC]][GW_CODING_ENCODE]));
        json_t *turns = json_array();
        for (int t = 0; t < x->turns; t++)
            json_array_append_new(turns, json_real(x->turn[t] * 8));
        json_object_set_new(row, "turns_bits_per_s", turns);
    }
}

/* What no candidate has. */
static void scale_print_left_out(void) {
    static const char *const kinds[] = {"strategies", "algorithms", "codecs"};
    const gw_contest *c = &the.contest;
    for (int kind = 0; kind < GW_CONTEST_PARTS; kind++)
        for (int cost = 0, said = 0; cost <= (kind == GW_CONTEST_ALGO); cost++, said = 0) {
            for (int k = 0; k < c->n_specs[kind]; k++) {
                bool there = kind == GW_CONTEST_ALGO && c->costly[k] != cost;
                for (int i = 0; i < c->n; i++)
                    there |= c->at[i].part[kind] == k;
                if (!there)
                    printf("%s%s %s",
                           said   ? ","
                           : cost ? "left out for their cost (--most-played): "
                                  : "without a candidate (gradwire simulate says why): ",
                           said ? "" : kinds[kind], c->spec[kind][k]->text),
                        said = 1;
            }
            printf("%s", said ? "\n" : "");
        }
}

static void scale_print_notes(void) {
    const gw_contest *c = &the.contest;
    printf(
        "\nat least, at most: links %.3g and %.3g times as fast: measured exchanges took %.2f to "
        "%.2f times as long as played ones\n(docs/simulate.md)\nis faster: than the baseline by "
        "more than %.3g%% (--margin), over hosts' links of 10mbit to 1tbit, all others in "
        "proportion\ncoding: %s\n",
        1 / GW_CONTEST_SHORTEST, 1 / GW_CONTEST_LONGEST, GW_CONTEST_SHORTEST, GW_CONTEST_LONGEST,
        100 * c->margin,
        gw_args_given(the.args, "coding-ns") ? "as --coding-ns says" : "as measured on this CPU");
    scale_print_left_out();
}

static void scale_print_command(const char *what, const gw_contestant *x) {
    const char *profile = gw_args_text(the.args, "profile");
    const char *strategy = scale_text(x, GW_CONTEST_STRATEGY);
    printf("fastest %s: mpiexec -n %d gradwire ", what, the.contest.play.world.ranks);
    printf(profile ? "replay --profile '%s'" : "train", profile);
    if (!profile)
        gw_plan_print_given(the.args);
    printf(" --comm '%s%calgo=(%s)' --compress '%s'\n", strategy, strchr(strategy, ':') ? ',' : ':',
           scale_text(x, GW_CONTEST_ALGO), scale_text(x, GW_CONTEST_CODEC));
}

static void scale_print_verdict(void) {
    const gw_contest *c = &the.contest;
    const gw_contestant *exact = &c->at[0], *lossy = &c->at[c->n_exact];
    printf("\n");
    scale_print_command("exact", exact);
    if (c->n == c->n_exact)
        return;
    scale_print_command("lossy", lossy);
    printf("does compression pay here? %s: %s makes a step %.1f%% %s\n",
           scale_choice() > 0 ? "yes" : "no", scale_text(lossy, GW_CONTEST_CODEC),
           100 * fabs(1 - lossy->step_s / exact->step_s),
           lossy->step_s < exact->step_s ? "shorter" : "longer");
}

void gw_plan_scale_report(gw_bench_run *run) {
    const gw_contest *c = &the.contest;
    const gw_step_profile *of = c->play.profile;
    double computed_s = (of->forward_s + of->backward_s + of->optimizer_s) / c->play.speed;
    printf("plan of a step on %d ranks, %s %s: %s, %zu parameters, %.3f ms of computation; %d "
           "plays\n\nexact gradients",
           c->play.world.ranks, gw_args_text(the.args, "network"), gw_args_text(the.args, "link"),
           of->model, of->n, 1e3 * computed_s, c->plays);
    scale_print_rows(0, c->n_exact, run->results);
    printf("\nlossy codecs; what they cost in accuracy is not priced");
    scale_print_rows(c->n_exact, c->n, run->results);
    gw_plan_trials_print(&the.trials);
    scale_print_notes();
    scale_print_verdict();
    gw_json_add(run->facts, "played_ranks:i model:s parameters:I computed_s:f plays:i",
                c->play.world.ranks, of->model, (int64_t)of->n, computed_s, c->plays);
}

void gw_plan_scale_close(void) {
    gw_plan_trials_close(&the.trials);
}

void gw_plan_scale_release(void) {
    gw_contest_close(&the.contest);
    gw_sim_steps_free(&the.steps);
}
