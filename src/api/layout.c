/* How the caller's tensors lie in the arenas, and what goes back and forth between them. */
#include "api/handle.h"
#include "base/mem.h"
#include "comm/lent.h"
#include "mpi/wait.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static uint32_t layout_tensor_sum(const gradwire *g, int t) {
    const gw_handle_tensor *of = &g->arena.tensor[t];
    uint64_t facts[] = {(uint64_t)of->group, of->span.n, of->rows};
    uLong sum = crc32_z(0, (const Bytef *)of->name, strlen(of->name));
    return (uint32_t)crc32_z(sum, (const Bytef *)facts, sizeof facts);
}

uint32_t gw_layout_sum(const gradwire *g) {
    uLong sum = 0;
    for (int t = 0; t < g->arena.n_tensors; t++) {
        uint32_t one = layout_tensor_sum(g, t);
        sum = crc32_z(sum, (const Bytef *)&one, sizeof one);
    }
    return (uint32_t)sum;
}

gw_err gw_layout_make(gradwire *g) {
    size_t groups = (size_t)g->arena.groups, tensors = (size_t)g->arena.n_tensors;
    GW_TRY(gw_alloc(&g->arena.group, groups, sizeof *g->arena.group));
    GW_TRY(gw_alloc(&g->arena.first, groups + 1, sizeof *g->arena.first));
    GW_TRY(gw_alloc(&g->arena.layout, tensors, sizeof *g->arena.layout));
    for (int t = g->arena.n_tensors - 1; t >= 0; t--) {
        const gw_handle_tensor *of = &g->arena.tensor[t];
        int rows = of->rows ? (int)of->rows : 1;
        g->arena.layout[t] =
            (gw_tensor){of->span, of->layer, rows, (int)(of->span.n / (size_t)rows), of->tracks};
        g->arena.first[of->group] = t;
    }
    g->arena.first[groups] = g->arena.n_tensors;
    for (int i = 0; i < g->arena.groups; i++) {
        size_t off = g->arena.tensor[g->arena.first[i]].span.off;
        g->arena.group[i] =
            (gw_span){off, gw_span_end(g->arena.tensor[g->arena.first[i + 1] - 1].span) - off};
    }
    return GW_OK;
}

void gw_layout_free(gradwire *g) {
    for (int t = 0; t < g->arena.n_tensors; t++)
        free(g->arena.tensor[t].name);
    free(g->arena.tensor);
    free(g->arena.group);
    free(g->arena.first);
    free(g->arena.layout);
    free(g->arena.piece);
    free(g->arena.late);
    free(g->arena.names);
}

/* Of one span that finish() is called with. */
static void layout_own_span(gradwire *g, gw_span s) {
    gw_span own = gw_session_owned(g->session, s);
    for (int t = 0; t < g->arena.n_tensors; t++) {
        gw_span part = gw_span_common(own, g->arena.tensor[t].span);
        if (part.n > 0)
            g->arena.piece[g->arena.n_pieces++] =
                (gw_piece){t, part.off - g->arena.tensor[t].span.off, part.n};
    }
}

/* A strategy that hands out an earlier step's gradients still needs those of the present one. And
 * where sums are fed, what --compress-stats compares with lies in the arena when a step begins. */
static gw_err layout_open_grads(gradwire *g) {
    bool late = g->session->strategy.ops->gives == GW_GIVES_LATE;
    bool sampled = g->words.run.compress_stats > 0 && gw_session_sums(g->session);
    if ((late || sampled) && !g->inside)
        return gw_alloc(&g->arena.late, g->arena.n, sizeof *g->arena.late);
    return GW_OK;
}

gw_err gw_layout_own(gradwire *g) {
    const gw_env *env = &g->session->env;
    GW_TRY(layout_open_grads(g));
    g->arena.grads = g->arena.late ? g->arena.late : env->grad;
    GW_TRY(gw_alloc(&g->arena.piece, (size_t)g->arena.n_tensors, sizeof *g->arena.piece));
    for (int i = 0; i < gw_env_spans(env); i++)
        layout_own_span(g, gw_env_span(env, i));
    return GW_OK;
}

static float *layout_param(const gradwire *g, const gw_handle_tensor *t) {
    return t->param ? t->param : g->session->env.param + t->span.off;
}

gw_err gw_layout_send(const gradwire *g, void *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += INT_MAX) { /* in pieces that MPI's count can hold */
        size_t left = bytes - at;
        GW_TRY(gw_bcast((char *)memory + at, left < INT_MAX ? (int)left : INT_MAX, MPI_BYTE, 0,
                        g->comm));
    }
    return GW_OK;
}

gw_err gw_layout_share(gradwire *g) {
    for (int t = 0; t < g->arena.n_tensors; t++)
        GW_TRY(gw_layout_send(g, layout_param(g, &g->arena.tensor[t]),
                              g->arena.tensor[t].span.n * sizeof(float)));
    gw_layout_take_params(g, (gw_span){0, g->arena.n});
    return GW_OK;
}

uint32_t gw_layout_group_sum(const void *handle, int group) {
    const gradwire *g = handle;
    uLong sum = 0;
    for (int t = g->arena.first[group]; t < g->arena.first[group + 1]; t++)
        sum = crc32_z(sum, (const Bytef *)g->arena.tensor[t].param,
                      g->arena.tensor[t].span.n * sizeof(float));
    return (uint32_t)sum;
}

