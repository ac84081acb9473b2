/* A gradient that is not finite on one rank, in one layer and step, is found and named. With skip,
 * all ranks leave the step out, and parameters, momentum and residuals stay finite, for every
 * strategy and codec. That nothing of the step stays is in test_left_out.c. */
#include "../specs.h"
#include "check.h"

#include "base/mem.h"
#include "comm/strategy.h"
#include "compress/codec.h"
#include "step/checks.h"
#include "step/step.h"
#include "tests/simple_step.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { INPUTS = 6, HIDDEN = 40, CLASSES = 4, BATCH = 4, STEPS = 5, BAD = 3 };

typedef struct rig {
    gw_model *model;
    gw_optimizer *optimizer;
    gw_session *session; /* the handle's */
    gradwire *g;
    gw_stepper stepper;
    gw_checks checks;
} rig;

/* On all ranks one input has weights of 0 and a value as large as a float can be. The loss does not
 * see it, but the gradient of its weights, a sum over samples of one class, overflows. */
static void fill(rig *r, int number, bool overflows) {
    float *x = simple_input(r->model);
    if (number <= BAD) /* afterwards a lazy update is pending */
        memset(r->session->env.param, 0, HIDDEN * sizeof *x);
    for (int i = 0; i < BATCH; i++) {
        for (int j = 0; j < INPUTS; j++)
            x[i * INPUTS + j] = j == 0 ? overflows ? 3e38f : 0.0f : 0.1f * (float)(i + j + me);
        r->stepper.labels[i] = overflows ? 1 : (uint8_t)(i % CLASSES);
    }
}

/* The mean over this rank's samples only: few samples are enough to overflow. */
static gw_err step(rig *r, int number, bool overflows, double *loss) {
    fill(r, number, overflows);
    r->checks.guard.step = number;
    gw_batch batch = {.local = BATCH, .global = overflows ? 1 : BATCH * ranks};
    return gw_step(&r->stepper, batch, 0.1f, loss);
}

static bool open(rig *r, const gw_train_config *c) {
    gw_model_spec spec = {.inputs = INPUTS, .classes = CLASSES, .seed = 3, .init = {GW_INIT_HE}};
    *r = (rig){0};
    const char *feedback = c->run.feedback ? c->run.feedback : "auto";
    gw_err e = new_session(&r->session, c->run.comm->text, c->run.compress->text, feedback, false);
    if (e == GW_ERR_UNSUPPORTED || e == GW_ERR_USAGE) /* these cannot be combined */
        return false;
    CHECK_OK(e);
    spec.n_hidden = 1;
    spec.hidden[0] = HIDDEN;
    CHECK_OK(gw_model_open(&r->model, &spec, BATCH));
    const char *sgd = r->session->residuals.corrects ? "sgd" : "sgd:momentum=0.9";
    CHECK_OK(open_optimizer(&r->optimizer, sgd, gw_model_size(r->model)));
    r->stepper = (gw_stepper){.model = r->model,
                              .optimizer = r->optimizer,
                              .lazy = c->run.lazy,
                              .guard = &r->checks.guard};
    gw_step_setup setup = {
        .c = c, .comm = MPI_COMM_WORLD, .seed = 5, .yield = ranks >= sysconf(_SC_NPROCESSORS_ONLN)};
    CHECK_OK(gw_inside_new(&r->g, r->session));
    e = gw_step_open(&r->stepper, r->g, &setup);
    if (e == GW_ERR_UNSUPPORTED)
        return false;
    CHECK_OK(e);
    CHECK_OK(gw_alloc(&r->stepper.labels, BATCH, 1));
    gw_checks_open(&r->checks, c, r->g, MPI_COMM_WORLD, MPI_COMM_WORLD, gw_model_spans(r->model),
                   gw_model_layers(r->model), NULL);
    return true;
}

static void close_rig(rig *r) {
    gradwire_close(r->g);
    gw_step_close(&r->stepper);
    gw_optimizer_close(r->optimizer);
    gw_model_close(r->model);
    free(r->stepper.labels);
}

