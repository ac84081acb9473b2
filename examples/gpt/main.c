/* Trains the GPT of model.h over MPI through gradwire: each rank takes its share of the batch, hands
 * over a block's gradients as soon as the backward pass has them, and updates the pieces it owns:
 * at the end of a batch, or with --update lazy a group at a time, before the next forward pass reads
 * it. */
#include "kernels.h"
#include "model.h"
#include "text.h"

#include <errno.h>
#include <gradwire.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TENSORS = 12 }; /* of a group */

/* ---- the command line ---- */

static const char help[] =
    "usage: gpt --text FILE [--OPTION NUMBER].. [-- GRADWIRE'S OPTIONS]\n"
    "Trains a small GPT on the characters of a text; the last tenth of it is the test.\n"
    "  --steps 3000      batches\n"
    "  --batch 12        sequences a batch, over all ranks\n"
    "  --context 64      characters a sequence\n"
    "  --layers 4        blocks\n"
    "  --heads 4         of attention; they share the width\n"
    "  --width 128       of the residual stream\n"
    "  --rate 0.001      of AdamW: rises over --warmup 100 batches, then falls to a tenth by a cosine\n"
    "  --test 500        batches between tests; 0: none\n"
    "  --held 0          hundredths of the text before that tenth, kept to choose options by\n"
    "  --windows 0       of a test at most, evenly spread; 0: all\n"
    "  --seed 1          of weights and batches\n"
    "Behind --: what `gradwire train` has, such as --comm iallreduce --compress qsgd --out runs/gpt\n";

typedef struct options {
    const char *text;
    gpt_shape shape; /* but for the vocabulary, which is the text's */
    int batch;       /* sequences over all ranks */
    long steps, warmup, every, held, windows;
    double rate;
    uint64_t seed;
    char gradwire[1024]; /* the words behind -- */
} options;

typedef struct setting {
    const char *name;
    int *small;
    long *large, least, most;
} setting;

static int set(options *o, const char *name, const char *value, char *message, size_t room) {
    long seed = -1;
    char *end;
    const setting all[] = {{"--steps", NULL, &o->steps, 1, 100000000},
                           {"--batch", &o->batch, NULL, 1, 4096},
                           {"--context", &o->shape.context, NULL, 1, 4096},
                           {"--layers", &o->shape.layers, NULL, 1, 100},
                           {"--heads", &o->shape.heads, NULL, 1, 128},
                           {"--width", &o->shape.width, NULL, 1, 8192},
                           {"--warmup", NULL, &o->warmup, 0, 100000000},
                           {"--test", NULL, &o->every, 0, 100000000},
                           {"--held", NULL, &o->held, 0, 50},
                           {"--windows", NULL, &o->windows, 0, 100000000},
                           {"--seed", NULL, &seed, 0, 1000000}};
    if (!strcmp(name, "--text")) {
        o->text = value;
        return 0;
    }
    if (!strcmp(name, "--rate")) {
        o->rate = strtod(value, &end);
        if (!*value || *end || !(o->rate > 0 && o->rate < 1)) {
            snprintf(message, room, "--rate %s: must be a number between 0 and 1", value);
            return -1;
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const setting *s = &all[i];
        if (!strcmp(name, s->name)) {
            long n = strtol(value, &end, 10);
            if (!*value || *end || n < s->least || n > s->most) {
                snprintf(message, room, "%s %s: must be a number from %ld to %ld", name, value,
                         s->least, s->most);
                return -1;
            }
            *(s->large ? s->large : &n) = n;
            *(s->small ? s->small : &(int){0}) = (int)n;
            o->seed = seed < 0 ? o->seed : (uint64_t)seed;
            return 0;
        }
    }
    snprintf(message, room, "%s: no such option; see --help", name);
    return -1;
}

/* 0; or -1, and `message` says what is wrong. `message` is empty if only help was asked for. */
static int options_read(options *o, int argc, char **argv, char *message, size_t room) {
    *o = (options){.shape = {.context = 64, .layers = 4, .heads = 4, .width = 128},
                   .batch = 12,
                   .steps = 3000,
                   .warmup = 100,
                   .every = 500,
                   .rate = 1e-3,
                   .seed = 1};
    *message = 0;
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i += 2) {
        if (!strcmp(argv[i], "--help")) {
            return -1;
        }
        if (i + 1 == argc) {
            snprintf(message, room, "%s: a value is missing; see --help", argv[i]);
            return -1;
        }
        if (set(o, argv[i], argv[i + 1], message, room)) {
            return -1;
        }
    }
    if (!o->text) {
        snprintf(message, room, "--text FILE is missing; see --help");
        return -1;
    }
    if (o->shape.width % o->shape.heads) {
        snprintf(message, room, "--width %d: not a multiple of --heads %d", o->shape.width,
                 o->shape.heads);
        return -1;
    }
    size_t used = 0;
    for (int k = i + 1; k < argc; k++) {
        used += (size_t)snprintf(o->gradwire + used, sizeof o->gradwire - used, "%s%s",
                                 k > i + 1 ? " " : "", argv[k]);
        if (used >= sizeof o->gradwire) {
            snprintf(message, room, "more than %zu characters behind --", sizeof o->gradwire - 1);
            return -1;
        }
    }
    return 0;
}

