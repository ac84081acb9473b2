#include "cli/simulate/contest.h"

#include "base/mem.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRATEGY = GW_CONTEST_STRATEGY, ALGO, CODEC, PARTS };
enum { BEST = 4 /* ways that all codecs are played with */, HALVINGS = 9, TEXT = 4096 };

/* ---- the lists ---- */

/* Strategies whose steps are those of a serial run, and in which all ranks have samples. */
static bool contest_takes(int list, const gw_entry *e) {
    enum { EXACT = GW_STRATEGY_SYNCHRONOUS | GW_STRATEGY_EXACT };
    const gw_strategy_ops *s = (const gw_strategy_ops *)e;
    return list == STRATEGY ? (s->traits & EXACT) == EXACT && !s->servers
                            : strcmp(e->name, "none") != 0;
}

static gw_err contest_parse(gw_contest *c, int list, const char *given) {
    static const gw_registry *const of[] = {&gw_strategies, &gw_algos, &gw_codecs};
    static const char *const names[] = {"strategies", "algos", "codecs"};
    char text[TEXT] = "none;";
    size_t at = list == CODEC ? strlen(text) : 0;
    if (given)
        at += gw_text_print(text + at, TEXT - at, "%s;", given);
    for (const gw_entry *const *e = of[list]->entries; !given && *e; e++) {
        if (contest_takes(list, *e))
            at += gw_text_print(text + at, TEXT - at, "%s;", (*e)->name);
        if (list == ALGO && ((const gw_algo_ops *)*e)->caps & GW_ALGO_ALIKE_UNCUT)
            at += gw_text_print(text + at, TEXT - at, "%s:chunk=0;", (*e)->name);
    }
    text[at - 1] = '\0';
    GW_TRY(gw_spec_parse(&c->list[list], "plan", names[list], text, GW_SPEC_LIST));
    for (const gw_spec *s = c->list[list]->parts; s; s = s->next)
        if (list != CODEC || c->n_specs[CODEC] == 0 || strcmp(s->text, "none") != 0)
            c->spec[list][c->n_specs[list]++] = s;
    return GW_OK;
}

gw_err gw_contest_open(gw_contest *c, const char *const list[PARTS]) {
    for (int l = 0; l < PARTS; l++)
        GW_TRY(contest_parse(c, l, list[l]));
    GW_TRY(gw_codec_open(&c->play.exact, &gw_codec_exact));
    for (int i = 0; i < c->n_specs[STRATEGY]; i++)
        GW_TRY(gw_strategy_find(&c->strategy[i], c->spec[STRATEGY][i]));
    for (int i = 0; i < c->n_specs[CODEC]; i++)
        GW_TRY(gw_codec_open(&c->codec[i], c->spec[CODEC][i]));
    return gw_alloc(&c->at, GW_CONTEST_MOST, sizeof *c->at);
}

void gw_contest_close(gw_contest *c) {
    for (int i = 0; i < c->n_specs[STRATEGY]; i++)
        gw_strategy_free(&c->strategy[i]);
    for (int i = 0; i < c->n_specs[CODEC]; i++)
        gw_codec_close(&c->codec[i]);
    gw_codec_close(&c->play.exact);
    for (int l = 0; l < PARTS; l++)
        gw_spec_free(c->list[l]);
    free(c->at);
    gw_network_close(c->network);
}

/* ---- plays ---- */

/* Over links that are so many times as fast. Encodings that drop most values are gathered: summed
 * on the way they would be thinned out again at every hop. */
static gw_err contest_play(gw_contest *c, const gw_contestant *x, double times, gw_sim_play *p) {
    *p = c->play;
    p->strategy = c->strategy[x->part[STRATEGY]];
    p->codec = c->codec[x->part[CODEC]];
    memcpy(p->world.coded_s, c->coded_s[x->part[CODEC]], sizeof p->world.coded_s);
    p->world.link.bytes_per_s *= times;
    gw_network_scale(c->network, times);
    GW_TRY(gw_algo_open(&p->algo, c->spec[ALGO][x->part[ALGO]], &p->codec));
    unsigned caps = p->algo.ops->caps;
    gw_err e = gw_sim_play_check(p);
    if (caps & GW_ALGO_ORDERED || (p->codec.caps & GW_CODEC_SPARSE && !(caps & GW_ALGO_ONCE)))
        e = gw_fail(GW_ERR_UNSUPPORTED, "plan: %s is MPI's own, or thins %s out",
                    p->algo.ops->head.name, p->codec.spec);
    c->plays += e == GW_OK;
    GW_THEN(e, gw_sim_play_run(p));
    gw_algo_close(&p->algo);
    return e;
}

static gw_err contest_add(gw_contest *c, gw_contestant x) {
    gw_sim_play p;
    if (c->n == GW_CONTEST_MOST)
        return gw_fail(GW_ERR_USAGE, "plan: more than %d ways to compare: shorten the lists", c->n);
    gw_err e = contest_play(c, &x, 1, &p);
    c->costly[x.part[ALGO]] |= p.costly;
    if (e != GW_OK)
        return e == GW_ERR_UNSUPPORTED ? GW_OK : e;
    x.step_s = p.step_s;
    x.exposed_s = p.exposed_s;
    x.sent_bytes = (double)p.tally.bytes / p.world.ranks / p.steps;
    x.measured_s = NAN;
    c->at[c->n++] = x;
    return GW_OK;
}

