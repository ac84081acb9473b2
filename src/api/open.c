/* The public functions: opening a handle, reading it, and its end. */
#include "api/handle.h"
#include "base/mem.h"
#include "base/norm.h"
#include "base/probe.h"
#include "base/text.h"
#include "base/version.h"
#include "mpi/alike.h"
#include "mpi/wait.h"
#include "mpi/world.h"
#include "watch/watchdog.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gw_err open_check_parts(const gw_words *w, const gw_strategy_ops *ops) {
    bool scatters = ops->gives == GW_GIVES_PARTS;
    if (w->parts && gw_strategy_publishes(ops) && !scatters)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "gradwire: --parameters parts: --comm %s exchanges parameters, which no "
                       "rank has whole: use sharded, or one that exchanges gradients alone",
                       ops->head.name);
    if (w->parts && scatters && w->run.clip > 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "gradwire: --clip-norm: with --parameters parts --comm %s finishes each "
                       "group by itself, before the whole norm is known: clip the parts",
                       ops->head.name);
    return GW_OK;
}

gw_err gw_handle_session(gradwire *g) {
    const gw_words *w = &g->words;
    gw_mix mix;
    GW_TRY(gw_mix_open(&mix, w->run.compress, w->run.wire_check));
    if (mix.n == 0) {
        gw_mix_close(&mix);
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "gradwire: --compress auto chooses by timing training steps, as `gradwire "
                       "train` can: name a codec");
    }
    GW_TRY(gw_session_new(&g->session, w->run.comm, &mix, w->run.feedback));
    GW_TRY(gw_codec_stats_check(g->session, w->run.compress_stats));
    return open_check_parts(w, g->session->strategy.ops);
}

static gw_err open_check_tensors(const gradwire *g) {
    if (g->refused[0])
        return gw_fail(GW_ERR_USAGE, "%s", g->refused);
    if (g->arena.n_tensors == 0)
        return gw_call_refuse("open",
                              "no tensor was declared: call gradwire_tensor for each first");
    return GW_OK;
}

static gw_err open_compare_tensors(const gradwire *g) {
    gw_alike alike;
    gw_alike_begin(&alike, NULL);
    for (int t = 0; t < g->arena.n_tensors; t++) {
        const gw_handle_tensor *of = &g->arena.tensor[t];
        char name[32];
        snprintf(name, sizeof name, "tensor %d", t);
        gw_alike_add(&alike, name, "%s: group %d, %zu floats, %zu rows", of->name, of->group,
                     of->span.n, of->rows);
    }
    return gw_alike_compare(&alike, "gradwire_open", g->comm);
}

static gw_err open_session(gradwire *g) {
    gw_handle_arena *a = &g->arena;
    GW_TRY(gw_agree(g->comm, gw_alloc(&a->names, (size_t)a->n_tensors, sizeof *a->names)));
    bool keeps = true; /* all parameters lie with the caller */
    for (int t = 0; t < a->n_tensors; t++) {
        a->names[t] = a->tensor[t].name;
        keeps = keeps && a->tensor[t].param;
    }
    const gw_words *w = &g->words;
    const gw_inside_setup *told = &g->told;
    g->by_group = w->run.lazy || (w->parts && g->session->strategy.ops->gives == GW_GIVES_PARTS);
    if (!g->inside) /* a rule of the caller's own may keep squares, too */
        g->told =
            (gw_inside_setup){.most = g->optimizer ? g->optimizer->ops->most : GW_SQUARES_MOST,
                              .correction = (float)w->run.momentum,
                              .clip = w->run.clip,
                              .seed = w->run.seed,
                              .yield = g->oversubscribed,
                              .undo = w->run.on_nan != GW_ON_NAN_KEEP};
    gw_session_setup setup = {.n = a->n,
                              .layers = a->group,
                              .n_layers = a->groups,
                              .tensors = a->layout,
                              .n_tensors = a->n_tensors,
                              .in_rows = told->in_rows,
                              .names = a->names,
                              .by_layer = g->by_group,
                              .keeps = keeps,
                              .parts = w->parts,
                              .adds = true,
                              .model_layers = told->model_layers,
                              .lists = told->lists,
                              .params = told->params,
                              .vectors = told->vectors,
                              .most = told->most,
                              .correction = told->correction,
                              .clip = {told->clip, told->rest, told->n_rest},
                              .link_bytes_per_s = told->link_bytes_per_s,
                              .seed = told->seed,
                              .yield = told->yield,
                              .undo = told->undo,
                              .arrived = g->inside ? NULL : gw_layout_arrived,
                              .arrived_ctx = g};
    g->opened = true;
    if (g->optimizer)
        setup.vectors = g->optimizer->state;
    GW_TRY(gw_session_open(g->session, g->comm, &setup));
    g->publishes = gw_strategy_publishes(g->session->strategy.ops) && !g->inside && !w->parts;
    g->guard = (gw_guard){.comm = g->comm,
                          .rank = g->rank,
                          .how = w->run.on_nan,
                          .together = g->session->together,
                          .names = a->names};
    gw_err e = gw_layout_own(g);
    GW_THEN(e, gw_update_check(g));
    return gw_agree(g->comm, e);
}

