#include "nn/conv.h"

#include "base/clones.h"
#include "nn/gemm.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { CACHED = 1 << 16 }; /* floats of patches that a thread's cache holds */
#define EPSILON 1e-5f

/* ---- convolutions ---- */

/* Places whose patches are made at once. */
static size_t conv_together(const gw_conv *c, int n) {
    size_t patch = (size_t)gw_conv_patch(c), all = (size_t)n * (size_t)gw_conv_places(c);
    int threads = omp_get_max_threads() < n ? omp_get_max_threads() : n;
    size_t most = (size_t)CACHED * (size_t)threads / patch;
    most = most > 0 ? most : 1;
    return most < all ? most : all;
}

size_t gw_conv_room(const gw_conv *c) {
    size_t patch = (size_t)gw_conv_patch(c), all = patch * (size_t)gw_conv_places(c);
    size_t most = patch > CACHED ? patch : CACHED;
    return all < most ? all : most;
}

/* Places beside each other in a row of an image, some of those that are made at once. */
typedef struct run {
    size_t image; /* its first float */
    size_t at;    /* the first of them */
    int row, col, n;
} run;

/* Those of row `line` of all images within [first, end). */
static run conv_run(const gw_conv *c, size_t line, size_t first, size_t end) {
    size_t rows = (size_t)gw_conv_rows(c), cols = (size_t)gw_conv_cols(c);
    size_t at = line * cols > first ? line * cols : first;
    size_t stop = (line + 1) * cols < end ? (line + 1) * cols : end;
    return (run){line / rows * (size_t)c->channels * (size_t)c->rows * (size_t)c->cols, at,
                 (int)(line % rows) * c->stride - c->pad, (int)(at - line * cols),
                 (int)(stop - at)};
}

/* Columns [*from, *to) of the patch of place i lie within the image; where the patch begins. */
static inline int conv_columns(const gw_conv *c, const run *r, int i, int *from, int *to) {
    int at = (r->col + i) * c->stride - c->pad;
    *from = at < 0 ? -at : 0;
    *to = at + c->kernel > c->cols ? c->cols - at : c->kernel;
    return at;
}

/* The lines of common kernels of one channel are too short for a call. */
static inline void conv_copy(float *out, const float *in, size_t n) {
    switch (n) {
    case 3: memcpy(out, in, 3 * sizeof *out); return;
    case 5: memcpy(out, in, 5 * sizeof *out); return;
    default: memcpy(out, in, n * sizeof *out); return;
    }
}

/* Line ky of their patches; `in`: that line of the image. */
static void conv_take_line(const gw_conv *c, const run *r, const float *in, float *out) {
    size_t channels = (size_t)c->channels, line = (size_t)c->kernel * channels;
    size_t plane = (size_t)c->rows * (size_t)c->cols, floats = (size_t)gw_conv_patch(c);
    for (int i = 0, from, to; i < r->n; i++, out += floats) {
        int at = conv_columns(c, r, i, &from, &to);
        if (to - from < c->kernel)
            memset(out, 0, line * sizeof *out);
        if (!c->planes || channels == 1) {
            conv_copy(out + (size_t)from * channels, in + (size_t)(at + from) * channels,
                      (size_t)(to - from) * channels);
            continue;
        }
        for (int kx = from; kx < to; kx++)
            for (size_t k = 0; k < channels; k++)
                out[(size_t)kx * channels + k] = in[k * plane + (size_t)(at + kx)];
    }
}

static void conv_take(const gw_conv *c, const float *x, run r, float *out) {
    size_t line = (size_t)c->kernel * (size_t)c->channels, floats = (size_t)gw_conv_patch(c);
    for (int ky = 0; ky < c->kernel; ky++, out += line) {
        int row = r.row + ky;
        if (row >= 0 && row < c->rows) {
            size_t before = (size_t)row * (size_t)c->cols;
            conv_take_line(c, &r, x + r.image + before * (c->planes ? 1 : (size_t)c->channels),
                           out);
            continue;
        }
        for (int i = 0; i < r.n; i++)
            memset(out + (size_t)i * floats, 0, line * sizeof *out);
    }
}

