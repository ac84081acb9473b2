/* The public function that updates, by a rule of src/optim. */
#include "api/handle.h"
#include "base/probe.h"
#include "optim/optimizer.h"

/* The library has no BLAS: plain loops, whose rows threads share. */
static void update_product(bool ta, bool tb, int m, int n, int k, const float *a, int lda,
                           const float *b, int ldb, float beta, float *c, int ldc) {
    size_t step = tb ? (size_t)ldb : 1;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < m; i++) {
        float *row = c + (size_t)i * (size_t)ldc;
        for (int j = 0; j < n; j++)
            row[j] = beta != 0 ? beta * row[j] : 0;
        for (int l = 0; l < k; l++) {
            float x = ta ? a[(size_t)l * (size_t)lda + (size_t)i]
                         : a[(size_t)i * (size_t)lda + (size_t)l];
            const float *from = b + (tb ? (size_t)l : (size_t)l * (size_t)ldb);
            for (int j = 0; j < n; j++)
                row[j] += x * from[(size_t)j * step];
        }
    }
}

gw_err gw_update_open(gradwire *g) {
    const gw_handle_arena *a = &g->arena;
    if (!g->words.optimizer)
        return GW_OK;
    int head = a->n_tensors - 1; /* groups tell of no layers: the last matrix */
    while (head > 0 && a->layout[head].rows == 1)
        head--;
    gw_optimizer_setup setup = {.spec = g->words.optimizer,
                                .command = g->words.args,
                                .corrected = g->session->residuals.corrects,
                                .n = a->n,
                                .model = {.tensors = a->layout,
                                          .n_tensors = a->n_tensors,
                                          .head = head,
                                          .product = update_product}};
    return gw_optimizer_open(&g->optimizer, &setup);
}

bool gw_inside_cuts(const gradwire *g) {
    for (int i = 0; i < g->arena.n_pieces; i++)
        if (g->arena.piece[i].n < g->arena.tensor[g->arena.piece[i].tensor].span.n)
            return true;
    return false;
}

gw_err gw_inside_suits(const gradwire *g, const gw_optimizer *o) {
    const gw_strategy_ops *ops = g->session->strategy.ops;
    if (ops->gives != GW_GIVES_DIRECTION)
        return GW_OK;
    if (gw_strategy_publishes(ops) && gw_optimizer_plain(o) && !gw_optimizer_lists(o))
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--comm %s puts parameters back to where the ranks last met, and the weight "
                       "decay of the steps since would be lost: leave it out",
                       ops->head.name);
    if (gw_optimizer_plain(o))
        return GW_OK;
    return gw_fail(
        GW_ERR_UNSUPPORTED,
        "--comm %s hands out the direction of an update, with a momentum of its own, and "
        "--optimizer %s takes gradients: use --optimizer sgd without momentum",
        ops->head.name, o->ops->head.name);
}

gw_err gw_update_check(const gradwire *g) {
    if (g->optimizer)
        GW_TRY(gw_inside_suits(g, g->optimizer));
    if (!g->optimizer || !gw_optimizer_whole(g->optimizer) || !gw_inside_cuts(g))
        return GW_OK;
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "gradwire_open: --optimizer %s moves whole tensors, and with --comm %s a rank "
                   "updates parts of them: change one of these",
                   g->optimizer->ops->head.name, g->words.run.comm->text);
}

static gw_err update_groups(gradwire *g, int group, float lr) {
    int from = g->batch.moved;
    if (!g->optimizer)
        return gw_call_refuse("update", "there is no rule to update by: give one among the words, "
                                        "as --optimizer sgd");
    GW_TRY(gw_batch_next(g, "update", group, from));
    int until = gw_batch_until(g, group, from);
    if (until > g->batch.finished || from < g->batch.updated || from == g->arena.groups)
        return gw_call_refuse("update", "its group is not finished, or updated already: it comes "
                                        "after gradwire_finish, and before gradwire_updated");
    gw_phase_enter(GW_PHASE_UPDATE);
    for (int i = 0; i < g->arena.n_pieces && g->batch.owns; i++) {
        const gw_piece *p = &g->arena.piece[i];
        const gw_handle_tensor *t = &g->arena.tensor[p->tensor];
        gw_span s = {t->span.off + p->from, p->n};
        float *param = t->param ? t->param + p->from : g->session->env.param + s.off;
        const float *grad = t->grad ? t->grad + p->from : g->arena.grads + s.off;
        if (from <= t->group && t->group < until) /* by what finish() left there */
            gw_optimizer_update_here(g->optimizer, param, grad, s, lr, 1);
    }
    gw_phase_leave();
    g->batch.moved = until;
    return GW_OK;
}

int gradwire_update(gradwire *g, int group, float lr) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "update", GW_IN_OPEN, false);
    GW_THEN(e, update_groups(g, group, lr));
    return gw_call_end(&c, e);
}