void gw_layout_take_params(gradwire *g, gw_span s) {
    for (int t = 0; t < g->arena.n_tensors; t++) {
        const gw_handle_tensor *of = &g->arena.tensor[t];
        gw_span part = gw_span_common(s, of->span);
        if (g->session->env.param && of->param && part.n > 0)
            memcpy(g->session->env.param + part.off, of->param + (part.off - of->span.off),
                   part.n * sizeof(float));
    }
}

void gw_layout_give_params(gradwire *g, gw_span s) {
    for (int t = 0; t < g->arena.n_tensors; t++) {
        const gw_handle_tensor *of = &g->arena.tensor[t];
        gw_span part = gw_span_common(s, of->span);
        if (of->param && part.n > 0)
            memcpy(of->param + (part.off - of->span.off), g->session->env.param + part.off,
                   part.n * sizeof(float));
    }
}

static void layout_scale(float *to, const float *from, size_t n, float by) {
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] * by;
}

static void layout_add(float *to, const float *from, size_t n, float by) {
    for (size_t i = 0; i < n; i++)
        to[i] += from[i] * by;
}

static float *layout_grad(const gradwire *g, const gw_handle_tensor *t) {
    return t->grad ? t->grad : g->arena.grads + t->span.off;
}

bool gw_layout_looks_later(const gradwire *g) {
    return !g->words.run.lazy && gw_session_lent(g->session);
}

void gw_layout_look(gradwire *g) {
    if (g->words.run.on_nan == GW_ON_NAN_KEEP || !gw_layout_looks_later(g))
        return;
    for (int t = g->arena.n_tensors - 1; t >= 0; t--)
        if (g->arena.tensor[t].lent)
            gw_guard_most(&g->guard, gw_lent_most(gw_session_lent(g->session), t), t);
}

/* Where the backward pass of a trainer would add to the residual, this does. */
void gw_layout_take_grad(gradwire *g, int tensor) {
    gw_handle_tensor *t = &g->arena.tensor[tensor];
    float *arena = g->session->env.grad + t->span.off;
    float *sums = gw_session_sums(g->session);
    float *grad = layout_grad(g, t), by = g->words.scaled ? 1 : (float)g->batch.share;
    t->given = 0;
    t->lent = gw_session_lies(g->session, tensor, g->batch.samples > 0 ? t->grad : NULL, by);
    bool later = t->lent && gw_layout_looks_later(g);
    if (g->words.run.on_nan != GW_ON_NAN_KEEP && g->batch.samples > 0 && !later)
        gw_guard_values(&g->guard, grad, t->span.n, tensor);
    if (sums && g->batch.samples > 0)
        layout_add(sums + t->span.off, grad, t->span.n, by);
    if (sums || t->lent)
        return;
    if (g->batch.samples == 0)
        memset(arena, 0, t->span.n * sizeof *arena);
    else if (by != 1)
        layout_scale(arena, grad, t->span.n, by);
    else if (grad != arena)
        memcpy(arena, grad, t->span.n * sizeof *arena);
}

/* Of a strategy that exchanges no gradients the mean of this rank's samples is where it was. */
static bool layout_lies_there(const gradwire *g, const gw_update *u) {
    const gw_session *s = g->session;
    bool own = s->strategy.ops->gives == GW_GIVES_OWN;
    return own && u->grad == s->env.grad && !g->words.scaled && s->clip.by == 1;
}

static void layout_give_grad(gradwire *g, const gw_handle_tensor *t, const gw_update *u) {
    gw_span part = gw_span_common(u->own, t->span);
    float *to = t->grad ? t->grad + (part.off - t->span.off) : g->arena.grads + part.off;
    const float *from = t->lent ? to : u->grad + part.off;
    if (t->given == t->span.n)
        return;
    if (u->scale != 1)
        layout_scale(to, from, part.n, u->scale);
    else if (to != from)
        memcpy(to, from, part.n * sizeof *to);
}

void gw_layout_arrived(void *handle, gw_span part) {
    gradwire *g = handle;
    gw_phase_enter(GW_PHASE_DECODE);
    for (int i = 0; i < g->arena.n_tensors; i++) {
        gw_handle_tensor *t = &g->arena.tensor[i];
        gw_span here = gw_span_common(part, t->span);
        if (here.n == 0 || t->lent)
            continue;
        float *to = layout_grad(g, t) + (here.off - t->span.off);
        const float *from = g->session->env.grad + here.off;
        if (to != from)
            memcpy(to, from, here.n * sizeof *to);
        t->given += here.n;
    }
    gw_phase_leave();
}

void gw_layout_give_grads(gradwire *g, const gw_update *u) {
    bool there = layout_lies_there(g, u);
    for (int t = 0; t < g->arena.n_tensors; t++)
        if (!there || !g->arena.tensor[t].grad)
            layout_give_grad(g, &g->arena.tensor[t], u);
}

void gw_layout_clear_grads(gradwire *g, gw_span s) {
    for (int t = 0; t < g->arena.n_tensors; t++)
        if (gw_span_overlap(s, g->arena.tensor[t].span))
            memset(layout_grad(g, &g->arena.tensor[t]), 0,
                   g->arena.tensor[t].span.n * sizeof(float));
}
