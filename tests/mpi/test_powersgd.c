/* powersgd, beyond the sums and bytes that the contract checks: what low rank promises, and where
 * the rest goes. */

#include "strategy_bench.h"

#include <math.h>

/* Two layers: 40 x 30 with a bias, and 20 x 3, whose factors pay at rank 1 and 2, with one, too. */
enum { LAYERS = 2, TENSORS = 4, A = 40 * 30, B = 30, C = 20 * 3, D = 3, N = A + B + C + D };

static const gw_tensor tensors[TENSORS] = {
    {{0, A}, 0, 40, 30}, {{A, B}, 0, 1, 30}, {{A + B, C}, 1, 20, 3}, {{A + B + C, D}, 1, 1, 3}};
static const gw_span layers[LAYERS] = {{0, A + B}, {A + B, C + D}};

static const gw_env shape = {
    .n = N, .layers = layers, .n_layers = LAYERS, .tensors = tensors, .n_tensors = TENSORS};

/* ---- values ---- */

/* With one outer product per rank and as many factors, nothing is lost. Vectors never lose
 * anything. (With feedback, the rounding of a step would come back in the next one, which has no
 * factor to spare for it.) */
static void low_rank_is_exact(bool lazy) {
    bench b;
    char comm[64];
    snprintf(comm, sizeof comm, "powersgd:feedback=off,rank=%d", ranks);
    open_bench(&b, comm, "none", lazy, &shape);
    for (int step = 0; step < 4; step++) {
        static double want[N];
        memset(want, 0, sizeof want);
        for (int t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < tensors[t].span.n; i++)
                for (int k = 0; k < ranks; k++) {
                    size_t at = tensors[t].span.off + i, cols = (size_t)tensors[t].cols;
                    float v = noise(k, step, i / cols) * noise(k, step + 100, i % cols);
                    want[at] += v;
                    if (k == me)
                        b.env.grad[at] = v;
                }
        exchange(&b);
        check_agreed(&b, "after an exchange");
        for (size_t i = 0; i < N; i++)
            CHECK(fabs(b.env.grad[i] - want[i]) < 1e-3 * (1 + fabs(want[i])),
                  "step %d, lazy=%d: element %zu is %g, must be %g", step, lazy, i, b.env.grad[i],
                  want[i]);
    }
    close_bench(&b);
}

/* Which part of a gradient is still missing after it was exchanged once and zeros `steps` times. */
static double missing(const char *comm, int steps, bool lazy) {
    static double left[N];
    double size = 0, lack = 0;
    bench b;
    open_bench(&b, comm, "none", lazy, &shape);
    for (size_t i = 0; i < N; i++) {
        left[i] = 0;
        for (int k = 0; k < ranks; k++)
            left[i] += noise(k, 0, i);
        size += left[i] * left[i];
    }
    fill(&b, 0);
    for (int step = 0; step <= steps; step++) {
        exchange(&b);
        for (size_t i = 0; i < N; i++)
            left[i] -= b.env.grad[i];
        memset(b.env.grad, 0, N * sizeof(float));
    }
    for (size_t i = 0; i < N; i++)
        lack += left[i] * left[i];
    for (size_t i = A; i < A + B; i++)
        CHECK(fabs(left[i]) < 1e-5, "%s: bias %zu lacks %g", comm, i, left[i]);
    close_bench(&b);
    return sqrt(lack / size);
}

/* What the factors lack is sent later; without feedback, never. */
static void all_arrives(bool lazy) {
    if (ranks == 1) {
        CHECK(missing("powersgd:feedback=off", 0, lazy) == 0, "one rank has nothing to lose");
        return;
    }
    double one = missing("powersgd", 0, lazy), all = missing("powersgd", 60, lazy);
    double cold = missing("powersgd:warm=off,rank=3", 60, lazy);
    double without = missing("powersgd:feedback=off", 60, lazy);
    CHECK(one > 0.5 && one < 0.99, "two factors of noise lack %g", one);
    CHECK(all < 1e-4, "after 60 steps %g is still missing", all);
    CHECK(cold < 1e-2, "with random vectors after 60 steps %g is still missing", cold);
    CHECK(without > 0.5, "feedback=off: what is dropped came back: %g", without);
}

/* Power iteration: for a constant gradient, warm starts find the largest factors. */
static void warm_starts_find_more(void) {
    double found[2];
    for (int warm = 0; warm < 2; warm++) {
        bench b;
        open_bench(&b, warm ? "powersgd:feedback=off" : "powersgd:feedback=off,warm=off", "none",
                   false, &shape);
        for (int step = 0; step < 30; step++) {
            fill(&b, 0);
            exchange(&b);
        }
        found[warm] = 0;
        for (size_t i = 0; i < A; i++)
            found[warm] += (double)b.env.grad[i] * b.env.grad[i];
        close_bench(&b);
    }
    CHECK(ranks == 1 ? found[0] == found[1] : found[1] > 1.2 * found[0],
          "warm starts find %g, random ones %g", found[1], found[0]);
}

/* ---- refusals ---- */

static void refuses_an_unknown_shape(void) {
    bench b;
    void *self = NULL;
    open_bench(&b, "powersgd", "none", false, &shape);
    gw_env blind = b.env;
    blind.n_tensors = 0;
    gw_err e = gw_strategy_open(&b.strategy, &blind, &self);
    CHECK(e == GW_ERR_UNSUPPORTED && strstr(gw_err_text(), "shapes"), "%d: %s", e, gw_err_text());
    close_bench(&b);
}

static void says_what_travels(void) {
    bench b;
    open_bench(&b, "powersgd:rank=2", "none", true, &shape);
    const char *notes = b.notes.lines, *want = "2 matrices of 1260 floats travel as 186, the "
                                               "other 33 floats as they are";
    CHECK(ranks == 1 ? !notes : notes && strstr(notes, want), "'%s'", notes ? notes : "");
    close_bench(&b);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    for (int lazy = 0; lazy < 2; lazy++) {
        low_rank_is_exact(lazy);
        all_arrives(lazy);
    }
    warm_starts_find_more();
    refuses_an_unknown_shape();
    says_what_travels();
    MPI_Finalize();
    return 0;
}
