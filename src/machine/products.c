#include "machine/products.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "machine/operands.h"
#include "mpi/agree.h"
#include "mpi/wait.h"
#include "prof/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 15, LEAST_ROUNDS = 3 };
#define LEAST_FLOPS 1e6   /* of a net's longest product; below that nothing is worth the time */
#define MOST_FLOPS  4e9   /* longer products are timed at a part of their size */
#define RUN_S       50e-6 /* calls in a row, at least */
#define SHAPE_S     40e-3 /* of a shape, once each way has had its rounds */
#define GAIN        0.02  /* an earlier way is preferred to one that gains less */

/* ---- timing ---- */

static double product_time_calls(const gw_operands *o, int way, int calls) {
    gw_gemm_plan plan = {.n = 1, .piece = INFINITY, .choice = {{o->of, way, way}}};
    gw_gemm_adopt(&plan);
    uint64_t start = gw_clock_ticks();
    for (int i = 0; i < calls; i++)
        gw_operands_multiply(o);
    return gw_clock_since(start) / calls;
}

/* Best times of the ways that are `wanted`, in turns; the order changes from round to round. The
 * first round warms up, and tells how many calls make a run. */
static void product_time_ways(const gw_operands *o, const bool wanted[GW_GEMM_WAYS],
                              double s[GW_GEMM_WAYS]) {
    int calls[GW_GEMM_WAYS];
    double spent = 0;
    for (int w = 0; w < GW_GEMM_WAYS; w++) {
        s[w] = wanted[w] ? product_time_calls(o, w, 1) : NAN;
        calls[w] = s[w] < RUN_S ? (int)(RUN_S / s[w]) + 1 : 1;
    }
    for (int round = 1; round < ROUNDS && (round < LEAST_ROUNDS || spent < SHAPE_S); round++)
        for (int i = 0; i < GW_GEMM_WAYS; i++) {
            int w = (i + round) % GW_GEMM_WAYS;
            if (!wanted[w])
                continue;
            double took = product_time_calls(o, w, calls[w]);
            spent += took * calls[w];
            s[w] = fmin(s[w], took);
        }
}

/* The product itself, or one of a part of its size. */
static gw_product product_timed_size(gw_product p) {
    while (gw_product_flops(&p) > MOST_FLOPS) {
        int *largest = p.m >= p.n ? &p.m : &p.n;
        largest = p.k > *largest ? &p.k : largest;
        *largest = (*largest + 1) / 2;
    }
    return p;
}

static gw_err products_measure(gw_product p, const bool wanted[GW_GEMM_WAYS],
                               double s[GW_GEMM_WAYS]) {
    gw_product size = product_timed_size(p);
    gw_operands o;
    gw_err e = gw_operands_open(&o, &size);
    if (e == GW_OK)
        product_time_ways(&o, wanted, s);
    for (int w = 0; e == GW_OK && w < GW_GEMM_WAYS; w++)
        s[w] *= gw_product_flops(&p) / gw_product_flops(&size);
    gw_operands_close(&o);
    return e;
}

/* ---- looking up ---- */

typedef struct survey {
    gw_products *out;
    gw_products_cache *cache;
    int threads, measured;
} survey;

static void product_name_time(const survey *s, const gw_product *p, int way, char name[128]) {
    snprintf(name, 128, "%c%c %dx%dx%d%s by %s", p->ta ? 't' : 'n', p->tb ? 't' : 'n', p->m, p->n,
             p->k, p->add ? " added" : "", gw_gemm_way_name(way, s->threads));
}

/* From the cache, or else measured and put there: all ways, so that they were timed in turns. */
static gw_err product_find_times(survey *s, const gw_product *p, double t[GW_GEMM_WAYS]) {
    bool wanted[GW_GEMM_WAYS], lacks = false;
    char name[128];
    for (int w = 0; w < GW_GEMM_WAYS; w++) {
        t[w] = NAN;
        wanted[w] = gw_gemm_way_name(w, s->threads);
        if (!wanted[w])
            continue;
        product_name_time(s, p, w, name);
        t[w] = gw_products_cache_get(s->cache, name);
        lacks |= isnan(t[w]);
    }
    if (!lacks)
        return GW_OK;
    s->measured++;
    GW_TRY(products_measure(*p, wanted, t));
    for (int w = 0; w < GW_GEMM_WAYS; w++)
        if (wanted[w]) {
            product_name_time(s, p, w, name);
            gw_products_cache_put(s->cache, name, t[w]);
        }
    return GW_OK;
}

