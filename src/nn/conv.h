/** Convolutions over images, as matrix products: the patches of an image are rows of a matrix
 *  (im2col; Chellapilla, Puri and Simard, "High performance convolutional neural networks for
 *  document processing", 2006), some at a time, so that they stay in the cache. Images are
 *  row-major with their channels innermost; products take all threads. */
#ifndef GW_NN_CONV_H
#define GW_NN_CONV_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gw_conv {
    int channels, rows, cols; /* of the input; */
    bool planes;              /* its channels lie one behind another, each a whole image */
    int filters, kernel, stride, pad;
} gw_conv;

static inline int gw_conv_rows(const gw_conv *c) {
    return (c->rows + 2 * c->pad - c->kernel) / c->stride + 1;
}

static inline int gw_conv_cols(const gw_conv *c) {
    return (c->cols + 2 * c->pad - c->kernel) / c->stride + 1;
}

/** Floats of a patch: rows of the weights, (kernel, kernel, channels) x filters. */
static inline int gw_conv_patch(const gw_conv *c) {
    return c->kernel * c->kernel * c->channels;
}

/** Places of an image that a filter is laid on. */
static inline int gw_conv_places(const gw_conv *c) {
    return gw_conv_rows(c) * gw_conv_cols(c);
}

/** Floats of `room`, for patches that are made at once, that an image brings. */
size_t gw_conv_room(const gw_conv *c);

/** y (n, places, filters) = x * w. */
void gw_conv_forward(const gw_conv *c, const float *x, const float *w, float *y, int n,
                     float *room);

/** dw += the gradient of w, or, with `beta` 0, dw = that. */
void gw_conv_weights(const gw_conv *c, const float *x, const float *dy, float beta, float *dw,
                     int n, float *room);

/** dx += the gradient of x; not of planes. */
void gw_conv_inputs(const gw_conv *c, const float *dy, const float *w, float *dx, int n,
                    float *room);

/** What batch normalisation has of one of its channels' many values (Ioffe and Szegedy, "Batch
 *  normalization", ICML 2015). Arrays have `rows` rows of `width` channels. */

/** mean[j] and var[j] of column j, the latter divided by `rows`. */
void gw_norm_tell(const float *z, size_t rows, int width, float *mean, float *var);

/** y = gain (z - mean) / sqrt(var + epsilon) + bias [+ more], below 0 made 0 with `relu`. */
void gw_norm_apply(const float *z, const float *mean, const float *var, const float *gain,
                   const float *bias, const float *more, bool relu, float *y, size_t rows,
                   int width);

/** dz = the gradient of z, where mean and var are of z itself; dz may be dy. Those of gain and bias
 *  are added to dgain and dbias. */
void gw_norm_back(const float *z, const float *mean, const float *var, const float *gain,
                  const float *dy, float *dz, float *dgain, float *dbias, size_t rows, int width);

/** d = 0 where y is not above 0. */
void gw_relu_back(float *d, const float *y, size_t n);

/** y = the largest of each 2 x 2 of x, images of rows x cols; an odd last one is left out. */
void gw_pool_forward(const float *x, float *y, int n, int rows, int cols, int channels);

/** dx = dy where x was the first of the largest, else 0. */
void gw_pool_back(const float *x, const float *dy, float *dx, int n, int rows, int cols,
                  int channels);

#endif
