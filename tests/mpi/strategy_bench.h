/* A strategy on its own lanes, without a trainer: `bench`, over tensors that the test defines. */
#ifndef GW_TESTS_STRATEGY_BENCH_H
#define GW_TESTS_STRATEGY_BENCH_H

#include "base/rng.h"
#include "comm/strategy.h"

#include "../specs.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>

typedef struct bench {
    gw_strategy strategy;
    gw_algo algo;
    gw_codec codec, exact;
    gw_env env;
    gw_lane_notes notes;
    void *self;
} bench;

/* `of`: the tensors and layers, and how many floats they have. Encodings have error feedback. */
static inline void open_bench(bench *b, const char *comm, const char *codec, bool lazy,
                              const gw_env *of) {
    memset(b, 0, sizeof *b);
    CHECK_OK(open_codec(&b->codec, codec));
    CHECK_OK(open_codec(&b->exact, "none"));
    CHECK_OK(find_strategy(&b->strategy, comm));
    CHECK_OK(open_algo(&b->algo, gw_args_text(b->strategy.args, "algo"), &b->codec));
    CHECK_OK(gw_strategy_check(&b->strategy, &b->algo, &b->codec));
    b->env = *of;
    b->env.by_layer = lazy;
    b->env.share = 1.0 / ranks;
    b->env.algo = &b->algo;
    b->env.args = b->strategy.args;
    b->env.name = b->strategy.ops->head.name;
    gw_lane_setup lane = {.codec = &b->codec,
                          .n = of->n,
                          .seed = 5,
                          .yield = true,
                          .feedback = true,
                          .notes = &b->notes};
    CHECK_OK(gw_lane_open(&b->env.grads, MPI_COMM_WORLD, &lane));
    lane.codec = &b->exact;
    CHECK_OK(gw_lane_open(&b->env.params, MPI_COMM_WORLD, &lane));
    CHECK_OK(gw_lane_floats(b->env.grads, of->n, &b->env.grad));
    CHECK_OK(gw_lane_floats(b->env.params, of->n, &b->env.param));
    CHECK_OK(gw_strategy_open(&b->strategy, &b->env, &b->self));
}

static inline void close_bench(bench *b) {
    gw_strategy_close(&b->strategy, b->self);
    gw_lane_close(b->env.grads);
    gw_lane_close(b->env.params);
    free(b->notes.lines);
    gw_algo_close(&b->algo);
    gw_strategy_free(&b->strategy);
    gw_codec_close(&b->codec);
    gw_codec_close(&b->exact);
}

/* Exchange the arena of gradients; it becomes the update, which may come as lists. */
static inline void exchange(bench *b) {
    const gw_strategy_ops *ops = b->strategy.ops;
    float *grad = b->env.grad;
    gw_update u;
    gw_lane_begin(b->env.grads);
    for (int l = b->env.n_layers - 1; ops->ready && l >= 0; l--)
        CHECK_OK(ops->ready(b->self, b->env.layers[l]));
    for (int i = 0; i < gw_env_spans(&b->env); i++) {
        gw_span s = gw_env_span(&b->env, i);
        CHECK_OK(gw_strategy_finish(ops, b->self, &b->env, s, &u));
        CHECK(u.own.off == s.off && u.own.n == s.n && u.scale == 1, "an update of something else");
        CHECK((u.n_lists > 0) == (b->env.lists && ranks > 1), "%d lists", u.n_lists);
        CHECK(u.n_lists > 0 || u.grad == grad, "the update is elsewhere");
        if (u.n_lists > 0)
            memset(grad + s.off, 0, s.n * sizeof *grad);
        for (int l = 0; l < u.n_lists; l++)
            for (size_t k = 0; k < u.lists[l].n; k++)
                grad[u.lists[l].at[k]] = u.lists[l].value[k];
    }
}

static inline float noise(int rank, int step, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(9, (uint64_t)rank), (uint64_t)step);
    return (float)gw_rng_normal(key, i);
}

static inline void fill(const bench *b, int step) {
    for (size_t i = 0; i < b->env.n; i++)
        b->env.grad[i] = noise(me, step, i);
}

static inline void check_agreed(const bench *b, const char *when) {
    CHECK(same_on_all(b->env.grad, b->env.n * sizeof(float)), "ranks differ %s", when);
}

#endif
