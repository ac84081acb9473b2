/* Simulated ranks: times against closed forms, shared links, bytes and messages against what every
 * strategy says, and a world in which nobody can go on. */
#include "comm/fabric/flows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../simulated.h"
#include "unit.h"

/* A blocking exchange of n floats, in seconds. */
static double exchange_s(gw_sim_play p, const char *algo, size_t n) {
    char comm[128];
    snprintf(comm, sizeof comm, "allreduce:algo=(%s)", algo);
    one.n = bytes_only.n = n;
    p.steps = 1;
    gw_err e = run_play(&p, comm, "none");
    if (e != GW_OK)
        fail_msg("%s on %d ranks: %s", comm, p.world.ranks, gw_err_text());
    return p.step_s;
}

static void assert_near(double is, double should, const char *what, int ranks) {
    if (!(fabs(is - should) <= 1e-3 * should))
        fail_msg("%s, %d ranks: %.9g s, and not %.9g", what, ranks, is, should);
}

/* ---- closed forms ---- */

static int log_of(int ranks) {
    int log = 0;
    while (2 << log <= ranks)
        log++;
    return log;
}

static void test_ring(void **state) {
    for (int p = 2; p <= 17; p++) {
        size_t n = 10000 * (size_t)p;
        double each = LATENCY + 2 * OVERHEAD + 4.0 * (double)n / p / RATE;
        assert_near(exchange_s(play_of(p, link_with_all), "ring:chunk=0", n), 2 * (p - 1) * each,
                    "ring", p);
    }
}

/* Of 2^log ranks pairs exchange, at such distances, so many bytes. Others bring all to the first
 * ones before, and get all after: when the last one has it, if nothing else is on its way. */
static double pairs_s(int ranks, const int *distance, const double *bytes, int rounds, double all) {
    double at[17] = {0}, next[17], last = 0;
    int core = 1 << log_of(ranks);
    for (int r = 0; r + core < ranks; r++)
        at[r] = LATENCY + 2 * OVERHEAD + all / RATE;
    for (int i = 0; i < rounds; i++) {
        for (int r = 0; r < core; r++) {
            double sent = at[r] + OVERHEAD, through = sent + bytes[i] / RATE;
            double arrives = at[r ^ distance[i]] + OVERHEAD + bytes[i] / RATE + LATENCY;
            next[r] = fmax(through, fmax(sent, arrives) + OVERHEAD);
        }
        memcpy(at, next, sizeof at);
    }
    for (int r = 0; r < core; r++)
        last = fmax(last, at[r] + (r + core < ranks ? LATENCY + 2 * OVERHEAD + all / RATE : 0));
    return last;
}

/* Where ranks are left over, their messages share links with exchanges that do not wait. */
static void assert_pairs(int ranks, const char *algo, double least, double all) {
    double is = exchange_s(play_of(ranks, link_with_all), algo, (size_t)all / sizeof(float));
    if (1 << log_of(ranks) == ranks)
        assert_near(is, least, algo, ranks);
    else if (!(is > 0.999 * least && is < 1.001 * (least + log_of(ranks) * all / RATE)))
        fail_msg("%s, %d ranks: %.9g s, and not a little more than %.9g", algo, ranks, is, least);
}

static void test_halving_and_doubling(void **state) {
    for (int p = 2; p <= 17; p++) {
        int log = log_of(p), near[8], far[8];
        double all = 1 << 18, whole[8], parts[8];
        for (int i = 0; i < log; i++) {
            near[i] = 1 << i;
            far[i] = far[2 * log - 1 - i] = 1 << (log - 1 - i);
            whole[i] = all;
            parts[i] = parts[2 * log - 1 - i] = all / (2 << i);
        }
        assert_pairs(p, "doubling", pairs_s(p, near, whole, log, all), all);
        assert_pairs(p, "halving:chunk=0", pairs_s(p, far, parts, 2 * log, all), all);
        if (p == 1 << log)
            assert_near(pairs_s(p, far, parts, 2 * log, all),
                        2 * log * (LATENCY + 2 * OVERHEAD) + 2 * all * (p - 1) / p / RATE,
                        "halving", p);
    }
}

/* Up the tree one message after another. Down, a rank's messages share its link: k of them are all
 * there after k times as long, and the farthest rank sends on to k-1. */
static void test_tree(void **state) {
    for (int p = 2; p <= 16; p *= 2) {
        size_t n = 1 << 16;
        int log = log_of(p);
        double all = 4.0 * (double)n / RATE;
        assert_near(exchange_s(play_of(p, link_plain), "tree", n),
                    log * (2 * LATENCY + all) + all * log * (log + 1) / 2, "tree", p);
    }
}

