#include "nn/metrics.h"

#include <stddef.h>

void gw_confusion_add(int64_t *confusion, int classes, const gw_label *predictions,
                      const gw_label *labels, int batch) {
    for (int i = 0; i < batch; i++)
        confusion[(size_t)labels[i] * (size_t)classes + predictions[i]]++;
}

static double metrics_ratio(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0.0;
}

double gw_confusion_metrics(const int64_t *confusion, int classes, gw_class_metrics *per_class,
                            gw_class_metrics *macro) {
    size_t n = (size_t)classes;
    int64_t hits = 0;
    *macro = (gw_class_metrics){0};
    for (size_t c = 0; c < n; c++) {
        int64_t predicted = 0, support = 0, own = confusion[c * n + c];
        for (size_t j = 0; j < n; j++) {
            support += confusion[c * n + j];
            predicted += confusion[j * n + c];
        }
        per_class[c] = (gw_class_metrics){
            .precision = metrics_ratio(own, predicted),
            .recall = metrics_ratio(own, support),
            .f1 = metrics_ratio(2 * own, predicted + support),
            .support = support,
        };
        macro->precision += per_class[c].precision / classes;
        macro->recall += per_class[c].recall / classes;
        macro->f1 += per_class[c].f1 / classes;
        macro->support += support;
        hits += own;
    }
    return metrics_ratio(hits, macro->support);
}
