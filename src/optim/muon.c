/* muon: K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024. A matrix
 * moves along its momentum (Nesterov's) made nearly orthogonal by five steps of a Newton-Schulz
 * iteration, times sqrt(max(1, outputs / inputs)); vectors and the last layer move by AdamW, at a
 * rate of their own. */
#include "base/clones.h"
#include "base/norm.h"
#include "optim/moments.h"

#include <math.h>

enum { STEPS = 5 };

typedef struct self {
    gw_moments moments; /* of the rest */
    float momentum, decay, rest;
} self;

static gw_err muon_open(void *p, const gw_args *args) {
    *(self *)p =
        (self){gw_moments_of(args), (float)gw_args_real(args, "momentum"),
               (float)gw_args_real(args, "weight-decay"), (float)gw_args_real(args, "rest")};
    return GW_OK;
}

/* Of what AdamW moves the first is the gradient's mean. */
static const char *const *muon_vectors(const void *p) {
    static const char *const names[] = {"momentum", "square", NULL};
    (void)p;
    return names;
}

static size_t muon_less(int rows, int cols) {
    return (size_t)(rows < cols ? rows : cols);
}

/* Two matrices of the tensor's shape, and two squares of its shorter side. */
static size_t muon_work(const void *p, int rows, int cols) {
    size_t less = muon_less(rows, cols);
    (void)p;
    return 2 * (size_t)rows * (size_t)cols + 2 * less * less;
}

static double muon_flops(const void *p, int rows, int cols, bool head) {
    double less = (double)muon_less(rows, cols), n = (double)rows * cols;
    (void)p;
    return rows == 1 || head ? 0 : STEPS * (4 * n * less + 2 * less * less * less);
}

GW_CLONES static void muon_look_ahead(float *restrict u, const float *restrict g, float *restrict m,
                                      size_t n, float mu, float scale) {
    for (size_t i = 0; i < n; i++) {
        float a = scale * g[i];
        m[i] = mu * m[i] + a;
        u[i] = a + mu * m[i];
    }
}

/* y = k y + a x */
GW_CLONES static void muon_add(float *restrict y, float k, const float *restrict x, float a,
                               size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = k * y[i] + a * x[i];
}

/* u, of norm 1 at most, becomes p(u u') u for p(z) = a + b z + c z^2, five times. Of a matrix that
 * is taller than wide u' u stands on the right. Returns where the result is: u or the matrix behind
 * it. */
static float *muon_orthogonal(const gw_optimizer_part *x, float *u) {
    static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    int rows = x->rows, cols = x->cols, s = (int)muon_less(rows, cols);
    bool tall = rows > cols;
    float *next = u + x->n, *gram = next + x->n, *poly = gram + (size_t)s * (size_t)s;
    for (int i = 0; i < STEPS; i++) {
        x->product(tall, !tall, s, s, tall ? rows : cols, u, cols, u, cols, 0, gram, s);
        x->product(false, false, s, s, s, gram, s, gram, s, 0, poly, s);
        muon_add(poly, c, gram, b, (size_t)s * (size_t)s);
        for (int k = 0; k < s; k++)
            poly[(size_t)k * (size_t)(s + 1)] += a;
        if (tall)
            x->product(false, false, rows, cols, s, u, cols, poly, s, 0, next, cols);
        else
            x->product(false, false, rows, cols, s, poly, s, u, cols, 0, next, cols);
        float *was = u;
        u = next;
        next = was;
    }
    return u;
}

static void muon_update(const void *p, const gw_optimizer_part *x) {
    const self *me = p;
    float *u = x->work;
    if (x->rows == 1 || x->head) {
        gw_moments_descend(&me->moments, x, x->lr * me->rest, me->decay);
        return;
    }
    muon_look_ahead(u, x->grad, x->state[0], x->n, me->momentum, x->scale);
    float scale = (float)(1 / (sqrt(gw_norm_squares(u, x->n)) + 1e-7));
    for (size_t i = 0; i < x->n; i++)
        u[i] *= scale;
    u = muon_orthogonal(x, u);
    float rate = x->lr * sqrtf(fmaxf(1, x->aspect));
    muon_add(x->param, 1 - x->lr * me->decay, u, -rate, x->n);
}

static const gw_opt opts[] = {
    {"momentum", GW_OPT_REAL, "0.95", 0, 0.9999, NULL, "X", "momentum of matrices; or --momentum"},
    {"weight-decay", GW_OPT_REAL, "0", 0, 0.9999, NULL, "X",
     "fraction of a parameter that is subtracted at rate 1; or --weight-decay"},
    {"rest", GW_OPT_REAL, "0.015", 0, 1e6, NULL, "X",
     "rate of vectors and of the last layer, times --lr"},
    GW_MOMENTS_OPTS("1e-8"),
    {0}};

const gw_optimizer_ops gw_optimizer_muon = {
    .head = {GW_OPTIMIZER_ABI, "muon", "momentum of matrices made orthogonal; adamw for the rest",
             opts},
    .traits = GW_OPTIMIZER_TENSORS | GW_OPTIMIZER_PRODUCTS,
    .size = sizeof(self),
    .open = muon_open,
    .vectors = muon_vectors,
    .update = muon_update,
    .work = muon_work,
    .flops = muon_flops,
    .most = GW_SQUARES_MOST,
};
