/* The step of a rank alone: computation, data and update without any exchange. */
#include "select/survey.h"

#include "base/stats.h"
#include "mpi/wait.h"
#include "prof/ledger.h"

#include <string.h>

enum { WARMUP = 2, LEAST = 5, MOST = 99, PHASES = 5 };
#define ENOUGH_S 0.5

static gw_err survey_one_step(const gw_rehearsal *r, double phase[PHASES]) {
    gw_batch_cost cost;
    gw_ledger_begin();
    gw_err e = r->step(r->ctx);
    gw_ledger_end(&cost);
    const double *p = cost.phase_s;
    phase[0] = p[GW_PHASE_DATA];
    phase[1] = p[GW_PHASE_FORWARD];
    phase[2] = p[GW_PHASE_BACKWARD];
    phase[3] = p[GW_PHASE_UPDATE];
    phase[4] = cost.wall_s - phase[0] - phase[1] - phase[2] - phase[3];
    return e;
}

/* Steps begin together, as an exchange would make them; each phase is the slowest rank's. */
static gw_err survey_steps(const gw_rehearsal *r, gw_local *out) {
    double run[PHASES][MOST], spent = 0, typical[PHASES], start = MPI_Wtime();
    int n = 0;
    gw_err e = GW_OK;
    for (int k = -WARMUP; n < MOST && (n < LEAST || spent < ENOUGH_S); k++) {
        double phase[PHASES + 1] = {0};
        GW_TRY(gw_barrier(r->comm));
        e = e == GW_OK ? survey_one_step(r, phase) : e;
        phase[PHASES] = MPI_Wtime() - start; /* meeting, too: on busy cores it takes longest */
        GW_TRY(gw_allreduce(MPI_IN_PLACE, phase, PHASES + 1, MPI_DOUBLE, MPI_MAX, r->comm));
        for (int p = 0; p < PHASES && k >= 0; p++)
            run[p][n] = phase[p];
        spent = phase[PHASES];
        n += k >= 0;
    }
    GW_TRY(gw_agree(r->comm, e));
    for (int p = 0; p < PHASES; p++)
        typical[p] = gw_stats_typical(run[p], n);
    *out = (gw_local){typical[0], typical[1], typical[2], typical[3], typical[4]};
    return GW_OK;
}

static gw_err survey_open_alone(gw_session **out, gw_stepper *t) {
    gw_session_setup setup = {.n = gw_model_size(t->model),
                              .layers = gw_model_spans(t->model),
                              .n_layers = gw_model_layers(t->model),
                              .tensors = gw_model_tensors(t->model),
                              .n_tensors = gw_model_tensor_count(t->model),
                              .params = gw_model_params(t->model),
                              .momentum = gw_optimizer_momentum(t->optimizer)};
    gw_mix exact;
    GW_TRY(gw_mix_single(&exact, &gw_codec_exact, false));
    GW_TRY(gw_session_new(out, &GW_SPEC_NAMED("allreduce"), &exact, "off"));
    return gw_session_open(*out, MPI_COMM_SELF, &setup);
}

gw_err gw_survey_step(const gw_rehearsal *r, float *params, float *gradient, gw_local *out) {
    gw_stepper *t = r->stepper;
    gw_session *alone = NULL, *session = t->session;
    bool lazy = t->lazy;
    size_t bytes = gw_model_size(t->model) * sizeof(float);
    memcpy(params, gw_model_params(t->model), bytes);
    gw_err e = gw_agree(r->comm, survey_open_alone(&alone, t));
    if (e == GW_OK) {
        gw_model_lend(t->model, alone->env.param, alone->env.grad);
        t->session = alone;
        t->lazy = false;
        gw_ledger_start();
        e = survey_steps(r, out);
        memcpy(gradient, alone->env.grad, bytes);
        t->session = session;
        t->lazy = lazy;
        gw_model_lend(t->model, params, gradient);
    }
    gw_session_close(alone);
    gw_session_free(alone);
    float *momentum = gw_optimizer_momentum(t->optimizer);
    if (momentum)
        memset(momentum, 0, bytes);
    return e;
}
