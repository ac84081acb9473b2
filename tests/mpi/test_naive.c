/* The naive backend takes the steps of the fast one, up to rounding: every form of its loops, sums,
 * schedules and exchanges, on all ranks and on one or two threads. */
#include "../specs.h"
#include "check.h"

#include "data/data.h"
#include "mpi/wait.h"
#include "naive/naive.h"
#include "nn/gemm.h"
#include "step/exec/naive.h"
#include "step/step.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { STEPS = 20, CHUNK = 256 };

static int me, ranks;
static gw_data *data;

typedef struct trial {
    gw_activation activation;
    int n_hidden, batch, steps;
    gw_output output;
} trial;

static double mean(double sum, int global) {
    CHECK_OK(gw_allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    return sum / global;
}

static gw_model *model_of(const trial *t, int rows) {
    gw_model_spec spec = {.inputs = gw_dataset_features(&data->train),
                          .classes = data->classes,
                          .n_hidden = t->n_hidden,
                          .hidden = {40, 9},
                          .activation = t->activation,
                          .output = t->output,
                          .n_init = 1,
                          .init = {GW_INIT_XAVIER},
                          .seed = 7};
    gw_model *m = NULL;
    CHECK_OK(gw_model_open(&m, &spec, rows));
    return m;
}

/* Train with `stepper`, whose model is settled in the end; the losses of all steps. */
static void train(gw_stepper *stepper, const trial *t, double loss[STEPS]) {
    gw_sampler *sampler = NULL;
    CHECK_OK(gw_sampler_open(&sampler, &data->train, t->batch, false, 3, me, ranks));
    for (int k = 0, epoch = 0; k < t->steps; k++) {
        int b = k % gw_sampler_batches(sampler);
        double sum;
        if (b == 0)
            gw_sampler_epoch(sampler, epoch++);
        gw_batch batch = gw_sampler_batch(sampler, b);
        CHECK_OK(gw_step(stepper, batch, 0.1f, &sum));
        loss[k] = mean(sum, batch.global);
    }
    CHECK_OK(gw_step_settle(stepper));
    gw_sampler_close(sampler);
}

/* The fast one; *out: its model. */
static void train_fast(const trial *t, gradwire *g, gw_model **out, double loss[STEPS]) {
    static gw_label labels[1 << 16];
    gw_model *m = model_of(t, (int)data->train.n);
    gw_optimizer *o = NULL;
    CHECK_OK(open_optimizer(&o, "sgd", gw_model_size(m)));
    gw_step_setup setup = {.comm = MPI_COMM_WORLD, .yield = true};
    gw_stepper stepper = {.model = m, .optimizer = o, .set = &data->train, .labels = labels};
    CHECK_OK(gw_step_open(&stepper, g, &setup));
    train(&stepper, t, loss);
    gw_step_close(&stepper);
    gw_optimizer_close(o);
    *out = m;
}

static void check_same(double got, double want, double within, const char *what, const char *how) {
    CHECK(fabs(got - want) <= within * fabs(want), "%s: %s is %.9g, not %.9g", how, what, got,
          want);
}

/* Ranks must hold the same bits; they are near those of the fast one. */
static void check_params(gw_model *m, gw_model *fast, const char *how) {
    double worst = 0;
    for (size_t i = 0; i < gw_model_size(m); i++)
        worst = fmax(worst, fabs((double)gw_model_params(m)[i] - gw_model_params(fast)[i]));
    CHECK(worst < 1e-5, "%s: a parameter differs by %g", how, worst);
    float *root = NULL;
    size_t bytes = gw_model_size(m) * sizeof *root;
    root = malloc(bytes);
    CHECK(root, "out of memory");
    memcpy(root, gw_model_params(m), bytes);
    CHECK_OK(gw_bcast(root, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD));
    CHECK(memcmp(root, gw_model_params(m), bytes) == 0, "%s: replicas differ", how);
    free(root);
}

static void check_naive(const char *spec, int threads, const trial *t, gradwire *g, gw_model *fast,
                        const double want[STEPS]) {
    char how[256];
    double loss[STEPS];
    gw_model *m = model_of(t, CHUNK);
    gw_naive_setup setup = {.model = m,
                            .threads = threads,
                            .max_local = (int)data->train.n,
                            .yield = true,
                            .comm = MPI_COMM_WORLD};
    gw_stepper stepper = {.model = m, .g = g, .set = &data->train};
    gw_spec *parsed = NULL;
    snprintf(how, sizeof how, "%s, %d threads, activation %d, %d hidden, batch %d", spec, threads,
             (int)t->activation, t->n_hidden, t->batch);
    CHECK_OK(gw_spec_parse(&parsed, "test", "backend", spec, GW_SPEC_ONE));
    CHECK_OK(gw_naive_read(&setup.options, parsed));
    stepper.instead = gw_exec_naive;
    CHECK_OK(gw_naive_open(&stepper.naive, &setup));
    omp_set_num_threads(threads);
    train(&stepper, t, loss);
    for (int k = 0; k < t->steps; k++)
        check_same(loss[k], want[k], 1e-5, "a loss", how);
    check_params(m, fast, how);
    gw_naive_close(stepper.naive);
    gw_spec_free(parsed);
    gw_model_close(m);
}

static void check_trial(const trial *t, const char *loops, int most_threads) {
    gw_session *s = NULL;
    gradwire *g = NULL;
    gw_model *fast = NULL;
    double want[STEPS];
    char spec[128];
    CHECK_OK(new_session(&s, "allreduce", "none", "auto", false));
    CHECK_OK(gw_inside_new(&g, s));
    omp_set_num_threads(1);
    train_fast(t, g, &fast, want);
    CHECK(want[t->steps - 1] < want[0], "the loss does not fall: %g to %g", want[0],
          want[t->steps - 1]);
    for (int i = 0; i < 8; i++)
        for (int threads = 1; threads <= most_threads; threads++) {
            snprintf(spec, sizeof spec, "naive:loops=%s,sum=%s,schedule=%s,exchange=%s", loops,
                     i & 1 ? "critical" : "reduction", i & 2 ? "static" : "dynamic",
                     i & 4 ? "allreduce" : "root");
            check_naive(spec, threads, t, g, fast, want);
        }
    gradwire_close(g);
    gw_model_close(fast);
}

/* A thread's arrays hold each part of a step of `most` samples or fewer. */
static void check_parts(void) {
    for (int kind = 0; kind < 4; kind++)
        for (int threads = 1; threads <= 3; threads++)
            for (int most = 0; most < 9000; most += 1 + most / 3)
                for (int local = 0; local <= most; local += 1 + local / 5) {
                    gw_naive_options o = {.loops = kind & 1 ? GW_NAIVE_BATCH : GW_NAIVE_SAMPLE,
                                          .dynamic = kind & 2};
                    int parts = gw_naive_parts(&o, threads, local);
                    size_t n =
                        parts ? gw_span_part((gw_span){0, (size_t)local}, parts - 1, parts).n : 0;
                    CHECK(n <= (size_t)gw_naive_rows(&o, threads, most) && n <= GW_NAIVE_ROWS,
                          "%d samples, %d threads: a part of %zu", local, threads, n);
                    CHECK((n > 0) == (local > 0), "%d samples: a part of %zu", local, n);
                }
}

int main(int argc, char **argv) {
    static const char *const loops[] = {"sample", "batch", "blocked", "simd",
#ifdef GW_HAVE_CBLAS
                                        "blas"
#endif
    };
    gw_data_spec spec = {.source = "synthetic:samples=200,features=70,classes=4", .image_scale = 1};
    MPI_Init(&argc, &argv);
    ranks = check_ranks(argc, argv);
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &me));
    gw_wait_yields(true);
    check_parts();
    CHECK_OK(gw_data_open(&data, &spec, MPI_COMM_WORLD));
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        gw_output softmax = GW_OUTPUT_SOFTMAX, sigmoid = GW_OUTPUT_SIGMOID;
        /* the last batch is shorter */
        check_trial(&(trial){GW_RELU, 2, 24, STEPS, softmax}, loops[i], 2);
        check_trial(&(trial){GW_SIGMOID, 1, 3, 4, sigmoid}, loops[i],
                    1); /* ranks without a sample */
        check_trial(&(trial){GW_TANH, 2, 24, 2, softmax}, loops[i], 1);
        check_trial(&(trial){GW_RELU, 0, (int)data->train.n, 2, softmax}, loops[i], 1);
    }
    gw_data_close(data);
    MPI_Finalize();
    return 0;
}
