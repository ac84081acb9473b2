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

static gw_class_metrics metrics_one_class(const int64_t *confusion, int classes, int c) {
    int64_t predicted = 0, support = 0;
    for (int j = 0; j < classes; j++) {
        support += confusion[(size_t)c * (size_t)classes + (size_t)j];
        predicted += confusion[(size_t)j * (size_t)classes + (size_t)c];
    }
    int64_t hits = confusion[(size_t)c * (size_t)classes + (size_t)c];
    return (gw_class_metrics){
        .precision = metrics_ratio(hits, predicted),
        .recall = metrics_ratio(hits, support),
        .f1 = metrics_ratio(2 * hits, predicted + support),
        .support = support,
    };
}

double gw_confusion_metrics(const int64_t *confusion, int classes, gw_class_metrics *per_class,
                            gw_class_metrics *macro) {
    int64_t hits = 0;
    *macro = (gw_class_metrics){0};
    for (int c = 0; c < classes; c++) {
        per_class[c] = metrics_one_class(confusion, classes, c);
        macro->precision += per_class[c].precision / classes;
        macro->recall += per_class[c].recall / classes;
        macro->f1 += per_class[c].f1 / classes;
        macro->support += per_class[c].support;
        hits += confusion[(size_t)c * (size_t)classes + (size_t)c];
    }
    return metrics_ratio(hits, macro->support);
}
