/* powersgd, beyond the sums and bytes that the contract checks: what low rank promises, where the
 * rest goes, and that a run continues from its saved state unchanged. */
#include "base/mem.h"
#include "base/rng.h"
#include "comm/lane_parts.h"
#include "comm/strategy.h"
#include "mpi/wait.h"

#include "../specs.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two layers: 40 x 30 with a bias, and 20 x 3, whose factors pay at rank 1 and 2, with one, too. */
enum { LAYERS = 2, TENSORS = 4, A = 40 * 30, B = 30, C = 20 * 3, D = 3, N = A + B + C + D };

static const gw_tensor tensors[TENSORS] = {
    {{0, A}, 0, 40, 30}, {{A, B}, 0, 1, 30}, {{A + B, C}, 1, 20, 3}, {{A + B + C, D}, 1, 1, 3}};
static const gw_span layers[LAYERS] = {{0, A + B}, {A + B, C + D}};

static int me, ranks;

/* A strategy on its own lanes, without a trainer. */
typedef struct bench {
    gw_strategy strategy;
    gw_algo algo;
    gw_codec codec, exact;
    gw_env env;
    void *self;
} bench;

static void open_bench(bench *b, const char *comm, bool lazy) {
    memset(b, 0, sizeof *b);
    CHECK_OK(open_codec(&b->codec, "none"));
    CHECK_OK(open_codec(&b->exact, "none"));
    CHECK_OK(find_strategy(&b->strategy, comm));
    CHECK_OK(open_algo(&b->algo, gw_args_text(b->strategy.args, "algo"), &b->codec));
    CHECK_OK(gw_strategy_check(&b->strategy, &b->algo, &b->codec));
    b->env = (gw_env){.n = N,
                      .layers = layers,
                      .n_layers = LAYERS,
                      .tensors = tensors,
                      .n_tensors = TENSORS,
                      .by_layer = lazy,
                      .share = 1.0 / ranks,
                      .algo = &b->algo,
                      .args = b->strategy.args};
    gw_lane_setup lane = {.codec = &b->codec, .n = N, .seed = 5, .yield = true};
    CHECK_OK(gw_lane_open(&b->env.grads, MPI_COMM_WORLD, &lane));
    lane.codec = &b->exact;
    CHECK_OK(gw_lane_open(&b->env.params, MPI_COMM_WORLD, &lane));
    CHECK_OK(gw_lane_floats(b->env.grads, N, &b->env.grad));
    CHECK_OK(gw_lane_floats(b->env.params, N, &b->env.param));
    CHECK_OK(gw_strategy_open(&b->strategy, &b->env, &b->self));
}

static void close_bench(bench *b) {
    gw_strategy_close(&b->strategy, b->self);
    gw_lane_close(b->env.grads);
    gw_lane_close(b->env.params);
    gw_algo_close(&b->algo);
    gw_strategy_free(&b->strategy);
    gw_codec_close(&b->codec);
    gw_codec_close(&b->exact);
}

/* Exchange the arena of gradients; it becomes the update. */
static void exchange(bench *b) {
    gw_update u;
    b->env.grads->ticket++;
    for (int i = 0; i < gw_env_spans(&b->env); i++) {
        gw_span s = gw_env_span(&b->env, i);
        CHECK_OK(b->strategy.ops->finish(b->self, s, &u));
        CHECK(u.grad == b->env.grad && u.own.off == s.off && u.own.n == s.n && u.scale == 1,
              "an update of something else");
    }
}

static float noise(int rank, int step, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(9, (uint64_t)rank), (uint64_t)step);
    return (float)gw_rng_normal(key, i);
}

static void fill(const bench *b, int step) {
    for (size_t i = 0; i < N; i++)
        b->env.grad[i] = noise(me, step, i);
}

static void check_agreed(const bench *b, const char *when) {
    static float first[N];
    memcpy(first, b->env.grad, sizeof first);
    CHECK_MPI(MPI_Bcast(first, N, MPI_FLOAT, 0, MPI_COMM_WORLD));
    CHECK(memcmp(first, b->env.grad, sizeof first) == 0, "ranks differ %s", when);
}

/* ---- values ---- */

/* With one outer product per rank and as many factors, nothing is lost. Vectors never lose
 * anything. (With feedback, the rounding of a step would come back in the next one, which has no
 * factor to spare for it.) */