static int contest_faster_first(const void *a, const void *b) {
    double x = ((const gw_contestant *)a)->step_s, y = ((const gw_contestant *)b)->step_s;
    return (x > y) - (x < y);
}

static void contest_sort(gw_contest *c, int from) {
    qsort(c->at + from, (size_t)(c->n - from), sizeof *c->at, contest_faster_first);
}

/* All codecs of a kind: with these capabilities among SPARSE and LOSSLESS. */
static gw_err contest_add_kind(gw_contest *c, unsigned kind) {
    gw_contestant best[BEST];
    int from = c->n, n_best = 0, algos = c->n_specs[ALGO];
    for (int k = 0; k < c->n_specs[CODEC]; k++) {
        if ((c->codec[k].caps & (GW_CODEC_SPARSE | GW_CODEC_LOSSLESS)) != kind)
            continue;
        for (int i = 0; n_best == 0 && i < c->n_specs[STRATEGY] * algos; i++)
            GW_TRY(contest_add(c, (gw_contestant){.part = {i / algos, i % algos, k}}));
        for (int i = 0; i < n_best; i++) {
            best[i].part[CODEC] = k;
            GW_TRY(contest_add(c, best[i]));
        }
        if (n_best == 0 && c->n > from) {
            contest_sort(c, from);
            n_best = c->n - from < BEST ? c->n - from : BEST;
            memcpy(best, c->at + from, (size_t)n_best * sizeof *best);
        }
    }
    return GW_OK;
}

static void contest_show(gw_contest *c, int from, int one_of_each) {
    contest_sort(c, from);
    for (int i = from; i < c->n; i++) {
        c->at[i].shown = true;
        for (int j = from; j < i; j++)
            c->at[i].shown &= c->at[j].part[one_of_each] != c->at[i].part[one_of_each];
    }
}

static gw_err contest_play_all(gw_contest *c) {
    GW_TRY(contest_add_kind(c, GW_CODEC_LOSSLESS));
    contest_show(c, 0, STRATEGY);
    c->n_exact = c->n;
    GW_TRY(contest_add_kind(c, 0));
    GW_TRY(contest_add_kind(c, GW_CODEC_SPARSE));
    contest_show(c, c->n_exact, CODEC);
    for (int i = c->n_exact - 1; i >= 0; i--)
        if (c->strategy[c->at[i].part[STRATEGY]].ops->shape == GW_SHAPE_BUCKETS)
            c->base = i;
    return c->n_exact ? GW_OK
                      : gw_fail(GW_ERR_UNSUPPORTED,
                                "plan: no exact exchange of these can be played; the last message: "
                                "%.300s",
                                gw_err_text());
}

/* ---- other rates ---- */

static double contest_rate(double decades) {
    return GW_CONTEST_SLOWEST * pow(10, decades);
}

static gw_err contest_step(gw_contest *c, const gw_contestant *x, double rate, double *step_s) {
    gw_sim_play p;
    GW_TRY(contest_play(c, x, rate / c->play.world.link.bytes_per_s, &p));
    *step_s = p.step_s;
    return GW_OK;
}

static gw_err contest_base(gw_contest *c, double rate, double *step_s) {
    for (int i = 0; i < c->known; i++)
        if (c->known_at[i] == rate) {
            *step_s = c->known_s[i];
            return GW_OK;
        }
    GW_TRY(contest_step(c, &c->at[c->base], rate, step_s));
    int i = c->known < GW_CONTEST_KNOWN ? c->known++ : 0;
    c->known_at[i] = rate;
    c->known_s[i] = *step_s;
    return GW_OK;
}

static gw_err contest_compare(gw_contest *c, const gw_contestant *x, double decades, bool *faster) {
    double step_s, base_s;
    GW_TRY(contest_step(c, x, contest_rate(decades), &step_s));
    GW_TRY(contest_base(c, contest_rate(decades), &base_s));
    *faster = step_s < (1 - c->margin) * base_s;
    return GW_OK;
}

/* Decades are looked at, and those halved whose ends differ. */
static gw_err contest_find_turns(gw_contest *c, gw_contestant *x) {
    GW_TRY(contest_compare(c, x, 0, &x->leads));
    bool before = x->leads, faster, half;
    for (int d = 1; d <= GW_CONTEST_DECADES; d++, before = faster) {
        double low = d - 1, high = d;
        GW_TRY(contest_compare(c, x, d, &faster));
        for (int i = 0; faster != before && i < HALVINGS; i++) {
            GW_TRY(contest_compare(c, x, (low + high) / 2, &half));
            *(half == before ? &low : &high) = (low + high) / 2;
        }
        if (faster != before)
            x->turn[x->turns++] = contest_rate((low + high) / 2);
    }
    return GW_OK;
}

gw_err gw_contest_play(gw_contest *c) {
    double rate = c->play.world.link.bytes_per_s;
    GW_TRY(contest_play_all(c));
    for (int i = 0; i < c->n; i++) {
        gw_contestant *x = &c->at[i];
        if (!x->shown && i != c->base)
            continue;
        GW_TRY(contest_step(c, x, rate / GW_CONTEST_SHORTEST, &x->least_s));
        GW_TRY(contest_step(c, x, rate / GW_CONTEST_LONGEST, &x->most_s));
        if (i != c->base)
            GW_TRY(contest_find_turns(c, x));
    }
    return GW_OK;
}
