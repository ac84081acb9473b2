/** Classification metrics from a confusion matrix. */
#ifndef GW_NN_METRICS_H
#define GW_NN_METRICS_H

#include "base/label.h"

/* A matrix of more classes is not kept. */
enum { GW_MAX_CONFUSED = 256 };

typedef struct gw_class_metrics {
    double precision, recall, f1; /* 0 where the denominator is 0, as scikit-learn reports it */
    int64_t support;              /* samples of the class */
} gw_class_metrics;

/** Add batch predictions: confusion (C,C) row = true label, column = predicted class. */
void gw_confusion_add(int64_t *confusion, int classes, const gw_label *predictions,
                      const gw_label *labels, int batch);

/** Per-class metrics to per_class[0..C), unweighted means to *macro; returns the accuracy. */
double gw_confusion_metrics(const int64_t *confusion, int classes, gw_class_metrics *per_class,
                            gw_class_metrics *macro);

#endif
