#include "naive/naive_parts.h"

#include "base/json.h"
#include "base/mem.h"
#include "mpi/wait.h"
#include "prof/clock.h"

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
                      naive = {ABI, "naive", "plain loops in doubles: what reports start from",
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

/* ---- opening ---- */

static void naive_lay_out(gw_naive *n) {
    const gw_model_spec *spec = gw_model_get_spec(n->setup.model);
    n->n_layers = gw_model_spec_layers(spec);
    n->size = gw_model_size(n->setup.model);
    for (int l = 0; l < n->n_layers; l++)
        n->layer[l] = (gw_naive_layer){
            .in = gw_model_spec_width(spec, l - 1),
            .out = gw_model_spec_width(spec, l),
            .transfer = l + 1 < n->n_layers ? (gw_transfer)spec->activation : GW_TRANSFER_LINEAR,
            .off = gw_model_span(n->setup.model, l).off};
    n->rows = gw_naive_rows(&n->setup.options, n->setup.threads, n->setup.max_local);
}

static gw_err naive_open_net(const gw_naive *n, gw_naive_net *net) {
    size_t rows = (size_t)n->rows, inputs = rows * (size_t)n->layer[0].in;
    GW_TRY(gw_alloc(&net->pixels, inputs, sizeof *net->pixels));
    GW_TRY(gw_alloc(&net->x, inputs, sizeof *net->x));
    GW_TRY(gw_alloc(&net->labels, rows, sizeof *net->labels));
    for (int l = 0; l < n->n_layers; l++) {
        GW_TRY(gw_alloc(&net->y[l], rows * (size_t)n->layer[l].out, sizeof(double)));
        GW_TRY(gw_alloc(&net->dy[l], rows * (size_t)n->layer[l].out, sizeof(double)));
    }
    return gw_alloc(&net->grad, n->size, sizeof *net->grad);
}

/* Between the model's (in, out) and our (out, in). */
static void naive_copy(const gw_naive *n, bool tell) {
    float *model = gw_model_params(n->setup.model);
    for (int l = 0; l < n->n_layers; l++) {
        size_t in = (size_t)n->layer[l].in, out = (size_t)n->layer[l].out, off = n->layer[l].off;
        for (size_t i = 0; i <= in; i++) /* row `in`: the biases */
            for (size_t j = 0; j < out; j++) {
                float *f = &model[off + i * out + j];
                double *d = &n->param[off + (i < in ? j * in + i : in * out + j)];
                if (tell)
                    *f = (float)*d;
                else
                    *d = *f;
            }
    }
}

static gw_err naive_allocate(gw_naive *n) {
    GW_TRY(gw_alloc(&n->param, n->size, sizeof *n->param));
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
    GW_THEN(e, gw_mpi_check(MPI_Comm_rank(setup->comm, &n->rank), "MPI_Comm_rank"));
    GW_THEN(e, gw_mpi_check(MPI_Comm_size(setup->comm, &n->ranks), "MPI_Comm_size"));
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
        for (int l = 0; l < n->n_layers; l++) {
            free(net->y[l]);
            free(net->dy[l]);
        }
        free(net->grad);
    }
    free(n->net);
    free(n->param);
    free(n->grad);
    free(n);
}

void gw_naive_tell(const gw_naive *n) {
    naive_copy(n, true);
}

size_t gw_naive_bytes(const gw_naive *n) {
    return n->size * sizeof(double);
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
