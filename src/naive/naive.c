/* Compiled without vectorisation: see CMakeLists.txt. */
#include "naive/naive.h"

#include "base/json.h"
#include "base/mem.h"
#include "mpi/wait.h"
#include "naive/net.h"
#include "prof/clock.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

#define INTO(member) GW_OPT_INTO(gw_naive_options, member)

enum { LOOPS, SUM, SCHEDULE, EXCHANGE, OPTIONS };
static const gw_opt opts[] = {
    [LOOPS] =
        {"loops", GW_OPT_CHOICE, "sample", 0, 0, "sample|batch|blocked|simd|blas", NULL,
         "one sample at a time; the rows of a thread's part at once, by three plain loops, by "
         "cache blocks, by blocks and vector instructions, or by cblas_dgemm",
         INTO(loops)},
    [SUM] = {"sum", GW_OPT_CHOICE, "critical", 0, 0, "critical|reduction", NULL,
             "threads' gradients: added in a critical section for each sample or part, or kept and "
             "reduced in parallel",
             INTO(sum)},
    [SCHEDULE] = {"schedule", GW_OPT_CHOICE, "static", 0, 0, "static|dynamic", NULL,
                  "OpenMP's schedule of the samples or parts", INTO(dynamic)},
    [EXCHANGE] =
        {"exchange", GW_OPT_CHOICE, "allreduce", 0, 0, "allreduce|root", NULL,
         "MPI_Allreduce of the gradient; or MPI_Reduce, an update by rank 0, and MPI_Bcast "
         "of the parameters",
         INTO(exchange)},
    [OPTIONS] = {0}};

enum { ABI = 1 };
static const gw_entry fast = {ABI, "fast", "floats, and for each product the fastest library",
                              NULL},
                      naive = {ABI, "naive", "plain loops in doubles: the baseline of reports",
                               opts};
static const gw_entry *const entries[] = {&fast, &naive, NULL};
const gw_registry gw_backends = {.kind = "backend", .abi = ABI, .entries = entries};

gw_err gw_naive_read(gw_naive_options *o, const gw_spec *backend) {
    const gw_entry *found;
    gw_args *args;
    GW_TRY(gw_registry_find(&gw_backends, backend->name, &found));
    GW_TRY(gw_args_of(&args, found->opts, found->name, backend));
    *o = (gw_naive_options){.on = found == &naive};
    gw_args_fill(args, o);
    gw_args_free(args);
#ifndef GW_HAVE_CBLAS
    if (o->on && o->loops == GW_NAIVE_BLAS)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "naive: loops=blas: this gradwire was built without CBLAS: configure with "
                       "-DGW_GEMM=auto, or choose other loops");
#endif
    return GW_OK;
}

/* The word that an option's place stands for: it begins here and ends before the next '|'. */
static const char *naive_word(const gw_naive_options *o, int option, int *len) {
    const int place[] = {(int)o->loops, (int)o->sum, o->dynamic, (int)o->exchange};
    const char *word = opts[option].choices;
    for (int i = 0; i < place[option]; i++)
        word = strchr(word, '|') + 1;
    *len = (int)strcspn(word, "|");
    return word;
}

void gw_naive_text(const gw_naive_options *o, char *out, size_t cap) {
    size_t at = 0;
    for (int i = 0; i < OPTIONS && at < cap; i++) {
        int len;
        const char *word = naive_word(o, i, &len);
        at += (size_t)snprintf(out + at, cap - at, "%s%s=%.*s", i ? "," : "naive:", opts[i].name,
                               len, word);
    }
}

struct gw_naive {
    gw_naive_setup setup;
    gw_naive_chain chain;
    int rank, ranks;
    int rows; /* of a part, at most */
    size_t size;
    double *grad;      /* the rank's */
    gw_naive_net *net; /* one a thread */
    int64_t steps;
    double wait_s, held_s; /* gw_naive_collect */
};

/* ---- opening ---- */

static void naive_lay_out(gw_naive *n) {
    const gw_model_spec *spec = gw_model_get_spec(n->setup.model);
    n->chain.n_layers = gw_model_spec_layers(spec);
    n->chain.loops = n->setup.options.loops;
    n->size = gw_model_size(n->setup.model);
    for (int l = 0; l < n->chain.n_layers; l++)
        n->chain.layer[l] =
            (gw_naive_layer){.in = gw_model_spec_width(spec, l - 1),
                             .out = gw_model_spec_width(spec, l),
                             .transfer = l + 1 < n->chain.n_layers ? (gw_transfer)spec->activation
                                                                   : GW_TRANSFER_LINEAR,
                             .off = gw_model_span(n->setup.model, l).off};
    n->rows = gw_naive_rows(&n->setup.options, n->setup.threads, n->setup.max_local);
}