/* ---- training ---- */

typedef struct job {
    options o;
    int rank, ranks;
    gpt_text text;
    size_t train, held; /* characters; the others are the test */
    gpt *model;
    const gpt_tensor *tensors;
    int count;
    float *first, *second; /* AdamW's moments */
    gradwire *g;
    int lazy;
    int owed;    /* the last batch's gradients are on their way */
    int counted; /* among the updates is this batch's */
    long step, updates;
    size_t *at; /* where sequences begin */
} job;

/* One line from rank 0, or from the one rank that knows of the error, and the end of all. */
static void fail(const job *j, int alone, const char *line) {
    if (alone || j->rank == 0) {
        fprintf(stderr, "gpt: %s\n", line);
    }
    if (alone) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    gradwire_close(j->g);
    exit(2);
}

static int check(const job *j, int e) {
    if (e < 0) {
        fail(j, gradwire_alone(e), gradwire_error());
    }
    return e;
}

/* OpenBLAS would start a thread a core in each rank. Absent in other libraries. */
extern void openblas_set_num_threads(int) __attribute__((weak));

static void build(job *j) {
    options *o = &j->o;
    char line[300];
    if (gpt_text_read(&j->text, o->text)) {
        snprintf(line, sizeof line, "--text %s: %s", o->text, strerror(errno));
        fail(j, 0, line);
    }
    j->held = j->text.n / 100 * (size_t)o->held;
    j->train = j->text.n - j->text.n / 10 - j->held;
    if (j->text.n / 10 <= (size_t)o->shape.context) {
        snprintf(line, sizeof line, "--text %s: %zu characters, too few for --context %d", o->text,
                 j->text.n, o->shape.context);
        fail(j, 0, line);
    }
    if (o->batch < j->ranks) {
        snprintf(line, sizeof line, "--batch %d: fewer sequences than ranks (%d)", o->batch,
                 j->ranks);
        fail(j, 0, line);
    }
    o->shape.vocabulary = j->text.vocabulary;
    int most = (o->batch + j->ranks - 1) / j->ranks;
    j->model = gpt_new(o->shape, most);
    j->at = calloc((size_t)most, sizeof *j->at);
    if (!j->model || !j->at) {
        fail(j, 1, "out of memory");
    }
    gpt_draw(j->model, o->seed);
    j->tensors = gpt_tensors(j->model, &j->count);
    j->first = calloc(gpt_size(j->model), sizeof *j->first);
    j->second = calloc(gpt_size(j->model), sizeof *j->second);
    if (!j->first || !j->second) {
        fail(j, 1, "out of memory");
    }
    check(j, gradwire_new(&j->g, -1, o->gradwire));
    for (int i = 0; i < j->count; i++) {
        const gpt_tensor *t = &j->tensors[i];
        check(j,
              gradwire_tensor(j->g, t->name, t->group, t->n, t->rows, gpt_param(j->model) + t->at));
    }
    check(j, gradwire_open(j->g));
    j->lazy = !strcmp(gradwire_text(j->g, "update"), "lazy");
}

/* The backward pass has a group's gradients: from here on they travel. */
static void group_ready(void *to, int group) {
    job *j = to;
    int index[MOST_TENSORS], n = 0;
    float *grad[MOST_TENSORS];
    for (int i = 0; i < j->count; i++) {
        if (j->tensors[i].group == group) {
            index[n] = i;
            grad[n++] = gpt_grad(j->model) + j->tensors[i].at;
        }
    }
    check(j, gradwire_ready(j->g, n, index, grad));
}

static double rate(const options *o, long step) {
    if (step < o->warmup) {
        return o->rate * (double)(step + 1) / (double)o->warmup;
    }
    double part = (double)(step - o->warmup) / fmax(1, (double)(o->steps - o->warmup));
    return o->rate * (0.1 + 0.45 * (1 + cos(3.141592653589793 * part)));
}

static void update(job *j, int group) {
    int tensor;
    size_t from, n;
    j->updates += !j->counted;
    j->counted = 1;
    for (int i = 0; check(j, gradwire_owned(j->g, i, &tensor, &from, &n)); i++) {
        const gpt_tensor *t = &j->tensors[tensor];
        size_t at = t->at + from;
        if (group == GRADWIRE_ALL || group == t->group) {
            gpt_adamw(gpt_param(j->model) + at, gpt_grad(j->model) + at, j->first + at,
                      j->second + at, n, rate(&j->o, j->step), t->rows ? 0.1 : 0, j->updates);
        }
    }
}

