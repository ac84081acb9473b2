/** What the model computes beside products: each a few passes over rows, for the compiler to
 *  vectorise. Matrices are row-major and dense unless a stride is given. */
#ifndef GPT_KERNELS_H
#define GPT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/** x = table[text] + place, for rows of `width`; `place` has a row a position in a sequence. */
void gpt_embed(float *x, const float *table, const float *place, const uint8_t *text, int rows,
               int width);

/** The gradient of gpt_embed, added to `table` and to `place`. */
void gpt_embed_back(float *table, float *place, const float *dx, const uint8_t *text, int rows,
                    int width);

/** Each row of y = bias. */
void gpt_fill(float *y, const float *bias, size_t rows, int width);

/** Each row of y = x + bias. */
void gpt_add(float *y, const float *x, const float *bias, size_t rows, int width);

/** sum = the sum of the rows of x. */
void gpt_columns(float *sum, const float *x, size_t rows, int width);

/** y = gain * (x - mean) / deviation + bias by rows; keeps `mean` and `rstd`, one a row. */
void gpt_norm(float *y, float *mean, float *rstd, const float *x, const float *gain,
              const float *bias, size_t rows, int width);

/** The gradient of gpt_norm: added to dx; dgain and dbias are written. */
void gpt_norm_back(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                   const float *mean, const float *rstd, const float *gain, size_t rows, int width);

/** y = gelu(x), and x = gelu'(x), which is all that the backward pass wants of x. */
void gpt_gelu(float *y, float *x, size_t n);

/** dx *= slope, and sum = the sum of dx's rows. */
void gpt_gelu_back(float *dx, const float *slope, float *sum, size_t rows, int width);

/** Softmax of scale * row i of a square matrix over columns 0 to i; 0 in the others. */
void gpt_attend(float *score, float scale, int side);

/** d = the gradient of the scores before scaling, of gpt_attend's result `weight`, where d is that
 *  of the weights. */
void gpt_attend_back(float *d, const float *weight, float scale, int side);

/** The sum of the rows' cross-entropies, in nats; the logits become their gradient times `scale`. */
double gpt_cross_entropy(float *logits, const uint8_t *target, float scale, size_t rows, int width);

/** AdamW (Loshchilov, Hutter: "Decoupled weight decay regularization", 2019) on n parameters;
 *  `first` and `second` are the moments, `step` counts from 1. */
void gpt_adamw(float *param, const float *grad, float *first, float *second, size_t n, double rate,
               double decay, long step);

#endif