static gw_err naive_open_net(const gw_naive *n, gw_naive_net *net) {
    size_t rows = (size_t)n->rows, inputs = rows * (size_t)n->chain.layer[0].in;
    GW_TRY(gw_alloc(&net->pixels, inputs, sizeof *net->pixels));
    GW_TRY(gw_alloc(&net->x, inputs, sizeof *net->x));
    GW_TRY(gw_alloc(&net->labels, rows, sizeof *net->labels));
    for (int l = 0; l < n->chain.n_layers; l++) {
        GW_TRY(gw_alloc(&net->y[l], rows * (size_t)n->chain.layer[l].out, sizeof(double)));
        GW_TRY(gw_alloc(&net->dy[l], rows * (size_t)n->chain.layer[l].out, sizeof(double)));
    }
    return gw_alloc(&net->grad, n->size, sizeof *net->grad);
}

/* Between the model's (in, out) and our (out, in). */
static void naive_copy(const gw_naive *n, bool tell) {
    float *model = gw_model_params(n->setup.model);
    for (int l = 0; l < n->chain.n_layers; l++) {
        size_t in = (size_t)n->chain.layer[l].in, out = (size_t)n->chain.layer[l].out,
               off = n->chain.layer[l].off;
        for (size_t i = 0; i <= in; i++) /* row `in`: the biases */
            for (size_t j = 0; j < out; j++) {
                float *f = &model[off + i * out + j];
                double *d = &n->chain.param[off + (i < in ? j * in + i : in * out + j)];
                if (tell)
                    *f = (float)*d;
                else
                    *d = *f;
            }
    }
}

static gw_err naive_allocate(gw_naive *n) {
    GW_TRY(gw_alloc(&n->chain.param, n->size, sizeof *n->chain.param));
    GW_TRY(gw_alloc(&n->grad, n->size, sizeof *n->grad));
    GW_TRY(gw_alloc(&n->net, (size_t)n->setup.threads, sizeof *n->net));
    for (int t = 0; t < n->setup.threads; t++)
        GW_TRY(naive_open_net(n, &n->net[t]));
    return GW_OK;
}

gw_err gw_naive_open(gw_naive **out, const gw_naive_setup *setup) {
    gw_naive *n = NULL;
    GW_TRY(gw_alloc(&n, 1, sizeof *n));
    n->setup = *setup;
    naive_lay_out(n);
    gw_err e = naive_allocate(n);
    GW_THEN(e, gw_comm_place(setup->comm, &n->rank, &n->ranks));
    if (e != GW_OK) {
        gw_naive_close(n);
        return e;
    }
    naive_copy(n, false);
    *out = n;
    return GW_OK;
}

void gw_naive_close(gw_naive *n) {
    if (!n)
        return;
    for (int t = 0; n->net && t < n->setup.threads; t++) {
        gw_naive_net *net = &n->net[t];
        free(net->pixels);
        free(net->x);
        free(net->labels);
        for (int l = 0; l < n->chain.n_layers; l++) {
            free(net->y[l]);
            free(net->dy[l]);
        }
        free(net->grad);
    }
    free(n->net);
    free(n->chain.param);
    free(n->grad);
    free(n);
}

void gw_naive_tell(const gw_naive *n) {
    naive_copy(n, true);
}

size_t gw_naive_bytes(const gw_naive *n) {
    return n->size * sizeof(double);
}

/* ---- a step's gradient, by all threads of a rank ---- */

/* Parts of each thread, at least: several, so that one which is late can take fewer. */
static int naive_least(const gw_naive_options *o) {
    return o->dynamic ? 4 : 1;
}

static int naive_quotient(int local, int by) {
    return local / by + (local % by > 0);
}

int gw_naive_parts(const gw_naive_options *o, int threads, int local) {
    int least = naive_least(o), each = naive_quotient(local, threads * GW_NAIVE_ROWS);
    return o->loops == GW_NAIVE_SAMPLE ? local : threads * (each > least ? each : least);
}

int gw_naive_rows(const gw_naive_options *o, int threads, int local) {
    int rows = naive_quotient(local, threads * naive_least(o));
    return o->loops == GW_NAIVE_SAMPLE ? 1 : rows < GW_NAIVE_ROWS ? rows : GW_NAIVE_ROWS;
}

