/* A step's gradient, by all threads of a rank. Compiled without vectorisation: CMakeLists.txt. */
#include "naive/naive_parts.h"
#include "prof/clock.h"

#include <omp.h>
#include <string.h>

/* Parts of each thread, at least: several, so that one which is late can take fewer. */
static int compute_least(const gw_naive_options *o) {
    return o->dynamic ? 4 : 1;
}

static int compute_quotient(int local, int by) {
    return local / by + (local % by > 0);
}

int gw_naive_parts(const gw_naive_options *o, int threads, int local) {
    int least = compute_least(o), each = compute_quotient(local, threads * GW_NAIVE_ROWS);
    return o->loops == GW_NAIVE_SAMPLE ? local : threads * (each > least ? each : least);
}

int gw_naive_rows(const gw_naive_options *o, int threads, int local) {
    int rows = compute_quotient(local, threads * compute_least(o));
    return o->loops == GW_NAIVE_SAMPLE ? 1 : rows < GW_NAIVE_ROWS ? rows : GW_NAIVE_ROWS;
}

/* B's critical section: one thread at a time adds its gradient to the rank's. */
static void compute_add(gw_naive *n, gw_naive_net *me) {
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

static void compute_gather(const gw_naive *n, gw_naive_net *me, const gw_naive_job *job,
                           gw_span part) {
    size_t floats = part.n * (size_t)n->layer[0].in;
    gw_dataset_gather(job->set, job->idx + part.off, (int)part.n, me->pixels, me->labels);
    for (size_t i = 0; i < floats; i++)
        me->x[i] = me->pixels[i];
}

static void compute_losses(const gw_naive *n, gw_naive_net *me, int rows, double scale) {
    int last = n->n_layers - 1, classes = n->layer[last].out;
    gw_output output = gw_model_get_spec(n->setup.model)->output;
    for (int r = 0; r < rows; r++) {
        size_t at = (size_t)r * (size_t)classes;
        me->loss += gw_naive_loss(output, me->y[last] + at, me->dy[last] + at, me->labels[r],
                                  classes, scale);
    }
}

/* Only the calling thread has a ledger. */
static void compute_enter(bool timed, gw_phase phase) {
    if (timed)
        gw_phase_enter(phase);
}

static void compute_leave(bool timed) {
    if (timed)
        gw_phase_leave();
}

static void compute_part(gw_naive *n, gw_naive_net *me, const gw_naive_job *job, gw_span part,
                         bool timed) {
    bool critical = n->setup.options.sum == GW_NAIVE_CRITICAL;
    compute_enter(timed, GW_PHASE_DATA);
    compute_gather(n, me, job, part);
    compute_leave(timed);
    compute_enter(timed, GW_PHASE_FORWARD);
    gw_naive_forward(n, me, (int)part.n);
    compute_losses(n, me, (int)part.n, 1.0 / job->global);
    compute_leave(timed);
    gw_naive_backward(n, me, (int)part.n, !critical && me->begun);
    me->begun = true;
    if (critical)
        compute_add(n, me);
}

/* Each element is summed by one thread, in the order of the threads' numbers. */
static void compute_reduce(gw_naive *n) {
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
                compute_part(n, &n->net[me], job, part, me == 0);
        }
        if (o->sum == GW_NAIVE_REDUCTION)
            compute_reduce(n);
    }
    for (int t = 0; t < n->setup.threads; t++)
        loss += n->net[t].loss;
    gw_phase_leave();
    return loss;
}