/* ---- shared links ---- */

static void test_sra_fills_the_link(void **state) {
    size_t n = 1 << 20;
    assert_near(exchange_s(play_of(4, link_plain), "sra", n),
                2 * LATENCY + 2 * 3.0 / 4 * 4 * (double)n / RATE, "sra", 4);
}

/* One message of each hop leaves a rack: over its link they follow each other. */
static void test_racks_and_hosts(void **state) {
    size_t n = 1 << 20;
    gw_sim_play racks = play_of(4, link_plain), hosts = play_of(4, link_plain);
    racks.world = world_of(4, 1, "fattree:racks=2,uplink=1gbit", link_plain);
    double slow = 4.0 * (double)n / 4 / (RATE / 8);
    assert_near(exchange_s(racks, "ring:chunk=0", n), LATENCY + 6 * slow, "racks", 4);
    assert_near(exchange_s(racks, "doubling", n),
                2 * LATENCY + 4.0 * (double)n / RATE + 2 * 4.0 * (double)n / (RATE / 8), "racks",
                4);
    hosts.world = world_of(4, 2, "star", link_plain);
    hosts.world.memory = (gw_sim_link){4 * RATE, 1e-6, 0};
    assert_near(exchange_s(hosts, "doubling", n),
                LATENCY + 1e-6 + 2 * 4.0 * (double)n / RATE + 2 * 4.0 * (double)n / (4 * RATE),
                "hosts", 4);
}

/* Link 0 carries 10 bytes a ns, link 1 carries 4. Flow 0 goes over 0, flow 1 over both, flow 2 over
 * 1: 8, 2 and 2 until flow 0 is through, and nothing changes for the others; then flow 1 ends. */
static void test_max_min(void **state) {
    gw_flows f;
    gw_flow x[3] = {0};
    const gw_route way[] = {{1, {0}}, {2, {0, 1}}, {1, {1}}};
    const double bytes[] = {800, 1000, 1200};
    const int64_t ends[] = {100, 500, 550};
    assert_int_equal(gw_flows_open(&f, 2), GW_OK);
    f.link[0].capacity = 10;
    f.link[1].capacity = 4;
    for (int i = 0; i < 3; i++) {
        gw_line *b;
        assert_int_equal(gw_flows_add(&f, (int[]){i, 3}, &way[i], &b), GW_OK);
        assert_ptr_equal(gw_flows_line(&f, (int[]){i, 3}), b);
        assert_int_equal(gw_flows_begin(&f, b, &x[i], bytes[i], 0), GW_OK);
    }
    for (int i = 0; i < 3; i++) {
        gw_flow *ended;
        assert_int_equal(gw_flows_settle(&f, i ? ends[i - 1] : 0), GW_OK);
        gw_event *next = gw_events_take(&f.events);
        assert_non_null(next);
        assert_true(next->at == (double)ends[i]);
        assert_int_equal(gw_flows_end(&f, (gw_link *)next, ends[i], &ended), GW_OK);
        assert_ptr_equal(ended, &x[i]);
    }
    assert_null(gw_events_take(&f.events));
    gw_flows_close(&f);
}

/* ---- bodies of their own ---- */

/* To rank `to`, or from rank -1 - to. */
static gw_err post_one(gw_fabric *f, int to, size_t bytes) {
    size_t len;
    char data = 0;
    gw_posts *p;
    gw_err e = f->ops->room(1, &p);
    if (to >= 0)
        GW_THEN(e, f->ops->isend(f, p, 0, &data, bytes, to, 3));
    else
        GW_THEN(e, f->ops->irecv(f, p, 0, &data, bytes, -1 - to, 3, &len));
    GW_THEN(e, f->ops->wait(f, p, 0, 1));
    free(p);
    return e;
}

static gw_err pairs(void *ctx, gw_fabric *f) {
    double *end = ctx;
    const int to[] = {2, 3, -1, -2};
    gw_err e = post_one(f, to[f->rank], 1000000);
    end[f->rank] = 1e-9 * (double)f->ops->now_ns(f);
    f->ops->close(f);
    return e;
}

