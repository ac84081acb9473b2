/** Simulated worlds and plays for tests. */
#ifndef GW_TESTS_SIMULATED_H
#define GW_TESTS_SIMULATED_H

#include "play/options.h"

#include <stdio.h>
#include <string.h>

#include "specs.h"
#include "unit/unit.h"

#define RATE     1e9 /* bytes a second */
#define LATENCY  20e-6
#define OVERHEAD 2e-6

static const gw_sim_link link_with_all = {RATE, LATENCY, OVERHEAD}, link_plain = {RATE, LATENCY, 0};

/* Strategy and algorithm as --comm has them, with a period that three steps hold. */
static inline const char *comm_of(const gw_entry *strategy, const gw_entry *algo) {
    static char comm[128];
    const char *period = "";
    for (const gw_opt *o = strategy->opts; o && o->name; o++)
        period = strcmp(o->name, "period") == 0 ? "period=2," : period;
    snprintf(comm, sizeof comm, "%s:%salgo=%s", strategy->name, period, algo->name);
    return comm;
}

/* ---- a world, and a play in it ---- */

/* Networks stay until the program ends. */
static inline gw_network *network_of(const char *text, int hosts) {
    static struct {
        char text[96];
        int hosts;
        gw_network *network;
    } kept[64];
    const gw_spec *spec = NULL;
    int i = 0;
    while (kept[i].network && (kept[i].hosts != hosts || strcmp(kept[i].text, text) != 0))
        i++;
    if (kept[i].network)
        return kept[i].network;
    assert_true(i < 63);
    snprintf(kept[i].text, sizeof kept[i].text, "%s", text);
    kept[i].hosts = hosts;
    assert_int_equal(keep_spec(&spec, text, GW_SPEC_ONE), GW_OK);
    assert_ok(gw_network_open(&kept[i].network, spec, hosts, RATE));
    return kept[i].network;
}

static inline gw_sim_setup world_of(int ranks, int per_host, const char *network,
                                    gw_sim_link link) {
    return (gw_sim_setup){.ranks = ranks,
                          .per_host = per_host,
                          .network = network_of(network, (ranks + per_host - 1) / per_host),
                          .link = link,
                          .memory = link};
}

static gw_step_tensor one = {.name = "one"};
static gw_step_profile bytes_only = {.batch = 1, .groups = 1, .n_tensors = 1, .tensor = &one};

/* Two layers, of a matrix and a vector each. */
static gw_step_tensor four[] = {{"a.weight", 0, 600, 20, 1e-3, 2e-3, 0},
                                {"a.bias", 0, 30, 1, 0, 1e-3, 0},
                                {"b.weight", 1, 300, 10, 1e-3, 2e-3, 0},
                                {"b.bias", 1, 10, 1, 0, 1e-3, 0}};
static const gw_step_profile small = {.batch = 1,
                                      .groups = 2,
                                      .n_tensors = 4,
                                      .n = 940,
                                      .tensor = four,
                                      .forward_s = 2e-3,
                                      .backward_s = 6e-3,
                                      .optimizer_s = 1e-3};

static inline gw_sim_play play_of(int ranks, gw_sim_link link) {
    return (gw_sim_play){.world = world_of(ranks, 1, "star", link),
                         .script = {.profile = &bytes_only, .speed = 1},
                         .steps = 2};
}

/* Prices of coding in plays, of the codec and of the exact one; NULL: it takes no time. */
static const gw_codec_price *play_price, *play_exact_price;

static inline gw_err run_play(gw_sim_play *p, const char *comm, const char *compress) {
    const gw_spec *strategy = NULL, *codec = NULL;
    gw_err e = keep_spec(&strategy, comm, GW_SPEC_ONE);
    GW_THEN(e, keep_spec(&codec, compress, GW_SPEC_LIST));
    GW_THEN(e, gw_sim_play_open(p, strategy, codec ? codec->parts : NULL));
    p->codec.price = play_price;
    p->exact.price = play_exact_price;
    GW_THEN(e, gw_sim_play_check(p));
    GW_THEN(e, gw_sim_play_run(p));
    gw_network *stays = p->world.network;
    p->world.network = NULL;
    gw_sim_play_close(p);
    p->world.network = stays;
    return e;
}

#endif
