/* The cost model: encodings and decodings are counted as each algorithm describes them, curves are
 * the same on all ranks, and measuring a step leaves the parameters unchanged. */
#include "base/mem.h"
#include "mpi/wait.h"
#include "select/survey.h"

#include "../specs.h"
#include "check.h"
#include "tests/simple_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 30000 };

static int me, ranks;

static void same_everywhere(const void *x, int bytes) {
    char *first = malloc((size_t)bytes);
    memcpy(first, x, (size_t)bytes);
    CHECK_OK(gw_bcast(first, bytes, MPI_BYTE, 0, MPI_COMM_WORLD));
    CHECK(memcmp(first, x, (size_t)bytes) == 0, "ranks measured different figures");
    free(first);
}

/* ---- algorithms ---- */

/* Encodings and decodings per float of the span on the busiest rank, by kind; and bytes sent. */
typedef struct want {
    const char *spec;
    double work[GW_CODINGS];
    double sent;
} want;

/* Floats of the largest span measured, which depends on the time it took. */
static double reached(const gw_algo_survey *s) {
    return s->coded.bytes[s->coded.n - 1] / sizeof(float);
}

/* The slices may differ by one float. */
static void check_counts(const gw_algo_survey *s, const want *w) {
    double off = 2 / reached(s);
    for (int k = 0; k < GW_CODINGS; k++)
        CHECK(fabs(s->work[k] - w->work[k]) < off, "%s: kind %d: %g, expected %g", s->spec.text, k,
              s->work[k], w->work[k]);
    CHECK(fabs(s->sent - w->sent) < off, "%s: sends %g, expected %g", s->spec.text, s->sent,
          w->sent);
}

static void check_curve(const gw_curve *c, const char *name) {
    CHECK(c->n >= 1 && c->n <= GW_CURVE_POINTS, "%s: %d points", name, c->n);
    CHECK(c->bytes[c->n - 1] <= N * sizeof(float), "%s: beyond the span", name);
    for (int i = 0; i < c->n; i++) {
        CHECK(i == 0 || c->bytes[i] > c->bytes[i - 1], "%s: sizes do not ascend", name);
        CHECK(isfinite(c->time_s[i]) && c->time_s[i] >= 0, "%s: %g s", name, c->time_s[i]);
    }
}

static const gw_spec *spec_of(const char *text) {
    const gw_spec *spec = NULL;
    CHECK_OK(keep_spec(&spec, text, GW_SPEC_ONE));
    return spec;
}

static void test_algos(void) {
    double p = ranks, others = (p - 1) / p;
    /* E encode, adopt, add, set. ring: P-1 hops each way. root: the root adds P-1 and adopts one.
     */
    const want wants[] = {
        {"sra", {others, 1 / p, others, others, 0}, 2 * others},
        {"ring:chunk=0", {others, 1 / p, others, others, 0}, 2 * others},
        {"ring:chunk=4K", {others, 1 / p, others, others, 0}, 2 * others},
        {"root", {1, 1, p - 1, 1, 0}, 2 * others},
        {"tree", {1, 1, ceil(log2(p)), 1, 0}, 2 * others},
        {"shm", {others, 1 / p, others, others, 0}, 0},
    };
    enum { ALGOS = sizeof wants / sizeof *wants };
    gw_algo_survey got[ALGOS + 1];
    memset(got, 0, sizeof got); /* padding, too: compared as bytes */
    for (int i = 0; i < ALGOS; i++)
        got[i].spec = *spec_of(wants[i].spec);
    got[ALGOS].spec = GW_SPEC_NAMED("native");
    gw_survey_place place = {
        .comm = MPI_COMM_WORLD, .n = N, .seed = 1, .yield = ranks > 2, .budget_s = 2};
    CHECK_OK(gw_survey_algos(&place, got, ALGOS + 1));
    for (int i = 0; i <= ALGOS; i++) {
        same_everywhere(&got[i].exact, sizeof got[i] - offsetof(gw_algo_survey, exact));
        check_curve(&got[i].exact, got[i].spec.text);
        check_curve(&got[i].coded, got[i].spec.text);
        CHECK(got[i].summed == (i == ALGOS), "%s", got[i].spec.text);
        if (ranks > 1 && i < ALGOS)
            check_counts(&got[i], &wants[i]);
    }
    CHECK(ranks == 1 || got[ALGOS].work[GW_CODING_SUM] > 0, "MPI added nothing");
    bool cuts = ranks > 1 && reached(&got[2]) > 1024 * ranks;
    CHECK((got[2].chunks > 0) == cuts && got[2].chunk <= 1024 && got[1].chunks == 0,
          "chunks of %g floats", got[2].chunk);
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
        gw_codec_price price[2] = {{.part = N}, {.part = N / 10}};
        CHECK_OK(open_codec(&codec, wants[i].spec));
        CHECK_OK(gw_survey_codec(&codec, true, x, N, price, 2, MPI_COMM_WORLD));
        same_everywhere(price, sizeof price);
        for (int k = 0; k < 2; k++) {
            if (wants[i].bytes > 0)
                CHECK(fabs(price[k].bytes - wants[i].bytes) < 0.02, "%s: %g", wants[i].spec,
                      price[k].bytes);
            CHECK(price[k].bytes > 0 && price[k].bytes < 4, "%s: %g", wants[i].spec,
                  price[k].bytes);
            for (gw_coding c = 0; c < GW_CODING_SUM; c++)
                CHECK(price[k].price[c] > 0, "%s: kind %d", wants[i].spec, (int)c);
            CHECK((price[k].price[GW_CODING_SUM] > 0) == gw_codec_summable(&codec), "%s",
                  wants[i].spec);
        }
        gw_codec_close(&codec);
    }
    free(x);
}

