#include "optim/optimizer.h"

#include "base/clones.h"
#include "base/mem.h"

#include <omp.h>
#include <stdlib.h>

#define X(name) extern const gw_optimizer_ops gw_optimizer_##name;
#include "optim/optimizers.def"
#undef X

static const gw_entry *const entries[] = {
#define X(name) &gw_optimizer_##name.head,
#include "optim/optimizers.def"
#undef X
    NULL,
};

static const gw_hook needs[] = {
    GW_HOOK(gw_optimizer_ops, vectors), GW_HOOK(gw_optimizer_ops, update), {0}};

const gw_registry gw_optimizers = {.kind = "optimizer",
                                   .symbol = "gw_optimizer_plugin",
                                   .abi = GW_OPTIMIZER_ABI,
                                   .entries = entries,
                                   .needs = needs};

/* ---- opening ---- */

/* An option of the command line becomes the rule's of that name, which is 0 where the exchange does
 * what it says. */
static gw_err optimizer_take(gw_optimizer *o, const gw_args *command, const char *name,
                             bool takes) {
    const char *rule = o->ops->head.name;
    if (!command || !gw_args_has(command, name) || !gw_args_given(command, name))
        return GW_OK;
    if (!gw_args_has(o->args, name))
        return gw_fail(GW_ERR_USAGE, "--%s: --optimizer %s has no such option: leave it out", name,
                       rule);
    if (gw_args_given(o->args, name))
        return gw_fail(GW_ERR_USAGE, "--%s and --optimizer %s:%s=%s: remove one of them", name,
                       rule, name, gw_args_text(o->args, name));
    return gw_args_set(o->args, rule, name, takes ? gw_args_text(command, name) : "0");
}

static gw_err optimizer_read(gw_optimizer *o, const gw_optimizer_setup *s) {
    const gw_spec *spec = s->spec ? s->spec : &GW_SPEC_NAMED("sgd");
    const gw_entry *entry = NULL;
    GW_TRY(gw_registry_find(&gw_optimizers, spec->name, &entry));
    o->ops = (const gw_optimizer_ops *)entry; /* head is the first member */
    GW_TRY(gw_args_of(&o->args, entry->opts, entry->name, spec));
    GW_TRY(optimizer_take(o, s->command, "momentum", !s->corrected));
    return optimizer_take(o, s->command, "weight-decay", true);
}

static gw_err optimizer_make(gw_optimizer *o, const gw_args *args, size_t n,
                             const gw_optimizer_model *model) {
    o->n = n;
    if (n > 0 && o->ops->traits & GW_OPTIMIZER_PRODUCTS && !model->product)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "optimizer %s multiplies matrices, and there is nobody here who does",
                       o->ops->head.name);
    GW_TRY(gw_alloc(&o->self, o->ops->size, 1));
    if (o->ops->open)
        GW_TRY(o->ops->open(o->self, args));
    o->names = o->ops->vectors(o->self);
    while (o->names[o->state.count])
        o->state.count++;
    if (o->state.count > GW_OPTIMIZER_VECTORS)
        return gw_fail(GW_ERR_INPUT, "optimizer %s: %d vectors, and there may be %d",
                       o->ops->head.name, o->state.count, GW_OPTIMIZER_VECTORS);
    GW_TRY(gw_alloc(&o->state.x, (size_t)o->state.count * n, sizeof(float)));
    o->model = *model;
    size_t most = 0;
    for (int t = 0; t < model->n_tensors; t++) {
        const gw_tensor *of = &model->tensors[t];
        size_t work = o->ops->work ? o->ops->work(o->self, of->rows, of->cols) : 0;
        o->tracked += of->tracks;
        most = work > most ? work : most;
    }
    return most > 0 ? gw_alloc(&o->work, most, sizeof(float)) : GW_OK;
}

gw_err gw_optimizer_open(gw_optimizer **out, const gw_optimizer_setup *setup) {
    gw_optimizer *o = NULL;
    gw_err e = gw_alloc(&o, 1, sizeof *o);
    GW_THEN(e, optimizer_read(o, setup));
    GW_THEN(e, optimizer_make(o, o->args, setup->n, &setup->model));
    GW_OPENED(e, out, o, gw_optimizer_close);
}

gw_err gw_optimizer_like(gw_optimizer **out, const gw_optimizer *of, size_t n) {
    gw_optimizer *o = NULL;
    gw_optimizer_model model = of->model;
    gw_err e = gw_alloc(&o, 1, sizeof *o);
    if (n != of->n)
        model.n_tensors = 0;
    if (e == GW_OK)
        o->ops = of->ops;
    GW_THEN(e, optimizer_make(o, of->args, n, &model));
    GW_OPENED(e, out, o, gw_optimizer_close);
}

void gw_optimizer_close(gw_optimizer *o) {
    if (!o)
        return;
    gw_args_free(o->args);
    free(o->self);
    free(o->state.x);
    free(o->work);
    free(o);
}

/* ---- updating ---- */

void gw_optimizer_begin(gw_optimizer *o) {
    o->begins = true;
}

static void optimizer_count(gw_optimizer *o) {
    o->updates += o->begins;
    o->begins = false;
}

/* Span `part` of s, whose first are param[0] and grad[0]. */
static void optimizer_update(const gw_optimizer *o, float *param, const float *grad, gw_span s,
                             gw_span part, gw_optimizer_part x) {
    x.param = param + (part.off - s.off);
    x.grad = grad + (part.off - s.off);
    x.n = part.n;
    for (int v = 0; v < o->state.count; v++)
        x.state[v] = o->state.x + (size_t)v * o->n + part.off;
    o->ops->update(o->self, &x);
}