/* The end of a group's exchange, or of all that is owed. */
static void complete(job *j, int group) {
    if (check(j, gradwire_finish(j->g, group))) {
        check(j, gradwire_phase(j->g, GRADWIRE_UPDATE));
        update(j, group);
    }
    check(j, gradwire_updated(j->g, group));
    check(j, gradwire_await(j->g, group));
}

static void catch_up(job *j) {
    if (j->owed) {
        complete(j, GRADWIRE_ALL);
    }
    j->owed = 0;
}

/* The forward pass is about to read a group. */
static void group_needed(void *to, int group) {
    job *j = to;
    complete(j, group);
    check(j, gradwire_phase(j->g, GRADWIRE_FORWARD));
}

static double train_step(job *j, long step) {
    int from = j->o.batch * j->rank / j->ranks, to = j->o.batch * (j->rank + 1) / j->ranks;
    check(j, gradwire_begin(j->g, to - from, j->o.batch));
    check(j, gradwire_phase(j->g, GRADWIRE_DATA));
    for (int i = from; i < to; i++) {
        uint64_t number = (uint64_t)step * (uint64_t)j->o.batch + (uint64_t)i;
        j->at[i - from] = gpt_text_draw(j->o.seed, number, j->train - (size_t)j->o.shape.context);
    }
    check(j, gradwire_phase(j->g, GRADWIRE_FORWARD));
    double loss =
        gpt_forward(j->model, j->text.at, j->at, to - from, j->owed ? group_needed : NULL, j);
    check(j, gradwire_phase(j->g, GRADWIRE_BACKWARD));
    gpt_backward(j->model, group_ready, j);
    j->owed = 1;
    j->counted = 0;
    j->step = step;
    if (!j->lazy) {
        catch_up(j);
    }
    check(j, gradwire_end(j->g, loss));
    return loss;
}

/* Mean loss over windows side by side in n characters; each rank takes its share of them. */
static double mean_loss(job *j, size_t begin, size_t n) {
    size_t context = (size_t)j->o.shape.context, room = (size_t)(j->o.batch / j->ranks);
    size_t all = (n - 1) / context, most = (size_t)j->o.windows;
    size_t count = most && most < all ? most : all;
    size_t from = count * (size_t)j->rank / (size_t)j->ranks;
    size_t to = count * ((size_t)j->rank + 1) / (size_t)j->ranks;
    double sum = 0;
    for (size_t i = from; i < to; i += room) {
        size_t samples = to - i < room ? to - i : room;
        for (size_t k = 0; k < samples; k++) {
            j->at[k] = begin + (i + k) * all / count * context;
        }
        sum += gpt_forward(j->model, j->text.at, j->at, (int)samples, NULL, NULL) * (double)samples;
    }
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum / (double)count;
}

static void test(job *j, long done) {
    catch_up(j);
    check(j, gradwire_settle(j->g));
    if (j->held) {
        check(j, gradwire_validated(j->g, mean_loss(j, j->train, j->held), NAN));
    }
    size_t end = j->train + j->held;
    double loss = mean_loss(j, end, j->text.n - end);
    check(j, gradwire_epoch(j->g, loss, NAN));
    if (j->rank == 0) {
        printf("step %ld: test %.5f nats a character\n", done, loss);
        fflush(stdout);
    }
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int later(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void train(job *j) {
    double *times = calloc((size_t)j->o.steps, sizeof *times), loss = 0;
    if (!times) {
        fail(j, 1, "out of memory");
    }
    for (long step = 0; step < j->o.steps; step++) {
        double begin = seconds();
        loss = train_step(j, step);
        times[step] = seconds() - begin;
        long done = step + 1;
        if (j->o.every && (done % j->o.every == 0 || done == j->o.steps)) {
            test(j, done);
        }
    }
    catch_up(j);
    qsort(times, (size_t)j->o.steps, sizeof *times, later);
    if (j->rank == 0) {
        printf("%ld steps, %d ranks, median %.2f ms, last loss %.4f\n", j->o.steps, j->ranks,
               1e3 * times[j->o.steps / 2], loss);
    }
    free(times);
}

int main(int argc, char **argv) {
    job j = {0};
    char message[300];
    int bad = options_read(&j.o, argc, argv, message, sizeof message);
    check(&j, gradwire_start(bad ? NULL : j.o.gradwire, &j.rank, &j.ranks));
    if (bad && !*message) {
        if (j.rank == 0) {
            fputs(help, stdout);
        }
        return 0;
    }
    if (bad) {
        fail(&j, 0, message);
    }
    if (openblas_set_num_threads) {
        openblas_set_num_threads(1);
    }
    build(&j);
    train(&j);
    check(&j, gradwire_close(j.g));
    gpt_free(j.model);
    free(j.text.at);
    free(j.first);
    free(j.second);
    free(j.at);
    return 0;
}
