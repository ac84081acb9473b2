/* Checks the model's gradients against differences of its loss, tensor by tensor. `check FILE` also
 * writes a model, a batch, its loss and its gradients, for experiments/peers/gpt_torch.py --check. */
#include "model.h"
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 3, LETTERS = 400 };

static const gpt_shape shape = {
    .vocabulary = 19, .context = 12, .layers = 2, .heads = 2, .width = 16};

static double normal(uint64_t seed, uint64_t i) {
    double u = ((double)gpt_text_draw(seed, 2 * i, 1 << 30) + 0.5) * 0x1p-30;
    return sqrt(-2 * log(u)) *
           cos(6.283185307179586 * 0x1p-30 * (double)gpt_text_draw(seed, 2 * i + 1, 1 << 30));
}

/* The loss along a random direction of one tensor, and what the gradient says of it. */
static int tensor_check(gpt *m, const gpt_tensor *t, const uint8_t *text, const size_t *at,
                        uint64_t seed) {
    float *param = gpt_param(m) + t->at, *grad = gpt_grad(m) + t->at;
    double said = 0, loss[4], step = 0.02 / sqrt((double)t->n);
    float *old = malloc(t->n * sizeof *old);
    if (!old) {
        return 1;
    }
    for (size_t i = 0; i < t->n; i++) {
        old[i] = param[i];
        said += grad[i] * normal(seed, i);
    }
    for (int k = 0; k < 4; k++) { /* at -2, -1, 1, 2 steps: an error of the step's fourth power */
        double far = (k < 2 ? k - 2 : k - 1) * step;
        for (size_t i = 0; i < t->n; i++) {
            param[i] = (float)(old[i] + far * normal(seed, i));
        }
        loss[k] = gpt_forward(m, text, at, BATCH, NULL, NULL);
    }
    for (size_t i = 0; i < t->n; i++) {
        param[i] = old[i];
    }
    free(old);
    double seen = (loss[0] - 8 * loss[1] + 8 * loss[2] - loss[3]) / (12 * step);
    int wrong = !(fabs(seen - said) < 1e-3 * (fabs(said) + 0.1));
    if (wrong) {
        fprintf(stderr, "%s: differences say %.6f, the gradient says %.6f\n", t->name, seen, said);
    }
    return wrong;
}

static void write_all(const char *path, gpt *m, const uint8_t *text, const size_t *at,
                      double loss) {
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        exit(2);
    }
    int head[] = {shape.vocabulary, shape.context, shape.layers, shape.heads, shape.width, BATCH};
    fwrite(head, sizeof head, 1, file);
    for (int i = 0; i < BATCH; i++) {
        fwrite(text + at[i], 1, (size_t)shape.context + 1, file);
    }
    fwrite(&loss, sizeof loss, 1, file);
    int count;
    const gpt_tensor *t = gpt_tensors(m, &count);
    for (int i = 0; i < count; i++) {
        fwrite(gpt_param(m) + t[i].at, sizeof(float), t[i].n, file);
        fwrite(gpt_grad(m) + t[i].at, sizeof(float), t[i].n, file);
    }
    if (fclose(file)) {
        perror(path);
        exit(2);
    }
}

int main(int argc, char **argv) {
    uint8_t text[LETTERS];
    size_t at[BATCH];
    for (uint64_t i = 0; i < LETTERS; i++) {
        text[i] = (uint8_t)gpt_text_draw(2, i, (size_t)shape.vocabulary);
    }
    for (uint64_t i = 0; i < BATCH; i++) {
        at[i] = gpt_text_draw(3, i, (size_t)(LETTERS - shape.context));
    }
    gpt *m = gpt_new(shape, BATCH);
    if (!m) {
        return 2;
    }
    for (size_t i = 0; i < gpt_size(m); i++) { /* not gpt_draw's: zero and small hide errors */
        gpt_param(m)[i] = (float)(0.4 * normal(1, i));
    }
    double loss = gpt_forward(m, text, at, BATCH, NULL, NULL);
    gpt_backward(m, NULL, NULL);
    if (argc > 1) {
        write_all(argv[1], m, text, at, loss);
    }
    int count, wrong = 0;
    const gpt_tensor *t = gpt_tensors(m, &count);
    for (int i = 0; i < count; i++) {
        wrong += tensor_check(m, &t[i], text, at, 4 + (uint64_t)i);
    }
    printf("%d tensors, %d wrong, loss %.6f\n", count, wrong, loss);
    gpt_free(m);
    return wrong > 0;
}