static int products_fastest(const double t[GW_GEMM_WAYS]) {
    int best = gw_gemm_way_first();
    for (int w = 0; w < GW_GEMM_WAYS; w++)
        if (isfinite(t[w]) && t[w] < t[best] * (1 - GAIN))
            best = w;
    return best;
}

static gw_err product_choose_whole(survey *s, const gw_products_setup *setup) {
    gw_products *p = s->out;
    double flops = 0, seconds = 0;
    for (int i = 0; i < p->plan.n; i++) {
        gw_gemm_choice *c = &p->plan.choice[i];
        GW_TRY(product_find_times(s, &c->of, p->time[i].whole));
        c->whole = c->pieced = products_fastest(p->time[i].whole);
        flops += gw_product_flops(&c->of);
        seconds += p->time[i].whole[c->whole];
    }
    p->flops_per_s = flops / seconds;
    if (setup->polls) { /* a power of two: a speed that differs a little makes no other piece */
        p->piece_s = gw_wire_piece_s(&p->wire);
        p->plan.piece = exp2(floor(log2(p->piece_s * p->flops_per_s)));
    }
    return GW_OK;
}

/* By a piece of it, which is a product of its own: the library that is best for the whole may be
 * the slower one for its parts. */
static gw_err product_choose_pieced(survey *s) {
    gw_products *p = s->out;
    for (int i = 0; i < p->plan.n; i++) {
        gw_gemm_choice *c = &p->plan.choice[i];
        gw_gemm_cuts cuts = gw_gemm_pieces(&c->of, p->plan.piece);
        if (gw_gemm_cuts_pieces(cuts) == 1)
            continue;
        gw_product part = c->of;
        part.m = (part.m + cuts.rows - 1) / cuts.rows;
        part.n = (part.n + cuts.cols - 1) / cuts.cols;
        part.k = (part.k + cuts.depth - 1) / cuts.depth;
        GW_TRY(product_find_times(s, &part, p->time[i].pieced));
        c->pieced = products_fastest(p->time[i].pieced);
        for (int w = 0; w < GW_GEMM_WAYS; w++)
            p->time[i].pieced[w] *= gw_gemm_cuts_pieces(cuts);
    }
    return GW_OK;
}

static double product_longest(const gw_gemm_plan *plan) {
    double most = 0;
    for (int i = 0; i < plan->n; i++)
        most = fmax(most, gw_product_flops(&plan->choice[i].of));
    return most;
}

static bool product_worth_timing(const gw_products *p) {
    int ways = 0;
    for (int w = 0; w < GW_GEMM_WAYS; w++)
        ways += gw_gemm_way_name(w, p->threads) != NULL;
    return (ways > 1 || p->polls) && product_longest(&p->plan) >= LEAST_FLOPS;
}

/* A net whose operands do not fit the memory is no reason to fail: it will, with a better word. */
static gw_err products_choose(gw_products *p, const gw_products_setup *setup) {
    survey s = {.out = p, .threads = setup->threads};
    if (!product_worth_timing(p))
        return GW_OK;
    GW_TRY(gw_products_cache_open(&s.cache, setup->threads, p->note));
    gw_err e = product_choose_whole(&s, setup);
    GW_THEN(e, product_choose_pieced(&s));
    gw_products_cache_close(s.cache, p->note);
    p->source = s.measured > 0 ? GW_PRODUCTS_MEASURED : GW_PRODUCTS_CACHED;
    return e == GW_OK ? gw_gemm_check() : e;
}

/* ---- the plan of then ---- */

static const char *products_text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static int products_number_of(const json_t *o, const char *key) {
    return (int)json_integer_value(json_object_get(o, key));
}

