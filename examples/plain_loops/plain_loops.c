/* Trains a perceptron on Fashion-MNIST as programs do that are parallelized for the first time:
 * plain loops in doubles, a copy of activations and gradient for each thread, one blocking exchange
 * per step. examples/README.md has its options; gradwire gets all others. CMakeLists.txt has it
 * compiled without vectorization, so that no loop turns into a better one, but for `omp simd`. */
#include "base/clones.h"

#include <cblas.h>
#include <err.h>
#include <gradwire.h>
#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { PIXELS = 784, CLASSES = 10, MOST_LAYERS = 8, MOST_ROWS = 1024 /* of a part */ };
enum { SAMPLE, BATCH, BLOCKED, SIMD, BLAS }; /* how products are computed */

/* Weights (out, in), a row for each neuron, begin at `at` of the parameters; biases follow. */
typedef struct layer {
    long in, out, at;
} layer;

/* A thread's own memory. Rows are samples. */
typedef struct work {
    double *y[MOST_LAYERS + 1];  /* inputs (rows, PIXELS), then outputs of each layer (rows, out) */
    double *dy[MOST_LAYERS + 1]; /* gradients by these; there is none by the inputs */
    double *grad;                /* by the parameters: of a part or, by reduction, of all so far */
    int begun;                   /* it computed a part in this pass */
    long right;                  /* samples that it classified correctly in this pass */
} work;

typedef struct images {
    long n; /* of an epoch */
    uint8_t *pixels, *labels;
    uint32_t *order; /* in which an epoch takes them */
} images;

typedef struct job {
    char **words; /* options; those that were read are empty */
    const char *data;
    int rank, ranks, threads, form, reduction, dynamic, sigmoid, log_loss, layers;
    long batch, size; /* size: parameters */
    double rate;
    images train, test;
    layer layer[MOST_LAYERS];
    double *param, *sum;  /* sum: of gradients, by the critical section */
    float *values, *grad; /* of all parameters, in gradwire's memory */
    work *work;           /* one for each thread */
    gradwire *g;
} job;

/* Ends the program with a line from rank 0, or from the one rank that knows of the error. */
static void fail(const job *j, int alone, const char *form, ...) {
    va_list values;
    va_start(values, form);
    if (alone || j->rank == 0)
        vwarnx(form, values);
    if (!alone)
        gradwire_close(j->g);
    exit(j->grad ? 1 : 2);
}

static void check(const job *j, int e) {
    if (e < 0)
        fail(j, gradwire_alone(e), "%s", gradwire_error());
}

static void *allocate(const job *j, size_t n, size_t size) {
    void *memory = calloc(n, size);
    if (!memory)
        fail(j, 1, "out of memory");
    return memory;
}

/* ---- products: C (m, n) = A (m, k) B (k, n), or (add) C += A B ---- */

/* Element (i, j) is at[i * row + j * col]; one of the strides is 1. C is dense and row-major. */
typedef struct matrix {
    const double *at;
    long row, col;
} matrix;

/* A scalar product for each element of C. */
static void by_scalars(long m, long n, long k, matrix a, matrix b, double *c, int add) {
    for (long i = 0; i < m; i++)
        for (long j = 0; j < n; j++, c++) {
            double sum = 0;
            for (long l = 0; l < k; l++)
                sum += a.at[i * a.row + l * a.col] * b.at[l * b.row + j * b.col];
            *c = add ? *c + sum : sum;
        }
}

/* Adds multiples of B's rows to C's, ldc apart. For one sample m or k is 1: two loops are left. */
static void by_rows(long m, long n, long k, matrix a, matrix b, double *c, long ldc, int add) {
    for (long i = 0; i < m; i++, c += ldc)
        for (long l = 0; l < k; l++) {
            const double x = a.at[i * a.row + l * a.col], *y = b.at + l * b.row;
            if (!add && l == 0)
                memset(c, 0, (size_t)n * sizeof *c);
            for (long j = 0; j < n; j++)
                c[j] += x * y[j];
        }
}

/* The same by vector instructions. */
GW_CLONES static void by_vectors(long m, long n, long k, matrix a, matrix b, double *c, long ldc,
                                 int add) {
    for (long i = 0; i < m; i++, c += ldc)
        for (long l = 0; l < k; l++) {
            const double x = a.at[i * a.row + l * a.col], *y = b.at + l * b.row;
            if (!add && l == 0)
                memset(c, 0, (size_t)n * sizeof *c);
#pragma omp simd
            for (long j = 0; j < n; j++)
                c[j] += x * y[j];
        }
}

