/* The simulator at the run's own tempo, to be set beside what its stages waited. */
#include "mesh/pipeline_parts.h"

#include "base/json.h"
#include "base/mem.h"
#include "mpi/agree.h"
#include "mpi/wait.h"
#include "prof/tempo.h"

#include <math.h>
#include <stdlib.h>

/* What is known of a run of layers: medians, of which all ranks that hold it have their mean. */
enum { FORWARD, BACKWARD, INPUT, WEIGHTS, ACTIVATION, DELTA, FIGURES };

static void tempo_of_chunk(const gw_pipeline *p, int chunk, double figure[FIGURES]) {
    figure[FORWARD] = gw_tempo_action_s('F', chunk);
    figure[BACKWARD] = gw_tempo_action_s('B', chunk);
    figure[INPUT] = gw_tempo_action_s('I', chunk);
    figure[WEIGHTS] = gw_tempo_action_s('W', chunk);
    figure[ACTIVATION] = gw_tempo_hop_s(gw_pipeline_hop_name(GW_PIPELINE_ACTIVATIONS));
    figure[DELTA] = gw_tempo_hop_s(gw_pipeline_hop_name(GW_PIPELINE_DELTAS));
    for (int k = 0; p->rows.full == 0 && k < FIGURES; k++)
        figure[k] = NAN; /* a replica without samples */
}

/* sum[run][FIGURES], then how many ranks know each. */
static gw_err tempo_gather(const gw_pipeline *p, double *sum, int runs, MPI_Comm comm) {
    double *known = sum + runs * FIGURES;
    for (int chunk = 0; chunk < p->at.chunks; chunk++) {
        int at = (chunk * p->at.stages + p->at.stage) * FIGURES;
        tempo_of_chunk(p, chunk, sum + at);
        for (int k = at; k < at + FIGURES; k++) {
            known[k] = !isnan(sum[k]);
            sum[k] = known[k] > 0 ? sum[k] : 0;
        }
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, sum, 2 * runs * FIGURES, MPI_DOUBLE, MPI_SUM, comm));
    for (int k = 0; k < runs * FIGURES; k++)
        sum[k] /= known[k]; /* 0/0: NaN */
    return GW_OK;
}

/* A hop that nobody waited for takes no time that matters. */
static double tempo_or_none(double s) {
    return isnan(s) ? 0 : s;
}

/* Where a stage cuts only some backward passes in two, a whole one takes as long as both halves.
 * False: no action of some run was seen. */
static bool tempo_cost(const double *figure, gw_run_cost *out) {
    bool whole = isnan(figure[INPUT] + figure[WEIGHTS]);
    *out = (gw_run_cost){.act = {figure[FORWARD], whole ? figure[BACKWARD] : figure[INPUT],
                                 whole ? 0 : figure[WEIGHTS]},
                         .activation_s = tempo_or_none(figure[ACTIVATION]),
                         .delta_s = tempo_or_none(figure[DELTA])};
    return !isnan(out->act.forward_s + out->act.input_s + out->act.weights_s);
}

static json_t *tempo_runs_json(const gw_pipeline *p, const double *figure, int runs) {
    json_t *all = json_array();
    for (int i = 0; i < runs; i++, figure += FIGURES)
        json_array_append_new(
            all,
            gw_json_object("stage:i chunk:i forward_s:f backward_s:f input_s:f weights_s:f "
                           "activation_s:f delta_s:f",
                           i % p->at.stages, i / p->at.stages, figure[FORWARD], figure[BACKWARD],
                           figure[INPUT], figure[WEIGHTS], figure[ACTIVATION], figure[DELTA]));
    return all;
}

static gw_err tempo_simulate(const gw_pipeline *p, const double *figure, int runs, json_t **out) {
    gw_run_cost cost[GW_MAX_LAYERS];
    gw_stage_times stage[GW_MAX_LAYERS];
    gw_pipe_times times;
    double idle_s = 0, bubble_s = 0;
    *out = json_null();
    for (int i = 0; i < runs; i++)
        if (!tempo_cost(figure + i * FIGURES, &cost[i]))
            return GW_OK;
    GW_TRY(gw_timetable_simulate(p->timetable, cost, GW_SENDS_BUFFERED, &times, stage));
    for (int s = 0; s < p->at.stages; s++) {
        idle_s += stage[s].idle_s / p->at.stages;
        bubble_s += stage[s].wait_s / p->at.stages;
    }
    *out = gw_json_object("statistic:s step_s:f idle_s:f bubble_s:f bubble_share:f runs:o",
                          "median", times.step_s, idle_s, bubble_s, bubble_s / times.step_s,
                          tempo_runs_json(p, figure, runs));
    return GW_OK;
}

gw_err gw_pipeline_tempo_json(const gw_pipeline *p, json_t **out, MPI_Comm comm) {
    int rank, runs = p ? p->at.stages * p->at.chunks : 0;
    double *figure;
    *out = NULL;
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    if (!p || p->at.stages == 1) {
        *out = rank == 0 ? json_null() : NULL;
        return GW_OK;
    }
    GW_TRY(gw_agree(comm, gw_alloc(&figure, 2 * (size_t)runs * FIGURES, sizeof *figure)));
    gw_err e = tempo_gather(p, figure, runs, comm);
    GW_THEN(e, gw_agree(comm, rank == 0 ? tempo_simulate(p, figure, runs, out) : GW_OK));
    free(figure);
    return e;
}