static void low_rank_is_exact(bool lazy) {
    bench b;
    char comm[64];
    snprintf(comm, sizeof comm, "powersgd:feedback=off,rank=%d", ranks);
    open_bench(&b, comm, lazy);
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
    open_bench(&b, comm, lazy);
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
        open_bench(&b, warm ? "powersgd:feedback=off" : "powersgd:feedback=off,warm=off", false);
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

/* ---- state ---- */

static void state(bench *b, const char *dir, bool load) {
    gw_io *io;
    char path[128];
    snprintf(path, sizeof path, "%s/state", dir);
    if (load)
        CHECK_OK(gw_io_load(&io, path, "POWERSGD", 1, 1 << 20));
    else
        CHECK_OK(gw_io_save(&io, dir, "state", "POWERSGD", 1));
    CHECK_OK(b->strategy.ops->state(b->self, io));
    CHECK_OK(gw_io_close(io));
}

/* Three runs: one without a break, one that saves in the middle, and one that loads that. */
static void resumes(const char *comm, bool lazy) {
    enum { BEFORE = 5, AFTER = 5 };
    bench through, saved, loaded;
    char dir[] = "/tmp/powersgd-XXXXXX", path[64];
    CHECK(mkdtemp(dir), "no temporary folder");
    open_bench(&through, comm, lazy);
    open_bench(&saved, comm, lazy);
    open_bench(&loaded, comm, lazy);
    for (int step = 0; step < BEFORE + AFTER; step++) {
        if (step == BEFORE) {
            state(&saved, dir, false);
            state(&loaded, dir, true);
        }
        fill(&through, step);
        fill(&saved, step);
        exchange(&through);
        exchange(&saved);
        CHECK(memcmp(through.env.grad, saved.env.grad, N * sizeof(float)) == 0,
              "%s, lazy=%d: saving changes step %d", comm, lazy, step);
        if (step < BEFORE)
            continue;
        fill(&loaded, step);
        exchange(&loaded);
        CHECK(memcmp(saved.env.grad, loaded.env.grad, N * sizeof(float)) == 0,
              "%s, lazy=%d: loading changes step %d", comm, lazy, step);
    }
    close_bench(&through);
    close_bench(&saved);
    close_bench(&loaded);
    snprintf(path, sizeof path, "%s/state", dir);
    CHECK(unlink(path) == 0 && rmdir(dir) == 0, "%s is not empty", dir);
}

/* ---- refusals ---- */

static void refuses_a_codec(void) {
    gw_strategy s;
    gw_codec codec;
    gw_algo algo;
    CHECK_OK(find_strategy(&s, "powersgd"));
    CHECK_OK(open_codec(&codec, "fp16"));
    CHECK_OK(open_algo(&algo, "sra", &codec));
    gw_err e = gw_strategy_check(&s, &algo, &codec);
    CHECK(e == GW_ERR_UNSUPPORTED && strstr(gw_err_text(), "--compress"), "%d: %s", e,
          gw_err_text());
    gw_algo_close(&algo);
    gw_codec_close(&codec);
    gw_strategy_free(&s);
}

static void refuses_an_unknown_shape(void) {
    bench b;
    void *self = NULL;
    open_bench(&b, "powersgd", false);
    gw_env blind = b.env;
    blind.n_tensors = 0;
    gw_err e = gw_strategy_open(&b.strategy, &blind, &self);
    CHECK(e == GW_ERR_UNSUPPORTED && strstr(gw_err_text(), "shapes"), "%d: %s", e, gw_err_text());
    close_bench(&b);
}

static void says_what_travels(void) {
    bench b;
    open_bench(&b, "powersgd:rank=2", true);
    const char *notes = b.env.grads->said.notes, *want =
                                                     "2 matrices of 1260 floats travel as 186, the "
                                                     "other 33 floats as they are";
    CHECK(ranks == 1 ? !notes : notes && strstr(notes, want), "'%s'", notes ? notes : "");
    close_bench(&b);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    ranks = check_ranks(argc, argv);
    gw_wait_yields(true); /* there may be more ranks than cores */
    for (int lazy = 0; lazy < 2; lazy++) {
        low_rank_is_exact(lazy);
        all_arrives(lazy);
        resumes("powersgd", lazy);
        resumes("powersgd:warm=off,algo=sra", lazy);
        resumes("powersgd:rank=9", lazy);
    }
    resumes("powersgd:feedback=off", false);
    warm_starts_find_more();
    refuses_a_codec();
    refuses_an_unknown_shape();
    says_what_travels();
    MPI_Finalize();
    return 0;
}