/* Copies a tile of B, so that it is dense and stays in the first cache while all of A passes. */
static void by_tiles(long m, long n, long k, matrix a, matrix b, double *c, int add, int simd) {
    enum { DEPTH = 32, COLS = 64 };
    double tile[DEPTH * COLS];
    for (long j = 0; j < n; j += COLS)
        for (long l = 0; l < k; l += DEPTH) {
            long cols = n - j < COLS ? n - j : COLS, depth = k - l < DEPTH ? k - l : DEPTH;
            matrix x = {a.at + l * a.col, a.row, a.col}, y = {tile, COLS, 1};
            for (long p = 0; p < depth; p++)
                for (long q = 0; q < cols; q++)
                    tile[p * COLS + q] = b.at[(l + p) * b.row + (j + q) * b.col];
            (simd ? by_vectors : by_rows)(m, cols, depth, x, y, c + j, n, add || l > 0);
        }
}

static void by_blas(long m, long n, long k, matrix a, matrix b, double *c, int add) {
    const CBLAS_TRANSPOSE x = a.col == 1 ? CblasNoTrans : CblasTrans;
    const CBLAS_TRANSPOSE y = b.col == 1 ? CblasNoTrans : CblasTrans;
    int lda = (int)(a.col == 1 ? a.row : a.col), ldb = (int)(b.col == 1 ? b.row : b.col);
    cblas_dgemm(CblasRowMajor, x, y, (int)m, (int)n, (int)k, 1, a.at, lda, b.at, ldb, add, c,
                (int)n);
}

static void multiply(const job *j, long m, long n, long k, matrix a, matrix b, double *c, int add) {
    if (j->form == BLAS)
        by_blas(m, n, k, a, b, c, add);
    else if (j->form == BLOCKED || j->form == SIMD)
        by_tiles(m, n, k, a, b, c, add, j->form == SIMD);
    else if (j->form == SAMPLE && b.col == 1)
        by_rows(m, n, k, a, b, c, n, add);
    else
        by_scalars(m, n, k, a, b, c, add);
}

/* ---- passes over some rows ---- */

static void forward(const job *j, work *w, long rows) {
    for (int i = 0; i < j->layers; i++) {
        layer l = j->layer[i];
        const double *weight = j->param + l.at, *bias = weight + l.in * l.out;
        double *y = w->y[i + 1];
        multiply(j, rows, l.out, l.in, (matrix){w->y[i], l.in, 1}, (matrix){weight, 1, l.in}, y, 0);
        for (long r = 0; r < rows; r++, y += l.out)
            for (long k = 0; k < l.out; k++) {
                double z = y[k] + bias[k];
                y[k] = i + 1 == j->layers ? z : j->sigmoid ? 1 / (1 + exp(-z)) : z < 0 ? 0 : z;
            }
    }
}

/* Returns a sample's loss and sets dy to its gradient times `scale`: softmax with cross-entropy, or
 * sigmoids with log loss. exp is taken only of what is not positive. */
static double loss_of(int sigmoid, const double *y, double *dy, int label, int best, double scale) {
    double sum = 0, loss = 0;
    for (int k = 0; k < CLASSES; k++) {
        double small = exp(sigmoid ? -fabs(y[k]) : y[k] - y[best]);
        sum += small;
        loss += sigmoid ? fmax(y[k], 0) + log1p(small) : 0;
        dy[k] = sigmoid ? (y[k] > 0 ? 1 : small) / (1 + small) : small;
    }
    for (int k = 0; k < CLASSES; k++)
        dy[k] = scale * (dy[k] / (sigmoid ? 1 : sum) - (k == label));
    return (sigmoid ? loss : log(sum) + y[best]) - y[label];
}

