/* gradwire plan --ranks: strategies, algorithms and codecs compared by playing each (play/play.h),
 * and the rates of links at which one beats the exact exchange that overlaps. Payloads are not
 * there, so accuracy is not priced: exact and lossy ways are kept apart. */
#include "cli/plan.h"

#include "base/json.h"
#include "base/text.h"
#include "cli/train/step_opts.h"
#include "mpi/wait.h"
#include "play/options.h"
#include "predict/chooser.h"
#include "predict/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRATEGY, ALGO, CODEC, PARTS };
enum { EXACT /* the first codec */ };
static const char *const lists[PARTS] = {"strategies", "algos", "codecs"};

enum { MOST = 2048, ITEMS = GW_SPEC_ITEMS + 1, WHY = 256, PLAYED_STEPS = 2 };
enum { MOST_PLAYED = 32 /* ranks, of algorithms that nobody named: else one stands for all */ };
enum { BEST = 4 /* ways that all codecs of a kind are played with */ };

/* Rates that are compared: of so many decades, in so many steps each, from the slowest on. */
enum { DECADES = 5, NOTCHES = 512 };
#define SLOWEST (10e6 / 8) /* bytes/s */

/* Measured exchanges of 2 MiB and more took 0.99 to 1.15 times as long as played ones, on 2 and 4
 * hosts, on 8 up to 200 Mbit/s each, and up to 1.22 times on racks (docs/simulate.md, "Figures"):
 * as if links were so many times as slow, or a little slower. */
#define SHORTEST 0.99
#define LONGEST  1.25

typedef struct way {
    double step_s, exposed_s, sent_bytes; /* of a rank; the first is the order's */
    int part[PARTS];                      /* numbers in scale.spec */
    double least_s, most_s;               /* the interval of step_s */
    double measured_s;                    /* NaN: not measured */
    bool shown; /* the fastest exact one of its strategy, or lossy one of its codec */
    bool leads; /* over the slowest links it is faster than the baseline, */
    int turns;  /* and ceases to be so, or begins to, at these rates, bytes/s: */
    double turn[DECADES];
} way;

/* What has been played. */
typedef struct ways {
    way at[MOST]; /* exact ones, the fastest first, then lossy ones likewise */
    int n, n_exact, plays;
    int base; /* the baseline: of exact ones the fastest that overlaps, or the fastest */
} ways;

typedef struct scale {
    const gw_args *args;
    gw_train_config c;
    gw_sim_play play; /* what all have in common */
    gw_step_profile profile;
    double spread[2]; /* of a measured step: its shortest and longest, over the median */
    gw_spec spec[PARTS][ITEMS];
    char uncut[ITEMS][32]; /* the texts of some algorithms */
    int n_specs[PARTS];
    gw_strategy strategy[ITEMS];
    gw_codec codec[ITEMS];
    gw_codec_price price[ITEMS];          /* what coding takes, by codec */
    char why[PARTS][ITEMS][WHY];          /* it was not played, first */
    double base_s[DECADES * NOTCHES + 1]; /* the baseline's steps at other rates; 0: unknown */
    ways all;
} scale;

static scale the; /* a command runs once */

/* ---- what is compared ---- */

static gw_err scale_add_part(int part, gw_spec s) {
    int k = the.n_specs[part]++;
    the.spec[part][k] = s;
    return part == STRATEGY ? gw_strategy_find(&the.strategy[k], &the.spec[part][k])
           : part == CODEC  ? gw_codec_open(&the.codec[k], &the.spec[part][k])
                            : GW_OK;
}

/* Of those that nobody named: strategies whose steps are those of a serial run, and in which all
 * ranks have samples; algorithms also in the one piece in which alone some of them fold. */
static gw_err scale_add_entry(int part, const gw_entry *e) {
    static gw_spec_arg uncut = {"chunk", "0"};
    const gw_strategy_ops *s = (const gw_strategy_ops *)e;
    char *text = the.uncut[the.n_specs[ALGO]];
    if (part != STRATEGY || (gw_strategy_exact(s) && s->gives != GW_GIVES_ROOT))
        GW_TRY(scale_add_part(part, GW_SPEC_NAMED(e->name)));
    if (part != ALGO || !(((const gw_algo_ops *)e)->caps & GW_ALGO_ALIKE_UNCUT))
        return GW_OK;
    gw_text_print(text, sizeof *the.uncut, "%s:chunk=0", e->name);
    return scale_add_part(part,
                          (gw_spec){.text = text, .name = e->name, .arg = &uncut, .n_args = 1});
}

