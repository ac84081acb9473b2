/** gradwire: how gradients travel between the ranks of a model that you train, and what that costs.
 *
 *  A program on several MPI ranks names the tensors of its model, hands over their gradients and
 *  gets back what all ranks agree on. Strategy, algorithm and codec are words, as behind
 *  `gradwire train`; with --out, the run leaves the same folder. Least squares, whole:
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
 *  With "--optimizer adamw" among the words, gradwire_update(g, GRADWIRE_ALL, 0.3f) stands in the place
 *  of the loop over gradwire_owned.
 *
 *  Functions return 0 or more, or a negative error, whose line gradwire_error has. Collective, with
 *  all ranks of the communicator: new, open, lend, end, settle, epoch, mean, save, load, close; what
 *  one of them finds wrong, all ranks learn. Any other error after open is this rank's alone
 *  (gradwire_alone), while others may be waiting for it: end the job.
 *
 *  Only the thread that called gradwire_new calls. A process may have several handles, all of one
 *  thread: the first records, and what the others cost is a part of its batches; it is closed last.
 *  Their calls may come in any order that all ranks have in common. The MPI thread level
 *  MPI_THREAD_FUNNELED is enough, except for progress=thread. The library never catches signals, and
 *  changes neither MPI's error handlers of yours, nor OpenMP's threads, nor the floating-point state.
 *  It prints and ends the job where ranks would wait forever otherwise, and only
 *  there: --hang-timeout (600 s) without progress within a function, or a process that ends with a
 *  handle open and exit status 0, or calls MPI_Finalize so. */
#ifndef GRADWIRE_H
#define GRADWIRE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** In the place of a group: all of them. */
#define GRADWIRE_ALL (-1)

/** One model's exchange, and its run. */
typedef struct gradwire gradwire;

/** What a batch's time is spent on. GRADWIRE_MPI: MPI calls of the caller's own. */
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

/** The line of this thread's last error; valid until its next call. Never NULL. */
const char *gradwire_error(void);

/** Nonzero if no other rank learns of error `e`: end the job with MPI_Abort, or else ranks that
 *  wait for this one wait forever. */
int gradwire_alone(int e);

/** Start MPI, at the thread level that `words` ask for, unless the caller did (in which case the
 *  level must do); *rank and *ranks (both may be NULL) are those of MPI_COMM_WORLD. MPI that this
 *  started ends when the process exits with no handle open; where a rank does so with an exit status
 *  other than 0 and the others do not, the job is ended. Collective over MPI_COMM_WORLD. */
int gradwire_start(const char *words, int *rank, int *ranks);

/** A handle. `comm`: MPI_Comm_c2f() of a communicator, which is duplicated; negative: of
 *  MPI_COMM_WORLD. `words`: options as behind `gradwire train`, split at blanks; quotes ('..' or
 *  "..") keep blanks. Those that concern the exchange and the run's folder are known; docs/library.md
 *  lists them. The environment's GRADWIRE is appended, and wins. NULL: no words. Collective. */
int gradwire_new(gradwire **out, int comm, const char *words);

/** Before open, once for each tensor, on all ranks alike, in the order of the forward pass: `n`
 *  float32, as a matrix of `rows` rows or, rows 0, a vector. Groups rise from 0; a group is finished
 *  and read as one: a layer, say. `param`: the caller's parameters, in place until close; NULL: the
 *  library's memory (--parameters parts: none). Returns the tensor's index: 0, 1, .. */
int gradwire_tensor(gradwire *g, const char *name, int group, size_t n, size_t rows, float *param);

/** Collective: the exchange begins, the run's folder too. Rank 0's parameters go to all ranks,
 *  except into the library's memory, which is zero, and with --parameters parts. */
int gradwire_open(gradwire *g);

/** After open: n floats of the library's, until close. GRADWIRE_PARAM: those of a tensor whose param
 *  was NULL. GRADWIRE_GRAD: where a gradient may be written to save a copy (see ready). NULL: there
 *  is no such memory. */
float *gradwire_memory(gradwire *g, int tensor, int which);

/** A batch begins: `samples` of this rank (0: none, as of a parameter server), `global` of all. Again
 *  before its first gradient: the numbers were others. One that has none at the end of the run is
 *  dropped. */
int gradwire_begin(gradwire *g, long samples, long global);

/** What the time from now on is spent on; calls of the library keep their own account. A batch
 *  begins with GRADWIRE_OTHER. */
int gradwire_phase(gradwire *g, int phase);

/** The gradients of `n` tensors are final: tensor[i]'s lies at grad[i], and there the result will
 *  lie; it must stay until finish. A NULL, or grad NULL: it lies in gradwire_memory(GRADWIRE_GRAD).
 *  A gradient is the mean over this rank's samples; --gradient scaled: the sum of them divided by
 *  the global batch. Every tensor once a batch, before the first finish; backward order overlaps
 *  best. Without samples gradients are not read. */
int gradwire_ready(gradwire *g, int n, const int *tensor, float *const *grad);

/** Collective, after open: gradients will lie in the `bytes` at `memory`, which are mapped shared,
 *  read and write, from the beginning of the file `fd` (negative: this rank has none), and stay so
 *  until close. 1: the ranks sum what lies there in place, without copies. 0: all of them copy as
 *  before, and gradwire_error says why: the exchange cannot do it (gradwire_text "in_place" is
 *  "no"), or a rank could not lend or map. */