/* Computes w->grad from the last dy, or (add) adds to it. */
static void backward(const job *j, work *w, long rows, int add) {
    for (int i = j->layers - 1; i >= 0; i--) {
        layer l = j->layer[i];
        matrix x = {w->y[i], l.in, 1}, weight = {j->param + l.at, l.in, 1};
        double *grad = w->grad + l.at, *bias = grad + l.in * l.out, *dy = w->dy[i + 1];
        const double *y = w->y[i + 1];
        if (!add)
            memset(bias, 0, (size_t)l.out * sizeof *bias);
        for (long k = 0, unit = 0; k < rows * l.out; k++, unit = unit + 1 < l.out ? unit + 1 : 0) {
            dy[k] *= i + 1 == j->layers ? 1 : j->sigmoid ? y[k] * (1 - y[k]) : y[k] > 0;
            bias[unit] += dy[k];
        }
        multiply(j, l.out, l.in, rows, (matrix){dy, 1, l.out}, x, grad, add);
        if (i > 0)
            multiply(j, rows, l.in, l.out, (matrix){dy, l.out, 1}, weight, w->dy[i], 0);
    }
}

/* Sets the phase; only the main thread's are recorded. */
static void tell(const job *j, int phase) {
    if (omp_get_thread_num() == 0)
        check(j, gradwire_phase(j->g, phase));
}

/* Returns the sum of the losses of a part. Unless `scale` is 0, w->grad gets its gradient. */
static double part(const job *j, work *w, const images *s, long at, long rows, double scale) {
    double loss = 0;
    tell(j, GRADWIRE_DATA);
    for (long r = 0; r < rows; r++)
        for (int k = 0; k < PIXELS; k++)
            w->y[0][r * PIXELS + k] = s->pixels[(long)s->order[at + r] * PIXELS + k] / 255.0;
    tell(j, GRADWIRE_FORWARD);
    forward(j, w, rows);
    for (long r = 0; r < rows; r++) {
        const double *y = w->y[j->layers] + r * CLASSES;
        int label = s->labels[s->order[at + r]], best = 0;
        for (int k = 1; k < CLASSES; k++)
            best = y[k] > y[best] ? k : best;
        w->right += best == label;
        loss += loss_of(j->log_loss, y, w->dy[j->layers] + r * CLASSES, label, best, scale);
    }
    tell(j, GRADWIRE_BACKWARD);
    if (scale > 0)
        backward(j, w, rows, j->reduction && w->begun);
    w->begun = 1;
    return loss;
}

/* Returns the sum of all parts' losses. Unless `scale` is 0, j->grad gets their gradient. */
static double pass(const job *j, const images *s, long at, long count, double scale) {
    long each = count / ((long)j->threads * MOST_ROWS) + 1, few = j->dynamic ? 4 : 1;
    long parts = j->form == SAMPLE ? count : j->threads * (each > few ? each : few);
    long size = scale > 0 ? j->size : 0;
    double loss = 0;
    omp_set_schedule(j->dynamic ? omp_sched_dynamic : omp_sched_static, j->dynamic);
    memset(j->sum, 0, (size_t)size * sizeof *j->sum);
#pragma omp parallel num_threads(j->threads) reduction(+ : loss)
    {
        work *w = &j->work[omp_get_thread_num()];
        w->right = w->begun = 0;
#pragma omp for schedule(runtime)
        for (long i = 0; i < parts; i++) {
            long from = at + count * i / parts, to = at + count * (i + 1) / parts;
            if (from == to)
                continue;
            loss += part(j, w, s, from, to - from, scale);
            if (!j->reduction)
#pragma omp critical
                for (long k = 0; k < size; k++)
                    j->sum[k] += w->grad[k];
        }
#pragma omp for schedule(static)
        for (long k = 0; k < size; k++) {
            double sum = j->sum[k];
            for (int t = 0; t < (j->reduction ? j->threads : 0); t++)
                sum += j->work[t].begun ? j->work[t].grad[k] : 0;
            j->grad[k] = (float)sum;
        }
    }
    return loss;
}

static void train(const job *j, long at) {
    long left = j->train.n - at, global = left < j->batch ? left : j->batch;
    long from = global * j->rank / j->ranks, count = global * (j->rank + 1) / j->ranks - from;
    check(j, gradwire_begin(j->g, count, global));
    double loss = pass(j, &j->train, at + from, count, 1.0 / (double)global);
    check(j, gradwire_ready(j->g, 1, &(int){0}, NULL));
    check(j, gradwire_finish(j->g, GRADWIRE_ALL));
    check(j, gradwire_phase(j->g, GRADWIRE_UPDATE));
    check(j, gradwire_update(j->g, GRADWIRE_ALL, (float)j->rate));
    check(j, gradwire_updated(j->g, GRADWIRE_ALL));
#pragma omp parallel for num_threads(j->threads)
    for (long k = 0; k < j->size; k++)
        j->param[k] = j->values[k]; /* the loops compute with doubles */
    check(j, gradwire_end(j->g, count > 0 ? loss / (double)count : 0));
}

