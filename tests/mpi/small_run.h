/* A session of three layers, each a matrix and a vector, for tests that walk through its steps.
 * Each test says how many floats N there are. */
#ifndef GW_TESTS_SMALL_RUN_H
#define GW_TESTS_SMALL_RUN_H

#include "../specs.h"
#include "check.h"

#include "base/rng.h"

enum { LAYERS = 3, ROWS = 24 };

typedef struct run {
    gw_session *session;
    gw_span layers[LAYERS];
    gw_tensor tensors[2 * LAYERS];
    int listed;        /* updates that came as lists */
    int step, seen;    /* test_strategies.c: layers that a tap has seen in this step */
    float velocity[N]; /* test_correction.c: for strategies that average the optimizer's */
} run;

/* `more`: what else the setup has than the layers. Refusals are the session's. */
static inline gw_err try_session(run *r, const char *comm, const char *codec, const char *feedback,
                                 gw_session_setup more) {
    for (int l = 0; l < LAYERS; l++) {
        gw_span s = r->layers[l] = gw_span_part((gw_span){0, N}, l, LAYERS);
        size_t cols = s.n / (ROWS + 1), weights = ROWS * cols, rest = s.n - weights;
        r->tensors[2 * l] = (gw_tensor){{s.off, weights}, l, ROWS, (int)cols};
        r->tensors[2 * l + 1] = (gw_tensor){{s.off + weights, rest}, l, 1, (int)rest};
    }
    more.n = N;
    more.layers = r->layers;
    more.n_layers = LAYERS;
    more.tensors = r->tensors;
    more.n_tensors = 2 * LAYERS;
    more.seed = 5;
    more.yield = true;
    CHECK_OK(new_session(&r->session, comm, codec, feedback, false));
    return gw_session_open(r->session, MPI_COMM_WORLD, &more);
}

static inline void open_session(run *r, const char *comm, const char *codec, const char *feedback,
                                gw_session_setup more) {
    CHECK_OK(try_session(r, comm, codec, feedback, more));
}

static inline void close_run(run *r) {
    gw_session_close(r->session);
    gw_session_free(r->session);
}

static inline float gradient(int rank, int step, size_t i) {
    return (float)gw_rng_unit(gw_rng_key((uint64_t)rank, (uint64_t)step), i) - 0.5f;
}

/* Backward pass of a step: this rank's gradients, layer by layer, in `grad` or added to `sums`. */
static inline void backward(run *r, int number) {
    float *sums = gw_session_sums(r->session), *grad = r->session->env.grad;
    for (int l = LAYERS - 1; l >= 0; l--) {
        gw_span s = r->layers[l];
        for (size_t i = s.off; i < gw_span_end(s); i++)
            if (sums)
                sums[i] += gradient(me, number, i);
            else
                grad[i] = gradient(me, number, i);
        CHECK_OK(gw_session_ready(r->session, s));
        CHECK_OK(gw_session_progress(r->session));
    }
}

static inline void update(run *r, gw_span s) {
    float *param = r->session->env.param;
    gw_update u;
    CHECK_OK(gw_session_finish(r->session, s, &u));
    CHECK(r->session->env.lists || !u.lists, "a list that nobody asked for");
    for (size_t i = u.own.off; i < gw_span_end(u.own) && !u.lists; i++)
        param[i] -= u.scale * u.grad[i];
    for (int l = 0; l < u.n_lists; l++)
        for (size_t i = 0; i < u.lists[l].n; i++)
            param[u.lists[l].at[i]] -= u.scale * u.lists[l].value[i];
    r->listed += u.lists != NULL;
    CHECK_OK(gw_session_publish(r->session, s));
}

/* All of the arena, or layer by layer. */
static inline void update_all(run *r) {
    const gw_env *env = &r->session->env;
    for (int i = 0; i < gw_env_spans(env); i++)
        update(r, gw_env_span(env, i));
    CHECK_OK(gw_session_await(r->session, (gw_span){0, N}));
}

static inline void take_step(run *r, int number) {
    gw_session_begin(r->session, 1.0 / ranks);
    backward(r, number);
    update_all(r);
}

#endif