static gw_err open_all(gradwire *g) {
    GW_TRY(gw_agree(g->comm, open_check_tensors(g)));
    GW_TRY(open_compare_tensors(g));
    gw_err e = gw_layout_make(g);
    GW_THEN(e, gw_update_open(g));
    GW_TRY(gw_agree(g->comm, e));
    if (g->records)
        GW_TRY(gw_files_claim(g));
    GW_TRY(open_session(g));
    if (!g->words.parts)
        GW_TRY(gw_layout_share(g));
    if (g->records)
        GW_TRY(gw_files_open(g));
    for (gradwire *one = g->next; one && !g->inside; one = one->next)
        one->others += one->records; /* the first handle, which is older */
    g->batch.epoch = 1;
    g->batch.validation_loss = g->batch.validation_accuracy = NAN;
    g->batch.fresh = true;
    g->state = GW_HANDLE_BETWEEN;
    return GW_OK;
}

int gradwire_open(gradwire *g) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "open", GW_IN_NEW, true);
    if (e == GW_OK) {
        e = open_all(g);
        if (e != GW_OK) { /* what is half open is good for nothing but closing */
            g->state = GW_HANDLE_BROKEN;
            g->alone = gw_err_alone(e);
        }
    }
    return gw_call_end(&c, e);
}

float *gradwire_memory(gradwire *g, int tensor, int which) {
    gw_call c;
    float *at = NULL;
    gw_err e = gw_call_begin(&c, g, "memory", GW_IN_OPEN, false);
    if (e == GW_OK && (tensor < 0 || tensor >= g->arena.n_tensors))
        e = gw_fail(GW_ERR_USAGE, "gradwire_memory: tensor %d: there are 0 to %d", tensor,
                    g->arena.n_tensors - 1);
    else if (e == GW_OK && which == GRADWIRE_GRAD)
        at = g->arena.grads + g->arena.tensor[tensor].span.off;
    else if (e == GW_OK && which == GRADWIRE_PARAM && !g->arena.tensor[tensor].param &&
             !g->words.parts)
        at = g->session->env.param + g->arena.tensor[tensor].span.off;
    else if (e == GW_OK)
        e = gw_call_refuse("memory", "the tensor's parameters are the caller's, or `which` is "
                                     "neither GRADWIRE_PARAM nor GRADWIRE_GRAD");
    gw_call_end(&c, e);
    return at;
}

/* ---- reading ---- */

double gradwire_figure(const gradwire *g, const char *column) {
    gw_call c;
    double x = NAN;
    gw_batch_table table;
    gw_err e = gw_call_begin(&c, (gradwire *)g, "figure", GW_IN_OPEN, false);
    if (e == GW_OK && column && g->records && g->batch.step > 0) {
        gw_batch_table_make(&table, false, NULL, 0);
        x = gw_table_number(&table.table, &g->files.rec.row, column);
    }
    gw_call_end(&c, e);
    return x;
}

