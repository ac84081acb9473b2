/* The parts of a prediction: measured alike on all ranks, and without a trace. No figure is looked
 * at that depends on how fast this machine is. */
#include "base/mem.h"
#include "mpi/wait.h"
#include "predict/codec.h"
#include "predict/exchange.h"
#include "predict/link.h"
#include "predict/profile.h"

#include "../specs.h"
#include "check.h"
#include "tests/simple_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 30000 };

static void same_everywhere(const void *x, size_t bytes) {
    CHECK(same_on_all(x, bytes), "ranks measured different figures");
}

/* ---- links ---- */

static void test_links(void) {
    gw_sim_setup w = {0};
    CHECK_OK(gw_predict_links(&w, 1, ranks > 2, MPI_COMM_WORLD));
    gw_network_close(w.network);
    CHECK(w.ranks == ranks && w.per_host == ranks, "%d per host", w.per_host);
    same_everywhere(&w.memory, sizeof w.memory);
    CHECK(w.memory.bytes_per_s > 0 && isfinite(w.memory.bytes_per_s), "no rate");
    CHECK(w.memory.latency_s >= 0 && w.memory.overhead_s >= 0 && w.memory.byte_s >= 0, "negative");
    CHECK((w.memory.latency_s + w.memory.overhead_s > 0) == (ranks > 1), "messages take no time");
    /* as if each rank were a host: the link is measured, by all */
    if (ranks > 1) {
        CHECK_OK(gw_predict_links(&w, 2, ranks > 2, MPI_COMM_WORLD));
        gw_network_close(w.network);
    }
}

/* ---- codecs ---- */

static void test_codec(void) {
    float *x;
    gw_codec codec;
    CHECK_OK(gw_alloc(&x, N, sizeof *x));
    for (int i = 0; i < N; i++)
        x[i] = (float)((i * 7919 + me) % 1001) - 500;
    static const struct {
        const char *spec;
        double bytes; /* exact for codecs of fixed size */
    } wants[] = {{"fp16", 2}, {"qsgd:bits=4", 0.5 + 4.0 / 512}, {"topk:ratio=0.01", 0}};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        gw_codec_price p;
        CHECK_OK(open_codec(&codec, wants[i].spec));
        CHECK_OK(gw_codec_measure_price(&codec, "on", x, N, &p, MPI_COMM_WORLD));
        same_everywhere(&p, sizeof p);
        if (wants[i].bytes > 0)
            CHECK(fabs(p.bytes - wants[i].bytes) < 0.02, "%s: %g", wants[i].spec, p.bytes);
        CHECK(p.bytes > 0 && p.bytes < 4, "%s: %g", wants[i].spec, p.bytes);
        for (gw_coding c = 0; c < GW_CODINGS; c++) {
            bool codes = c != GW_CODING_SUM || gw_codec_summable(&codec);
            CHECK((p.call_s[c] + N * p.float_s[c] > 0) == codes, "%s: kind %d", wants[i].spec,
                  (int)c);
            CHECK(p.float_s[c] >= 0, "%s: kind %d", wants[i].spec, (int)c);
        }
        gw_codec_close(&codec);
    }
    free(x);
}

/* ---- exchanges that are measured whole ---- */

static void test_exchange(void) {
    static const char *const ways[][2] = {{"shm", "none"}, {"shm", "qsgd"}, {"native", "fp16"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const gw_spec *spec = NULL;
        gw_codec codec;
        gw_algo algo;
        gw_curve c;
        double sent;
        gw_exchange_job job = {
            .comm = MPI_COMM_WORLD, .n = N, .seed = 1, .yield = ranks > 2, .budget_s = 1};
        CHECK_OK(keep_spec(&spec, ways[i][0], GW_SPEC_ONE));
        CHECK_OK(open_codec(&codec, ways[i][1]));
        CHECK_OK(gw_algo_open(&algo, spec, &codec));
        CHECK(!gw_algo_sends_messages(algo.ops), "%s is played", ways[i][0]);
        CHECK_OK(gw_exchange_measure(&job, &algo, &codec, &c, &sent));
        CHECK((c.n > 0) == (ranks > 1), "%s: %d points", ways[i][0], c.n);
        for (int k = 0; k < c.n; k++) {
            CHECK(c.bytes[k] > (k ? c.bytes[k - 1] : 0) && c.bytes[k] <= N * sizeof(float), "%s",
                  ways[i][0]);
            CHECK(isfinite(c.time_s[k]) && c.time_s[k] > 0, "%s: %g s", ways[i][0], c.time_s[k]);
        }
        CHECK((sent > 0) == (ranks > 1 && i == 2), "%s sends %g", ways[i][0], sent);
        gw_algo_close(&algo);
        gw_codec_close(&codec);
    }
}

/* ---- layers ---- */

static int chosen; /* steps whose samples were chosen */

static void choose(void *labels, gw_pipeline_job *pass) {
    chosen++;
    pass->labels = labels;
    pass->local = 4;
    pass->global = 4 * ranks;
}

static void check_times(const gw_layer_times *t) {
    gw_layer_times same = *t;
    same.loss = 0; /* this rank's */
    same_everywhere(&same, sizeof same);
    CHECK(t->steps >= 3 && t->steps <= 7 && chosen == t->steps + 1, "%d of %d steps", t->steps,
          chosen);
    for (int l = 0; l < 2; l++)
        CHECK(t->forward_s[l] > 0 && gw_layer_backward_s(t, l) > 0, "layer %d takes no time", l);
    CHECK(t->update_s > 0 && t->step_s > 0 && t->spread[0] <= 1 && t->spread[1] >= 1, "no step");
}

static void test_layers(void) {
    gw_model_spec spec = {
        .inputs = 20, .classes = 5, .n_hidden = 1, .hidden = {30}, .init = {GW_INIT_HE}, .seed = 9};
    gw_model *m;
    gw_optimizer *o;
    gw_label labels[4] = {0, 1, 2, 3};
    gw_layer_times t;
    CHECK_OK(gw_model_open(&m, &spec, 4));
    size_t n = gw_model_size(m), bytes = n * sizeof(float);
    CHECK_OK(open_optimizer(&o, "sgd:momentum=0.9", n));
    for (int i = 0; i < 4 * spec.inputs; i++)
        simple_input(m)[i] = (float)i / 80;
    float *before = malloc(bytes), norm = 0;
    memcpy(before, gw_model_params(m), bytes);
    gw_layer_job job = {.model = m,
                        .optimizer = o,
                        .next = choose,
                        .ctx = labels,
                        .comm = MPI_COMM_WORLD,
                        .warmup = 1,
                        .least = 3,
                        .most = 7,
                        .enough_s = 1e-3};
    CHECK_OK(gw_layers_time(&job, &t));
    check_times(&t);
    CHECK(memcmp(gw_model_params(m), before, bytes) == 0, "parameters moved");
    for (size_t i = 0; i < n; i++) {
        CHECK(o->state.x[i] == 0, "momentum is left");
        norm += gw_model_grads(m)[i] * gw_model_grads(m)[i];
    }
    CHECK(norm > 0, "no gradient");
    gw_optimizer_close(o);
    gw_model_close(m);
    free(before);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    gw_wait_yields(ranks > 2);
    test_links();
    test_codec();
    test_exchange();
    test_layers();
    MPI_Finalize();
    return 0;
}
