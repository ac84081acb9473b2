/* Momentum before compression, with and without masking; and the state of an exchange: saved in the
 * middle of a run and loaded into a new session, it gives the same run. */
#include "base/mem.h"
#include "mpi/wait.h"
#include "run/session.h"

#include "small_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 12 };

static const float momentum = 0.5f;

static void open_run(run *r, const char *comm, const char *codec, const char *feedback,
                     const float *params) {
    open_session(
        r, comm, codec, feedback,
        (gw_session_setup){.params = params, .vectors = {r->velocity, 1}, .correction = momentum});
}

static void step(run *r, int number) {
    float *param = r->session->env.param;
    gw_span all = {0, N};
    gw_update u;
    gw_session_begin(r->session, 1.0 / ranks);
    backward(r, number);
    CHECK_OK(gw_session_finish(r->session, all, &u));
    for (size_t i = u.own.off; i < gw_span_end(u.own); i++)
        param[i] -= u.scale * u.grad[i];
    CHECK_OK(gw_session_publish(r->session, all));
    CHECK_OK(gw_session_await(r->session, all));
}

/* If the codec sends everything, momentum before compression equals the optimizer's momentum.
 * Masking restarts momentum after each sending, which leaves no momentum at all. */
static void check_correction(const char *comm, const char *feedback, float effective) {
    run r = {0};
    open_run(&r, comm, "topk:ratio=1", feedback, NULL);
    for (int k = 0; k < STEPS; k++)
        step(&r, k);
    const float *param = r.session->env.param;
    /* One rank sends nothing, so nothing is masked there. */
    float m = ranks == 1 ? momentum : effective;
    for (size_t i = 0; i < N; i++) {
        double v = 0, want = 0;
        for (int k = 0; k < STEPS; k++) {
            v *= (double)m;
            for (int q = 0; q < ranks; q++)
                v += (double)gradient(q, k, i);
            want -= v;
        }
        CHECK(fabs(param[i] - want) < 1e-4, "%s %s: parameter %zu is %g, expected %g", comm,
              feedback, i, param[i], want);
    }
    close_run(&r);
}

static void check_refused(const char *comm, const char *codec, const char *feedback,
                          const char *why) {
    gw_session *s = NULL;
    CHECK(new_session(&s, comm, codec, feedback, false) != GW_OK, "%s %s %s: not refused", comm,
          codec, feedback);
    CHECK(strstr(gw_err_text(), why), "'%s' does not say '%s'", gw_err_text(), why);
}

static void state(run *r, const char *dir, bool load) {
    gw_io *io = NULL;
    char name[32], path[256];
    snprintf(name, sizeof name, "state.%d", me);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(load ? gw_io_load(&io, path, "GWTEST01", 1, 1 << 24)
                  : gw_io_save(&io, dir, name, "GWTEST01", 1));
    CHECK_OK(gw_session_state(r->session, io));
    CHECK_OK(gw_io_close(io));
    if (load)
        CHECK(unlink(path) == 0, "unlink");
}

static bool same(run *a, run *b) {
    return memcmp(a->session->env.param, b->session->env.param, N * sizeof(float)) == 0;
}

/* Half a run is saved and then continued by another session and by its own; both must equal the
 * whole run. */
static void check_resume(const char *dir, const char *comm, const char *codec,
                         const char *feedback) {
    static float saved[N];
    run whole = {0}, half = {0}, rest = {0};
    gw_session *s = NULL;
    if (new_session(&s, comm, codec, feedback, false) != GW_OK)
        return; /* cannot be combined: the contract tests that */
    gw_session_free(s);
    open_run(&whole, comm, codec, feedback, NULL);
    for (int k = 0; k < STEPS; k++)
        step(&whole, k);
    open_run(&half, comm, codec, feedback, NULL);
    for (int k = 0; k < STEPS / 2; k++)
        step(&half, k);
    state(&half, dir, false);
    memcpy(saved, half.session->env.param, sizeof saved);
    memcpy(rest.velocity, half.velocity, sizeof saved);
    open_run(&rest, comm, codec, feedback, saved);
    state(&rest, dir, true);
    for (int k = STEPS / 2; k < STEPS; k++) {
        step(&half, k);
        step(&rest, k);
    }
    CHECK(same(&whole, &rest),
          "--comm %s --compress %s --error-feedback %s: the resumed run differs", comm, codec,
          feedback);
    CHECK(same(&whole, &half),
          "--comm %s --compress %s --error-feedback %s: saving has changed the run", comm, codec,
          feedback);
    close_run(&whole);
    close_run(&half);
    close_run(&rest);
}

static void resume_all(const char *dir) {
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        check_resume(dir, "allreduce", (*c)->name, "on");
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++) {
        check_resume(dir, (*s)->name, "none", "auto");
        check_resume(dir, (*s)->name, "topk", "auto");
        check_resume(dir, (*s)->name, "qsgd", "on");
    }
    check_resume(dir, "local:period=3", "onebit", "auto");
    check_resume(dir, "gossip:topology=exponential", "none", "auto");
    check_resume(dir, "powersgd:rank=1,warm=off", "none", "auto");
    check_resume(dir, "delayed:bucket=1K", "randomk:ratio=0.1", "auto");
    check_resume(dir, "sparse", "topk:ratio=0.1;layer2=none", "dgc");
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++) {
        check_resume(dir, (*s)->name, "topk:ratio=0.1", "ef21:eta=0.3");
        check_resume(dir, (*s)->name, "qsgd:bits=4", "loco:reset=4");
    }
    check_resume(dir, "allreduce", "qsgd:bits=2;layer0=topk;layer1=none", "momentum");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    ranks = check_ranks(argc, argv);
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &me));
    gw_wait_yields(true);
    check_correction("sparse", "momentum", momentum);
    check_correction("allreduce:algo=gathersum", "dgc", 0);
    check_correction("sparse", "dgc", 0);
    check_correction("iallreduce:bucket=2K", "momentum", momentum);
    check_refused("allreduce:algo=sra", "topk", "dgc", "--comm sparse");
    check_refused("allreduce:algo=gathersum", "onebit", "dgc", "--comm sparse");
    check_refused("allreduce", "qsgd", "dgc", "holds nothing back");
    check_refused("allreduce", "none", "momentum", "holds nothing back");
    check_refused("allreduce", "none", "ef21", "holds nothing back");
    check_refused("allreduce", "topk", "ef12", "did you mean 'ef21'");
    check_refused("allreduce", "topk", "ef21:beta=1", "beta");
    check_refused("allreduce", "topk", "loco:beta=1", "beta=1");
    check_refused("local", "topk", "loco", "does not exchange those");
    check_refused("powersgd", "none", "ef21", "keeps its own residual");
    check_refused("onebitadam", "onebit", "momentum", "hands out something else");
    char dir[] = "/tmp/gw_stateXXXXXX";
    CHECK(mkdtemp(dir), "mkdtemp");
    resume_all(dir);
    CHECK(rmdir(dir) == 0, "rmdir %s", dir);
    MPI_Finalize();
    return 0;
}
