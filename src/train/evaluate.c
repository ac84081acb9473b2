#include "train/evaluate.h"

#include "base/mem.h"
#include "base/span.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/ledger.h"
#include "run/signals.h"
#include "run/watchdog.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct tally {
    double loss_sum;
    int64_t correct, signal;
} tally;

static int64_t evaluate_give_up(double start_s) {
    int signal = gw_signals_seen();
    return signal && gw_ledger_now() - start_s > GW_EVALUATE_GRACE_S ? signal : 0;
}

static void evaluate_count(gw_model *model, const gw_dataset *set, gw_span part, int chunk,
                           uint32_t *idx, uint8_t *labels, int64_t *confusion, tally *sum) {
    int classes = gw_model_get_spec(model)->classes;
    double start_s = gw_ledger_now();
    for (size_t at = 0; at < part.n && !sum->signal; at += (size_t)chunk) {
        int n = (int)(part.n - at < (size_t)chunk ? part.n - at : (size_t)chunk);
        for (int i = 0; i < n; i++)
            idx[i] = (uint32_t)(part.off + at + (size_t)i);
        gw_dataset_gather(set, idx, n, gw_model_input(model), labels);
        for (int l = 0; l < gw_model_layers(model); l++)
            gw_model_forward(model, l, n);
        int correct = 0;
        sum->loss_sum += gw_model_loss(model, labels, n, 1.0f, &correct);
        sum->correct += correct;
        if (confusion)
            gw_confusion_add(confusion, classes, gw_model_predictions(model), labels, n);
        sum->signal = evaluate_give_up(start_s);
        gw_watchdog_beat();
    }
}

gw_err gw_evaluate(gw_model *model, const gw_dataset *set, int chunk, MPI_Comm comm,
                   int64_t *confusion, gw_evaluation *out) {
    int rank, size, classes = gw_model_get_spec(model)->classes;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    GW_MPI(MPI_Comm_size(comm, &size));
    uint32_t *idx = NULL;
    uint8_t *labels = NULL;
    gw_err e = gw_alloc(&idx, (size_t)chunk, sizeof *idx);
    GW_THEN(e, gw_alloc(&labels, (size_t)chunk, 1));
    e = gw_agree(comm, e);
    tally sum = {0};
    if (e == GW_OK) {
        if (confusion)
            memset(confusion, 0, (size_t)classes * (size_t)classes * sizeof *confusion);
        gw_span part = gw_span_part((gw_span){0, set->n}, rank, size);
        evaluate_count(model, set, part, chunk, idx, labels, confusion, &sum);
        e = gw_agree(comm, gw_gemm_check());
    }
    free(idx);
    free(labels);
    GW_TRY(e);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &sum.loss_sum, 1, MPI_DOUBLE, MPI_SUM, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &sum.correct, 1, MPI_INT64_T, MPI_SUM, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &sum.signal, 1, MPI_INT64_T, MPI_MAX, comm));
    if (confusion)
        GW_TRY(
            gw_allreduce(MPI_IN_PLACE, confusion, classes * classes, MPI_INT64_T, MPI_SUM, comm));
    bool known = set->n > 0 && !sum.signal;
    out->loss = known ? sum.loss_sum / set->n : NAN;
    out->accuracy = known ? (double)sum.correct / set->n : NAN;
    out->signal = (int)sum.signal;
    return GW_OK;
}