/* B's critical section: one thread at a time adds its gradient to the rank's. */
static void naive_add(gw_naive *n, gw_naive_net *me) {
    uint64_t asked = gw_clock_ticks();
#pragma omp critical(gw_naive_gradient)
    {
        uint64_t entered = gw_clock_ticks();
        for (size_t i = 0; i < n->size; i++)
            n->grad[i] += me->grad[i];
        me->wait += entered - asked;
        me->held += gw_clock_ticks() - entered;
    }
}

static void naive_gather(const gw_naive *n, gw_naive_net *me, const gw_naive_job *job,
                         gw_span part) {
    size_t floats = part.n * (size_t)n->chain.layer[0].in;
    gw_dataset_gather(job->set, job->idx + part.off, (int)part.n, me->pixels, me->labels);
    for (size_t i = 0; i < floats; i++)
        me->x[i] = me->pixels[i];
}

static void naive_losses(const gw_naive *n, gw_naive_net *me, int rows, double scale) {
    int last = n->chain.n_layers - 1, classes = n->chain.layer[last].out;
    gw_output output = gw_model_get_spec(n->setup.model)->output;
    for (int r = 0; r < rows; r++) {
        size_t at = (size_t)r * (size_t)classes;
        me->loss += gw_naive_loss(output, me->y[last] + at, me->dy[last] + at, me->labels[r],
                                  classes, scale);
    }
}

/* Only the calling thread has a ledger. */
static void naive_enter(bool timed, gw_phase phase) {
    if (timed)
        gw_phase_enter(phase);
}

static void naive_leave(bool timed) {
    if (timed)
        gw_phase_leave();
}

static void naive_part(gw_naive *n, gw_naive_net *me, const gw_naive_job *job, gw_span part,
                       bool timed) {
    bool critical = n->setup.options.sum == GW_NAIVE_CRITICAL;
    naive_enter(timed, GW_PHASE_DATA);
    naive_gather(n, me, job, part);
    naive_leave(timed);
    naive_enter(timed, GW_PHASE_FORWARD);
    gw_naive_forward(&n->chain, me, (int)part.n);
    naive_losses(n, me, (int)part.n, 1.0 / job->global);
    naive_leave(timed);
    gw_naive_backward(&n->chain, me, (int)part.n, !critical && me->begun);
    me->begun = true;
    if (critical)
        naive_add(n, me);
}

/* Each element is summed by one thread, in the order of the threads' numbers. */
static void naive_sum_up(gw_naive *n) {
#pragma omp for schedule(static)
    for (size_t i = 0; i < n->size; i++) {
        double sum = 0;
        for (int t = 0; t < n->setup.threads; t++)
            sum += n->net[t].begun ? n->net[t].grad[i] : 0;
        n->grad[i] = sum;
    }
}

double gw_naive_compute(gw_naive *n, const gw_naive_job *job) {
    const gw_naive_options *o = &n->setup.options;
    int parts = gw_naive_parts(o, n->setup.threads, job->local);
    double loss = 0;
    n->steps++;
    gw_phase_enter(GW_PHASE_BACKWARD);
    for (int t = 0; t < n->setup.threads; t++) {
        n->net[t].begun = false;
        n->net[t].loss = 0;
    }
    if (o->sum == GW_NAIVE_CRITICAL)
        memset(n->grad, 0, n->size * sizeof *n->grad);
    omp_set_schedule(o->dynamic ? omp_sched_dynamic : omp_sched_static, o->dynamic);
#pragma omp parallel num_threads(n->setup.threads)
    {
        int me = omp_get_thread_num();
#pragma omp for schedule(runtime)
        for (int i = 0; i < parts; i++) {
            gw_span part = gw_span_part((gw_span){0, (size_t)job->local}, i, parts);
            if (part.n > 0)
                naive_part(n, &n->net[me], job, part, me == 0);
        }
        if (o->sum == GW_NAIVE_REDUCTION)
            naive_sum_up(n);
    }
    for (int t = 0; t < n->setup.threads; t++)
        loss += n->net[t].loss;
    gw_phase_leave();
    return loss;
}

/* ---- the exchange of a step, and the update ---- */

/* The gradient's sum, on all ranks or at rank 0; rank 0's parameters. A wait that gives the core
 * away takes MPI's nonblocking form. */
typedef gw_err naive_call(gw_naive *n, MPI_Request *r);