/* 0 and 1 live on one host: what they send takes twice as long as alone. */
static void test_two_flows_on_one_link(void **state) {
    double end[4];
    gw_sim_setup w = world_of(4, 2, "star", link_plain);
    assert_int_equal(gw_sim_run(&w, pairs, end), GW_OK);
    for (int r = 2; r < 4; r++)
        assert_near(end[r], LATENCY + 2 * 1e6 / RATE, "two flows", 4);
    w = world_of(4, 1, "star", link_plain);
    assert_int_equal(gw_sim_run(&w, pairs, end), GW_OK);
    for (int r = 2; r < 4; r++)
        assert_near(end[r], LATENCY + 1e6 / RATE, "alone", 4);
}

/* Two messages from 1 to 0, with tags of their own. */
static gw_err post_two(gw_fabric *f, const size_t bytes[2], gw_posts **p) {
    static size_t len[2];
    static char data;
    gw_err e = f->ops->room(2, p);
    for (int i = 0; i < 2 && e == GW_OK; i++)
        e = f->rank == 0 ? f->ops->irecv(f, *p, i, &data, bytes[i], 1, i, &len[i])
                         : f->ops->isend(f, *p, i, &data, bytes[i], 0, i);
    return e;
}

/* 0 waits for one after the other. */
static gw_err line(void *ctx, gw_fabric *f) {
    gw_posts *p;
    double *end = ctx;
    gw_err e = post_two(f, (size_t[]){1000000, 1000000}, &p);
    for (int i = 0; i < 2; i++) {
        GW_THEN(e, f->ops->wait(f, p, i, 1));
        end[i] = f->rank == 0 ? 1e-9 * (double)f->ops->now_ns(f) : end[i];
    }
    free(p);
    f->ops->close(f);
    return e;
}

static void test_one_behind_another(void **state) {
    double end[2];
    gw_sim_setup w = world_of(2, 1, "star", link_plain);
    assert_int_equal(gw_sim_run(&w, line, end), GW_OK);
    for (int i = 0; i < 2; i++)
        assert_near(end[i], LATENCY + (i + 1) * 1e6 / RATE, "a line", 2);
}

/* A poll that finds something is followed by another at once, one that finds nothing by the next
 * event: of two messages, 1 and 2 MB, the second one comes when both have left. */
static gw_err polls(void *ctx, gw_fabric *f) {
    gw_posts *p;
    int64_t *seen = ctx;
    gw_err e = post_two(f, (size_t[]){1000000, 2000000}, &p);
    if (f->rank == 1)
        GW_THEN(e, f->ops->wait(f, p, 0, 2));
    for (bool done[2] = {f->rank == 1, f->rank == 1}; e == GW_OK && !done[1];) {
        for (int i = 0; i < 2 && e == GW_OK; i++)
            if (!done[i])
                e = f->ops->test(f, p, i, 1, &done[i]);
        seen[0] += done[0] && !done[1];
        seen[1] = f->ops->now_ns(f);
        f->ops->yield(f, 0);
    }
    free(p);
    f->ops->close(f);
    return e;
}

static void test_polls(void **state) {
    int64_t seen[2] = {0};
    gw_sim_setup w = world_of(2, 1, "star", link_plain);
    assert_int_equal(gw_sim_run(&w, polls, seen), GW_OK);
    assert_int_equal(seen[0], 2);
    assert_int_equal(seen[1], 3020000);
}

/* Rank 0 receives three rounds of four messages, and looks at all that is not complete, again and
 * again. A look at the clock in each turn keeps the fabric from doing that without it. */
typedef struct sweeps {
    bool alone; /* the fabric may */
    int64_t done[3];
    uint64_t events;
} sweeps;

static gw_err sweep(void *ctx, gw_fabric *f) {
    sweeps *is = ctx;
    gw_posts *p;
    char data = 0;
    size_t len[12];
    bool done[3] = {false};
    gw_err e = f->ops->room(12, &p);
    for (int i = 0; i < 12 && e == GW_OK; i++)
        if (f->rank == 0)
            e = f->ops->irecv(f, p, i, &data, 1000000, 1 + i % 4, i / 4, &len[i]);
        else if (i % 4 == f->rank - 1)
            e = f->ops->isend(f, p, i / 4, &data, (size_t)(1000 * (1 + (7 * i) % 11)), 0, i / 4);
    if (f->rank > 0)
        GW_THEN(e, f->ops->wait(f, p, 0, 3));
    while (f->rank == 0 && e == GW_OK && !(done[0] && done[1] && done[2])) {
        for (int k = 0; k < 3 && e == GW_OK; k++) {
            bool before = done[k];
            e = before ? GW_OK : f->ops->test(f, p, 4 * k, 4, &done[k]);
            is->done[k] = done[k] && !before ? f->ops->now_ns(f) : is->done[k];
        }
        if (!is->alone)
            f->ops->now_ns(f);
        f->ops->yield(f, 0);
    }
    if (f->rank == 0)
        is->events = gw_sim_so_far(f)->events;
    free(p);
    f->ops->close(f);
    return e;
}