static gw_err scale_prepare(gw_bench_run *run) {
    static const gw_registry *const of[] = {&gw_strategies, &gw_algos, &gw_codecs};
    const gw_args *a = the.args = run->args;
    gw_sim_play *p = &the.play;
    GW_TRY(gw_step_opts_read(&the.c, a, "plan"));
    GW_TRY(gw_sim_network_read(&p->world, a, "plan"));
    the.spread[0] = the.spread[1] = 1;
    p->steps = PLAYED_STEPS;
    p->script.lazy = the.c.run.lazy;
    p->most_played = gw_args_given(a, "algos") ? 0 : MOST_PLAYED;
    if (gw_args_given(a, "profile") || gw_args_given(a, "bytes"))
        GW_TRY(gw_sim_steps_read(p, &the.profile, a, "plan"));
    GW_TRY(gw_codec_open(&p->exact, &gw_codec_exact));
    GW_TRY(scale_add_part(CODEC, gw_codec_exact));
    for (int part = 0; part < PARTS; part++) {
        bool given = gw_args_given(a, lists[part]);
        const gw_spec *s = given ? gw_args_spec(a, lists[part])->parts : NULL;
        for (; s; s = s->next)
            if (part != CODEC || strcmp(s->text, "none") != 0)
                GW_TRY(scale_add_part(part, *s));
        for (const gw_entry *const *e = of[part]->entries; !given && *e; e++)
            if (part != CODEC || strcmp((*e)->name, "none") != 0)
                GW_TRY(scale_add_entry(part, *e));
    }
    return GW_OK;
}

/* ---- plays ---- */

/* With links, and with cores, so many times as fast. Encodings that drop most values are gathered:
 * summed on the way they would be thinned out again at every hop. */
static gw_err scale_play(const way *x, double links, double cores, gw_sim_play *p) {
    gw_codec_price price = gw_codec_price_scaled(&the.price[x->part[CODEC]], cores);
    gw_codec_price exact = gw_codec_price_scaled(&the.price[EXACT], cores);
    *p = the.play;
    p->strategy = the.strategy[x->part[STRATEGY]];
    p->codec = the.codec[x->part[CODEC]];
    p->script.speed *= cores;
    p->codec.price = &price;
    p->exact.price = &exact;
    p->world.link.bytes_per_s *= links;
    gw_network_scale(p->world.network, links);
    GW_TRY(gw_algo_open(&p->algo, &the.spec[ALGO][x->part[ALGO]], &p->codec));
    bool once = p->algo.ops->caps & GW_ALGO_ONCE || !(p->codec.caps & GW_CODEC_SPARSE);
    gw_err e = gw_sim_play_check(p);
    if (e == GW_OK && (!once || p->algo.ops->caps & GW_ALGO_ORDERED))
        e = gw_fail(GW_ERR_UNSUPPORTED,
                    once ? "plan: MPI's own" : "plan: it would be thinned out at every hop");
    the.all.plays += e == GW_OK;
    GW_THEN(e, gw_sim_play_run(p));
    gw_algo_close(&p->algo);
    return e;
}

static gw_err scale_add_way(way x) {
    gw_sim_play p;
    if (the.all.n == MOST)
        return gw_fail(GW_ERR_USAGE, "plan: more than %d ways to compare: shorten the lists", MOST);
    gw_err e = scale_play(&x, 1, 1, &p);
    for (int i = 0; e == GW_ERR_UNSUPPORTED && i < PARTS; i++)
        if (!*the.why[i][x.part[i]])
            gw_text_copy(the.why[i][x.part[i]], WHY, gw_err_text());
    if (e != GW_OK)
        return e == GW_ERR_UNSUPPORTED ? GW_OK : e;
    x.step_s = p.step_s;
    x.exposed_s = p.exposed_s;
    x.sent_bytes = p.sent.bytes / p.world.ranks;
    x.measured_s = NAN;
    the.all.at[the.all.n++] = x;
    return GW_OK;
}

/* The fastest first; and the first of each of these parts are shown. */
static void scale_sort(int from, int one_of_each) {
    way *at = the.all.at;
    qsort(at + from, (size_t)(the.all.n - from), sizeof *at, gw_stats_ascending);
    for (int i = from; i < the.all.n; i++) {
        at[i].shown = true;
        for (int j = from; j < i; j++)
            at[i].shown &= at[j].part[one_of_each] != at[i].part[one_of_each];
    }
}

