/* A step of several stages, simulated at the run's own tempo, to be set beside what its stages
 * waited. */
#include "predict/tempo.h"

#include "base/json.h"
#include "base/mem.h"
#include "comm/strategy/plain.h"
#include "mpi/agree.h"
#include "mpi/wait.h"
#include "play/options.h"
#include "prof/tempo.h"

#include <math.h>
#include <stdlib.h>

/* What is known of a run of layers: medians, of which all ranks that hold it have their mean. */
enum { FORWARD, BACKWARD, INPUT, WEIGHTS, ACTIVATION, DELTA, FIGURES };

static int tempo_stages(const gw_pipeline *p) {
    return gw_pipeline_mesh(p)->shape.size[GW_DIM_PIPE];
}

/* sum[run][FIGURES], then how many ranks know each: those whose replica has samples. */
static gw_err tempo_gather(const gw_pipeline *p, bool idle, double *sum, int runs, MPI_Comm comm) {
    double *known = sum + runs * FIGURES;
    for (int chunk = 0; !idle && chunk < gw_pipeline_chunks(p); chunk++) {
        int at = (chunk * tempo_stages(p) + gw_pipeline_mesh(p)->at[GW_DIM_PIPE]) * FIGURES;
        sum[at + FORWARD] = gw_tempo_action_s('F', chunk);
        sum[at + BACKWARD] = gw_tempo_action_s('B', chunk);
        sum[at + INPUT] = gw_tempo_action_s('I', chunk);
        sum[at + WEIGHTS] = gw_tempo_action_s('W', chunk);
        sum[at + ACTIVATION] = gw_tempo_hop_s(gw_pipeline_hop_name(GW_HOP_ACTIVATION));
        sum[at + DELTA] = gw_tempo_hop_s(gw_pipeline_hop_name(GW_HOP_DELTA));
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

/* A run as a tensor: what it takes of a step. Where a stage cuts only some backward passes in two,
 * a whole one takes as long as both halves. False: no action of the run was seen. */
static bool tempo_tensor(const double *figure, int micros, int run, gw_step_tensor *out) {
    double halves_s = figure[INPUT] + figure[WEIGHTS];
    *out = (gw_step_tensor){.name = "run",
                            .group = run,
                            .n = 1,
                            .forward_s = micros * figure[FORWARD],
                            .backward_s = micros * (isnan(halves_s) ? figure[BACKWARD] : halves_s),
                            .activation = 1};
    if (out->backward_s > 0 && !isnan(halves_s))
        out->input_extra = figure[INPUT] / halves_s - 0.5;
    return !isnan(out->forward_s + out->backward_s);
}

/* The mean of all hops; one that nobody waited for takes no time that matters. */
static double tempo_hop_s(const double *figure, int runs) {
    double sum = 0;
    for (int i = 0; i < runs; i++, figure += FIGURES)
        sum += (i + 1 < runs && !isnan(figure[ACTIVATION]) ? figure[ACTIVATION] : 0) +
               (i > 0 && !isnan(figure[DELTA]) ? figure[DELTA] : 0);
    return runs > 1 ? sum / (2 * (runs - 1)) : 0;
}

static gw_err tempo_simulate(const gw_parallel *o, int stages, const double *figure, int runs,
                             json_t **out) {
    gw_step_tensor tensor[GW_MAX_LAYERS];
    gw_step_profile of = {.model = "the run",
                          .batch = o->microbatches,
                          .n_tensors = runs,
                          .groups = runs,
                          .n = (size_t)runs,
                          .tensor = tensor};
    gw_parallel options = gw_parallel_plain;
    gw_sim_mesh mesh = {0};
    gw_sim_play play = {.world = {.ranks = stages, .link = {1e12, tempo_hop_s(figure, runs), 0, 0}},
                        .script = {.profile = &of, .mesh = &mesh, .speed = 1},
                        .steps = 3};
    *out = json_null();
    for (int i = 0; i < runs; i++) {
        if (!tempo_tensor(figure + i * FIGURES, o->microbatches, i, &tensor[i]))
            return GW_OK;
        of.forward_s += tensor[i].forward_s;
        of.backward_s += tensor[i].backward_s;
    }
    options.shape.size[GW_DIM_PIPE] = stages;
    options.timetable = o->timetable;
    options.microbatches = o->microbatches;
    gw_err e = gw_sim_mesh_open(&mesh, &options, &of, stages);
    GW_THEN(e, gw_sim_play_exact(&play, GW_STRATEGY_PLAIN ":algo=ring"));
    if (e == GW_OK) {
        json_t *all = json_array();
        for (int i = 0; i < runs; i++, figure += FIGURES)
            json_array_append_new(
                all,
                gw_json_object("stage:i chunk:i forward_s:f backward_s:f input_s:f weights_s:f "
                               "activation_s:f delta_s:f",
                               i % stages, i / stages, figure[FORWARD], figure[BACKWARD],
                               figure[INPUT], figure[WEIGHTS], figure[ACTIVATION], figure[DELTA]));
        double idle_s = fmax(0, play.step_s - (of.forward_s + of.backward_s) / stages),
               bubble_s = fmin(play.bubble_s, idle_s);
        *out = gw_json_object("statistic:s step_s:f idle_s:f bubble_s:f bubble_share:f runs:o",
                              "median", play.step_s, idle_s, bubble_s, bubble_s / play.step_s, all);
    }
    gw_sim_mesh_close(&mesh);
    return e;
}

gw_err gw_predict_tempo(const gw_pipeline *p, const gw_parallel *o, bool idle, json_t **out,
                        MPI_Comm comm) {
    int rank, runs = p && tempo_stages(p) > 1 ? tempo_stages(p) * gw_pipeline_chunks(p) : 0;
    double *figure;
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    *out = rank == 0 ? json_null() : NULL;
    if (runs == 0)
        return GW_OK;
    GW_TRY(gw_agree(comm, gw_alloc(&figure, 2 * (size_t)runs * FIGURES, sizeof *figure)));
    gw_err e = tempo_gather(p, idle, figure, runs, comm);
    GW_THEN(e, gw_agree(comm,
                        rank == 0 ? tempo_simulate(o, tempo_stages(p), figure, runs, out) : GW_OK));
    free(figure);
    return e;
}
