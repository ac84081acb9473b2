/** The naive backend: training as the reports do it that gradwire grew from. Doubles throughout;
 *  plain loops over samples or over the rows of a part; a net copy for each thread (its own
 *  activations and gradient); gradients summed in an OpenMP critical section, or by a reduction;
 *  one blocking exchange of all doubles a step. What the reports name as remedies are options, so
 *  that the gain of each can be measured.
 *
 *  Its parameters are a second copy, of doubles, beside the model's floats. They begin with the
 *  very values of the model, and the model follows when somebody reads it (gw_naive_tell): it
 *  evaluates and is saved. Weights are (out, in), neuron by neuron, as in the reports.
 *
 *  All calls come from the thread that initialised MPI. */
#ifndef GW_NAIVE_NAIVE_H
#define GW_NAIVE_NAIVE_H

#include "base/probe.h"
#include "base/registry.h"
#include "data/data.h"
#include "naive/products.h"
#include "nn/model.h"

#include <jansson.h>
#include <mpi.h>

/** How the threads' gradients become the rank's. */
typedef enum gw_naive_sum {
    GW_NAIVE_CRITICAL, /* each sample or part is added in a critical section */
    GW_NAIVE_REDUCTION /* each thread sums its own; then all sum up, each a range of parameters */
} gw_naive_sum;

typedef enum gw_naive_exchange {
    GW_NAIVE_ALLREDUCE, /* MPI_Allreduce of the gradient; all ranks update */
    GW_NAIVE_ROOT       /* MPI_Reduce to rank 0, which updates, and MPI_Bcast of the parameters */
} gw_naive_exchange;

typedef struct gw_naive_options {
    bool on; /* else the fast backend computes */
    gw_naive_loops loops;
    gw_naive_sum sum;
    bool dynamic; /* OpenMP's schedule of samples or parts; else static */
    gw_naive_exchange exchange;
} gw_naive_options;

/** `fast` and `naive`, for `gradwire list`; not to be extended by plugins. */
extern const gw_registry gw_backends;

/** Before MPI starts: take the options out of the spec of a backend. GW_ERR_USAGE: unknown backend
 *  or option; GW_ERR_UNSUPPORTED: blas in a build without CBLAS. */
gw_err gw_naive_read(gw_naive_options *o, const gw_spec *backend);

/** "naive:loops=sample,.." with all options, for people. */
void gw_naive_text(const gw_naive_options *o, char *out, size_t cap);

typedef struct gw_naive gw_naive;

typedef struct gw_naive_setup {
    gw_naive_options options;
    gw_model *model; /* its parameters are the initial values; must outlive the backend */
    int threads;     /* OpenMP threads */
    int max_local;   /* samples of this rank in a step, at most */
    bool yield;      /* waits in MPI give the core away, by nonblocking calls that are tested */
    MPI_Comm comm;   /* kept */
    gw_exchange gradients, parameters; /* what the log of exchanges calls them */
} gw_naive_setup;

/** GW_ERR_NOMEM. Not collective. */
gw_err gw_naive_open(gw_naive **out, const gw_naive_setup *setup);
void gw_naive_close(gw_naive *n); /* n may be NULL */

/** A rank's part of a step's samples. */
typedef struct gw_naive_job {
    const gw_dataset *set;
    const uint32_t *idx; /* `local` global indices */
    int local, global;
} gw_naive_job;

/** Gather the samples, and compute the rank's part of the mean gradient, with all threads. Returns
 *  the sum of the losses. Phases are those of the calling thread: data and forward what it does
 *  itself, backward all else: the sum of gradients and the wait for other threads, too. */
double gw_naive_compute(gw_naive *n, const gw_naive_job *job);

/** Parts of `local` samples: each sample; or runs of GW_NAIVE_ROWS at most, as many a thread.
 *  gw_naive_rows: samples of the longest part of so many, or fewer. */
enum { GW_NAIVE_ROWS = 1024 };
int gw_naive_parts(const gw_naive_options *o, int threads, int local);
int gw_naive_rows(const gw_naive_options *o, int threads, int local);

/** The rest of a step, in this order. Reduce and publish are collective. */
gw_err gw_naive_reduce(gw_naive *n);           /* of all ranks' gradients */
bool gw_naive_descends(const gw_naive *n);     /* is this rank to: */
void gw_naive_descend(gw_naive *n, double lr); /* param -= lr * gradient */
bool gw_naive_publishes(const gw_naive *n);    /* do the others get what rank 0 then has? */
gw_err gw_naive_publish(gw_naive *n);

/** Bytes of the parameters, and so of what is exchanged. */
size_t gw_naive_bytes(const gw_naive *n);

/** The model's floats become the rounded parameters. */
void gw_naive_tell(const gw_naive *n);

/** Collective, after the last step: the mean over all ranks of what gw_naive_json tells of critical
 *  sections. Nothing to do for NULL. */
gw_err gw_naive_collect(gw_naive *n);

/** `backend` of run.json; n NULL: the fast one, of so many parameters. What does not apply is left
 *  out. Seconds in critical sections are those of a mean step and thread, by the threads' own
 *  clocks, steps before the run that measure overhead included. */
json_t *gw_naive_json(const gw_naive *n, size_t parameters);

#endif