/* All codecs with these capabilities among SPARSE and LOSSLESS: the first with every strategy and
 * algorithm, each other one with the ways that were the fastest then. */
static gw_err scale_add_kind(unsigned kind) {
    int from = the.all.n, algos = the.n_specs[ALGO];
    for (int k = 0; k < the.n_specs[CODEC]; k++) {
        int had = the.all.n - from, best = had < BEST ? had : BEST;
        if ((the.codec[k].caps & (GW_CODEC_SPARSE | GW_CODEC_LOSSLESS)) != kind)
            continue;
        for (int i = 0; i < (had ? best : the.n_specs[STRATEGY] * algos); i++) {
            way x = had ? the.all.at[from + i] : (way){.part = {i / algos, i % algos}};
            x.part[CODEC] = k;
            GW_TRY(scale_add_way(x));
        }
        if (!had)
            scale_sort(from, CODEC);
    }
    return GW_OK;
}

/* ---- other rates ---- */

static double scale_rate(double notch) {
    return SLOWEST * pow(10, notch / NOTCHES);
}

static gw_err scale_compare(const way *x, int notch, bool *faster) {
    double *base_s = &the.base_s[notch];
    double links = scale_rate(notch) / the.play.world.link.bytes_per_s;
    gw_sim_play p;
    if (*base_s == 0) {
        GW_TRY(scale_play(&the.all.at[the.all.base], links, 1, &p));
        *base_s = p.step_s;
    }
    GW_TRY(scale_play(x, links, 1, &p));
    *faster = gw_chooser_gains(p.step_s, *base_s, gw_args_real(the.args, "margin"));
    return GW_OK;
}

/* Decades are looked at, and those halved whose ends differ. */
static gw_err scale_find_turns(way *x) {
    GW_TRY(scale_compare(x, 0, &x->leads));
    bool before = x->leads, faster, there;
    for (int high = NOTCHES; high <= DECADES * NOTCHES; high += NOTCHES, before = faster) {
        int low = high - NOTCHES;
        GW_TRY(scale_compare(x, high, &faster));
        for (int width = NOTCHES / 2; faster != before && width > 0; width /= 2) {
            GW_TRY(scale_compare(x, low + width, &there));
            low += there == before ? width : 0;
        }
        if (faster != before)
            x->turn[x->turns++] = scale_rate(low + 0.5);
    }
    return GW_OK;
}

static gw_err scale_play_all(void) {
    ways *all = &the.all;
    GW_TRY(scale_add_kind(GW_CODEC_LOSSLESS));
    if (all->n == 0)
        return gw_fail(GW_ERR_UNSUPPORTED, "plan: no exact exchange of these can be played: %s",
                       the.why[ALGO][0]);
    scale_sort(0, STRATEGY);
    all->n_exact = all->n;
    GW_TRY(scale_add_kind(0));
    GW_TRY(scale_add_kind(GW_CODEC_SPARSE));
    scale_sort(all->n_exact, CODEC);
    for (int i = all->n_exact - 1; i >= 0; i--)
        if (the.strategy[all->at[i].part[STRATEGY]].ops->shape == GW_SHAPE_BUCKETS)
            all->base = i;
    for (way *x = all->at; x < all->at + all->n; x++) {
        gw_sim_play p;
        if (!x->shown)
            continue;
        GW_TRY(scale_play(x, 1 / SHORTEST, 1 / the.spread[0], &p));
        x->least_s = p.step_s;
        GW_TRY(scale_play(x, 1 / LONGEST, 1 / the.spread[1], &p));
        x->most_s = p.step_s;
        if (x != &all->at[all->base])
            GW_TRY(scale_find_turns(x));
    }
    return GW_OK;
}

/* ---- verifying ---- */

/* The fastest lossy way, if it is worth it; else the fastest exact one. */
static int scale_choice(void) {
    int lossy = the.all.n_exact;
    const way *at = the.all.at;
    bool gains = the.all.n > lossy &&
                 gw_chooser_gains(at[lossy].step_s, at[0].step_s, gw_args_real(the.args, "margin"));
    return gains ? lossy : 0;
}

static const char *scale_text(const way *x, int part) {
    return the.spec[part][x->part[part]].text;
}

