/* The strategy `demo` against the published algorithm in doubles: a cosine transform by its
 * definition, each block's largest coefficients, the mean over the ranks that sent one. */
#include "../specs.h"
#include "check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "run/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 4, STEPS = 8, K = 300, MOST_RANKS = 4, MOST = 4096 };

static const int shape[TENSORS][2] = {{12, 10}, {130, 6}, {1, 200}, {1, 7}};
static const double beta = 0.9;

static size_t total;
static gw_tensor tensor[TENSORS];
static gw_span layers[2];
static bool idles; /* the last of several ranks has no samples */

/* Of each rank: the momentum itself, not its coefficients. */
static double momentum[MOST_RANKS][MOST], direction[MOST];

static bool idle(int rank) {
    return idles && ranks > 1 && rank == ranks - 1;
}

/* The mean over a rank's samples. */
static float gradient(int rank, int step, size_t i) {
    if (idle(rank))
        return 0;
    return (float)gw_rng_unit(gw_rng_key((uint64_t)rank, (uint64_t)step), i) - 0.5f;
}

static int side(int n) {
    for (int s = n < 64 ? n : 64;; s--)
        if (n % s == 0)
            return s;
}

static double cosine(int k, int i, int n) {
    return sqrt((k == 0 ? 1.0 : 2.0) / n) * cos(M_PI * (i + 0.5) * k / n);
}

/* c = the transform of x (rows x cols), or x that of c. */
static void transform(double *x, double *c, int rows, int cols, bool back) {
    memset(back ? x : c, 0, (size_t)(rows * cols) * sizeof(double));
    for (int p = 0; p < rows; p++)
        for (int q = 0; q < cols; q++)
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < cols; j++) {
                    double by = cosine(p, i, rows) * cosine(q, j, cols);
                    if (back)
                        x[i * cols + j] += by * c[p * cols + q];
                    else
                        c[p * cols + q] += by * x[i * cols + j];
                }
}

static double bfloat(double x) {
    int e;
    double m = frexp(x, &e);
    return ldexp(nearbyint(m * 256), e - 8); /* ties to even */
}

static int by_size(const void *a, const void *b) {
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x < y) - (x > y);
}

/* What a rank sends of a block of its momentum, which loses it. */
static void pick(double *m, double *sent, int rows, int cols) {
    static double c[MOST], sorted[MOST], gone[MOST];
    int n = rows * cols, k = (int)floor(n * K / 4096.0 + 0.5);
    transform(m, c, rows, cols, false);
    memcpy(sorted, c, (size_t)n * sizeof *c);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    for (int i = 0; i < n; i++)
        sent[i] = fabs(c[i]) >= fabs(sorted[(k < 1 ? 1 : k) - 1]) ? bfloat(c[i]) : 0;
    transform(gone, sent, rows, cols, true);
    for (int i = 0; i < n; i++)
        m[i] -= gone[i];
}

static void block(const gw_tensor *t, int row, int col, int rows, int cols) {
    static double m[MOST], sent[MOST], sum[MOST], u[MOST];
    int senders[MOST] = {0};
    memset(sum, 0, sizeof sum);
    for (int r = 0; r < ranks; r++) {
        double *of = momentum[r] + t->span.off;
        for (int i = 0; i < rows * cols; i++)
            m[i] = of[(row + i / cols) * t->cols + col + i % cols];
        pick(m, sent, rows, cols);
        for (int i = 0; i < rows * cols; i++) {
            of[(row + i / cols) * t->cols + col + i % cols] = m[i];
            sum[i] += sent[i];
            senders[i] += sent[i] != 0;
        }
    }
    for (int i = 0; i < rows * cols; i++)
        sum[i] /= senders[i] ? senders[i] : 1;
    transform(u, sum, rows, cols, true);
    for (int i = 0; i < rows * cols; i++)
        direction[t->span.off + (size_t)((row + i / cols) * t->cols + col + i % cols)] = u[i];
}

static void published(int step) {
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < total; i++)
            momentum[r][i] = beta * momentum[r][i] + (double)gradient(r, step, i);
    for (const gw_tensor *t = tensor; t < tensor + TENSORS; t++) {
        int rows = side(t->rows), cols = side(t->cols);
        for (int row = 0; row < t->rows; row += rows)
            for (int col = 0; col < t->cols; col += cols)
                block(t, row, col, rows, cols);
    }
}

static void lay_out(void) {
    for (int i = 0; i < TENSORS; i++) {
        size_t n = (size_t)(shape[i][0] * shape[i][1]);
        tensor[i] = (gw_tensor){{total, n}, i / 2, shape[i][0], shape[i][1]};
        layers[i / 2] = (gw_span){layers[i / 2].n ? layers[i / 2].off : total, layers[i / 2].n + n};
        total += n;
    }
}

/* Signs, but where the published direction is nearly 0. */
static void compare(gw_session *s, int step) {
    double most = 0;
    for (size_t i = 0; i < total; i++)
        most = fmax(most, fabs(direction[i]));
    for (size_t i = 0; i < total; i++) {
        float found = s->env.grad[i];
        CHECK(fabsf(found) == 1 || direction[i] == 0 || fabs(direction[i]) < 1e-2 * most,
              "step %d: element %zu is %g, no sign", step, i, (double)found);
        CHECK(fabs(direction[i]) < 1e-2 * most || (found > 0) == (direction[i] > 0),
              "step %d: element %zu is %g, expected the sign of %g", step, i, (double)found,
              direction[i]);
    }
}

static void run(const char *comm, bool by_layer) {
    gw_session *s = NULL;
    gw_session_setup setup = {.n = total,
                              .layers = layers,
                              .n_layers = 2,
                              .tensors = tensor,
                              .n_tensors = TENSORS,
                              .by_layer = by_layer,
                              .seed = 5,
                              .yield = true};
    memset(momentum, 0, sizeof momentum);
    CHECK_OK(new_session(&s, comm, "none", "auto", false));
    CHECK_OK(gw_session_open(s, MPI_COMM_WORLD, &setup));
    for (int k = 0; k < STEPS; k++) {
        gw_update u;
        double share = idle(me) ? 0 : 1.0 / (ranks - idle(ranks - 1));
        gw_session_begin(s, share);
        for (size_t i = 0; i < total; i++)
            s->env.grad[i] = gradient(me, k, i) * (float)share;
        for (int l = 1; l >= 0; l--)
            CHECK_OK(gw_session_ready(s, layers[l]));
        for (int l = 0; l < (by_layer ? 2 : 1); l++)
            CHECK_OK(gw_session_finish(s, by_layer ? layers[l] : (gw_span){0, total}, &u));
        published(k);
        compare(s, k);
    }
    gw_session_close(s);
    gw_session_free(s);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    lay_out();
    run("demo:k=300,beta=0.9", false);
    run("demo:k=300,beta=0.9", true);
    idles = true;
    run("demo:k=300,beta=0.9", false);
    idles = false;
    run("demo:k=300,beta=0.9,algo=ring", false);
    run("demo:k=300,beta=0.9,algo=doubling", false);
    MPI_Finalize();
    return 0;
}