static bool all_finite(const float *x, size_t n) {
    for (size_t i = 0; x && i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* ---- skip ---- */

static void check_state(rig *r, const char *what, int number) {
    size_t n = gw_model_size(r->model);
    CHECK(all_finite(r->session->env.param, n), "%s: parameters, step %d", what, number);
    gw_vectors state = r->optimizer->state;
    CHECK(all_finite(state.x, n * (size_t)state.count), "%s: momentum, step %d", what, number);
    CHECK(all_finite(gw_session_residual(r->session), n), "%s: residual, step %d", what, number);
}

/* The last rank's gradient overflows in step BAD. */
static void skips(const char *comm, const char *codec, bool lazy) {
    gw_train_config c = {.run.comm = &GW_SPEC_NAMED(comm),
                         .run.compress = &GW_SPEC_NAMED(codec),
                         .run.lazy = lazy,
                         .run.momentum = 0.9,
                         .run.on_nan = GW_ON_NAN_SKIP};
    rig r;
    char what[128];
    double loss;
    uint32_t hash;
    float *before = NULL;
    snprintf(what, sizeof what, "%s, %s, lazy=%d", comm, codec, lazy);
    if (!open(&r, &c)) {
        close_rig(&r);
        return;
    }
    size_t bytes = gw_model_size(r.model) * sizeof(float);
    gw_gives gives = r.session->strategy.ops->gives;
    bool last = me == ranks - 1, together = gives != GW_GIVES_OWN;
    CHECK_OK(gw_alloc(&before, 1, bytes));
    for (int k = 1; k <= STEPS; k++) {
        fill(&r, k, k == BAD && last);
        memcpy(before, r.session->env.param, bytes);
        CHECK_OK(step(&r, k, k == BAD && last, &loss));
        bool out = k == BAD && (last || together);
        CHECK(r.checks.guard.out == out, "%s: step %d left out: %d", what, k, r.checks.guard.out);
        if (lazy && k == BAD)
            continue; /* the next step's forward pass leaves it out */
        CHECK_OK(gw_step_settle(&r.stepper));
        check_state(&r, what, k);
        bool moved = memcmp(before, r.session->env.param, bytes) != 0;
        if (together && !lazy && gives != GW_GIVES_LATE)
            CHECK(moved != out, "%s: step %d has moved parameters: %d", what, k, moved);
    }
    CHECK_OK(gw_session_settle(r.session));
    check_state(&r, what, STEPS + 1);
    CHECK_OK(gw_checks_compare(&r.checks, STEPS, &hash));
    CHECK(r.checks.guard.bad_steps == last, "%s: %d steps", what, (int)r.checks.guard.bad_steps);
    CHECK_OK(gw_guard_check(&r.checks.guard));
    gw_checks_total all;
    CHECK_OK(gw_checks_collect(&r.checks, &all));
    CHECK(all.nan.out_steps == 1, "%s: %d steps left out", what, (int)all.nan.out_steps);
    CHECK(all.nan.first.rank == ranks - 1 && all.nan.first.step == BAD, "%s: step %d of rank %d",
          what, (int)all.nan.first.step, all.nan.first.rank);
    gw_checks_free(&all);
    free(before);
    close_rig(&r);
}

/* ---- stop ---- */

/* The first in the order of steps, not of ranks; all ranks report the same line. */
static void names_first(void) {
    gw_train_config c = {.run.comm = &GW_SPEC_NAMED("allreduce"),
                         .run.compress = &GW_SPEC_NAMED("none")};
    rig r;
    double loss;
    char words[80];
    CHECK(open(&r, &c), "%s", gw_err_text());
    for (int k = 1; k <= STEPS; k++) {
        CHECK_OK(step(&r, k, k == BAD + (me < ranks - 1), &loss));
        check_state(&r, "stop", k); /* until the ranks agree to stop */
        CHECK(isfinite(loss), "the loss of step %d is %g", k, loss);
    }
    CHECK(gw_guard_check(&r.checks.guard) == GW_ERR_DIVERGED, "no error is reported");
    snprintf(words, sizeof words, "step %d, rank %d, layer 0: the gradient is ", BAD, ranks - 1);
    CHECK(strncmp(gw_err_text(), words, strlen(words)) == 0, "'%s' lacks '%s'", gw_err_text(),
          words);
    close_rig(&r);
}

static void loss_first(void) {
    gw_guard g = {.comm = MPI_COMM_WORLD, .rank = me, .n_layers = 2, .step = 4};
    gw_guard_loss(&g, me == ranks - 1 ? NAN : 1.0);
    CHECK(gw_guard_check(&g) == GW_ERR_DIVERGED, "no error is reported");
    char words[80];
    snprintf(words, sizeof words, "step 4, rank %d: the loss is no longer finite (nan)", ranks - 1);
    CHECK(strstr(gw_err_text(), words), "'%s' lacks '%s'", gw_err_text(), words);
}

/* Every place of a vector and every value that is not finite; and nothing else. */
static void sees_each(void) {
    enum { N = 70000 }; /* threads share it */
    float *x = NULL;
    gw_span all = {0, N};
    gw_guard g = {.layers = &all, .n_layers = 1};
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const size_t places[] = {0, 1, 63, 34999, 35000, N - 1};
    CHECK_OK(gw_alloc(&x, N, sizeof *x));
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (int b = 0; b < 4; b++) {
            x[places[p]] = bad[b];
            gw_guard_loss(&g, 1);
            gw_guard_layer(&g, x, 0);
            CHECK(g.bad && x[places[p]] == 0, "%g at %zu is not seen", (double)bad[b], places[p]);
            x[places[p]] = 3.4028235e38f;
            gw_guard_loss(&g, 1);
            gw_guard_layer(&g, x, 0);
            CHECK(!g.bad && x[places[p]] > 0, "the greatest float is finite");
            x[places[p]] = 0;
        }
    free(x);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    sees_each();
    loss_first();
    names_first();
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++)
        for (int lazy = 0; lazy < 2; lazy++)
            skips((*s)->name, lazy ? "topk" : "none", lazy);
    skips("sparse", "topk", false);
    skips("allreduce", "none", true);
    skips("sharded", "none", true);
    skips("delayed", "none", true);
    for (const gw_entry *const *codec = gw_codecs.entries; *codec; codec++)
        skips("allreduce", (*codec)->name, false);
    MPI_Finalize();
    return 0;
}
