/** A small GPT for characters in plain C: layers of attention and a perceptron, layer norm before
 *  each (Radford et al.: "Language models are unsupervised multitask learners", 2019), GELU by
 *  tanh, and a head that shares the embedding's weights. One process, one thread, float; products
 *  by CBLAS. It knows nothing of other ranks: gpt_backward tells when gradients are final. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stddef.h>
#include <stdint.h>

typedef struct gpt_shape {
    int vocabulary, context, layers, heads, width;
} gpt_shape;

/** A parameter tensor: floats [at, at + n) of `param` and of `grad`. Matrices have `rows` rows, one
 *  an output as in PyTorch; rows 0: a vector. group: 0 the embeddings, 1 to layers the blocks,
 *  layers + 1 the last layer norm: the order in which the forward pass reads them. */
typedef struct gpt_tensor {
    char name[32];
    int group;
    size_t at, n, rows;
} gpt_tensor;

typedef struct gpt gpt;

/** A model with room for batches of up to `batch` sequences. NULL: out of memory. */
gpt *gpt_new(gpt_shape shape, int batch);
void gpt_free(gpt *m);

/** Normal weights of deviation 0.02, less for what is added to the residual stream; biases 0. */
void gpt_draw(gpt *m, uint64_t seed);

/** The tensors in forward order, `*count` of them; they live as long as the model, as do the flat
 *  arrays below, which are 64-byte aligned and have `gpt_size` floats. */
const gpt_tensor *gpt_tensors(const gpt *m, int *count);
size_t gpt_size(const gpt *m);
float *gpt_param(gpt *m);
float *gpt_grad(gpt *m);

/** Mean loss in nats of `batch` sequences: for each, `context` characters at text + at[i], whose
 *  targets are the characters one further. Before the parameters of a group are read, `needs` is
 *  called (NULL: not): from 0 up to layers + 1. */
double gpt_forward(gpt *m, const uint8_t *text, const size_t *at, int batch,
                   void (*needs)(void *to, int group), void *to);

/** The gradient of the last gpt_forward, written (not added) to gpt_grad. Whenever the tensors of
 *  a group are final, `done` is called (NULL: not): from layers + 1 down to 0. */
void gpt_backward(gpt *m, void (*done)(void *to, int group), void *to);

#endif