static void test_waiting_without_turns(void **state) {
    sweeps is[2] = {{.alone = true}, {.alone = false}};
    gw_sim_setup w = world_of(5, 1, "star", link_with_all);
    for (int i = 0; i < 2; i++)
        assert_int_equal(gw_sim_run(&w, sweep, &is[i]), GW_OK);
    assert_memory_equal(is[0].done, is[1].done, sizeof is[0].done);
    assert_int_equal(is[0].events, is[1].events);
    assert_true(is[0].done[0] > 0 && is[0].done[0] != is[0].done[1]);
}

static gw_err waits_in_vain(void *ctx, gw_fabric *f) {
    gw_err e = f->rank == 2 ? post_one(f, -2, 8) : f->ops->barrier(f);
    f->ops->close(f);
    return e;
}

static gw_err meets_in_vain(void *ctx, gw_fabric *f) {
    gw_err e = f->rank == 1 ? GW_OK : f->ops->barrier(f);
    f->ops->close(f);
    return e;
}

static gw_err leaves_behind(void *ctx, gw_fabric *f) {
    gw_err e = f->rank == 0 ? post_one(f, 1, 8) : GW_OK;
    f->ops->close(f);
    return e;
}

static void test_nobody_can_go_on(void **state) {
    gw_sim_setup w = world_of(3, 1, "star", link_plain);
    assert_int_equal(gw_sim_run(&w, waits_in_vain, NULL), GW_ERR_INTERNAL);
    assert_string_equal(gw_err_text(), "simulate: no rank can go on: rank 2 waits for a message of "
                                       "rank 1 (tag 3)");
    assert_int_equal(gw_sim_run(&w, meets_in_vain, NULL), GW_ERR_INTERNAL);
    assert_string_equal(gw_err_text(), "simulate: no rank can go on: rank 0 waits for all others");
    assert_int_equal(gw_sim_run(&w, leaves_behind, NULL), GW_ERR_INTERNAL);
    assert_string_equal(gw_err_text(), "simulate: 1 messages are left behind");
}

/* ---- every strategy, algorithm and codec ---- */

static bool told_apart(const char *text) {
    static const char *const reasons[] = {"depend on the data", "cannot carry",
                                          "in memory that ranks share"};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (strstr(text, reasons[i]))
            return true;
    return false;
}

static void must_be_played(const char *kind, const char *name, int plays, bool played) {
    if ((plays > 0) != played)
        fail_msg("%s %s: %d plays", kind, name, plays);
}

static void test_costs(void **state) {
    int played[3][32] = {{0}}, of[3] = {0};
    for (; gw_strategies.entries[of[0]]; of[0]++)
        for (of[1] = 0; gw_algos.entries[of[1]]; of[1]++)
            for (of[2] = 0; gw_codecs.entries[of[2]]; of[2]++)
                for (int ranks = 1; ranks <= 5; ranks++) {
                    const char *comm =
                        comm_of(gw_strategies.entries[of[0]], gw_algos.entries[of[1]]);
                    gw_sim_play p = play_of(ranks, link_with_all);
                    p.script.profile = &small;
                    p.steps = 3;
                    p.script.lazy = (of[0] + of[1] + of[2] + ranks) % 2;
                    p.script.sleeps = of[1] % 2;
                    gw_err e = run_play(&p, comm, gw_codecs.entries[of[2]]->name);
                    if (e == GW_OK)
                        for (int i = 0; i < 3; i++)
                            played[i][of[i]]++;
                    else if (e != GW_ERR_UNSUPPORTED && e != GW_ERR_USAGE && e != GW_ERR_INPUT)
                        fail_msg("%s, %s, %d ranks: %s", comm, gw_codecs.entries[of[2]]->name,
                                 ranks, gw_err_text());
                    if (e == GW_OK || !told_apart(gw_err_text()))
                        continue;
                    assert_int_equal(e, GW_ERR_UNSUPPORTED);
                    break; /* with more ranks, too */
                }
    for (int i = 0; i < of[0]; i++) {
        gw_strategy s;
        assert_int_equal(find_strategy(&s, gw_strategies.entries[i]->name), GW_OK);
        must_be_played("strategy", gw_strategies.entries[i]->name, played[0][i], !s.plan.picks);
        gw_strategy_free(&s);
    }
    for (int i = 0; i < of[1]; i++) { /* one with a `check` wants a file */
        const gw_algo_ops *ops = (const gw_algo_ops *)gw_algos.entries[i];
        must_be_played("algorithm", ops->head.name, played[1][i],
                       !(ops->caps & GW_ALGO_SHARED) && !ops->check);
    }
    for (int i = 0; i < of[2]; i++) {
        gw_codec c;
        assert_int_equal(open_codec(&c, gw_codecs.entries[i]->name), GW_OK);
        must_be_played("codec", c.name, played[2][i], c.fixed || c.caps & GW_CODEC_TIGHT);
        gw_codec_close(&c);
    }
}

