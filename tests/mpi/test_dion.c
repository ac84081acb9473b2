/* dion against the published algorithm in double precision: one momentum of the mean gradient, with
 * no ranks, no groups and no lazy subtraction. Then what ranks with momenta of their own owe: the
 * bytes of factors alone, and a state that is each rank's. */

#include "strategy_bench.h"

#include <math.h>

/* 41 x 29 has factors at every rank below, 7 x 19 and 19 x 3 at 1 and 2; and a running mean. */
enum { LAYERS = 2, TENSORS = 7, A = 41 * 29, C = 7 * 19, E = 19 * 3, MOST = 9, STEPS = 6 };
enum { A1 = A + 29, A2 = A1 + 5, C1 = A2 + C, C2 = C1 + 19, E1 = C2 + E, N = E1 + 3 };

static const gw_tensor tensors[TENSORS] = {
    {{0, A}, 0, 41, 29},     {{A, 29}, 0, 1, 29},  {{A1, 5}, 0, 1, 5, .tracks = true},
    {{A2, C}, 1, 7, 19},     {{C1, 19}, 1, 1, 19}, {{C2, E}, 1, 19, 3},
    {{E1, N - E1}, 1, 1, 3},
};
static const gw_span layers[LAYERS] = {{0, A2}, {A2, N - A2}};
static const gw_env shape = {
    .n = N, .layers = layers, .n_layers = LAYERS, .tensors = tensors, .n_tensors = TENSORS};

typedef struct setting {
    int rank;
    bool qr, lazy, in_rows;
} setting;

static void open_setting(bench *b, const setting *s) {
    char comm[64];
    gw_env of = shape;
    of.in_rows = s->in_rows;
    snprintf(comm, sizeof comm, "dion:rank=%d,orth=%s,rest=0.5", s->rank, s->qr ? "qr" : "column");
    open_bench(b, comm, "none", s->lazy, &of);
}

/* ---- the algorithm ---- */

static double m[N], q[TENSORS][29 * MOST]; /* column behind column */

static bool has_factors(const gw_tensor *t, int rank) {
    return rank * (t->rows + t->cols) < t->rows * t->cols;
}

static void reference_start(int rank) {
    memset(m, 0, sizeof m);
    for (int t = 0; t < TENSORS; t++)
        for (int j = 0; j < rank; j++)
            for (int c = 0; c < tensors[t].cols; c++) {
                uint64_t key = gw_rng_key(gw_rng_key(5, 0x64696f6e), (uint64_t)t);
                q[t][j * tensors[t].cols + c] =
                    (float)gw_rng_normal(gw_rng_key(key, (uint64_t)j), (uint64_t)c);
            }
}

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* The factor Q of a QR decomposition whose R has a positive diagonal. */
static void make_orthonormal(double *x, int n, int rank) {
    for (int j = 0; j < rank; j++) {
        double *of = x + j * n;
        for (int turn = 0; turn < 2; turn++)
            for (int k = 0; k < j; k++) {
                double along = dot(x + k * n, of, n);
                for (int i = 0; i < n; i++)
                    of[i] -= along * x[k * n + i];
            }
        double norm = sqrt(dot(of, of, n));
        for (int i = 0; i < n; i++)
            of[i] /= norm;
    }
}

static void reference_matrix(int t, const setting *s, const double *grad, double *out) {
    int rows = tensors[t].rows, cols = tensors[t].cols, r = s->rank;
    double *at = m + tensors[t].span.off, p[41 * MOST], *right = q[t];
    double inputs = s->in_rows ? rows : cols, outputs = s->in_rows ? cols : rows;
    for (int i = 0; i < rows * cols; i++)
        at[i] += grad[i];
    for (int j = 0; j < r; j++)
        for (int i = 0; i < rows; i++)
            p[j * rows + i] = dot(at + i * cols, right + j * cols, cols);
    make_orthonormal(p, rows, r);
    for (int j = 0; j < r; j++)
        for (int c = 0; c < cols; c++) {
            double *to = &right[j * cols + c];
            *to = 0;
            for (int i = 0; i < rows; i++)
                *to += at[i * cols + c] * p[j * rows + i];
        }
    for (int i = 0; i < rows * cols; i++)
        for (int j = 0; j < r; j++)
            at[i] -= (1 - 0.95) * p[j * rows + i / cols] * right[j * cols + i % cols];
    if (s->qr)
        make_orthonormal(right, cols, r);
    for (int j = 0; j < r && !s->qr; j++) {
        double norm = sqrt(dot(right + j * cols, right + j * cols, cols)) + 1e-8;
        for (int c = 0; c < cols; c++)
            right[j * cols + c] /= norm;
    }
    for (int i = 0; i < rows * cols; i++) {
        out[i] = 0;
        for (int j = 0; j < r; j++)
            out[i] += sqrt(outputs / inputs) * p[j * rows + i / cols] * right[j * cols + i % cols];
    }
}

/* Lion's sign; 2 where rounding decides it. */
static void reference_sign(int t, const setting *s, const double *grad, double *out) {
    const gw_tensor *of = &tensors[t];
    double inputs = s->in_rows ? of->rows : of->cols, *at = m + of->span.off;
    double rate = of->rows == 1 ? 0.5 : 0.5 / sqrt(inputs);
    for (size_t i = 0; i < of->span.n; i++) {
        double to = 0.9 * at[i] + 0.1 * grad[i];
        at[i] = 0.99 * at[i] + 0.01 * grad[i];
        out[i] = fabs(to) < 1e-6 ? 2 : to > 0 ? rate : -rate;
    }
}

