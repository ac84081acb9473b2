/* Momentum before compression, with and without masking; and the state of an exchange: saved in the
 * middle of a run and loaded into a new session, it gives the same run. */
#include "base/mem.h"
#include "mpi/wait.h"
#include "run/session.h"

enum { N = 3000, STEPS = 12 };

#include "small_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float momentum = 0.5f;

static void open_run(run *r, const char *comm, const char *codec, const char *feedback, bool lazy,
                     const float *params) {
    open_session(r, comm, codec, feedback,
                 (gw_session_setup){.params = params,
                                    .by_layer = lazy,
                                    .vectors = {r->velocity, 1},
                                    .correction = momentum});
}

/* If the codec sends everything, momentum before compression equals the optimizer's momentum.
 * Masking restarts momentum after each sending, which leaves no momentum at all. */
static void check_correction(const char *comm, const char *feedback, float effective) {
    run r = {0};
    open_run(&r, comm, "topk:ratio=1", feedback, false, NULL);
    for (int k = 0; k < STEPS; k++)
        take_step(&r, k);
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

/* One run's state is saved, and loaded into another. */
static void pass_state(run *from, run *to) {
    gw_io_memory m = {0};
    gw_io *io;
    CHECK_OK(gw_io_keep(&io, &m));
    CHECK_OK(gw_io_end(io, gw_session_state(from->session, io)));
    CHECK_OK(gw_io_recall(&io, &m));
    CHECK_OK(gw_io_end(io, gw_session_state(to->session, io)));
    free(m.data);
}

static bool same(run *a, run *b) {
    return memcmp(a->session->env.param, b->session->env.param, N * sizeof(float)) == 0;
}

/* Half a run is saved and then continued by another session and by its own; both must equal the
 * whole run. */
static void resume(const char *comm, const char *codec, const char *feedback, bool lazy) {
    static float saved[N];
    run whole = {0}, half = {0}, rest = {0};
    open_run(&whole, comm, codec, feedback, lazy, NULL);
    for (int k = 0; k < STEPS; k++)
        take_step(&whole, k);
    open_run(&half, comm, codec, feedback, lazy, NULL);
    for (int k = 0; k < STEPS / 2; k++)
        take_step(&half, k);
    memcpy(saved, half.session->env.param, sizeof saved);
    memcpy(rest.velocity, half.velocity, sizeof saved);
    open_run(&rest, comm, codec, feedback, lazy, saved);
    pass_state(&half, &rest);
    for (int k = STEPS / 2; k < STEPS; k++) {
        take_step(&half, k);
        take_step(&rest, k);
    }
    CHECK(same(&whole, &rest),
          "--comm %s --compress %s --error-feedback %s, lazy=%d: the resumed run differs", comm,
          codec, feedback, lazy);
    CHECK(same(&whole, &half),
          "--comm %s --compress %s --error-feedback %s, lazy=%d: saving has changed the run", comm,
          codec, feedback, lazy);
    close_run(&whole);
    close_run(&half);
    close_run(&rest);
}

static void check_resume(const char *comm, const char *codec, const char *feedback) {
    gw_session *s = NULL;
    if (new_session(&s, comm, codec, feedback, false) != GW_OK)
        return; /* cannot be combined: the contract tests that */
    gw_session_free(s);
    for (int lazy = 0; lazy < 2; lazy++)
        resume(comm, codec, feedback, lazy);
}

static void resume_all(void) {
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        check_resume("allreduce", (*c)->name, "on");
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++) {
        check_resume((*s)->name, "none", "auto");
        check_resume((*s)->name, "topk", "auto");
        check_resume((*s)->name, "qsgd", "on");
    }
    check_resume("local:period=3", "onebit", "auto");
    check_resume("gossip:topology=exponential", "none", "auto");
    check_resume("powersgd:rank=1,warm=off", "none", "auto");
    check_resume("powersgd:rank=9,feedback=off", "none", "auto");
    check_resume("dion:orth=qr,rank=9", "none", "auto");
    check_resume("oktopk:ratio=0.03,every=9,boundaries=4", "none", "auto");
    check_resume("zerooneadam:freeze=9,kappa=2", "onebit", "auto");
    check_resume("zerooneadam:freeze=1,double=2,local=4", "topk:ratio=0.1", "auto");
    check_resume("delayed:bucket=1K", "randomk:ratio=0.1", "auto");
    check_resume("sparse", "topk:ratio=0.1;layer2=none", "dgc");
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++) {
        check_resume((*s)->name, "topk:ratio=0.1", "ef21:eta=0.3");
        check_resume((*s)->name, "qsgd:bits=4", "loco:reset=4");
    }
    check_resume("allreduce", "qsgd:bits=2;layer0=topk;layer1=none", "momentum");
}

int main(int argc, char **argv) {
    check_start(argc, argv);
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
    check_refused("powersgd", "fp16", "auto", "--compress");
    check_refused("oktopk", "fp16", "auto", "--compress none");
    check_refused("oktopk", "topk", "auto", "--compress none");
    check_refused("oktopk", "zlib", "auto", "--compress none");
    check_refused("onebitadam", "onebit", "momentum", "hands out something else");
    resume_all();
    MPI_Finalize();
    return 0;
}
