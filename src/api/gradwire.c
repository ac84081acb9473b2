/* The public functions: a handle and its tensors. */
#include "api/handle.h"
#include "base/mem.h"
#include "base/text.h"
#include "mpi/alike.h"
#include "mpi/launcher.h"
#include "mpi/wait.h"
#include "watch/watchdog.h"

#include <limits.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 14 /* tensors */ };

/* ---- a handle ---- */

/* From before the first collective call until the handle is closed. */
static void gradwire_watch(const gw_words *w, MPI_Comm comm) {
    int ranks = 1;
    MPI_Comm_size(comm, &ranks);
    gw_watchdog_setup dog = {.timeout_s = ranks > 1 ? w->run.hang_timeout_s : 0,
                             .comm = w->run.comm->text,
                             .compress = w->run.compress->text};
    gw_watchdog_start(&dog, comm);
    gw_watchdog_inside("new");
}

static gw_err gradwire_make(gradwire *g, gw_err e) {
    int threads = g->words.run.threads, provided = MPI_THREAD_SINGLE;
    if (e == GW_OK && threads > 1 && !omp_in_parallel()) {
        /* OpenMP's threads are made now, with the floating-point state of the caller's. */
#pragma omp parallel num_threads(threads)
        (void)gw_float_state();
    }
    MPI_Query_thread(&provided);
    GW_THEN(e, gw_handle_session(g));
    GW_THEN(e, gw_start_check_level(gw_strategy_thread_level(&g->session->strategy), provided));
    GW_THEN(e, gw_launcher_check());
    GW_TRY(gw_agree(g->comm, e));
    gw_alike alike; /* or the ranks would wait for each other forever */
    gw_alike_begin(&alike, NULL);
    gw_alike_options(&alike, g->words.args);
    GW_TRY(gw_alike_compare(&alike, "gradwire_new", g->comm));
    if (g->records)
        GW_TRY(gw_watchdog_meet(g->comm));
    int servers = g->session->strategy.plan.servers;
    if (servers >= g->ranks)
        return gw_fail(GW_ERR_USAGE,
                       "gradwire: --comm %s keeps all of %d rank%s from training: "
                       "start more ranks",
                       g->words.run.comm->text, g->ranks, g->ranks == 1 ? "" : "s");
    GW_TRY(gw_host_node_of(&g->node, threads + g->session->strategy.plan.helpers, g->comm));
    int over = gw_host_oversubscribed(&g->node);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &over, 1, MPI_INT, MPI_MAX, g->comm));
    g->oversubscribed = over;
    gw_wait_yields(over);
    return GW_OK;
}

static gw_err gradwire_join(gradwire *g, MPI_Comm comm) {
    GW_TRY(gw_comm_dup(comm, &g->comm));
    GW_MPI(MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN));
    GW_TRY(gw_comm_dup(g->comm, &g->end.comm));
    GW_TRY(gw_comm_place(g->comm, &g->rank, &g->ranks));
    return GW_OK;
}

static gw_err gradwire_check_new(gradwire **out, int comm) {
    int up = 0, over = 0;
    if (!out)
        return gw_call_refuse("new", "out is NULL: where is the handle to go?");
    *out = NULL;
    MPI_Initialized(&up);
    MPI_Finalized(&over);
    if (!up || over)
        return gw_call_refuse("new", "MPI does not run: call gradwire_start or MPI_Init first");
    if (gw_call_child())
        return gw_call_refuse("new", GW_CALL_CHILD);
    if (comm >= 0 && MPI_Comm_f2c(comm) == MPI_COMM_NULL)
        return gw_call_refuse("new", "comm is MPI_COMM_NULL");
    return GW_OK;
}

/* It could not be made: nothing of it stays. */
static int gradwire_unmake(gradwire *g, gw_call *c, gw_err e) {
    if (g->records && !gw_err_alone(e))
        gw_watchdog_leave();
    if (g->records)
        gw_watchdog_close();
    if (!gw_err_alone(e) && g->comm != MPI_COMM_NULL)
        MPI_Comm_free(&g->comm);
    if (!gw_err_alone(e) && g->end.comm != MPI_COMM_NULL)
        MPI_Comm_free(&g->end.comm);
    gw_session_free(g->session);
    gw_words_free(&g->words);
    gw_call_forget(g);
    free(g);
    return gw_call_end(c, e);
}