static gw_err naive_allreduce(gw_naive *n, MPI_Request *r) {
    int size = (int)n->size; /* GW_MAX_PARAMS is that of an int */
    MPI_Comm comm = n->setup.comm;
    GW_MPI(r ? MPI_Iallreduce(MPI_IN_PLACE, n->grad, size, MPI_DOUBLE, MPI_SUM, comm, r)
             : MPI_Allreduce(MPI_IN_PLACE, n->grad, size, MPI_DOUBLE, MPI_SUM, comm));
    return GW_OK;
}

static gw_err naive_reduce(gw_naive *n, MPI_Request *r) {
    int size = (int)n->size;
    MPI_Comm comm = n->setup.comm;
    const void *mine = n->rank == 0 ? MPI_IN_PLACE : (const void *)n->grad;
    GW_MPI(r ? MPI_Ireduce(mine, n->grad, size, MPI_DOUBLE, MPI_SUM, 0, comm, r)
             : MPI_Reduce(mine, n->grad, size, MPI_DOUBLE, MPI_SUM, 0, comm));
    return GW_OK;
}

static gw_err naive_bcast(gw_naive *n, MPI_Request *r) {
    int size = (int)n->size;
    GW_MPI(r ? MPI_Ibcast(n->chain.param, size, MPI_DOUBLE, 0, n->setup.comm, r)
             : MPI_Bcast(n->chain.param, size, MPI_DOUBLE, 0, n->setup.comm));
    return GW_OK;
}

/* What lies around the calls is communication, too; MPI's own time is charged as such anyway. */
static gw_err naive_exchange(gw_naive *n, naive_call *call, gw_exchange *told) {
    MPI_Request r;
    told->run++;
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_exchange_tell(GW_EXCHANGE_START, told);
    gw_exchange_tell(GW_EXCHANGE_BLOCK, told);
    gw_err e = call(n, n->setup.yield ? &r : NULL);
    if (n->setup.yield)
        GW_THEN(e, gw_wait(&r));
    gw_exchange_tell(GW_EXCHANGE_DONE, told);
    gw_exchange_tell(GW_EXCHANGE_UNBLOCK, told);
    gw_phase_leave();
    return e;
}

void gw_naive_descend(gw_naive *n, double lr) {
    gw_phase_enter(GW_PHASE_UPDATE);
#pragma omp parallel for num_threads(n->setup.threads) schedule(static)
    for (size_t i = 0; i < n->size; i++)
        n->chain.param[i] -= lr * n->grad[i];
    gw_phase_leave();
}

gw_err gw_naive_reduce(gw_naive *n) {
    bool root = n->setup.options.exchange == GW_NAIVE_ROOT;
    return n->ranks > 1
               ? naive_exchange(n, root ? naive_reduce : naive_allreduce, &n->setup.gradients)
               : GW_OK;
}

bool gw_naive_publishes(const gw_naive *n) {
    return n->ranks > 1 && n->setup.options.exchange == GW_NAIVE_ROOT;
}

bool gw_naive_descends(const gw_naive *n) {
    return n->rank == 0 || !gw_naive_publishes(n);
}

gw_err gw_naive_publish(gw_naive *n) {
    return gw_naive_publishes(n) ? naive_exchange(n, naive_bcast, &n->setup.parameters) : GW_OK;
}

/* ---- run.json ---- */

gw_err gw_naive_collect(gw_naive *n) {
    if (!n)
        return GW_OK;
    double sum[2] = {0, 0}, per = (double)n->setup.threads * n->ranks * (double)n->steps;
    for (int t = 0; t < n->setup.threads; t++) {
        sum[0] += gw_clock_seconds(n->net[t].wait) / per;
        sum[1] += gw_clock_seconds(n->net[t].held) / per;
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, sum, 2, MPI_DOUBLE, MPI_SUM, n->setup.comm));
    n->wait_s = sum[0];
    n->held_s = sum[1];
    return GW_OK;
}

json_t *gw_naive_json(const gw_naive *n, size_t parameters) {
    if (!n)
        return gw_json_object("name:s precision:s parameters_bytes:u", fast.name, "float32",
                              (uint64_t)(parameters * sizeof(float)));
    json_t *all = gw_json_object("name:s precision:s parameters_bytes:u", naive.name, "float64",
                                 (uint64_t)gw_naive_bytes(n));
    for (int i = 0; i < OPTIONS; i++) {
        int len;
        const char *word = naive_word(&n->setup.options, i, &len);
        json_object_set_new(all, opts[i].name, json_stringn(word, (size_t)len));
    }
    if (n->setup.options.sum == GW_NAIVE_CRITICAL)
        all = gw_json_add(all, "critical_wait_s:f critical_held_s:f", n->wait_s, n->held_s);
    return all;
}
