/** gradwire: how gradients travel between the ranks of a model that you train, and what that costs.
 *
 *  A program on several MPI ranks declares the tensors of its model, hands over their gradients and
 *  gets back what all ranks agree on. Words choose strategy, algorithm and codec, as the options of
 *  `gradwire train` do; with --out, the run writes the same folder. A complete program, least
 *  squares:
 *
 *      #include <gradwire.h>
 *      #include <stdio.h>
 *      #include <stdlib.h>
 *
 *      enum { N = 100, SAMPLES = 32 };
 *
 *      static int check(int e) {
 *          if (e >= 0)
 *              return e;
 *          fprintf(stderr, "%s\n", gradwire_error());
 *          exit(1);
 *      }
 *
 *      int main(void) {
 *          static float w[N], grad[N], x[N];
 *          float *grads[] = {grad};
 *          const char *words = "--comm sharded --compress qsgd";
 *          int rank, ranks, tensor;
 *          size_t from, n;
 *          gradwire *g;
 *          check(gradwire_start(words, &rank, &ranks));
 *          check(gradwire_new(&g, -1, words));
 *          tensor = check(gradwire_tensor(g, "w", 0, N, 0, w));
 *          check(gradwire_open(g));
 *          srand((unsigned)rank + 1);
 *          for (int step = 0; step < 200; step++) {
 *              double loss = 0;
 *              check(gradwire_begin(g, SAMPLES, (long)SAMPLES * ranks));
 *              check(gradwire_phase(g, GRADWIRE_BACKWARD));
 *              for (int i = 0; i < N; i++)
 *                  grad[i] = 0;
 *              for (int s = 0; s < SAMPLES; s++) {
 *                  float error = 0;
 *                  for (int i = 0; i < N; i++) {
 *                      x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
 *                      error += x[i] * (w[i] - 1); // every weight should become 1
 *                  }
 *                  loss += error * error / SAMPLES;
 *                  for (int i = 0; i < N; i++)
 *                      grad[i] += 2 * error * x[i] / SAMPLES;
 *              }
 *              check(gradwire_ready(g, 1, &tensor, grads));
 *              int update = check(gradwire_finish(g, GRADWIRE_ALL));
 *              check(gradwire_phase(g, GRADWIRE_UPDATE));
 *              for (int i = 0, t; update && check(gradwire_owned(g, i, &t, &from, &n)); i++)
 *                  for (size_t k = from; k < from + n; k++)
 *                      w[k] -= 0.3f * grad[k];
 *              check(gradwire_updated(g, GRADWIRE_ALL));
 *              check(gradwire_end(g, loss));
 *          }
 *          return check(gradwire_close(g));
 *      }
 *
 *  With "--optimizer adamw" among the words, gradwire_update(g, GRADWIRE_ALL, 0.3f) replaces the
 *  loop over gradwire_owned.
 *
 *  Functions return 0 or more, or a negative error; gradwire_error then returns one line about it.
 *  These are collective over all ranks of the communicator: new, open, share, lend, end, settle,
 *  epoch, mean, save, load, close. An error in one of them reaches all ranks. Any other error after
 *  open is this rank's alone (gradwire_alone), and other ranks may be waiting for it: end the job.
 *
 *  Call a handle only from the thread that called gradwire_new. A process may have several handles,
 *  all on one thread. The first one records, and what the others cost is part of its batches; close
 *  it last. Calls of different handles may come in any order, if it is the same on all ranks. The
 *  MPI thread level MPI_THREAD_FUNNELED is enough, except for progress=thread. The library never
 *  catches signals, and leaves your MPI error handlers, OpenMP's threads and the floating-point
 *  state as they are. It prints and ends the job only where ranks would otherwise wait forever: a
 *  function makes no progress for --hang-timeout (600 s), or a process with a handle open ends or
 *  calls MPI_Finalize. A child (fork) of such a process may end as it likes, and calls nothing. */
#ifndef GRADWIRE_H
#define GRADWIRE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** All groups, where a function takes a group. */
#define GRADWIRE_ALL (-1)

/** One model's exchange, and its run. */
typedef struct gradwire gradwire;

/** What a batch's time is spent on. GRADWIRE_MPI: the caller's own MPI calls. */
enum {
    GRADWIRE_OTHER,
    GRADWIRE_DATA,
    GRADWIRE_FORWARD,
    GRADWIRE_BACKWARD,
    GRADWIRE_UPDATE,
    GRADWIRE_CHECKPOINT,
    GRADWIRE_MPI
};

/** The two memories of a tensor. */
enum { GRADWIRE_PARAM, GRADWIRE_GRAD };

/** One line about this thread's last error; valid until its next call. Never NULL. */
const char *gradwire_error(void);

/** Nonzero if no other rank learns of error `e`: end the job with MPI_Abort, or ranks that wait for
 *  this one wait forever. */
int gradwire_alone(int e);

