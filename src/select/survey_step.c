/* The step of a rank alone: computation, data and update without any exchange. */
#include "select/survey.h"

#include "base/stats.h"
#include "comm/strategy/plain.h"
#include "mpi/wait.h"
#include "prof/ledger.h"
#include "run/session.h"

#include <string.h>

enum { WARMUP = 2, LEAST = 5, MOST = 99, PHASES = 5 };
#define ENOUGH_S 0.5

static gw_err survey_one_step(const gw_rehearsal *r, gw_stepper *by, double phase[PHASES]) {
    gw_batch_cost cost;
    gw_ledger_begin();
    gw_err e = r->step(r->ctx, by);
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
static gw_err survey_steps(const gw_rehearsal *r, gw_stepper *by, gw_local *out) {
    double run[PHASES][MOST], spent = 0, typical[PHASES], start = MPI_Wtime();
    int n = 0;
    gw_err e = GW_OK;
    for (int k = -WARMUP; n < MOST && (n < LEAST || spent < ENOUGH_S); k++) {
        double phase[PHASES + 1] = {0};
        GW_TRY(gw_barrier(r->comm));
        e = e == GW_OK ? survey_one_step(r, by, phase) : e;
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

/* A stepper of its own, over an exchange with nobody. */
static gw_err survey_open_alone(const gw_rehearsal *r, gw_stepper *own) {
    const gw_stepper *of = r->stepper;
    gw_session *s = NULL;
    gw_mix exact;
    *own = (gw_stepper){.model = of->model, .set = of->set, .labels = of->labels};
    GW_TRY(gw_optimizer_like(&own->optimizer, of->optimizer, gw_model_size(of->model)));
    GW_TRY(gw_mix_single(&exact, &gw_codec_exact, false));
    GW_TRY(gw_session_new(&s, &GW_SPEC_NAMED(GW_STRATEGY_PLAIN), &exact, "off"));
    GW_TRY(gw_inside_new(&own->g, s));
    return gw_step_open(own, own->g, &(gw_step_setup){.comm = MPI_COMM_SELF});
}

gw_err gw_survey_step(const gw_rehearsal *r, float *params, float *gradient, gw_local *out) {
    gw_stepper own;
    gw_model *model = r->stepper->model;
    size_t bytes = gw_model_size(model) * sizeof(float);
    memcpy(params, gw_model_params(model), bytes);
    gw_err e = gw_agree(r->comm, survey_open_alone(r, &own));
    if (e == GW_OK) {
        gw_ledger_start();
        e = survey_steps(r, &own, out);
        memcpy(gradient, gw_model_grads(model), bytes);
    }
    gw_model_lend(model, params, gradient);
    gw_step_close(&own);
    gradwire_close(own.g);
    gw_optimizer_close(own.optimizer);
    return e;
}