static void optimizer_update_tensors(const gw_optimizer *o, float *param, const float *grad,
                                     gw_span s, gw_optimizer_part x) {
    const gw_optimizer_model *m = &o->model;
    x.work = o->work;
    x.product = m->product;
    for (const gw_tensor *t = m->tensors; t < m->tensors + m->n_tensors; t++) {
        if (t->tracks || !gw_span_overlap(t->span, s))
            continue;
        x.rows = t->rows;
        x.cols = t->cols;
        x.head = t - m->tensors >= m->head;
        x.aspect =
            m->inputs_rows ? (float)t->cols / (float)t->rows : (float)t->rows / (float)t->cols;
        optimizer_update(o, param, grad, s, t->span, x);
    }
}

int gw_optimizer_threads(size_t n) {
    return n < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
}

void gw_optimizer_split(const void *self, const gw_optimizer_part *part,
                        void (*pass)(const void *self, const gw_optimizer_part *piece, float by),
                        float by) {
    int threads = gw_optimizer_threads(part->n);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        gw_span s = gw_span_part((gw_span){0, part->n}, t, threads);
        gw_optimizer_part piece = *part;
        piece.param += s.off;
        piece.grad += s.off;
        piece.n = s.n;
        for (int v = 0; v < GW_OPTIMIZER_VECTORS && piece.state[v]; v++)
            piece.state[v] += s.off;
        if (piece.work)
            piece.work += s.off;
        pass(self, &piece, by);
    }
}

/* Of an element-wise rule: all of s. */
static void optimizer_update_elements(const gw_optimizer *o, float *param, const float *grad,
                                      gw_span s, gw_optimizer_part x) {
    int threads = gw_optimizer_threads(s.n);
    if (threads == 1) {
        optimizer_update(o, param, grad, s, s, x);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++)
        optimizer_update(o, param, grad, s, gw_span_part(s, t, threads), x);
}

/* The same but for tensors that track, which move by their own rule. */
static void optimizer_update_between(const gw_optimizer *o, float *param, const float *grad,
                                     gw_span s, gw_optimizer_part x) {
    const float rate = 0.1f;
    size_t at = s.off, end = gw_span_end(s);
    bool whole = gw_optimizer_whole(o);
    for (const gw_tensor *t = o->model.tensors; t < o->model.tensors + o->model.n_tensors; t++) {
        if (!t->tracks || !gw_span_overlap(t->span, s))
            continue;
        size_t from = t->span.off > at ? t->span.off : at;
        size_t to = gw_span_end(t->span) < end ? gw_span_end(t->span) : end;
        if (from > at && !whole)
            optimizer_update_elements(o, param + (at - s.off), grad + (at - s.off),
                                      (gw_span){at, from - at}, x);
        for (size_t i = from - s.off; i < to - s.off; i++)
            param[i] -= rate * x.scale * grad[i];
        at = to;
    }
    if (end > at && !whole)
        optimizer_update_elements(o, param + (at - s.off), grad + (at - s.off),
                                  (gw_span){at, end - at}, x);
}

void gw_optimizer_update_here(gw_optimizer *o, float *param, const float *grad, gw_span s, float lr,
                              float scale) {
    optimizer_count(o);
    gw_optimizer_part x = {.lr = lr, .scale = scale, .step = o->updates > 0 ? o->updates : 1};
    if (gw_optimizer_whole(o))
        optimizer_update_tensors(o, param, grad, s, x);
    else if (o->tracked == 0)
        optimizer_update_elements(o, param, grad, s, x);
    if (o->tracked > 0)
        optimizer_update_between(o, param, grad, s, x);
}

void gw_optimizer_update(gw_optimizer *o, float *param, const float *grad, gw_span s, float lr,
                         float scale) {
    gw_optimizer_update_here(o, param + s.off, grad + s.off, s, lr, scale);
}

size_t gw_optimizer_piece(const gw_optimizer *o, gw_span s, size_t most) {
    size_t n = s.n < most ? s.n : most;
    for (int t = 0; t < o->model.n_tensors && gw_optimizer_whole(o); t++)
        if (o->model.tensors[t].span.off == s.off && o->model.tensors[t].span.n > 0)
            n = o->model.tensors[t].span.n;
    return n;
}

bool gw_optimizer_lists(const gw_optimizer *o) {
    return o->tracked == 0 && o->ops->lists && o->ops->lists(o->self);
}

void gw_optimizer_update_at(gw_optimizer *o, float *param, const uint32_t *at, const float *grad,
                            size_t n, float lr, float scale) {
    int threads = gw_optimizer_threads(n);
    optimizer_count(o);
    if (threads == 1) {
        o->ops->update_at(o->self, param, at, grad, n, lr, scale);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        gw_span s = gw_span_part((gw_span){0, n}, t, threads);
        o->ops->update_at(o->self, param, at + s.off, grad + s.off, s.n, lr, scale);
    }
}

double gw_optimizer_flops(const gw_optimizer *o) {
    double sum = 0;
    for (int t = 0; t < o->model.n_tensors && o->ops->flops; t++) {
        const gw_tensor *of = &o->model.tensors[t];
        sum += o->ops->flops(o->self, of->rows, of->cols, t >= o->model.head);
    }
    return sum;
}

const char *gw_optimizer_kernel(const gw_optimizer *o) {
    return o->ops->kernel ? o->ops->kernel(o->self) : o->ops->head.name;
}

gw_err gw_optimizer_state(gw_optimizer *o, gw_io *io) {
    GW_TRY(gw_io_field(io, "updates", &o->updates, sizeof o->updates));
    return gw_io_field(io, "state", o->state.x, (size_t)o->state.count * o->n * sizeof(float));
}