/* Whether it is a plan for these products, libraries and threads; then p has it. */
static bool products_resume(gw_products *p, const json_t *then) {
    const json_t *all = json_object_get(then, "products");
    const json_t *piece = json_object_get(json_object_get(then, "piece"), "flops");
    const json_t *speed = json_object_get(then, "flops_per_s");
    if (strcmp(products_text_of(then, "libraries"), gw_gemm_library()) != 0 ||
        products_number_of(then, "threads") != p->threads ||
        (int)json_array_size(all) != p->plan.n ||
        json_is_true(json_object_get(then, "polls")) != p->polls)
        return false;
    gw_gemm_plan plan = p->plan;
    for (int i = 0; i < plan.n; i++) {
        const json_t *o = json_array_get(all, (size_t)i);
        gw_gemm_choice *c = &plan.choice[i];
        c->whole = gw_gemm_way_named(products_text_of(o, "whole"), p->threads);
        c->pieced = gw_gemm_way_named(products_text_of(o, "pieced"), p->threads);
        if (c->whole < 0 || c->pieced < 0 || products_number_of(o, "m") != c->of.m ||
            products_number_of(o, "n") != c->of.n || products_number_of(o, "k") != c->of.k ||
            json_is_true(json_object_get(o, "add")) != c->of.add)
            return false;
    }
    plan.piece = json_is_number(piece) ? json_number_value(piece) : INFINITY;
    p->plan = plan;
    p->flops_per_s = json_is_number(speed) ? json_number_value(speed) : NAN;
    p->source = GW_PRODUCTS_RESUMED;
    return plan.piece > 0;
}

/* ---- the whole ---- */

/* Those of a step, and where gradients may be added, these products again. */
static int products_list(const gw_products_setup *setup, const gw_load *load, gw_product *all) {
    int n = 0;
    for (int l = 0; load->batch > 0 && l < load->shard->n_layers; l++)
        n += gw_twin_products_of(load->shard, l, gw_load_rows(load), all + n);
    for (int i = 0, added = n; i < added && setup->adds; i++)
        if (all[i].ta) {
            all[n] = all[i];
            all[n++].add = true;
        }
    return n;
}

static bool products_same(const gw_product *x, const gw_product *y) {
    return x->ta == y->ta && x->tb == y->tb && x->add == y->add && x->m == y->m && x->n == y->n &&
           x->k == y->k;
}

/* What other layers and ranks compute, too, is listed once. What there is no room for takes the way
 * of the most similar one. */
static void products_add(gw_products *p, const gw_product *all, int n) {
    int of[GW_GEMM_CHOICES];
    for (int i = 0; i < n; i++) {
        int j = 0, at = p->plan.n;
        while (j < at && !products_same(&all[of[j]], &all[i]))
            j++;
        if (all[i].m < 1 || j < at || at == GW_GEMM_CHOICES)
            continue;
        of[p->plan.n++] = i;
        p->plan.choice[at] = (gw_gemm_choice){all[i], gw_gemm_way_first(), gw_gemm_way_first()};
        for (int w = 0; w < GW_GEMM_WAYS; w++)
            p->time[at].whole[w] = p->time[at].pieced[w] = NAN;
    }
}

/* Collective: those of all ranks, each of which may hold another part of the model, at rank 0. */
static gw_err products_collect(gw_products *p, const gw_products_setup *setup, int batch) {
    gw_product own[2 * GW_PRODUCTS] = {0}, *all = NULL;
    gw_load load = setup->load;
    int rank, ranks, most;
    load.batch = batch;
    most = products_list(setup, &load, own);
    GW_TRY(gw_comm_place(setup->comm, &rank, &ranks));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &most, 1, MPI_INT, MPI_MAX, setup->comm));
    int room = rank == 0 ? ranks * most : 0, bytes = most * (int)sizeof *all;
    GW_TRY(gw_agree(setup->comm, gw_alloc(&all, (size_t)room, sizeof *all)));
    gw_err e = gw_gather(own, all, bytes, setup->comm);
    if (e == GW_OK)
        products_add(p, all, room);
    free(all);
    return e;
}

static gw_err products_prepare(gw_products *p, const gw_products_setup *setup) {
    *p = (gw_products){.threads = setup->threads,
                       .polls = setup->polls,
                       .flops_per_s = NAN,
                       .piece_s = NAN,
                       .plan = {.piece = INFINITY}};
    GW_TRY(gw_wire_read(&p->wire));
    if (setup->rate_bits_per_s > 0) {
        p->wire.rate_bits_per_s = setup->rate_bits_per_s;
        p->wire.rate_known = true;
    }
    return GW_OK;
}