static void test(const job *j, long step) {
    long from = j->test.n * j->rank / j->ranks, count = j->test.n * (j->rank + 1) / j->ranks - from;
    double mean[] = {pass(j, &j->test, from, count, 0) / (double)count, 0};
    for (int t = 0; t < j->threads; t++)
        mean[1] += (double)j->work[t].right / (double)count;
    check(j, gradwire_mean(j->g, 2, mean, (double)count));
    check(j, gradwire_epoch(j->g, mean[0], mean[1]));
    if (j->rank == 0)
        printf("step %ld: test loss %.4f, test accuracy %.4f\n", step, mean[0], mean[1]);
}

/* ---- options, data and model ---- */

/* The value of an option, whose words are then read. */
static const char *text(const job *j, const char *name, const char *standard) {
    for (char **word = j->words; *word; word++)
        if (word[1] && strcmp(word[0], name) == 0) {
            standard = word[1];
            word[0] = word[1] = "";
        }
    return standard;
}

/* A number, at least `least`, and whole if that is. */
static double number(const job *j, const char *name, const char *standard, double least) {
    const char *value = text(j, name, standard);
    char *end;
    double found = strtod(value, &end), odd = least == floor(least) ? found - floor(found) : 0;
    if (!*value || *end || odd != 0 || !(found >= least && found <= 1e9))
        fail(j, 0, "%s %s: must be a number such as %s, from %g on", name, value, standard, least);
    return found;
}

/* The place of a word among `choices`, which '|' separates; the first is the default. */
static int choice(const job *j, const char *name, const char *choices) {
    const char *value = text(j, name, NULL), *at = choices;
    size_t n = value ? strlen(value) : strcspn(choices, "|");
    for (int place = 0; at; place++, at = strchr(at, '|'), at += at != NULL)
        if (strcspn(at, "|") == n && (!value || strncmp(at, value, n) == 0))
            return place;
    fail(j, 0, "%s %s: must be %s", name, value, choices);
    return 0;
}

/* Reads the first `most` images of gzipped IDX files; an epoch has each of them `times` times. */
static void read_images(const job *j, images *s, const char *name, long most, long times) {
    uint8_t *bytes[2];
    for (int labels = 0; labels < 2; labels++) {
        char path[4096];
        int size = labels ? 1 : PIXELS;
        snprintf(path, sizeof path, "%s/%s-%s-ubyte.gz", j->data, name,
                 labels ? "labels-idx1" : "images-idx3");
        bytes[labels] = allocate(j, (size_t)most, (size_t)size);
        gzFile in = gzopen(path, "rb");
        gzseek(in, labels ? 8 : 16, SEEK_SET);
        long held = gzread(in, bytes[labels], (unsigned)(most * size)) / size;
        gzclose(in);
        for (long i = 0; labels && i < held; i++)
            held = bytes[1][i] < CLASSES ? held : 0;
        if (held < 1)
            fail(j, 0, "%s: not a file of Fashion-MNIST", path);
        most = held < most ? held : most;
    }
    *s = (images){most * times, bytes[0], bytes[1], allocate(j, (size_t)(most * times), 4)};
    for (long i = 0; i < s->n; i++)
        s->order[i] = (uint32_t)(i % most);
}

static void shuffle(images *s, unsigned short *random) {
    for (long i = s->n - 1; i > 0; i--) {
        long other = (long)(erand48(random) * (double)(i + 1));
        uint32_t image = s->order[i];
        s->order[i] = s->order[other];
        s->order[other] = image;
    }
}

static void lay_out(job *j, const char *widths) {
    const char *at = widths;
    for (long in = PIXELS; at; in = j->layer[j->layers - 1].out) {
        char *end = "";
        long out = *at ? strtol(at, &end, 10) : CLASSES;
        if (out < 1 || out > 1 << 16 || strspn(end, ",") != !!*end || j->layers == MOST_LAYERS)
            fail(j, 0, "--layers %s: must be at most %d widths: a,b,..", widths, MOST_LAYERS - 1);
        j->layer[j->layers++] = (layer){in, out, j->size};
        j->size += (in + 1) * out;
        at = *at ? end + (*end == ',') : NULL;
    }
}