static const char *text_of_mpi(const char *key) {
    static char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int len = 0, level = MPI_THREAD_SINGLE;
    if (strcmp(key, "thread_level") == 0) {
        MPI_Query_thread(&level);
        return gw_world_thread_level(level);
    }
    if (strcmp(key, "mpi") != 0)
        return NULL;
    if (!*mpi && MPI_Get_library_version(mpi, &len) == MPI_SUCCESS)
        mpi[strcspn(mpi, "\n")] = '\0';
    return mpi;
}

/* This needs neither MPI nor an open handle. */
static const char *text_of(const gradwire *g, const char *key) {
    static char unmet[4096];
    const gw_session *s = g->session;
    const gw_strategy_ops *ops = s->strategy.ops;
    bool late = ops->gives == GW_GIVES_LATE, directs = ops->gives == GW_GIVES_DIRECTION;
    gw_unmet_text(&s->unmet, unmet, sizeof unmet);
    static char servers[12];
    snprintf(servers, sizeof servers, "%d", s->strategy.plan.servers);
    const char *const texts[][2] = {
        {"servers", servers},
        {"strategy", ops->head.name},
        {"shape", gw_strategy_shape_name(ops)},
        {"mean", late || ops->gives == GW_GIVES_MEAN ? "yes" : "no"},
        {"late", late ? "yes" : "no"},
        {"directs", directs ? "yes" : "no"},
        {"rejoins", directs && gw_strategy_publishes(ops) ? "yes" : "no"},
        {"algorithm", s->mix.algo->ops->head.name},
        {"codec", gw_session_compression(s)},
        {"compares", g->words.run.verify_every > 0 ? "yes" : "no"},
        {"update", g->words.run.lazy ? "lazy" : "eager"},
        {"optimizer", g->words.optimizer ? g->words.optimizer->text : "none"},
        {"gradient", g->words.scaled ? "scaled" : "mean"},
        {"parameters", g->words.parts ? "parts" : "whole"},
        {"error_feedback", gw_session_feeds_back(s) ? "on" : "off"},
        {"unmet", unmet},
        {"notes", s->notes.lines ? s->notes.lines : ""},
        {"out", g->words.run.out ? g->words.run.out : ""},
        {"polls", s->strategy.plan.polls ? "yes" : "no"},
        {"in_place", g->opened && gw_session_takes_lent(s) ? "yes" : "no"},
        {"version", GW_VERSION}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i][0], key) == 0)
            return texts[i][1];
    return NULL;
}

const char *gradwire_text(const gradwire *g, const char *key) {
    gw_call c;
    gw_err e = gw_call_begin(&c, (gradwire *)g, "text", GW_IN_NEW | GW_IN_OPEN, false);
    gw_call_end(&c, e);
    if (e != GW_OK || !key)
        return NULL;
    const char *text = text_of(g, key);
    return text ? text : text_of_mpi(key);
}

const char *gradwire_words(const char *words, const char *key) {
    static char told[1024];
    gradwire g = {0};
    gw_err e = gw_call_open() ? gw_words_beside(&g.words, words) : gw_words_read(&g.words, words);
    GW_THEN(e, gw_handle_session(&g));
    const char *text = e == GW_OK && key ? text_of(&g, key) : NULL;
    gw_text_copy(told, sizeof told, text ? text : "");
    gw_session_free(g.session);
    gw_words_free(&g.words);
    return e == GW_OK ? told : NULL;
}

static gw_err mean_of(gradwire *g, int n, double *value, double weight) {
    double *sum = NULL;
    if (n < 0 || (n > 0 && !value))
        return gw_call_refuse("mean", "n is negative, or value is NULL");
    if (!(weight >= 0) || isinf(weight))
        return gw_fail(GW_ERR_USAGE, "gradwire_mean: weight %g: must be 0 or more", weight);
    GW_TRY(gw_alloc(&sum, (size_t)n + 1, sizeof *sum));
    for (int i = 0; i < n; i++)
        sum[i] = weight > 0 ? weight * value[i] : 0;
    sum[n] = weight;
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = gw_allreduce(MPI_IN_PLACE, sum, n + 1, MPI_DOUBLE, MPI_SUM, g->comm);
    GW_THEN(e, gw_bcast(sum, n + 1, MPI_DOUBLE, 0, g->comm)); /* the same bits on all ranks */
    gw_phase_leave();
    for (int i = 0; i < n && e == GW_OK; i++)
        value[i] = sum[i] / sum[n];
    free(sum);
    return e;
}