static void conv_give(const gw_conv *c, const float *in, run r, float *x) {
    size_t channels = (size_t)c->channels, line = (size_t)c->kernel * channels;
    for (int i = 0, from, to; i < r.n; i++) {
        int at = conv_columns(c, &r, i, &from, &to);
        for (int ky = 0; ky < c->kernel; ky++, in += line) {
            int row = r.row + ky;
            if (row < 0 || row >= c->rows)
                continue;
            float *out = x + r.image + (size_t)(row * c->cols + at + from) * channels;
            for (size_t k = 0; k < (size_t)(to - from) * channels; k++)
                out[k] += in[(size_t)from * channels + k];
        }
    }
}

/* The patches of the places [first, end). */
static void conv_take_all(const gw_conv *c, const float *x, size_t first, size_t end, float *room) {
    size_t floats = (size_t)gw_conv_patch(c), cols = (size_t)gw_conv_cols(c);
#pragma omp parallel for schedule(static) if ((end - first) * floats >= GW_PARALLEL_ELEMENTS)
    for (size_t line = first / cols; line <= (end - 1) / cols; line++) {
        run r = conv_run(c, line, first, end);
        conv_take(c, x, r, room + (r.at - first) * floats);
    }
}

void gw_conv_forward(const gw_conv *c, const float *x, const float *w, float *y, int n,
                     float *room) {
    size_t all = (size_t)n * (size_t)gw_conv_places(c), together = conv_together(c, n);
    int floats = gw_conv_patch(c);
    for (size_t at = 0; at < all; at += together) {
        size_t some = all - at < together ? all - at : together;
        conv_take_all(c, x, at, at + some, room);
        gw_gemm(false, false, (int)some, c->filters, floats, room, floats, w, c->filters, 0,
                y + at * (size_t)c->filters, c->filters);
    }
}

void gw_conv_weights(const gw_conv *c, const float *x, const float *dy, float beta, float *dw,
                     int n, float *room) {
    size_t all = (size_t)n * (size_t)gw_conv_places(c), together = conv_together(c, n);
    int floats = gw_conv_patch(c);
    for (size_t at = 0; at < all; at += together) {
        size_t some = all - at < together ? all - at : together;
        conv_take_all(c, x, at, at + some, room);
        gw_gemm(true, false, floats, c->filters, (int)some, room, floats,
                dy + at * (size_t)c->filters, c->filters, at > 0 ? 1 : beta, dw, c->filters);
    }
}

/* Patches overlap, so a thread gives those of whole images. */
static void conv_give_all(const gw_conv *c, const float *room, size_t first, size_t end, float *x) {
    size_t floats = (size_t)gw_conv_patch(c), places = (size_t)gw_conv_places(c);
    size_t rows = (size_t)gw_conv_rows(c), cols = (size_t)gw_conv_cols(c);
    size_t from = first / places, to = (end - 1) / places;
    bool wide = (end - first) * floats >= GW_PARALLEL_ELEMENTS && to > from;
#pragma omp parallel for schedule(static) if (wide)
    for (size_t image = from; image <= to; image++)
        for (size_t line = image * rows; line < (image + 1) * rows; line++) {
            if ((line + 1) * cols <= first || line * cols >= end)
                continue;
            run r = conv_run(c, line, first, end);
            conv_give(c, room + (r.at - first) * floats, r, x);
        }
}

void gw_conv_inputs(const gw_conv *c, const float *dy, const float *w, float *dx, int n,
                    float *room) {
    size_t all = (size_t)n * (size_t)gw_conv_places(c), together = conv_together(c, n);
    int floats = gw_conv_patch(c);
    for (size_t at = 0; at < all; at += together) {
        size_t some = all - at < together ? all - at : together;
        gw_gemm(false, true, (int)some, floats, c->filters, dy + at * (size_t)c->filters,
                c->filters, w, c->filters, 0, room, floats);
        conv_give_all(c, room, at, at + some, dx);
    }
}

/* ---- batch normalisation ---- */

