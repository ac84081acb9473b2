/** What the model computes beside products and what `gradwire train --model gpt` computes, too
 *  (nn/tokens.h): each a few passes over rows, for the compiler to vectorise. Matrices are
 *  row-major and dense. */
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

/** Each row of y = x + bias. */
void gpt_add(float *y, const float *x, const float *bias, size_t rows, int width);

/** The sum of the rows' cross-entropies, in nats; the logits become their gradient times
 *  `scale`. */
double gpt_cross_entropy(float *logits, const uint8_t *target, float scale, size_t rows, int width);

/** AdamW (Loshchilov, Hutter: "Decoupled weight decay regularization", 2019) on n parameters;
 *  `first` and `second` are the moments, `step` counts from 1. */
void gpt_adamw(float *param, const float *grad, float *first, float *second, size_t n, double rate,
               double decay, long step);

#endif
