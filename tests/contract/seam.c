/* The seam's other side: layers, data and optimizer of the program, and the public header for all
 * that happens between ranks. For python/test_seam.py, which compares what it prints, the CRC-32 of
 * the parameters, with what `gradwire train` comes to.
 *
 *      seam STEPS RATE WORDS..    each of WORDS is a run */
#include "../mpi/client.h"
#include "base/mem.h"
#include "data/sampler.h"
#include "nn/gemm.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "tests/simple_step.h"

#include <string.h>
#include <zlib.h>

enum { BATCH = 32, CLASSES = 3 };
static const char *const set = "synthetic:samples=192,features=16,classes=3";

typedef struct client {
    gw_data *data;
    gw_sampler *sampler;
    gw_model *model;
    gw_optimizer *optimizer;
    gradwire *g;
    gw_label labels[BATCH];
    float rate;
    int tensors;
    bool lazy;
} client;

/* Its arenas are the library's: tensors lie there as in the model. */
static void client_open(client *c, const char *words) {
    gw_model_spec spec = {
        .inputs = 16, .classes = CLASSES, .hidden = {12}, .n_hidden = 1, .seed = 1};
    gw_data_spec of = {.source = set, .image_scale = 1, .seed = 1, .batch = BATCH};
    CHECK_OK(gw_data_open(&c->data, &of, MPI_COMM_WORLD));
    CHECK_OK(gw_sampler_open(&c->sampler, &c->data->train, BATCH, false, 1, me, ranks));
    spec.n_init = 1;
    spec.init[0] = GW_INIT_HE;
    CHECK_OK(gw_model_open(&c->model, &spec, BATCH));
    CHECK_OK(gw_optimizer_open(&c->optimizer, &(gw_optimizer_setup){.n = gw_model_size(c->model)}));
    ok(gradwire_new(&c->g, -1, words));
    c->tensors = gw_model_tensor_count(c->model);
    for (int t = 0; t < c->tensors; t++) {
        const gw_tensor *of_t = &gw_model_tensors(c->model)[t];
        char name[32];
        snprintf(name, sizeof name, "layer%d.%d", of_t->layer, t);
        ok(gradwire_tensor(c->g, name, of_t->layer, of_t->span.n, (size_t)of_t->rows, NULL));
    }
    ok(gradwire_open(c->g));
    float *params = gradwire_memory(c->g, 0, GRADWIRE_PARAM);
    memcpy(params, gw_model_params(c->model), gw_model_size(c->model) * sizeof(float));
    gw_model_lend(c->model, params, gradwire_memory(c->g, 0, GRADWIRE_GRAD));
    c->lazy = strstr(words, "lazy") != NULL;
}

static void client_update(client *c, int group) {
    int t, more = ok(gradwire_finish(c->g, group));
    size_t from, n;
    for (int i = 0; more && ok(gradwire_owned(c->g, i, &t, &from, &n)); i++) {
        const gw_tensor *of = &gw_model_tensors(c->model)[t];
        if (group == GRADWIRE_ALL || of->layer == group)
            gw_optimizer_update(c->optimizer, gw_model_params(c->model), gw_model_grads(c->model),
                                (gw_span){of->span.off + from, n}, c->rate, 1);
    }
    ok(gradwire_updated(c->g, group));
}

static void client_step(client *c, gw_batch b, bool first, bool last) {
    int layers = gw_model_layers(c->model);
    ok(gradwire_begin(c->g, b.local, b.global));
    gw_dataset_gather(&c->data->train, b.idx, b.local, simple_input(c->model), c->labels);
    for (int l = 0; l < layers; l++) {
        if (c->lazy && !first) {
            client_update(c, l);
            ok(gradwire_await(c->g, l));
        }
        simple_forward(c->model, l, b.local);
    }
    double loss = simple_loss(c->model, c->labels, b.local, 1.0f / (float)b.global, NULL);
    for (int l = layers - 1, t = c->tensors; l >= 0; l--) {
        simple_backward(c->model, l, b.local);
        while (t > 0 && gw_model_tensors(c->model)[t - 1].layer == l)
            ok(gradwire_ready(c->g, 1, (int[]){--t}, NULL));
        simple_descend(c->model, l, b.local);
    }
    for (int l = 0; l < layers && c->lazy && last; l++) {
        client_update(c, l);
        ok(gradwire_await(c->g, l));
    }
    if (!c->lazy)
        client_update(c, GRADWIRE_ALL);
    ok(gradwire_end(c->g, b.local ? loss / b.local : 0));
}

static uint32_t client_run(const char *words, int steps, float rate) {
    client c = {.rate = rate};
    client_open(&c, words);
    int batches = gw_sampler_batches(c.sampler);
    for (int s = 0; s < steps; s++) {
        if (s % batches == 0)
            gw_sampler_epoch(c.sampler, s / batches);
        client_step(&c, gw_sampler_batch(c.sampler, s % batches), s % batches == 0,
                    s + 1 == steps || (s + 1) % batches == 0);
    }
    ok(gradwire_settle(c.g));
    uint32_t sum = (uint32_t)crc32_z(0, (const Bytef *)gw_model_params(c.model),
                                     gw_model_size(c.model) * sizeof(float));
    ok(gradwire_close(c.g));
    gw_optimizer_close(c.optimizer);
    gw_model_close(c.model);
    gw_sampler_close(c.sampler);
    gw_data_close(c.data);
    return sum;
}

int main(int argc, char **argv) {
    CHECK(argc > 3, "seam STEPS RATE WORDS..");
    gw_gemm_mend(argv); /* as the program does at its start: the same kernels */
    ok(gradwire_start("--comm iallreduce", &me, &ranks));
    gw_flush_denormals();
    CHECK_OK(gw_gemm_allow("cblas"));
    for (int i = 3; i < argc; i++) {
        uint32_t sum = client_run(argv[i], atoi(argv[1]), strtof(argv[2], NULL));
        if (me == 0)
            printf("%08x\n", sum);
    }
    return 0;
}