/* ---- the step ---- */

typedef struct rehearsal {
    gw_stepper stepper;
    int steps;
} rehearsal;

static gw_err rehearse(void *ctx, gw_stepper *by) {
    rehearsal *r = ctx;
    double loss;
    r->steps++;
    return gw_step_loaded(by, 4, 4 * ranks, 0, &loss);
}

static void test_step(void) {
    gw_model_spec spec = {
        .inputs = 20, .classes = 5, .n_hidden = 1, .hidden = {30}, .init = {GW_INIT_HE}, .seed = 9};
    rehearsal r = {.stepper = {.lazy = true}};
    gw_local local;
    float *before, *params, *gradient;
    CHECK_OK(gw_model_open(&r.stepper.model, &spec, 4));
    size_t n = gw_model_size(r.stepper.model), bytes = n * sizeof(float);
    CHECK_OK(open_optimizer(&r.stepper.optimizer, "sgd:momentum=0.9", n));
    CHECK_OK(gw_alloc(&before, n, sizeof *before));
    CHECK_OK(gw_alloc(&params, n, sizeof *params));
    CHECK_OK(gw_alloc(&gradient, n, sizeof *gradient));
    CHECK_OK(gw_alloc(&r.stepper.labels, 4, 1));
    for (int i = 0; i < 4 * spec.inputs; i++)
        simple_input(r.stepper.model)[i] = (float)i / 80;
    memcpy(before, gw_model_params(r.stepper.model), bytes);
    gw_rehearsal job = {&r.stepper, rehearse, &r, MPI_COMM_WORLD};
    CHECK_OK(gw_survey_step(&job, params, gradient, &local));
    same_everywhere(&local, sizeof local);
    CHECK(r.steps > 0 && local.forward_s > 0 && local.backward_s > 0 && local.update_s > 0,
          "%d steps", r.steps);
    CHECK(gw_model_params(r.stepper.model) == params && gw_model_grads(r.stepper.model) == gradient,
          "the model works elsewhere");
    CHECK(memcmp(params, before, bytes) == 0, "parameters moved");
    CHECK(r.stepper.lazy && !r.stepper.g && !r.stepper.pending, "the stepper changed");
    float *momentum = r.stepper.optimizer->state.x, norm = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(momentum[i] == 0, "momentum is left");
        norm += gradient[i] * gradient[i];
    }
    CHECK(norm > 0, "no gradient");
    gw_step_close(&r.stepper);
    gw_optimizer_close(r.stepper.optimizer);
    gw_model_close(r.stepper.model);
    free(r.stepper.labels);
    free(before);
    free(params);
    free(gradient);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    ranks = check_ranks(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    gw_wait_yields(ranks > 2);
    test_algos();
    test_codec();
    test_step();
    MPI_Finalize();
    return 0;
}