/** Start MPI at the thread level that `words` need. If the caller has started MPI, only check that
 *  its level is high enough. *rank and *ranks (both may be NULL) are those of MPI_COMM_WORLD. If
 *  this function started MPI, MPI ends when the process exits with no handle open; a rank that exits
 *  so with another status than 0, while others go on, ends the job. Collective over all ranks. */
int gradwire_start(const char *words, int *rank, int *ranks);

/** Check words as gradwire_new would, but on this rank only and without MPI. NULL: they are
 *  refused, and gradwire_error says why. Else what gradwire_text would return under `key` for a
 *  handle of these words that is not open yet; "" for "mpi", "thread_level" and NULL. Valid until
 *  the next call. */
const char *gradwire_words(const char *words, const char *key);

/** Make a handle. `comm`: MPI_Comm_c2f() of a communicator, which is duplicated; negative:
 *  MPI_COMM_WORLD. `words`: options of `gradwire train`, split at blanks; quotes ('..' or "..")
 *  keep blanks; NULL: none. docs/library.md lists those that apply, about the exchange and the
 *  run's folder. The environment variable GRADWIRE is appended, and wins. Collective. */
int gradwire_new(gradwire **out, int comm, const char *words);

/** Declare a tensor: before open, once for each, alike on all ranks, in the order of the forward
 *  pass. It has `n` float32, as a matrix of `rows` rows or (rows 0) a vector. Groups count up from
 *  0; a group, such as a layer, is finished and read as one. `param`: the caller's parameters, in
 *  place until close; NULL: memory of the library (--parameters parts: none). Returns the tensor's
 *  index: 0, 1, .. */
int gradwire_tensor(gradwire *g, const char *name, int group, size_t n, size_t rows, float *param);

/** Begin the exchange and the run's folder. Rank 0's parameters go to all ranks, except into memory
 *  of the library, which is zero, and with --parameters parts. Collective. */
int gradwire_open(gradwire *g);

/** After open, between batches: copy rank 0's `bytes` at `memory`, of any type, to all ranks. It
 *  makes alike what is not trained, and so no tensor: frozen parameters, statistics. Collective. */
int gradwire_share(gradwire *g, void *memory, size_t bytes);

/** After open: a tensor's n floats in memory of the library, valid until close. GRADWIRE_PARAM: of
 *  a tensor whose param was NULL. GRADWIRE_GRAD: a gradient may be written there to save a copy
 *  (see ready). NULL: there is no such memory. */
float *gradwire_memory(gradwire *g, int tensor, int which);

/** Begin a batch of `samples` on this rank (0: none, as on a parameter server), `global` on all. A
 *  second call before its first gradient corrects the numbers. A batch without a gradient at the
 *  end of the run is dropped. */
int gradwire_begin(gradwire *g, long samples, long global);

/** Set what the time from now on is spent on. Calls of the library count as their own. A batch
 *  begins with GRADWIRE_OTHER. */
int gradwire_phase(gradwire *g, int phase);

/** The gradients of `n` tensors are final: that of tensor[i] is at grad[i], where the result will
 *  be, too; the memory must stay until finish. If grad or grad[i] is NULL, it is in
 *  gradwire_memory(GRADWIRE_GRAD). A gradient is the mean over this rank's samples; --gradient
 *  scaled: their sum divided by the global batch. Announce every tensor once per batch, before the
 *  first finish; the order of the backward pass overlaps best. Without samples gradients are not
 *  read. */
int gradwire_ready(gradwire *g, int n, const int *tensor, float *const *grad);

/** Lend memory in which gradients will lie, after open: `bytes` at `memory`, mapped shared for
 *  reading and writing from the beginning of the file `fd` (negative: this rank has none), until
 *  close. Returns 1 if the ranks sum gradients there in place, without copies. Returns 0 if all
 *  ranks copy as before; gradwire_error says why: the exchange cannot do it (gradwire_text
 *  "in_place" is "no"), or a rank could not lend or map. Collective. */
int gradwire_lend(gradwire *g, void *memory, size_t bytes, int fd);

/** Between kernels: advance the exchanges that are under way. Returns at once. */
int gradwire_poll(gradwire *g);

/** Wait for a group's exchange; groups in rising order, or GRADWIRE_ALL. Returns 1 if the gradient
 *  buffers have the result: update what this rank owns (gradwire_owned). Returns 0 if there is
 *  nothing to update by (the first batch of --comm delayed; a batch that is left out). With
 *  --update lazy each group is finished, updated and awaited in the next batch, before the forward
 *  pass reads it. */
int gradwire_finish(gradwire *g, int group);

/** After open: the i-th piece that this rank updates, floats [*from, *from + *n) of *tensor. It is
 *  the same in each batch. Returns 1, or 0 where there are no more. */
int gradwire_owned(gradwire *g, int i, int *tensor, size_t *from, size_t *n);

