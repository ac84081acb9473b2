/** The losses, forward and backward in one pass; in two, with an exchange between them, where ranks
 *  hold some of the classes each. Softmax: cross-entropy of one choice among the classes. Sigmoid:
 *  log loss of one yes or no a class, independent of the others, summed over the classes. */
#ifndef GW_NN_LOSS_H
#define GW_NN_LOSS_H

#include "base/label.h"
#include "base/span.h"

typedef enum gw_output { GW_OUTPUT_SOFTMAX, GW_OUTPUT_SIGMOID } gw_output;

/** For each row of z (batch, classes): losses[i] = log(sum_j exp(z_ij)) - z_i,label, or by sigmoid
 *  sum_j log(1 + exp(z_ij)) - z_i,label; best[i] = the class with the largest logit (ties: the
 *  lowest); z becomes (softmax(z), or sigmoid(z), - onehot(label)) * scale. labels < classes. Safe
 *  for any finite z: no exponential of a positive number is taken. NaN in a row gives NaN in its
 *  loss. */
void gw_loss_whole(gw_output output, float *z, const gw_label *labels, int batch, int classes,
                   float scale, double *losses, gw_label *best);

/** The classes that one of several ranks holds. */
typedef struct gw_loss_cut {
    gw_output output;
    gw_span classes;
    int part, parts;
} gw_loss_cut;

/** What a rank tells of a row of its logits: the largest, the sum of exp(z - largest), the label's
 *  (-infinity if another rank holds it), and the class of the largest. With sigmoid the sum is the
 *  loss of its classes, divided by a power of 2 so that no finite logits make it infinite. */
enum { GW_LOSS_LARGEST, GW_LOSS_SUM, GW_LOSS_LABEL, GW_LOSS_BEST, GW_LOSS_TOLD };

/** The first half, of this rank's columns of the logits, z (batch, cut.classes.n): `told` (batch,
 *  GW_LOSS_TOLD) for all ranks; z becomes what the second half needs. */
void gw_loss_tell(float *z, const gw_label *labels, int batch, gw_loss_cut cut, float *told);

/** The second, from what all ranks have told, in their order: (parts, batch, GW_LOSS_TOLD). Results
 *  as those of all columns at once, rounded otherwise, but the same on all ranks; z is this
 *  rank's columns. */
void gw_loss_join(float *z, const gw_label *labels, int batch, gw_loss_cut cut, const float *told,
                  float scale, double *losses, gw_label *best);

#endif