/* Figures of a step are of whole periods: an exchange every second step costs half per step. */
static void test_periods(void **state) {
    gw_sim_play each = play_of(4, link_plain), second = each;
    each.script.profile = second.script.profile = &small;
    each.steps = 3;
    second.steps = 6; /* of which 2 to 5 count */
    assert_int_equal(run_play(&each, "local:period=1,algo=ring", "none"), GW_OK);
    assert_int_equal(run_play(&second, "local:period=2,algo=ring", "none"), GW_OK);
    assert_int_equal(second.counted, 4);
    assert_true(second.sent.bytes == each.sent.bytes / 2 && each.sent.bytes > 0);
    assert_true(second.sent.messages == each.sent.messages / 2);
    assert_near(second.exposed_s, each.exposed_s / 2, "half the exchanges", 2);
    second.steps = 2;
    assert_fails(run_play(&second, "local:period=2,algo=ring", "none"), GW_ERR_UNSUPPORTED,
                 "repeats after 2 steps");
}

/* ---- whole steps ---- */

/* With progress=poll a step hides what computation covers; without, nothing. */
static void test_overlap(void **state) {
    gw_sim_play a = play_of(2, link_plain), b = play_of(2, link_plain);
    a.script.profile = b.script.profile = &small;
    assert_int_equal(run_play(&a, "iallreduce:bucket=1240,algo=ring", "none"), GW_OK);
    assert_int_equal(run_play(&b, "allreduce:algo=ring", "none"), GW_OK);
    assert_near(b.step_s, 9e-3 + b.exposed_s, "a step", 2);
    assert_near(a.step_s, 9e-3 + a.exposed_s, "a step", 2);
    assert_true(a.exposed_s > 2 * LATENCY && a.exposed_s < b.exposed_s + 1e-9);
    a = play_of(2, link_plain);
    a.script.profile = &small;
    gw_codec_price price;
    gw_sim_coding(&price, 1e-6);
    play_price = &price;
    assert_int_equal(run_play(&a, "allreduce:algo=tree", "bf16"), GW_OK);
    play_price = NULL;
    /* rank 1 encodes, rank 0 adds, encodes and adopts, rank 1 decodes */
    assert_near(a.step_s, 9e-3 + 2 * (LATENCY + 2 * 940 / RATE) + 5 * 940e-6, "codec time", 2);
}

static void test_many(void **state) {
    gw_sim_play p = play_of(96, link_with_all), q = p;
    one.n = bytes_only.n = 25000000 / 4;
    assert_int_equal(run_play(&p, "iallreduce:bucket=2500000,algo=halving", "none"), GW_OK);
    assert_int_equal(run_play(&q, "iallreduce:bucket=2500000,algo=halving", "none"), GW_OK);
    assert_true(p.step_s == q.step_s && p.exposed_s == q.exposed_s &&
                p.tally.events == q.tally.events);
    assert_true(p.step_s > 2 * 95.0 / 96 * 25e6 / RATE);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ring),
                                       cmocka_unit_test(test_halving_and_doubling),
                                       cmocka_unit_test(test_tree),
                                       cmocka_unit_test(test_sra_fills_the_link),
                                       cmocka_unit_test(test_racks_and_hosts),
                                       cmocka_unit_test(test_max_min),
                                       cmocka_unit_test(test_two_flows_on_one_link),
                                       cmocka_unit_test(test_one_behind_another),
                                       cmocka_unit_test(test_polls),
                                       cmocka_unit_test(test_waiting_without_turns),
                                       cmocka_unit_test(test_nobody_can_go_on),
                                       cmocka_unit_test(test_costs),
                                       cmocka_unit_test(test_periods),
                                       cmocka_unit_test(test_overlap),
                                       cmocka_unit_test(test_many)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
