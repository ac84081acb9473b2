/* EF21-SGDM, LoCo and 1-bit Adam, step by step, against the published forms in doubles, with the k
 * largest elements of each rank as the compressor. */
#include "base/mem.h"
#include "mpi/wait.h"
#include "run/session.h"

enum { N = 3000, STEPS = 9, MOST_RANKS = 4 };

#include "small_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double eta = 0.3, beta = 0.75;
enum { RESET = 4, FREEZE = 3 };

static int parts; /* that are compressed apart */

/* Of each rank. */
static double v[MOST_RANKS][N], e[MOST_RANKS][N], total[N], direction[N], param[N];

static int by_size(const void *a, const void *b) {
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x < y) - (x > y);
}

/* c = a twentieth of each part of x, the largest elements, and zeros elsewhere. */
static void largest(const double *x, double *c) {
    static double sorted[N];
    size_t n = (size_t)(N / parts);
    for (size_t at = 0; at < N; at += n) {
        memcpy(sorted, x + at, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, by_size);
        for (size_t i = at; i < at + n; i++)
            c[i] = fabs(x[i]) >= fabs(sorted[n / 20 - 1]) ? x[i] : 0;
    }
}

/* I. Fatkhullin et al., "Momentum provably improves error feedback!", algorithm 1. */
static void ef21(int step) {
    static double difference[N], c[N];
    for (int q = 0; q < ranks; q++) {
        for (size_t i = 0; i < N; i++) {
            double g = gradient(q, step, i);
            v[q][i] = step == 0 ? g : (1 - eta) * v[q][i] + eta * g;
            difference[i] = v[q][i] - e[q][i];
        }
        if (step == 0 || ranks == 1) /* dense; one rank sends nothing */
            memcpy(c, difference, sizeof c);
        else
            largest(difference, c);
        for (size_t i = 0; i < N; i++) {
            e[q][i] += c[i];
            total[i] += c[i];
        }
    }
    memcpy(direction, total, sizeof direction);
}

/* X. Xie et al., "LoCo": of a step, whatever tensors it has, is the count by which it resets. */
static void loco(int step) {
    static double h[N], c[N];
    memset(direction, 0, sizeof direction);
    for (int q = 0; q < ranks; q++) {
        for (size_t i = 0; i < N; i++) {
            e[q][i] = step % RESET == 0 ? 0 : e[q][i];
            h[i] = gradient(q, step, i) + e[q][i];
        }
        if (ranks == 1)
            memcpy(c, h, sizeof c);
        else
            largest(h, c);
        for (size_t i = 0; i < N; i++) {
            e[q][i] = beta * e[q][i] + (1 - beta) * (h[i] - c[i]);
            direction[i] += c[i];
        }
    }
}

/* H. Tang et al., "1-bit Adam": e is the residual; v[0] the second moment, v[1] the first. */
static void onebit_adam(int step) {
    static double h[N], c[N], mean[N];
    double *second = v[0], *first = v[1], by, root;
    memset(mean, 0, sizeof mean);
    for (int q = 0; q < ranks; q++) {
        for (size_t i = 0; i < N; i++) {
            double g = gradient(q, step, i);
            h[i] = step < FREEZE ? g : 0.9 * first[i] / ranks + 0.1 * g + e[q][i];
        }
        if (step < FREEZE || ranks == 1)
            memcpy(c, h, sizeof c);
        else
            largest(h, c);
        for (size_t i = 0; i < N; i++) {
            e[q][i] = h[i] - c[i];
            mean[i] += c[i];
        }
    }
    by = 1 - pow(0.9, step + 1);
    root = 1 - pow(0.99, step < FREEZE ? step + 1 : FREEZE);
    for (size_t i = 0; i < N; i++) {
        first[i] = step < FREEZE ? 0.9 * first[i] + 0.1 * mean[i] : mean[i];
        if (step < FREEZE)
            second[i] = 0.99 * second[i] + 0.01 * mean[i] * mean[i];
        direction[i] = first[i] / by / (sqrt(second[i] / root) + 1e-3);
    }
}