int gradwire_mean(gradwire *g, int n, double *value, double weight) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "mean", GW_IN_OPEN, false);
    GW_THEN(e, mean_of(g, n, value, weight));
    return gw_call_end(&c, e);
}

static gw_err share_memory(gradwire *g, void *memory, size_t bytes) {
    gw_alike alike;
    bool lacks = !memory && bytes > 0;
    GW_TRY(gw_agree(g->comm, lacks ? gw_call_refuse("share", "memory is NULL") : GW_OK));
    gw_alike_begin(&alike, NULL);
    gw_alike_add(&alike, "size", "%zu bytes", bytes);
    GW_TRY(gw_alike_compare(&alike, "gradwire_share", g->comm));
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = gw_layout_send(g, memory, bytes);
    gw_phase_leave();
    return e;
}

int gradwire_share(gradwire *g, void *memory, size_t bytes) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "share", GW_IN_BETWEEN, true);
    GW_THEN(e, share_memory(g, memory, bytes));
    return gw_call_end(&c, e);
}

/* ---- the end ---- */

/* The ledger's regions and its batch, which an error may have left open. */
static void close_batch(gradwire *g) {
    gw_batch_cost cost;
    if (!g->batch.open)
        return;
    if (g->batch.phase >= 0)
        gw_phase_leave();
    gw_ledger_end(&cost);
}

/* What is under way of a broken exchange never ends: its memory and communicators stay. */
static void close_broken(gradwire *g) {
    close_batch(g);
    if (g->records) {
        gw_files_close(g);
        gw_watchdog_close();
    }
    gw_call_forget(g);
}

/* A batch of which nothing was exchanged is none. */
static void close_drop(gradwire *g) {
    if (g->state != GW_HANDLE_BATCH || g->batch.begun || g->batch.pending)
        return;
    close_batch(g);
    g->batch.open = false;
    g->batch.phase = -1;
    g->batch.step--;
    g->state = GW_HANDLE_BETWEEN;
}

static gw_err close_whole(gradwire *g) {
    bool complete = g->state == GW_HANDLE_BETWEEN && g->records;
    gw_err e = complete ? gw_files_finish(g) : GW_OK;
    if (gw_err_alone(e)) {
        close_broken(g);
        return e;
    }
    if (g->opened)
        gw_session_close(g->session);
    if (g->records) {
        close_batch(g);
        gw_files_close(g);
        gw_watchdog_leave();
        gw_watchdog_close();
    }
    if (!g->inside) {
        MPI_Comm_free(&g->comm);
        MPI_Comm_free(&g->end.comm);
    }
    gw_session_free(g->session);
    gw_optimizer_close(g->optimizer);
    gw_words_free(&g->words);
    gw_layout_free(g);
    gw_call_forget(g);
    free(g);
    return e;
}

int gradwire_close(gradwire *g) {
    gw_call c;
    if (!g)
        return GW_OK;
    gw_err e = gw_call_begin(&c, g, "close", ~0, true);
    if (e == GW_OK && g->records && g->state != GW_HANDLE_BROKEN && gw_call_handles() > 1)
        e = gw_call_refuse("close", "other handles of this process are open, and this one records "
                                    "and watches for them: close them first");
    if (e != GW_OK)
        return gw_call_end(&c, e);
    close_drop(g);
    bool within = g->state == GW_HANDLE_BATCH || g->batch.pending;
    bool broken = g->state == GW_HANDLE_BROKEN;
    if (!g->inside && (within || (broken && g->alone))) {
        close_broken(g);
        if (!broken)
            e = gw_call_refuse("close", "an exchange is under way, and the run is not complete: "
                                        "end the batch, and finish every group, first");
        c.together = false;
    } else {
        e = close_whole(g);
    }
    gw_call_restore(&c);
    return gw_call_end(&c, e);
}
