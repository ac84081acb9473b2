#include "train/evaluate.h"

#include "base/mem.h"
#include "base/span.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/ledger.h"
#include "watch/signals.h"
#include "watch/watchdog.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct tally {
    double loss_sum;
    int64_t correct;
    int signal;
    double seconds, forward_s;
} tally;

/* idx, labels: room for a pass. */
static gw_err evaluate_count(const gw_evaluator *by, const gw_dataset *set, uint32_t *idx,
                             gw_label *labels, int64_t *confusion, tally *sum) {
    const gw_model_spec *spec = gw_model_get_spec(by->model);
    bool whole = gw_pipeline_is_whole(by->pipeline);
    double start_s = gw_ledger_now();
    gw_span part = gw_span_part((gw_span){0, set->n}, by->part, by->parts);
    for (size_t at = 0; at < part.n && !sum->signal; at += (size_t)by->chunk) {
        int n = (int)(part.n - at < (size_t)by->chunk ? part.n - at : (size_t)by->chunk);
        for (int i = 0; i < n; i++)
            idx[i] = (uint32_t)(part.off + at + (size_t)i);
        gw_pipeline_samples shared = {set, idx, n, labels};
        gw_pipeline_result found;
        gw_dataset_labels(set, idx, n, labels);
        GW_TRY(gw_pipeline_test(by->pipeline, &shared, &found));
        sum->loss_sum += found.loss;
        sum->correct += found.correct;
        sum->forward_s += found.forward_s;
        if (confusion && gw_pipeline_counts(by->pipeline))
            gw_confusion_add(confusion, spec->classes, gw_model_predictions(by->model), labels,
                             n * gw_model_spec_targets(spec));
        bool late = gw_ledger_now() - start_s > GW_EVALUATE_GRACE_S;
        sum->signal = whole && late ? gw_signals_seen() : 0;
        gw_watchdog_beat();
    }
    gw_err e = gw_pipeline_tested(by->pipeline);
    sum->seconds = gw_ledger_now() - start_s;
    return e;
}

gw_err gw_evaluate(const gw_evaluator *by, const gw_dataset *set, int64_t *confusion,
                   gw_evaluation *out) {
    const gw_model_spec *spec = gw_model_get_spec(by->model);
    int classes = spec->classes;
    size_t targets = (size_t)gw_model_spec_targets(spec);
    MPI_Comm comm = by->comm;
    uint32_t *idx = NULL;
    gw_label *labels = NULL;
    gw_err e = gw_alloc(&idx, (size_t)by->chunk, sizeof *idx);
    GW_THEN(e, gw_alloc(&labels, (size_t)by->chunk * targets, sizeof *labels));
    e = gw_agree(comm, e);
    tally sum = {0};
    if (e == GW_OK) {
        if (confusion)
            memset(confusion, 0, (size_t)classes * (size_t)classes * sizeof *confusion);
        e = evaluate_count(by, set, idx, labels, confusion, &sum);
        GW_THEN(e, gw_gemm_check());
        e = gw_agree(comm, e);
    }
    free(idx);
    free(labels);
    GW_TRY(e);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &sum.loss_sum, 1, MPI_DOUBLE, MPI_SUM, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &sum.correct, 1, MPI_INT64_T, MPI_SUM, comm));
    double most[] = {sum.signal, sum.seconds, sum.forward_s};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, most, 3, MPI_DOUBLE, MPI_MAX, comm));
    if (confusion)
        GW_TRY(
            gw_allreduce(MPI_IN_PLACE, confusion, classes * classes, MPI_INT64_T, MPI_SUM, comm));
    bool known = set->n > 0 && most[0] == 0;
    out->loss = known ? sum.loss_sum / set->n : NAN;
    out->accuracy = known ? (double)sum.correct / ((double)targets * set->n) : NAN;
    out->signal = (int)most[0];
    out->seconds = known ? most[1] : NAN;
    out->forward_s = known && gw_pipeline_is_whole(by->pipeline) ? most[2] : NAN;
    return GW_OK;
}
