/* A backward pass that adds its gradient to the residual gives the same updates and residuals, bit
 * by bit, as one that writes it to the arena, from which it is added later. A tap sees the gradient
 * alone. */
#include "mpi/wait.h"
#include "run/session.h"

#include "small_run.h"

#include <math.h>
#include <string.h>

enum { STEPS = 6 };

static bool open_run(run *r, const char *comm, const char *codec, const char *feedback, bool adds) {
    open_session(r, comm, codec, feedback, (gw_session_setup){.adds = adds, .lists = true});
    gw_session_begin(r->session, 1.0 / ranks);
    return gw_session_sums(r->session);
}

static void see(void *ctx, const float *grad, gw_span s) {
    run *r = ctx;
    for (size_t i = s.off; i < gw_span_end(s); i++) {
        float want = gradient(me, r->step, i);
        CHECK(fabsf(grad[i] - want) < 1e-5f, "step %d, float %zu: saw %g, expected %g", r->step, i,
              grad[i], want);
    }
    r->seen++;
}

static void ignore(void *ctx, const gw_update *u) {
    (void)ctx, (void)u;
}

static void step(run *r, int number) {
    float *param = r->session->env.param;
    gw_session_tap tap = {r, see, ignore};
    gw_span all = {0, N};
    gw_update u;
    r->step = number;
    r->seen = 0;
    r->session->tap = number % 2 ? tap : (gw_session_tap){0};
    gw_session_begin(r->session, 1.0 / ranks);
    backward(r, number);
    CHECK_OK(gw_session_finish(r->session, all, &u));
    for (size_t i = u.own.off; i < gw_span_end(u.own) && !u.lists; i++)
        param[i] -= u.scale * u.grad[i];
    for (int l = 0; l < u.n_lists; l++)
        for (size_t i = 0; i < u.lists[l].n; i++)
            param[u.lists[l].at[i]] -= u.scale * u.lists[l].value[i];
    CHECK_OK(gw_session_publish(r->session, all));
    CHECK_OK(gw_session_await(r->session, all));
    CHECK(r->seen == (number % 2 ? LAYERS : 0), "step %d: %d layers seen", number, r->seen);
}

static void check_alike(const char *comm, const char *codec) {
    run added = {0}, written = {0};
    bool adds = open_run(&added, comm, codec, "auto", true);
    CHECK(adds == (ranks > 1), "%s %s: adds: %d", comm, codec, adds);
    CHECK(!open_run(&written, comm, codec, "auto", false), "%s %s: adds unasked", comm, codec);
    for (int k = 0; k < STEPS; k++) {
        step(&added, k);
        step(&written, k);
        CHECK(memcmp(added.session->env.param, written.session->env.param, N * sizeof(float)) == 0,
              "%s %s: parameters differ after step %d", comm, codec, k);
        const float *kept = gw_session_residual(added.session);
        CHECK(kept ? memcmp(kept, gw_session_residual(written.session), N * sizeof(float)) == 0
                   : ranks == 1, /* nothing is encoded there */
              "%s %s: residuals differ after step %d", comm, codec, k);
    }
    close_run(&written);
    close_run(&added);
}

/* No gradient is added if the strategy needs the gradient itself or there is no residual. */
static void check_not(const char *comm, const char *codec, const char *feedback) {
    run r = {0};
    CHECK(!open_run(&r, comm, codec, feedback, true), "%s %s %s: adds", comm, codec, feedback);
    close_run(&r);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    ranks = check_ranks(argc, argv);
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &me));
    gw_wait_yields(true);
    static const char *const codecs[] = {"topk:ratio=0.05", "randomk:ratio=0.05",
                                         "threshold:value=0.4"};
    for (int i = 0; i < 3; i++) {
        check_alike("sparse", codecs[i]);
        check_alike("allreduce:algo=gathersum", codecs[i]);
        check_alike("iallreduce:algo=gathersum,bucket=1K", codecs[i]);
    }
    check_alike("allreduce:algo=native", "randomk:ratio=0.05");
    check_alike("sparse:progress=none", "topk:ratio=0.05+zlib");
    check_not("sparse", "topk", "off");
    check_not("sparse", "topk", "dgc");
    check_not("delayed", "topk", "auto");
    check_not("allreduce:algo=ring", "randomk", "auto");
    check_not("allreduce:algo=sra", "onebit", "auto");
    MPI_Finalize();
    return 0;
}