/* Weights are uniform, with He's deviation before ReLU and Glorot's elsewhere; biases are zero. */
static void open_all(job *j, long seed, unsigned short *random) {
    enum { ROOM = 4096 };
    char words[ROOM];
    int used = snprintf(words, ROOM, "--gradient scaled --optimizer sgd --threads %d --seed %ld",
                        j->threads, seed);
    for (char **word = j->words; *word && used < ROOM; word++)
        if (**word)
            used += snprintf(words + used, (size_t)(ROOM - used), " '%s'", *word);
    if (used >= ROOM)
        fail(j, 0, "gradwire's options have more than %d characters", ROOM);
    check(j, gradwire_new(&j->g, -1, words));
    check(j, gradwire_tensor(j->g, "parameters", 0, (size_t)j->size, 0, NULL));
    check(j, gradwire_open(j->g));
    j->values = gradwire_memory(j->g, 0, GRADWIRE_PARAM);
    j->grad = gradwire_memory(j->g, 0, GRADWIRE_GRAD);
    size_t rows = j->form == SAMPLE ? 1 : MOST_ROWS, of = sizeof(double), size = (size_t)j->size;
    j->param = allocate(j, size, of);
    j->sum = allocate(j, size, of);
    j->work = allocate(j, (size_t)j->threads, sizeof *j->work);
    for (int i = 0; i < j->layers; i++) {
        layer l = j->layer[i];
        double most = sqrt(6.0 / (double)(i + 1 < j->layers && !j->sigmoid ? l.in : l.in + l.out));
        for (long k = l.at; k < l.at + l.in * l.out; k++)
            j->param[k] = j->values[k] = (float)(most * (2 * erand48(random) - 1));
    }
    for (work *w = j->work; w < j->work + j->threads; w++) {
        w->grad = allocate(j, size, of);
        w->y[0] = allocate(j, rows * PIXELS, of);
        for (int i = 0; i < j->layers; i++) {
            w->y[i + 1] = allocate(j, rows * (size_t)j->layer[i].out, of);
            w->dy[i + 1] = allocate(j, rows * (size_t)j->layer[i].out, of);
        }
    }
}

/* OpenBLAS would start a thread for each core in each rank. Other libraries lack this function. */
extern void openblas_set_num_threads(int) __attribute__((weak));

int main(int argc, char **argv) {
    static job j;
    j.words = argv + (argc > 0);
    check(&j, gradwire_start(NULL, &j.rank, &j.ranks));
    j.form = choice(&j, "--loops", "sample|batch|blocked|simd|blas");
    j.reduction = choice(&j, "--sum", "critical|reduction");
    j.dynamic = choice(&j, "--schedule", "static|dynamic");
    j.sigmoid = choice(&j, "--activation", "relu|sigmoid");
    j.log_loss = choice(&j, "--output", "softmax|sigmoid");
    j.threads = (int)number(&j, "--threads", "1", 1);
    j.batch = (long)number(&j, "--batch", "64", 1);
    j.rate = number(&j, "--lr", "0.01", 1e-9);
    double epochs = number(&j, "--epochs", "5", 1), steps = number(&j, "--steps", "1e9", 1);
    long seed = (long)number(&j, "--seed", "1", 0), step = 0;
    lay_out(&j, text(&j, "--layers", "256,128"));
    j.data = text(&j, "--data", "fashion-mnist");
    if (strcmp(j.data, "fashion-mnist") == 0)
        j.data = "/usr/share/datasets/fashion-mnist";
    long most = (long)number(&j, "--limit", "60000", 1);
    read_images(&j, &j.train, "train", most, (long)number(&j, "--replicate", "1", 1));
    read_images(&j, &j.test, "t10k", (long)number(&j, "--limit-test", "10000", 1), 1);
    unsigned short random[3] = {(unsigned short)seed, (unsigned short)(seed >> 16), 0};
    open_all(&j, seed, random);
    if (openblas_set_num_threads)
        openblas_set_num_threads(1);
    for (long epoch = 0; epoch < epochs && step < steps; epoch++) {
        shuffle(&j.train, random);
        for (long at = 0; at < j.train.n && step < steps; at += j.batch, step++)
            train(&j, at);
        test(&j, step);
    }
    check(&j, gradwire_close(j.g));
    return 0;
}