enum { BLOCKS = 32, WIDE = 128 }; /* sums: of so many blocks of rows, and so many columns at once */

/* sum[j] of up to WIDE columns, and product[j] of those of a and b. Blocks are summed apart and in
 * their order, so that threads change no bit. */
GW_CLONES static void norm_block(const float *restrict a, const float *restrict b, size_t rows,
                                 size_t ld, int width, double *restrict sum,
                                 double *restrict product) {
    for (size_t i = 0; i < rows; i++, a += ld, b += ld)
        for (int j = 0; j < width; j++) {
            sum[j] += (double)a[j];
            product[j] += (double)a[j] * (double)b[j];
        }
}

static void norm_sums(const float *a, const float *b, size_t rows, size_t ld, int width,
                      double *sum, double *product) {
    double sums[BLOCKS][WIDE] = {{0}}, products[BLOCKS][WIDE] = {{0}};
    size_t share = (rows + BLOCKS - 1) / BLOCKS;
#pragma omp parallel for schedule(static) if (rows * (size_t)width >= GW_PARALLEL_ELEMENTS)
    for (int k = 0; k < BLOCKS; k++) {
        size_t at = (size_t)k * share, n = at < rows ? rows - at : 0;
        norm_block(a + at * ld, b + at * ld, n < share ? n : share, ld, width, sums[k],
                   products[k]);
    }
    for (int j = 0; j < width; j++) {
        sum[j] = product[j] = 0;
        for (int k = 0; k < BLOCKS; k++) {
            sum[j] += sums[k][j];
            product[j] += products[k][j];
        }
    }
}

void gw_norm_tell(const float *z, size_t rows, int width, float *mean, float *var) {
    double sum[WIDE], squares[WIDE];
    for (int at = 0; at < width; at += WIDE) {
        int wide = width - at < WIDE ? width - at : WIDE;
        norm_sums(z + at, z + at, rows, (size_t)width, wide, sum, squares);
        for (int j = 0; j < wide; j++) {
            double m = sum[j] / (double)rows, v = squares[j] / (double)rows - m * m;
            mean[at + j] = (float)m;
            var[at + j] = (float)(v > 0 ? v : 0);
        }
    }
}

GW_CLONES static void norm_line(const float *restrict z, const float *restrict factor,
                                const float *restrict plus, const float *restrict more, bool relu,
                                float *restrict y, int width) {
    for (int j = 0; j < width; j++) {
        float v = z[j] * factor[j] + plus[j] + (more ? more[j] : 0);
        y[j] = relu && v < 0 ? 0 : v;
    }
}

void gw_norm_apply(const float *z, const float *mean, const float *var, const float *gain,
                   const float *bias, const float *more, bool relu, float *y, size_t rows,
                   int width) {
    for (int at = 0; at < width; at += WIDE) {
        int wide = width - at < WIDE ? width - at : WIDE;
        float factor[WIDE], plus[WIDE];
        for (int j = 0; j < wide; j++) {
            factor[j] = gain[at + j] / sqrtf(var[at + j] + EPSILON);
            plus[j] = bias[at + j] - mean[at + j] * factor[j];
        }
#pragma omp parallel for schedule(static) if (rows * (size_t)width >= GW_PARALLEL_ELEMENTS)
        for (size_t i = 0; i < rows; i++) {
            size_t here = i * (size_t)width + (size_t)at;
            norm_line(z + here, factor, plus, more ? more + here : NULL, relu, y + here, wide);
        }
    }
}

GW_CLONES static void norm_line_back(const float *z, const float *d, const float *restrict by,
                                     const float *restrict slope, const float *restrict plus,
                                     float *dz, int width) {
#pragma omp simd
    for (int j = 0; j < width; j++)
        dz[j] = by[j] * d[j] + slope[j] * z[j] + plus[j];
}