static gw_plan_trial scale_trial(int of) {
    way *x = &the.all.at[of];
    return (gw_plan_trial){.of = of,
                           .predicted_s = &x->step_s,
                           .measured_s = &x->measured_s,
                           .strategy = &the.spec[STRATEGY][x->part[STRATEGY]],
                           .algo = &the.spec[ALGO][x->part[ALGO]],
                           .codec = &the.spec[CODEC][x->part[CODEC]]};
}

/* Parts are measured on all ranks at the same time: of the trainer's own model the step, at the
 * batch that each of the ranks will have; and codecs. */
static gw_err scale_measure(gw_bench_run *run, bool *own) {
    const gw_bench_place *p = &run->place;
    int most = (int)gw_args_int(the.args, "verify"), ranks = the.play.world.ranks;
    bool rigs = !gw_args_given(the.args, "profile") && !gw_args_given(the.args, "bytes");
    gw_rig_setup setup = gw_rig_setup_of(&the.c, p);
    if (p->ranks != (most ? ranks : 1))
        return gw_fail(GW_ERR_USAGE,
                       "plan: --ranks is played by one process, and verified by as "
                       "many as ranks: start %d, not %d",
                       most ? ranks : 1, p->ranks);
    if (rigs) {
        gw_train_config c = the.c;
        if (!most && !c.local_batch)
            c.batch = (c.batch + ranks - 1) / ranks;
        GW_TRY(gw_rig_profile(run, &c, &the.profile, the.spread));
        GW_TRY(gw_sim_steps_read(&the.play, &the.profile, the.args, "plan"));
        the.play.script.sleeps &= gw_args_given(the.args, "compute"); /* else this core computes */
    }
    for (int k = 0; k < the.n_specs[CODEC]; k++)
        if (gw_args_given(the.args, "coding-ns"))
            gw_sim_coding(&the.price[k], 1e-9 * gw_args_real(the.args, "coding-ns"));
        else
            GW_TRY(gw_codec_measure_price(&the.codec[k], the.c.run.feedback, NULL, the.profile.n,
                                          &the.price[k], p->comm));
    GW_TRY(gw_agree(p->comm, p->rank == 0 ? scale_play_all() : GW_OK));
    GW_TRY(gw_bcast(&the.all, (int)sizeof the.all, MPI_BYTE, 0, p->comm));
    /* The choice, the baseline, the fastest exact and the fastest lossy way, then what is shown. */
    int first[] = {scale_choice(), the.all.base, 0, the.all.n_exact};
    for (int i = 0; i < 4 + the.all.n && gw_plan_trials_count() < most; i++) {
        int of = i < 4 ? first[i] : i - 4;
        if (of >= the.all.n || (i >= 4 && !the.all.at[of].shown))
            continue;
        GW_TRY(rigs ? gw_plan_trial_open(scale_trial(of), &setup)
                    : gw_plan_trial_replay(scale_trial(of), &the.play, &setup, own));
    }
    return most && rigs ? gw_plan_trials_measure(&setup, own) : GW_OK;
}

/* ---- results; rank 0 ---- */

static const gw_bench_table table = {
    .form = "%-12s %-16s %-14s %10.3m %10.3m %10.3m %10.3m %12.0f %10.3m %9.2f  %-24s",
    .heads = "strategy|algorithm|codec|step ms|at least|at most|exposed|sent bytes|measured|"
             "pred/meas|is faster",
    .kept = "bbbf",
    .keys = "strategy|algorithm|codec|step_s|least_s|most_s|exposed_s|sent_bytes|measured_step_s|"
            "predicted_over_measured|faster|exact|baseline|leads|encode_s"};

/* "below 2.1gbit, above 40gbit". */
static void scale_say_faster(const way *x, char *text, size_t size, json_t *bits_per_s) {
    size_t at = 0;
    if (x->turns == 0)
        gw_text_print(text, size, x->leads ? "at every rate" : "at none");
    for (int i = 0; i < x->turns; i++) {
        double mbit = x->turn[i] * 8e-6;
        at += gw_text_print(text + at, size - at, "%s%s %.3g%s", i ? ", " : "",
                            x->leads == (i % 2 == 0) ? "below" : "above",
                            mbit < 1e3 ? mbit : mbit * 1e-3, mbit < 1e3 ? "mbit" : "gbit");
        json_array_append_new(bits_per_s, json_real(x->turn[i] * 8));
    }
}

