/* A strategy on its own lanes, without a trainer: `bench`, over tensors that the test defines. */
#ifndef GW_TESTS_STRATEGY_BENCH_H
#define GW_TESTS_STRATEGY_BENCH_H

#include "base/rng.h"
#include "comm/strategy.h"

#include "../specs.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int me, ranks;

typedef struct bench {
    gw_strategy strategy;
    gw_algo algo;
    gw_codec codec, exact;
    gw_env env;
    gw_lane_notes notes;
    void *self;
} bench;

/* `of`: the tensors and layers, and how many floats they have. */
static void open_bench(bench *b, const char *comm, bool lazy, const gw_env *of) {
    memset(b, 0, sizeof *b);
    CHECK_OK(open_codec(&b->codec, "none"));
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
    gw_lane_setup lane = {
        .codec = &b->codec, .n = of->n, .seed = 5, .yield = true, .notes = &b->notes};
    CHECK_OK(gw_lane_open(&b->env.grads, MPI_COMM_WORLD, &lane));
    lane.codec = &b->exact;
    CHECK_OK(gw_lane_open(&b->env.params, MPI_COMM_WORLD, &lane));
    CHECK_OK(gw_lane_floats(b->env.grads, of->n, &b->env.grad));
    CHECK_OK(gw_lane_floats(b->env.params, of->n, &b->env.param));
    CHECK_OK(gw_strategy_open(&b->strategy, &b->env, &b->self));
}

static void close_bench(bench *b) {
    gw_strategy_close(&b->strategy, b->self);
    gw_lane_close(b->env.grads);
    gw_lane_close(b->env.params);
    free(b->notes.lines);
    gw_algo_close(&b->algo);
    gw_strategy_free(&b->strategy);
    gw_codec_close(&b->codec);
    gw_codec_close(&b->exact);
}

/* Exchange the arena of gradients; it becomes the update. */
static void exchange(bench *b) {
    gw_update u;
    gw_lane_begin(b->env.grads);
    for (int i = 0; i < gw_env_spans(&b->env); i++) {
        gw_span s = gw_env_span(&b->env, i);
        CHECK_OK(gw_strategy_finish(b->strategy.ops, b->self, &b->env, s, &u));
        CHECK(u.grad == b->env.grad && u.own.off == s.off && u.own.n == s.n && u.scale == 1,
              "an update of something else");
    }
}

static float noise(int rank, int step, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(9, (uint64_t)rank), (uint64_t)step);
    return (float)gw_rng_normal(key, i);
}

static void fill(const bench *b, int step) {
    for (size_t i = 0; i < b->env.n; i++)
        b->env.grad[i] = noise(me, step, i);
}

static void check_agreed(const bench *b, const char *when) {
    size_t bytes = b->env.n * sizeof(float);
    float *first = malloc(bytes);
    memcpy(first, b->env.grad, bytes);
    CHECK_MPI(MPI_Bcast(first, (int)b->env.n, MPI_FLOAT, 0, MPI_COMM_WORLD));
    CHECK(memcmp(first, b->env.grad, bytes) == 0, "ranks differ %s", when);
    free(first);
}

/* ---- state ---- */

/* Of the rank that `dir` belongs to. */
static void state(bench *b, const char *dir, bool load) {
    gw_io *io;
    char path[128];
    snprintf(path, sizeof path, "%s/state", dir);
    if (load)
        CHECK_OK(gw_io_load(&io, path, "STRATEGY", 1, 1 << 20));
    else
        CHECK_OK(gw_io_save(&io, dir, "state", "STRATEGY", 1));
    CHECK_OK(b->strategy.ops->state(b->self, io));
    CHECK_OK(gw_io_close(io));
}

static void check_same(const bench *a, const bench *b, const char *comm, const char *what) {
    CHECK(memcmp(a->env.grad, b->env.grad, a->env.n * sizeof(float)) == 0, "%s, lazy=%d: %s", comm,
          a->env.by_layer, what);
}

/* Three runs: one without a break, one that saves in the middle, and one that loads that. */
static void resumes(const char *comm, bool lazy, const gw_env *of) {
    enum { BEFORE = 5, AFTER = 5 };
    bench through, saved, loaded;
    char dir[] = "/tmp/strategy-XXXXXX", path[64];
    CHECK(mkdtemp(dir), "no temporary folder");
    open_bench(&through, comm, lazy, of);
    open_bench(&saved, comm, lazy, of);
    open_bench(&loaded, comm, lazy, of);
    for (int step = 0; step < BEFORE + AFTER; step++) {
        if (step == BEFORE) {
            state(&saved, dir, false);
            state(&loaded, dir, true);
        }
        fill(&through, step);
        fill(&saved, step);
        exchange(&through);
        exchange(&saved);
        check_same(&through, &saved, comm, "saving changes a step");
        if (step < BEFORE)
            continue;
        fill(&loaded, step);
        exchange(&loaded);
        check_same(&saved, &loaded, comm, "loading changes a step");
    }
    close_bench(&through);
    close_bench(&saved);
    close_bench(&loaded);
    snprintf(path, sizeof path, "%s/state", dir);
    CHECK(unlink(path) == 0 && rmdir(dir) == 0, "%s is not empty", dir);
}

#endif