int gradwire_new(gradwire **out, int comm, const char *words) {
    gw_call c = {.name = "new"};
    bool records = false;
    gradwire *g = NULL;
    gw_err e = gradwire_check_new(out, comm);
    GW_THEN(e, gw_alloc(&g, 1, sizeof *g));
    GW_THEN(e, gw_call_take(&records));
    if (e != GW_OK) {
        free(g);
        return gw_call_end(&c, e);
    }
    g->records = records;
    gw_call_remember(g);
    gw_start_mind();
    MPI_Comm of = comm < 0 ? MPI_COMM_WORLD : MPI_Comm_f2c(comm);
    gw_err read = records ? gw_words_read(&g->words, words) : gw_words_beside(&g->words, words);
    if (read == GW_OK && records)
        gradwire_watch(&g->words, of);
    e = gradwire_join(g, of);
    GW_THEN(e, gradwire_make(g, read));
    c.together = true;
    gw_watchdog_inside(NULL);
    if (e != GW_OK)
        return gradwire_unmake(g, &c, e);
    *out = g;
    return GW_OK;
}

/* ---- tensors ---- */

static gw_err tensor_refuse(const char *name, const char *why) {
    return gw_fail(GW_ERR_USAGE, "gradwire_tensor: %s: %s", name ? name : "(no name)", why);
}

static gw_err tensor_check(const gradwire *g, const char *name, int group, size_t n, size_t rows) {
    int last = g->arena.n_tensors ? g->arena.tensor[g->arena.n_tensors - 1].group : -1;
    if (!name || !*name)
        return tensor_refuse(name, "a tensor needs a name");
    if (!gw_text_utf8(name))
        return tensor_refuse("(its name)", "is not UTF-8");
    GW_TRY(gw_text_name("gradwire_tensor", "", name));
    if (n == 0)
        return tensor_refuse(name, "it has no elements: leave it out");
    if (n > INT_MAX)
        return tensor_refuse(name, "its size must be 1 to 2^31 - 1 floats");
    if (rows && n % rows)
        return tensor_refuse(name, "its size is not a multiple of its rows");
    if (group != last && group != last + 1)
        return tensor_refuse(name, "groups must rise from 0, each by 1");
    if (g->arena.n_tensors == MOST)
        return tensor_refuse(name, "too many tensors");
    for (int t = 0; t < g->arena.n_tensors; t++)
        if (strcmp(g->arena.tensor[t].name, name) == 0)
            return tensor_refuse(name, "declared twice");
    return GW_OK;
}

static gw_err tensor_add(gradwire *g, const gw_handle_tensor *t) {
    GW_TRY(
        gw_grow(&g->arena.tensor, &g->arena.room, g->arena.n_tensors + 1, sizeof *g->arena.tensor));
    char *name = strdup(t->name);
    if (!name)
        return gw_fail(GW_ERR_NOMEM, "gradwire_tensor: out of memory");
    g->arena.tensor[g->arena.n_tensors] = *t;
    g->arena.tensor[g->arena.n_tensors++].name = name;
    g->arena.groups = t->group + 1;
    g->arena.n += t->span.n;
    return GW_OK;
}

int gradwire_tensor(gradwire *g, const char *name, int group, size_t n, size_t rows, float *param) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "tensor", GW_IN_NEW, false);
    GW_THEN(e, tensor_check(g, name, group, n, rows));
    if (e == GW_OK) {
        gw_handle_tensor t = {.name = (char *)name,
                              .group = group,
                              .layer = group,
                              .span = {g->arena.n, n},
                              .rows = rows,
                              .param = param};
        e = tensor_add(g, &t);
    }
    if (e != GW_OK && c.g && !g->refused[0]) /* open tells all ranks */
        gw_text_copy(g->refused, sizeof g->refused, gw_err_text());
    int end = gw_call_end(&c, e);
    return end < 0 ? end : g->arena.n_tensors - 1;
}