int gradwire_lend(gradwire *g, void *memory, size_t bytes, int fd);

/** Between kernels: moves on what is under way. Returns at once. */
int gradwire_poll(gradwire *g);

/** Wait for a group's exchange. 1: the gradient buffers have the result: update what this rank owns
 *  (gradwire_owned). 0: there is nothing to update by (--comm delayed, first batch; a batch
 *  that is left out). Groups rise, or GRADWIRE_ALL. With --update lazy each is finished, updated and awaited in the next
 *  batch, before the forward pass reads it. */
int gradwire_finish(gradwire *g, int group);

/** After open: the i-th piece that this rank updates: floats [*from, *from + *n) of *tensor. The
 *  same in each batch. Returns 1, or 0: there are no more. */
int gradwire_owned(gradwire *g, int i, int *tensor, size_t *from, size_t *n);

/** Between finish and updated, of a program that brings no optimizer: the owned pieces of a finished
 *  group move by the rule of the words --optimizer, --momentum and --weight-decay, along what finish
 *  left in the gradient buffers, at this rate. Nothing moves where finish found nothing to update
 *  by. The rule's state is part of gradwire_save. */
int gradwire_update(gradwire *g, int group, float lr);

/** The owned pieces of a finished group are updated. GRADWIRE_ALL also waits, as await does. */
int gradwire_updated(gradwire *g, int group);

/** Wait until a group's parameters may be read: after updated by groups. */
int gradwire_await(gradwire *g, int group);

/** 1: the batch is left out on all ranks (--comm local, diloco, gossip and noloco: on this one), since a gradient of
 *  some rank was not finite (--on-nan skip), or the batch was cancelled. finish then returned 0 and
 *  left zeros where gradients were, and residuals, factors and momentum of the exchange are as
 *  before the batch; `delayed` still hands out the batch before it. After finish (--update lazy:
 *  after end), until the next batch's first ready. */
int gradwire_left_out(gradwire *g);

/** In the place of what is left of a batch, gradwire_end included: give it up. On any number of
 *  ranks; the others end it as usual, and it is left out on all. After finish it ends without an
 *  update, and what was exchanged is lost. Collective, as what it takes the place of. */
int gradwire_cancel(gradwire *g);

/** The batch is over; `loss`: the mean over this rank's samples. Collective: at times it writes
 *  rows to the run's folder. */
int gradwire_end(gradwire *g, double loss);

/** Between batches, before parameters are evaluated or saved: all replicas agree afterwards.
 *  Nothing may be pending. Collective. */
int gradwire_settle(gradwire *g);

/** Before gradwire_epoch: its row's loss and accuracy on samples kept for validation, which, unlike
 *  those of the test, may choose among runs. NaN: not measured. Equal on all ranks. */
int gradwire_validated(gradwire *g, double loss, double accuracy);

/** An epoch is over: a row of epochs.csv. NaN: not tested. Settles first. Collective. */
int gradwire_epoch(gradwire *g, double test_loss, double test_accuracy);

/** Between batches: what the exchange carries from batch to batch, of this rank, in memory that
 *  free() gives back; parameters are the caller's affair. Collective. */
int gradwire_save(gradwire *g, void **bytes, size_t *n);

/** After open, before the first batch: continue from what this rank had saved, with the same words,
 *  tensors and number of ranks. Collective. */
int gradwire_load(gradwire *g, const void *bytes, size_t n);

/** Collective, between batches or in one, wherever all ranks call it: value[0..n) become their means
 *  over the ranks, with the same bits on all of them. `weight`: of this rank's, its number of
 *  samples, say; one of 0 is not read. NaN: all weights are 0. */
int gradwire_mean(gradwire *g, int n, double *value, double weight);

/** The last batch's figure in a column of batches.csv, such as "wall_s" or "wire_bytes", on this
 *  rank. NaN: not known. */
double gradwire_figure(const gradwire *g, const char *column);

/** "strategy", its "shape" (of the exchange: "whole", "buckets", "layers", "shards", "parameters",
 *  "other"), "mean" ("yes": all ranks get the mean gradient), "late" ("yes": an earlier step's),
 *  "directs" ("yes": no gradient, but the direction of an update: subtract it times the rate) and
 *  "rejoins" ("yes": and nothing else, no weight decay: gradwire_finish may put parameters back);
 *  "compares" ("yes": --verify-every has parameters compared after batches, too), "algorithm",
 *  "codec", "error_feedback", "update", "notes", "mpi", "thread_level", "out", "version", "servers"
 *  (so many ranks, from 0 on, only serve), "in_place" ("yes": gradwire_lend saves copies), "polls"
 *  ("yes": gradwire_poll moves something on), "unmet": lines on what was asked for and does not
 *  happen here, such as a codec that encodes nothing. Valid until close; notes until the next
 *  gradwire_lend, unmet until it is asked for again. NULL: no such key. */
const char *gradwire_text(const gradwire *g, const char *key);

/** Ends the exchange, completes the run's folder and frees the handle, after an error too. NULL:
 *  nothing. Collective, unless an error was this rank's alone. */
int gradwire_close(gradwire *g);

#ifdef __cplusplus
}
#endif

#endif