/** For programs without an optimizer of their own, between finish and updated: move the owned
 *  pieces of a finished group by the rule of --optimizer, --momentum and --weight-decay, along the
 *  gradient buffers that finish left, at this rate. Nothing moves if finish returned 0.
 *  gradwire_save keeps the rule's state. */
int gradwire_update(gradwire *g, int group, float lr);

/** The owned pieces of a finished group are updated. GRADWIRE_ALL also waits, as await does. */
int gradwire_updated(gradwire *g, int group);

/** Wait until a group's parameters may be read, after gradwire_updated of single groups. */
int gradwire_await(gradwire *g, int group);

/** Returns 1 if the batch is left out on all ranks (--comm local, diloco, gossip and noloco: on
 *  this one), because some rank's gradient was not finite (--on-nan skip) or the batch was
 *  cancelled. finish then returned 0 and left zeros in place of gradients, and the exchange's
 *  residuals, factors and momentum are as before the batch; `delayed` still returns the batch
 *  before it. Valid from finish (--update lazy: from end) to the next batch's first ready. */
int gradwire_left_out(gradwire *g);

/** Give a batch up, instead of its remaining calls, gradwire_end included. Any number of ranks may;
 *  the others end the batch as usual, and it is left out on all. After finish the batch ends
 *  without an update, and the exchanged gradients are lost. Collective, as are the calls that it
 *  replaces. */
int gradwire_cancel(gradwire *g);

/** End the batch; `loss`: the mean over this rank's samples. Collective: it writes rows to the
 *  run's folder at times. */
int gradwire_end(gradwire *g, double loss);

/** Make all replicas agree: between batches, before parameters are evaluated or saved. Nothing may
 *  be pending. Collective. */
int gradwire_settle(gradwire *g);

/** Before gradwire_epoch: the loss and accuracy on validation samples for its row. Unlike those of
 *  the test, they may be used to choose among runs. NaN: not measured. Equal on all ranks. */
int gradwire_validated(gradwire *g, double loss, double accuracy);

/** End an epoch: settle, then add a row to epochs.csv. NaN: not tested. Collective. */
int gradwire_epoch(gradwire *g, double test_loss, double test_accuracy);

/** Between batches: return the state that this rank's exchange carries from batch to batch, in
 *  memory to be freed by free(). The caller saves the parameters. Collective. */
int gradwire_save(gradwire *g, void **bytes, size_t *n);

/** After open, before the first batch: restore what this rank saved, with the same words, tensors
 *  and number of ranks. Collective. */
int gradwire_load(gradwire *g, const void *bytes, size_t n);

/** Replace value[0..n) by their means over the ranks, with the same bits on all; between batches or
 *  in one, wherever all ranks call it. `weight`: of this rank's values, such as its number of
 *  samples; with 0 they are not read. If all weights are 0, the means are NaN. Collective. */
int gradwire_mean(gradwire *g, int n, double *value, double weight);

/** This rank's figure of the last batch in a column of batches.csv, such as "wall_s" or
 *  "wire_bytes". NaN: not known. */
double gradwire_figure(const gradwire *g, const char *column);

/** A fact about the handle, by its key; NULL: no such key. Valid until close, "notes" until the
 *  next gradwire_lend, "unmet" until the next call for it.
 *    "strategy", "algorithm", "codec", "error_feedback", "update", "mpi", "thread_level", "out",
 *    "optimizer", "gradient", "parameters", "version", "notes"
 *    "shape"     of the exchange: "whole", "buckets", "layers", "shards", "parameters", "other"
 *    "mean"      "yes": all ranks get the mean gradient
 *    "late"      "yes": they get that of an earlier step
 *    "directs"   "yes": they get no gradient, but an update's direction: subtract it times the rate
 *    "rejoins"   "yes": apply nothing else, such as weight decay: finish may put parameters back
 *    "compares"  "yes": --verify-every compares parameters after batches, too
 *    "servers"   how many ranks, from 0 on, only serve
 *    "in_place"  "yes": gradwire_lend saves copies
 *    "polls"     "yes": gradwire_poll advances something
 *    "unmet"     lines on what was asked for and does not happen, such as a codec that encodes
 *                nothing */
const char *gradwire_text(const gradwire *g, const char *key);

/** This rank's program is at its end, perhaps before others: leave the handle to the library, and
 *  call it no more. When all processes exit, the library ends a finished batch with this `loss` (see
 *  gradwire_end) and closes the handle; parameters stay in place until then. A process that exits
 *  with status 0 before others waits for them, and says so after 10 s; one that exits with another
 *  status ends the job after 5 s. */
int gradwire_leave(gradwire *g, double loss);

/** End the exchange, complete the run's folder and free the handle, also after an error. NULL:
 *  nothing. Collective, unless an error was this rank's alone. */
int gradwire_close(gradwire *g);

#ifdef __cplusplus
}
#endif

#endif