gw_err gw_products_open(gw_products *p, const gw_products_setup *setup) {
    int batch = setup->load.batch, rank;
    GW_TRY(gw_comm_place(setup->comm, &rank, NULL));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &batch, 1, MPI_INT, MPI_MAX, setup->comm));
    GW_TRY(gw_agree(setup->comm, products_prepare(p, setup)));
    GW_TRY(products_collect(p, setup, batch));
    gw_clock_start();
    uint64_t start = gw_clock_ticks();
    gw_err e = GW_OK;
    if (rank == 0 && !products_resume(p, setup->then)) {
        if (setup->then)
            gw_text_copy(p->note, sizeof p->note,
                         "the checkpoint's libraries or threads were others: products are chosen "
                         "anew, and may round otherwise than before");
        e = products_choose(p, setup);
    }
    p->took_s = gw_clock_since(start);
    GW_TRY(gw_bcast_asleep(p, (int)sizeof *p, 0, setup->comm));
    gw_gemm_adopt(&p->plan);
    return gw_agree(setup->comm, e);
}

/* ---- JSON ---- */

static json_t *product_seconds_json(const double t[GW_GEMM_WAYS], int threads) {
    json_t *all = json_object();
    for (int w = 0; w < GW_GEMM_WAYS; w++)
        if (isfinite(t[w]))
            json_object_set_new(all, gw_gemm_way_name(w, threads), json_real(t[w]));
    return all;
}

static json_t *product_json(const gw_products *p, int i) {
    const gw_gemm_choice *c = &p->plan.choice[i];
    char how[3] = {c->of.ta ? 't' : 'n', c->of.tb ? 't' : 'n', 0};
    gw_gemm_cuts cuts = gw_gemm_pieces(&c->of, p->plan.piece);
    return gw_json_object(
        "operands:s m:i n:i k:i add:b whole:s pieced:s pieces:o whole_s:o pieced_s:o", how, c->of.m,
        c->of.n, c->of.k, c->of.add, gw_gemm_way_name(c->whole, p->threads),
        gw_gemm_way_name(c->pieced, p->threads),
        json_pack("[i,i,i]", cuts.rows, cuts.cols, cuts.depth),
        product_seconds_json(p->time[i].whole, p->threads),
        product_seconds_json(p->time[i].pieced, p->threads));
}

static int product_pieces_of(const gw_products *p, int i) {
    return gw_gemm_cuts_pieces(gw_gemm_pieces(&p->plan.choice[i].of, p->plan.piece));
}

double gw_products_gap_s(const gw_products *p) {
    double most = 0;
    if (!p->polls)
        return 0;
    for (int i = 0; i < p->plan.n; i++)
        most = fmax(most, gw_product_flops(&p->plan.choice[i].of) / product_pieces_of(p, i));
    return isfinite(p->flops_per_s) ? most / p->flops_per_s : gw_wire_piece_s(&p->wire);
}

static json_t *product_piece_json(const gw_products *p) {
    if (!isfinite(p->plan.piece))
        return json_null();
    return gw_json_object("flops:f seconds:f longest_s:f buffer_bytes:f rate_bits_per_s:f rate:s "
                          "drain_s:f",
                          p->plan.piece, p->plan.piece / p->flops_per_s, gw_products_gap_s(p),
                          p->wire.buffer_bytes, p->wire.rate_bits_per_s,
                          p->wire.rate_known ? "testbed" : "assumed", gw_wire_drain_s(&p->wire));
}

json_t *gw_products_json(const gw_products *p) {
    static const char *const sources[] = {"untimed", "measured", "cached", "resumed"};
    json_t *all = json_array();
    for (int i = 0; i < p->plan.n; i++)
        json_array_append_new(all, product_json(p, i));
    return gw_json_object("libraries:s source:s threads:i polls:b took_s:f flops_per_s:f piece:o "
                          "note:t products:o",
                          gw_gemm_library(), sources[p->source], p->threads, p->polls, p->took_s,
                          p->flops_per_s, product_piece_json(p), p->note, all);
}