static void scale_print_rows(int from, int to, json_t *rows) {
    gw_bench_head(&table);
    for (int i = from; i < to; i++) {
        const way *x = &the.all.at[i];
        char faster[128] = "(the baseline)";
        if (!x->shown)
            continue;
        json_t *turns = json_array();
        if (i != the.all.base)
            scale_say_faster(x, faster, sizeof faster, turns);
        json_t *row = gw_bench_row(
            &table, rows, GW_TEXTS(scale_text(x, 0), scale_text(x, 1), scale_text(x, 2), faster),
            GW_NUMBERS(x->step_s, x->least_s, x->most_s, x->exposed_s, x->sent_bytes, x->measured_s,
                       x->step_s / x->measured_s, i < the.all.n_exact, i == the.all.base, x->leads,
                       the.price[x->part[CODEC]].float_s[GW_CODING_ENCODE]));
        json_object_set_new(row, "turns_bits_per_s", turns);
    }
}

static void scale_report(gw_bench_run *run) {
    const gw_step_profile *of = &the.profile;
    double computed_s = (of->forward_s + of->backward_s + of->optimizer_s) / the.play.script.speed;
    printf("plan of a step on %d ranks, %s %s: %s, %zu parameters, %.3f ms of computation; %d "
           "plays\n\nexact gradients",
           the.play.world.ranks, gw_args_text(the.args, "network"), gw_args_text(the.args, "link"),
           of->model, of->n, 1e3 * computed_s, the.all.plays);
    scale_print_rows(0, the.all.n_exact, run->results);
    printf("\nlossy codecs; what they cost in accuracy is not priced");
    scale_print_rows(the.all.n_exact, the.all.n, run->results);
    gw_plan_trials_print();
    printf(
        "\nat least, at most: links %.3g and %.3g times as fast, for exchanges of 2 MiB and more "
        "took %.2f to %.2f times as long as\nplayed ones (docs/simulate.md), and cores %.3g and "
        "%.3g times, as measured steps differed\nis faster: than the baseline by more than "
        "%.3g%% (--margin), over hosts' links of 10mbit to 1tbit, all others in proportion\n"
        "coding: as %s\n",
        1 / SHORTEST, 1 / LONGEST, SHORTEST, LONGEST, 1 / the.spread[0], 1 / the.spread[1],
        100 * gw_args_real(the.args, "margin"),
        gw_args_given(the.args, "coding-ns") ? "--coding-ns says" : "measured on this CPU");
    /* Of what no candidate has: what came in the way first. */
    for (int part = 0; part < PARTS; part++)
        for (int k = 0; k < the.n_specs[part]; k++) {
            bool there = false;
            for (int i = 0; i < the.all.n; i++)
                there |= the.all.at[i].part[part] == k;
            if (!there)
                printf("--%s: no candidate with %s: %s\n", lists[part], the.spec[part][k].text,
                       the.why[part][k]);
            else if (part == CODEC && !the.codec[k].fixed)
                printf("--codecs: %s: size at its bound; independent numbers take 0.9 to 1 of it\n",
                       the.codec[k].spec);
        }
    const way *exact = &the.all.at[0], *lossy = &the.all.at[the.all.n_exact];
    bool compares = the.all.n > the.all.n_exact;
    printf("\nfastest exact: ");
    gw_plan_print_command(the.args, the.play.world.ranks, scale_trial(0));
    if (compares) {
        printf("fastest lossy: ");
        gw_plan_print_command(the.args, the.play.world.ranks, scale_trial(the.all.n_exact));
        printf("does compression pay here? %s: %s makes a step %.1f%% %s\n",
               scale_choice() > 0 ? "yes" : "no", scale_text(lossy, CODEC),
               100 * fabs(1 - lossy->step_s / exact->step_s),
               lossy->step_s < exact->step_s ? "shorter" : "longer");
    }
    gw_json_add(run->facts, "played_ranks:i model:s parameters:I computed_s:f plays:i",
                the.play.world.ranks, of->model, (int64_t)of->n, computed_s, the.all.plays);
}

static void scale_release(void) {
    for (int i = 0; i < ITEMS; i++) {
        gw_strategy_free(&the.strategy[i]);
        gw_codec_close(&the.codec[i]);
    }
    gw_codec_close(&the.play.exact);
    gw_network_close(the.play.world.network);
    gw_step_profile_free(&the.profile);
}

const gw_benchmark gw_plan_scale = {.prepare = scale_prepare,
                                    .measure = scale_measure,
                                    .report = scale_report,
                                    .release = scale_release};
