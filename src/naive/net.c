/* Forward and backward pass of one thread. Compiled without vectorisation: see CMakeLists.txt. */
#include "naive/net.h"

#include <math.h>
#include <string.h>

/* ---- one sample: two loops over the weights ---- */

static void net_sample_product(const double *w, const double *x, double *z, int in, int out) {
    for (int j = 0; j < out; j++) {
        double sum = 0;
        for (int i = 0; i < in; i++)
            sum += w[(size_t)j * (size_t)in + (size_t)i] * x[i];
        z[j] = sum;
    }
}

static void net_sample_weights(const double *dz, const double *x, double *dw, int in, int out,
                               bool add) {
    for (int j = 0; j < out; j++)
        for (int i = 0; i < in; i++) {
            double *to = &dw[(size_t)j * (size_t)in + (size_t)i];
            *to = add ? *to + dz[j] * x[i] : dz[j] * x[i];
        }
}

static void net_sample_descend(const double *w, const double *dz, double *dx, int in, int out) {
    memset(dx, 0, (size_t)in * sizeof *dx);
    for (int j = 0; j < out; j++)
        for (int i = 0; i < in; i++)
            dx[i] += dz[j] * w[(size_t)j * (size_t)in + (size_t)i];
}

/* ---- all rows of a part ---- */

static void net_multiply(gw_naive_loops loops, const gw_naive_product *p) {
    static void (*const by[])(const gw_naive_product *) = {
        [GW_NAIVE_BATCH] = gw_naive_product_plain,
        [GW_NAIVE_BLOCKED] = gw_naive_product_blocked,
        [GW_NAIVE_SIMD] = gw_naive_product_simd,
#ifdef GW_HAVE_CBLAS
        [GW_NAIVE_BLAS] = gw_naive_product_blas,
#endif
    };
    by[loops](p);
}

/* z = x W^T */
static void net_product(const gw_naive_chain *c, const gw_naive_layer *l, const double *x,
                        double *z, int rows) {
    size_t in = (size_t)l->in;
    const double *w = c->param + l->off;
    if (c->loops == GW_NAIVE_SAMPLE)
        net_sample_product(w, x, z, l->in, l->out);
    else
        net_multiply(c->loops,
                     &(gw_naive_product){rows, l->out, l->in, {x, in, 1}, {w, 1, in}, z, false});
}

/* dW = dz^T x, written or added. */
static void net_weights(const gw_naive_chain *c, const gw_naive_layer *l, const double *dz,
                        const double *x, double *dw, int rows, bool add) {
    size_t in = (size_t)l->in, out = (size_t)l->out;
    if (c->loops == GW_NAIVE_SAMPLE)
        net_sample_weights(dz, x, dw, l->in, l->out, add);
    else
        net_multiply(c->loops,
                     &(gw_naive_product){l->out, l->in, rows, {dz, 1, out}, {x, in, 1}, dw, add});
}

/* dx = dz W */
static void net_descend(const gw_naive_chain *c, const gw_naive_layer *l, const double *dz,
                        double *dx, int rows) {
    size_t in = (size_t)l->in, out = (size_t)l->out;
    const double *w = c->param + l->off;
    if (c->loops == GW_NAIVE_SAMPLE)
        net_sample_descend(w, dz, dx, l->in, l->out);
    else
        net_multiply(c->loops,
                     &(gw_naive_product){rows, l->in, l->out, {dz, out, 1}, {w, in, 1}, dx, false});
}

/* ---- f, and its derivative as a function of y ---- */

static double net_transfer(gw_transfer f, double z) {
    switch (f) {
    case GW_TRANSFER_RELU: return z < 0 ? 0 : z; /* keeps NaN */
    case GW_TRANSFER_SIGMOID: return 1 / (1 + exp(-z));
    case GW_TRANSFER_TANH: return tanh(z);
    case GW_TRANSFER_LINEAR: break;
    }
    return z;
}

static double net_slope(gw_transfer f, double y) {
    switch (f) {
    case GW_TRANSFER_RELU: return y > 0;
    case GW_TRANSFER_SIGMOID: return y * (1 - y);
    case GW_TRANSFER_TANH: return 1 - y * y;
    case GW_TRANSFER_LINEAR: break;
    }
    return 1;
}

/* ---- passes ---- */

void gw_naive_forward(const gw_naive_chain *c, gw_naive_net *net, int rows) {
    for (int l = 0; l < c->n_layers; l++) {
        const gw_naive_layer *layer = &c->layer[l];
        const double *b = c->param + layer->off + (size_t)layer->in * (size_t)layer->out;
        double *y = net->y[l];
        net_product(c, layer, l == 0 ? net->x : net->y[l - 1], y, rows);
        for (int r = 0; r < rows; r++, y += layer->out)
            for (int j = 0; j < layer->out; j++)
                y[j] = net_transfer(layer->transfer, y[j] + b[j]);
    }
}

static double net_softmax(const double *y, double *dy, int label, int classes, double scale) {
    double top = y[0], sum = 0;
    for (int j = 1; j < classes; j++)
        top = y[j] > top ? y[j] : top;
    for (int j = 0; j < classes; j++)
        sum += dy[j] = exp(y[j] - top);
    for (int j = 0; j < classes; j++)
        dy[j] *= scale / sum;
    dy[label] -= scale;
    return log(sum) + top - y[label];
}

/* Only exp of what is not positive is taken. */
static double net_sigmoid(const double *y, double *dy, int label, int classes, double scale) {
    double loss = -y[label];
    for (int j = 0; j < classes; j++) {
        double small = exp(-fabs(y[j]));
        loss += (y[j] > 0 ? y[j] : 0) + log1p(small);
        dy[j] = scale * (y[j] > 0 ? 1 : small) / (1 + small);
    }
    dy[label] -= scale;
    return loss;
}

double gw_naive_loss(gw_output output, const double *y, double *dy, int label, int classes,
                     double scale) {
    return output == GW_OUTPUT_SIGMOID ? net_sigmoid(y, dy, label, classes, scale)
                                       : net_softmax(y, dy, label, classes, scale);
}

/* dy becomes dz, and db its sum over the rows, written or added. */
static void net_enter(const gw_naive_layer *l, const double *y, double *dy, double *db, int rows,
                      bool add) {
    if (!add)
        memset(db, 0, (size_t)l->out * sizeof *db);
    for (int r = 0; r < rows; r++, y += l->out, dy += l->out)
        for (int j = 0; j < l->out; j++) {
            dy[j] *= net_slope(l->transfer, y[j]);
            db[j] += dy[j];
        }
}

void gw_naive_backward(const gw_naive_chain *c, gw_naive_net *net, int rows, bool add) {
    for (int l = c->n_layers - 1; l >= 0; l--) {
        const gw_naive_layer *layer = &c->layer[l];
        double *dw = net->grad + layer->off, *dy = net->dy[l];
        net_enter(layer, net->y[l], dy, dw + (size_t)layer->in * (size_t)layer->out, rows, add);
        net_weights(c, layer, dy, l == 0 ? net->x : net->y[l - 1], dw, rows, add);
        if (l > 0)
            net_descend(c, layer, dy, net->dy[l - 1], rows);
    }
}