/* dz = by (d - sum / rows - x^ product / rows), x^ = (z - mean) / deviation: linear in d and z. */
void gw_norm_back(const float *z, const float *mean, const float *var, const float *gain,
                  const float *dy, float *dz, float *dgain, float *dbias, size_t rows, int width) {
    for (int at = 0; at < width; at += WIDE) {
        int wide = width - at < WIDE ? width - at : WIDE;
        double sum[WIDE], product[WIDE];
        float by[WIDE], slope[WIDE], plus[WIDE];
        norm_sums(dy + at, z + at, rows, (size_t)width, wide, sum, product);
        for (int j = 0; j < wide; j++) {
            double m = (double)mean[at + j], r = 1 / sqrt((double)(var[at + j] + EPSILON));
            double hat = (product[j] - m * sum[j]) * r; /* of dy and x^ */
            dbias[at + j] += (float)sum[j];
            dgain[at + j] += (float)hat;
            by[j] = (float)((double)gain[at + j] * r);
            slope[j] = (float)(-(double)by[j] * hat * r / (double)rows);
            plus[j] = (float)(-(double)by[j] * (sum[j] - m * r * hat) / (double)rows);
        }
#pragma omp parallel for schedule(static) if (rows * (size_t)width >= GW_PARALLEL_ELEMENTS)
        for (size_t i = 0; i < rows; i++) {
            size_t here = i * (size_t)width + (size_t)at;
            norm_line_back(z + here, dy + here, by, slope, plus, dz + here, wide);
        }
    }
}

/* ---- what else ---- */

void gw_relu_back(float *d, const float *y, size_t n) {
#pragma omp parallel for simd schedule(static) if (n >= GW_PARALLEL_ELEMENTS)
    for (size_t i = 0; i < n; i++)
        d[i] = y[i] > 0 ? d[i] : 0;
}

/* The four of an output's places in an image of `cols` columns. */
static void pool_four(size_t four[4], int row, int col, int cols, int channels) {
    size_t at = ((size_t)(2 * row) * (size_t)cols + (size_t)(2 * col)) * (size_t)channels;
    size_t below = (size_t)cols * (size_t)channels, right = (size_t)channels;
    four[0] = at;
    four[1] = at + right;
    four[2] = at + below;
    four[3] = at + below + right;
}

void gw_pool_forward(const float *x, float *y, int n, int rows, int cols, int channels) {
    size_t in = (size_t)rows * (size_t)cols * (size_t)channels;
    int wide = cols / 2, lines = n * (rows / 2);
#pragma omp parallel for schedule(static) if ((size_t)n * in >= GW_PARALLEL_ELEMENTS)
    for (int line = 0; line < lines; line++) {
        const float *image = x + (size_t)(line / (rows / 2)) * in;
        for (int c = 0; c < wide; c++) {
            size_t four[4];
            float *out = y + ((size_t)line * (size_t)wide + (size_t)c) * (size_t)channels;
            pool_four(four, line % (rows / 2), c, cols, channels);
            for (int k = 0; k < channels; k++) {
                float best = image[four[0] + (size_t)k];
                for (int q = 1; q < 4; q++)
                    best = image[four[q] + (size_t)k] > best ? image[four[q] + (size_t)k] : best;
                out[k] = best;
            }
        }
    }
}

void gw_pool_back(const float *x, const float *dy, float *dx, int n, int rows, int cols,
                  int channels) {
    size_t in = (size_t)rows * (size_t)cols * (size_t)channels;
    int wide = cols / 2, high = rows / 2;
#pragma omp parallel for schedule(static) if ((size_t)n * in >= GW_PARALLEL_ELEMENTS)
    for (int i = 0; i < n; i++) {
        const float *image = x + (size_t)i * in;
        const float *d = dy + (size_t)i * (size_t)(high * wide * channels);
        memset(dx + (size_t)i * in, 0, in * sizeof *dx);
        for (int place = 0; place < high * wide; place++, d += channels) {
            size_t four[4];
            pool_four(four, place / wide, place % wide, cols, channels);
            for (size_t k = 0; k < (size_t)channels; k++) {
                int best = 0;
                for (int q = 1; q < 4; q++)
                    best = image[four[q] + k] > image[four[best] + k] ? q : best;
                dx[(size_t)i * in + four[best] + k] = d[k];
            }
        }
    }
}
