/* A session of three layers of 1000 floats, for tests that walk through its steps. */
#ifndef GW_TESTS_SMALL_RUN_H
#define GW_TESTS_SMALL_RUN_H

#include "../specs.h"
#include "check.h"

#include "base/rng.h"

enum { LAYERS = 3, N = 3000 };

static int me, ranks;

typedef struct run {
    gw_session *session;
    gw_span layers[LAYERS];
    gw_tensor tensors[LAYERS];
    int step, seen;    /* test_sums.c: layers that the tap has seen in this step */
    float velocity[N]; /* test_correction.c: for strategies that average the optimizer's */
} run;

static inline float gradient(int rank, int step, size_t i) {
    return (float)gw_rng_unit(gw_rng_key((uint64_t)rank, (uint64_t)step), i) - 0.5f;
}

/* `more`: what else the setup has than the layers. */
static inline void open_session(run *r, const char *comm, const char *codec, const char *feedback,
                                gw_session_setup more) {
    for (int l = 0; l < LAYERS; l++) {
        r->layers[l] = gw_span_part((gw_span){0, N}, l, LAYERS);
        r->tensors[l] = (gw_tensor){r->layers[l], l, 1, (int)r->layers[l].n};
    }
    more.n = N;
    more.layers = r->layers;
    more.n_layers = LAYERS;
    more.tensors = r->tensors;
    more.n_tensors = LAYERS;
    more.seed = 5;
    more.yield = true;
    CHECK_OK(new_session(&r->session, comm, codec, feedback, false));
    CHECK_OK(gw_session_open(r->session, MPI_COMM_WORLD, &more));
}

static inline void close_run(run *r) {
    gw_session_close(r->session);
    gw_session_free(r->session);
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

#endif