static void compare(const char *comm, const char *feedback, void (*published)(int step)) {
    run r = {0};
    parts = strcmp(comm, "sparse") == 0 ? LAYERS : 1;
    memset(v, 0, sizeof v);
    memset(e, 0, sizeof e);
    memset(total, 0, sizeof total);
    memset(param, 0, sizeof param);
    open_session(&r, comm, "topk:ratio=0.05", feedback, (gw_session_setup){0});
    for (int k = 0; k < STEPS; k++) {
        take_step(&r, k);
        published(k);
        for (size_t i = 0; i < N; i++) {
            param[i] -= direction[i];
            CHECK(fabs(r.session->env.param[i] - param[i]) < 1e-4,
                  "%s %s: step %d, parameter %zu is %g, expected %g", comm, feedback, k, i,
                  (double)r.session->env.param[i], param[i]);
        }
    }
    close_run(&r);
}

/* With a compressor that drops nothing, EF21-SGDM is the mean of the ranks' momenta, whoever
 * updates what. */
static void momentum_alone(const char *comm, bool by_layer) {
    run r = {0};
    memset(param, 0, sizeof param);
    memset(total, 0, sizeof total);
    open_session(&r, comm, "topk:ratio=1", "ef21:eta=0.3",
                 (gw_session_setup){.by_layer = by_layer});
    for (int k = 0; k < STEPS; k++) {
        take_step(&r, k);
        for (size_t i = 0; i < N; i++) {
            double g = 0;
            for (int q = 0; q < ranks; q++)
                g += gradient(q, k, i);
            total[i] = k == 0 ? g : (1 - eta) * total[i] + eta * g;
            param[i] -= total[i];
            CHECK(fabs(r.session->env.param[i] - param[i]) < 1e-4,
                  "%s: step %d, parameter %zu is %g, expected %g", comm, k, i,
                  (double)r.session->env.param[i], param[i]);
        }
    }
    close_run(&r);
}

/* One bit says no zero: where nothing ever had a gradient, nothing may move. */
static void unused_parameters(void) {
    run r = {0};
    open_session(&r, "onebitadam:freeze=2", "onebit", "auto", (gw_session_setup){0});
    float *grad = r.session->env.grad, *at = r.session->env.param;
    for (int k = 0; k < STEPS; k++) {
        gw_update u;
        gw_session_begin(r.session, 1.0 / ranks);
        for (int l = LAYERS - 1; l >= 0; l--) {
            for (size_t i = r.layers[l].off; i < gw_span_end(r.layers[l]); i++)
                grad[i] = i % 7 == 0 ? 0 : gradient(me, k, i);
            CHECK_OK(gw_session_ready(r.session, r.layers[l]));
        }
        CHECK_OK(gw_session_finish(r.session, (gw_span){0, N}, &u));
        for (size_t i = 0; i < N; i++) {
            CHECK(i % 7 || u.grad[i] == 0, "step %d: parameter %zu is to move by %g", k, i,
                  (double)u.grad[i]);
            at[i] -= 1e-3f * u.grad[i];
        }
        CHECK_OK(gw_session_publish(r.session, (gw_span){0, N}));
    }
    close_run(&r);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    compare("sparse", "ef21:eta=0.3", ef21);
    compare("allreduce:algo=gathersum", "ef21:eta=0.3", ef21);
    compare("sparse", "loco:beta=0.75,reset=4", loco);
    compare("allreduce:algo=gathersum", "loco:beta=0.75,reset=4", loco);
    compare("onebitadam:freeze=3,beta2=0.99,eps=1e-3,algo=gathersum", "auto", onebit_adam);
    unused_parameters();
    for (int lazy = 0; lazy < 2; lazy++) {
        momentum_alone("allreduce:algo=sra", lazy);
        momentum_alone("iallreduce:bucket=2K", lazy);
        momentum_alone("sharded:algo=sra", lazy);
    }
    MPI_Finalize();
    return 0;
}