static void follows_the_paper(setting s) {
    static double sum[N], want[N];
    bench b;
    open_setting(&b, &s);
    reference_start(s.rank);
    for (int step = 0; step < STEPS; step++) {
        double samples = ranks * (ranks + 1) / 2.0;
        memset(sum, 0, sizeof sum);
        for (size_t i = 0; i < N; i++) {
            for (int k = 0; k < ranks; k++) /* shares differ, and so do places that ranks go to */
                sum[i] += (float)((k + 1) / samples * (noise(k, step, i) + 3 * noise(k, 99, i)));
            b.env.grad[i] =
                (float)((me + 1) / samples * (noise(me, step, i) + 3 * noise(me, 99, i)));
        }
        for (int t = 0; t < TENSORS; t++) {
            size_t at = tensors[t].span.off;
            if (tensors[t].tracks)
                memcpy(want + at, sum + at, tensors[t].span.n * sizeof *want);
            else
                (has_factors(&tensors[t], s.rank) ? reference_matrix
                                                  : reference_sign)(t, &s, sum + at, want + at);
        }
        exchange(&b);
        check_agreed(&b, "after an exchange");
        for (size_t i = 0; i < N; i++)
            CHECK(want[i] == 2 || fabs(b.env.grad[i] - want[i]) < 2e-5,
                  "rank=%d, qr=%d, lazy=%d, step %d: element %zu is %g, must be %g", s.rank, s.qr,
                  s.lazy, step, i, (double)b.env.grad[i], want[i]);
    }
    close_bench(&b);
}

/* ---- what travels, and what stays ---- */

/* By sra, which sends each float twice to all ranks but one. The contract compares with counts. */
static void sends_factors(int rank, bool lazy) {
    bench b;
    char comm[64];
    uint64_t floats = 0;
    snprintf(comm, sizeof comm, "dion:algo=sra,rank=%d", rank);
    open_bench(&b, comm, "none", lazy, &shape);
    for (const gw_tensor *t = tensors; t < tensors + TENSORS; t++)
        floats += has_factors(t, rank) ? (uint64_t)(rank * (t->rows + t->cols)) : t->span.n;
    uint64_t want = 2 * (uint64_t)(ranks - 1) * floats * sizeof(float);
    int64_t period;
    uint64_t sent = b.strategy.ops->cost(b.self, 0, &period).bytes;
    CHECK(sent == want, "%s: %llu bytes, must be %llu", comm, (unsigned long long)sent,
          (unsigned long long)want);
    close_bench(&b);
}

/* Ports save the momentum of one rank for all. Then a run goes on otherwise. */
static void momenta_differ(void) {
    bench own, first;
    gw_io_memory saved = {0};
    gw_io *io;
    open_bench(&own, "dion:rank=2", "none", false, &shape);
    open_bench(&first, "dion:rank=2", "none", false, &shape);
    for (int step = 0; step < 3; step++) {
        fill(&own, step);
        exchange(&own);
    }
    CHECK_OK(gw_io_keep(&io, &saved));
    CHECK_OK(own.strategy.ops->state(own.self, io));
    CHECK_OK(gw_io_close(io));
    CHECK_MPI(MPI_Bcast(saved.data, (int)saved.bytes, MPI_BYTE, 0, MPI_COMM_WORLD));
    CHECK_OK(gw_io_recall(&io, &saved));
    CHECK_OK(first.strategy.ops->state(first.self, io));
    CHECK_OK(gw_io_close(io));
    free(saved.data);
    fill(&own, 3);
    fill(&first, 3);
    exchange(&own);
    exchange(&first);
    CHECK((memcmp(own.env.grad, first.env.grad, A * sizeof(float)) == 0) == (ranks == 1),
          "the first rank's momentum does for all");
    close_bench(&own);
    close_bench(&first);
}

/* Gradients of zeros move nothing, and do not stop what comes later. */
static void zeros_move_nothing(void) {
    bench b;
    open_bench(&b, "dion:rank=2", "none", false, &shape);
    exchange(&b);
    for (size_t i = 0; i < N; i++)
        CHECK(b.env.grad[i] == 0, "element %zu moves by %g", i, (double)b.env.grad[i]);
    fill(&b, 0);
    exchange(&b);
    double size = 0;
    for (size_t i = 0; i < A; i++)
        size += (double)b.env.grad[i] * b.env.grad[i];
    CHECK(fabs(size - 2 * 41.0 / 29) < 1e-4, "of length %g", size); /* two columns of length 1 */
    close_bench(&b);
}

int main(int argc, char **argv) {
    static const int factors[] = {1, 2, MOST};
    check_start(argc, argv);
    for (int lazy = 0; lazy < 2; lazy++) {
        for (int i = 0; i < 3; i++)
            for (int qr = 0; qr < 2; qr++)
                follows_the_paper((setting){factors[i], qr, lazy, .in_rows = i % 2 == lazy});
        sends_factors(2, lazy);
        sends_factors(MOST, lazy);
    }
    momenta_differ();
    zeros_move_nothing();
    MPI_Finalize();
    return 0;
}
