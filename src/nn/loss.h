/** Softmax cross-entropy, forward and backward in one pass. */
#ifndef GW_NN_LOSS_H
#define GW_NN_LOSS_H

#include <stdint.h>

/** For each row of z (batch, classes): losses[i] = log(sum_j exp(z_ij)) - z_i,label; hits[i] = 1 if
 *  the label has the largest logit (ties: lowest index wins), else 0; z becomes (softmax(z) -
 *  onehot(label)) * scale. labels < classes. Safe for any finite z, as the row's maximum is
 *  subtracted first. NaN in a row gives NaN in its loss. */
void gw_loss_softmax(float *z, const uint8_t *labels, int batch, int classes, float scale,
                     double *losses, uint8_t *hits);

#endif
