#include "checkpoint/checkpoint.h"

#include "base/mem.h"
#include "base/probe.h"
#include "base/text.h"
#include "mpi/wait.h"
#include "prof/ledger.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef enum phase { REST, WRITING, COMMITTING } phase;

/* A job beside the rank's main thread; it makes no MPI call. */
typedef struct worker {
    gw_err (*job)(gw_checkpoint *c);
    pthread_t thread;
    bool begun; /* and not waited for */
    atomic_bool done;
    gw_err result; /* and its message */
    char message[1024];
} worker;

/* What a rank's thread has written, for rank 0. */
typedef struct part {
    uint64_t bytes;
    uint32_t crc32, params_crc32;
} part;

struct gw_checkpoint {
    gw_checkpoint_setup s;
    char dir[GW_STORE_PATH];
    int rank, ranks;
    bool agree; /* replicas must be equal after each step */
    worker worker;
    /* the same on all ranks */
    phase phase;
    int64_t at;    /* the step that a vote has chosen; 0: none */
    int64_t taken; /* the step last taken and not known to have failed */
    bool owed;     /* one was due while another was being written */
    /* what is being written */
    gw_rank_state state;
    bool lacking; /* memory: `taken` is not there */
    char temp[GW_STORE_PATH];
    part mine;
    gw_store_manifest manifest;
    char final[GW_STORE_PATH];
    /* rank 0 */
    float *best; /* the model of the best epoch, and which that is; NULL: none is kept */
    int best_epoch;
    double last_s; /* when the last one was taken */
    gw_checkpoint_counts counts;
    bool failing, cramped; /* since the last one that could be written; whose elders could go */
    bool unsaid;
    char warning[1100];
};

/* ---- the thread ---- */

static void *checkpoint_work(void *p) {
    gw_checkpoint *c = p;
    worker *w = &c->worker;
    w->result = w->job(c);
    if (w->result != GW_OK)
        snprintf(w->message, sizeof w->message, "%s", gw_err_text());
    atomic_store(&w->done, true);
    return NULL;
}

/* Signals are the main thread's, whose system calls they are to interrupt. */
static void checkpoint_start_worker(gw_checkpoint *c, gw_err (*job)(gw_checkpoint *c)) {
    worker *w = &c->worker;
    sigset_t all, before;
    sigfillset(&all);
    *w = (worker){.job = job};
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, checkpoint_work, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->begun = rc == 0;
    if (w->begun)
        return;
    w->result = GW_ERR_NOMEM;
    snprintf(w->message, sizeof w->message, "cannot start a thread that writes it: %s",
             strerror(rc));
}

/* What the job returned, with its message. */
static gw_err checkpoint_wait_for_worker(worker *w) {
    if (w->begun)
        pthread_join(w->thread, NULL);
    w->begun = false;
    gw_err e = w->result;
    w->result = GW_OK;
    return e == GW_OK ? GW_OK : gw_fail(e, "%s", w->message);
}

/* ---- opening ---- */

static gw_err checkpoint_open_mine(gw_checkpoint *c) {
    gw_stepper *t = c->s.stepper;
    gw_vectors *vectors = &c->state.vectors;
    GW_TRY(gw_store_path(c->dir, c->s.c->run.out, GW_STORE_FOLDER));
    gw_rank_state_shape(&c->state, gw_model_shard(t->model));
    vectors->count = t->optimizer->state.count;
    GW_TRY(gw_alloc(&c->state.params, c->state.n, sizeof(float)));
    GW_TRY(gw_alloc(&vectors->x, c->state.n * (size_t)vectors->count, sizeof(float)));
    if (c->rank != 0)
        return GW_OK;
    c->manifest.ranks = c->ranks;
    GW_TRY(gw_alloc(&c->manifest.files, (size_t)c->ranks + 2, sizeof *c->manifest.files));
    if (c->s.best->params)
        GW_TRY(gw_alloc(&c->best, c->s.best->n, sizeof *c->best));
    return gw_store_sweep(c->dir);
}

gw_err gw_checkpoint_open(gw_checkpoint **out, const gw_checkpoint_setup *setup) {
    gw_checkpoint *c = NULL;
    gw_err e = gw_alloc(&c, 1, sizeof *c);
    if (e == GW_OK) {
        c->s = *setup;
        c->agree = setup->stepper->is.synchronous;
        c->last_s = gw_ledger_now();
        e = gw_mpi_check(MPI_Comm_rank(setup->comm, &c->rank), "MPI_Comm_rank");
    }
    GW_THEN(e, gw_mpi_check(MPI_Comm_size(setup->comm, &c->ranks), "MPI_Comm_size"));
    GW_THEN(e, checkpoint_open_mine(c));
    e = gw_agree(setup->comm, e);
    GW_OPENED(e, out, c, gw_checkpoint_close);
}

void gw_checkpoint_close(gw_checkpoint *c) {
    if (!c)
        return;
    checkpoint_wait_for_worker(&c->worker);
    if (c->rank == 0 && c->phase != REST)
        gw_store_abandon(c->temp);
    gw_rank_state_free(&c->state);
    gw_store_manifest_free(&c->manifest);
    free(c->best);
    free(c);
}

/* ---- when ---- */

bool gw_checkpoint_due(gw_checkpoint *c, int64_t step) {
    if (!c)
        return false;
    int64_t every = c->s.c->keep.every.count;
    bool due = step == c->at || (every > 0 && step % every == 0);
    if (due && c->phase != REST) {
        c->counts.late += !c->owed;
        c->owed = true;
        return false;
    }
    if (due) {
        c->at = 0;
        c->owed = false;
    }
    return due;
}

bool gw_checkpoint_has(const gw_checkpoint *c, int64_t step) {
    return c && c->taken == step;
}

void gw_checkpoint_ballot(gw_checkpoint *c, gw_ballot *ballot) {
    if (!c)
        return;
    double every_s = c->s.c->keep.every.s;
    bool clock = c->rank == 0 && every_s > 0 && c->phase == REST;
    ballot->keep_due = clock && gw_ledger_now() - c->last_s >= every_s;
    ballot->writing = c->phase != REST && c->worker.begun && !atomic_load(&c->worker.done);
}

/* ---- taking ---- */

gw_err gw_checkpoint_take(gw_checkpoint *c) {
    gw_stepper *t = c->s.stepper;
    gw_rank_state *r = &c->state;
    gw_io *io = NULL;
    gw_phase_enter(GW_PHASE_CHECKPOINT);
    gw_err e = gw_io_keep(&io, &r->exchange);
    /* It drains, and what was in flight may end in the parameters: before they are copied. */
    GW_THEN(e, gw_io_end(io, gw_inside_state(t->g, io)));
    if (e == GW_OK) {
        memcpy(r->params, gw_model_params(t->model), r->n * sizeof(float));
        memcpy(r->vectors.x, t->optimizer->state.x,
               r->n * (size_t)r->vectors.count * sizeof(float));
        r->updates = t->optimizer->updates;
        r->owned = t->owned;
    }
    gw_phase_leave();
    c->lacking = e == GW_ERR_NOMEM;
    return c->lacking ? GW_OK : e;
}

/* ---- writing ---- */

/* On the thread, as what is called by `checkpoint_commit` is. */
static gw_err checkpoint_write_part(gw_checkpoint *c) {
    const gw_rank_state *r = &c->state;
    c->mine.params_crc32 = (uint32_t)crc32_z(0, (const Bytef *)r->params, r->n * sizeof *r->params);
    return gw_rank_state_save(&c->state, c->temp, c->rank, &c->mine.bytes, &c->mine.crc32);
}

/* The rank of a replica at a place in its pipe and tensor dimensions. */
static int checkpoint_rank_at(const gw_checkpoint *c, int replica, int place) {
    int tensor = c->s.mesh->shape.size[GW_DIM_TENSOR];
    const int at[GW_DIMS] = {
        [GW_DIM_DATA] = replica, [GW_DIM_PIPE] = place / tensor, [GW_DIM_TENSOR] = place % tensor};
    return gw_mesh_rank(c->s.mesh, at);
}

static int checkpoint_replicas(const gw_checkpoint *c) {
    return c->s.mesh->shape.size[GW_DIM_DATA];
}

/* What an evaluation would see: one replica or, where they may differ, their mean. All ranks' files
 * are on the disk by now. */
static gw_err checkpoint_write_model(gw_checkpoint *c) {
    gw_store_file *f = &c->manifest.files[c->ranks];
    bool apart = !c->agree || c->state.n < c->state.whole; /* this rank does not have it all */
    int replicas = checkpoint_replicas(c), places = c->ranks / replicas;
    float *whole = NULL;
    gw_merge m = {0};
    gw_err e = apart ? gw_alloc(&whole, c->state.whole, sizeof *whole) : GW_OK;
    if (!c->agree)
        GW_THEN(e, gw_merge_open(&m, c->state.whole, 0));
    for (int i = 0; apart && e == GW_OK && i < (c->agree ? 1 : replicas) * places; i++) {
        gw_rank_state r;
        int rank = checkpoint_rank_at(c, i / places, i % places);
        e = gw_rank_state_load(&r, c->temp, rank, c->manifest.files[rank].bytes, c->state.whole);
        if (e != GW_OK)
            break;
        if (c->agree)
            gw_blocks_scatter(r.blocks, r.n_blocks, r.params, whole);
        else
            gw_merge_add(&m, &r);
        gw_rank_state_free(&r);
    }
    if (!c->agree)
        GW_THEN(e, gw_merge_end(&m, c->temp, whole, NULL));
    gw_merge_free(&m);
    snprintf(f->name, sizeof f->name, "model.gw");
    GW_THEN(e, gw_model_save(c->s.stepper->model, whole ? whole : c->state.params, c->temp, f->name,
                             &f->bytes, &f->crc32));
    free(whole);
    return e;
}

static gw_err checkpoint_commit(gw_checkpoint *c) {
    gw_store_file *best = &c->manifest.files[c->ranks + 1];
    bool there = c->best && c->best_epoch > 0;
    GW_TRY(checkpoint_write_model(c));
    c->manifest.n_files = (size_t)c->ranks + (there ? 2 : 1);
    snprintf(best->name, sizeof best->name, GW_BEST_FILE);
    if (there)
        GW_TRY(gw_model_save(c->s.stepper->model, c->best, c->temp, best->name, &best->bytes,
                             &best->crc32));
    GW_TRY(gw_rows_sync(c->s.rows));
    return gw_store_commit(c->temp, &c->manifest, c->s.c->keep.most, c->final);
}

/* Of the same in a row once: *since. */
static void checkpoint_warn(gw_checkpoint *c, const char *what, bool *since) {
    c->unsaid = !*since;
    *since = true;
    gw_text_print(c->warning, sizeof c->warning, "step %lld: %s: %s", (long long)c->state.at.step,
                  what, gw_err_text());
}

/* The message is the last error's. Training goes on, except where it has lost its folder, or a
 * rank meets the error alone. */
static gw_err checkpoint_failed(gw_checkpoint *c, gw_err e) {
    if (e == GW_ERR_LOST)
        return e;
    checkpoint_warn(c, "no checkpoint", &c->failing);
    c->counts.failed++;
    c->phase = REST;
    c->taken = 0;
    if (c->rank == 0)
        gw_store_abandon(c->temp);
    c->temp[0] = '\0';
    return gw_err_alone(e) ? e : GW_OK;
}

static gw_err checkpoint_begin(gw_checkpoint *c, gw_err ready) {
    gw_io *io = NULL;
    GW_TRY(ready);
    if (c->lacking)
        return gw_fail(GW_ERR_NOMEM, "out of memory for the state of rank %d", c->rank);
    const gw_model *model = c->s.stepper->model;
    const gw_guard *guard = c->s.stepper->guard;
    GW_TRY(gw_guard_params(c->state.params, gw_model_spans(model), gw_model_layers(model),
                           guard ? guard->number : NULL,
                           c->state.at.step)); /* good ones gave way to it */
    if (c->best && c->best_epoch != c->s.best->epoch)
        memcpy(c->best, c->s.best->params, c->s.best->n * sizeof *c->best);
    c->best_epoch = c->s.best->epoch;
    GW_TRY(gw_io_keep(&io, &c->state.statistics));
    GW_TRY(gw_io_end(io, gw_codec_stats_state(c->s.stats, io)));
    return c->rank == 0 ? gw_store_begin(c->dir, c->state.at.step, c->temp) : GW_OK;
}

gw_err gw_checkpoint_write(gw_checkpoint *c, const gw_position *at, json_t *facts, gw_err ready) {
    c->state.at = *at;
    c->last_s = gw_ledger_now();
    json_decref(c->manifest.facts);
    c->manifest.facts = facts;
    c->manifest.step = at->step;
    c->manifest.epoch = (int)at->epoch;
    c->manifest.batch = at->batch;
    gw_err e = gw_agree(c->s.comm, checkpoint_begin(c, ready));
    if (e != GW_OK)
        return checkpoint_failed(c, e);
    GW_TRY(gw_bcast(c->temp, (int)sizeof c->temp, MPI_CHAR, 0, c->s.comm));
    c->taken = at->step;
    c->phase = WRITING;
    checkpoint_start_worker(c, checkpoint_write_part);
    return GW_OK;
}

/* ---- completing ---- */

static gw_err checkpoint_gather(gw_checkpoint *c) {
    part *all = NULL;
    MPI_Request request;
    gw_err e = gw_alloc(&all, (size_t)c->ranks, sizeof *all);
    GW_TRY(gw_agree(c->s.comm, e));
    int bytes = (int)sizeof *all;
    e = gw_mpi_check(
        MPI_Igather(&c->mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, 0, c->s.comm, &request),
        "MPI_Igather");
    GW_THEN(e, gw_wait(&request));
    if (e == GW_OK && c->rank == 0) {
        gw_store_file *f = c->manifest.files;
        for (int r = 0; r < c->ranks; r++) {
            gw_store_rank_name(r, f[r].name);
            f[r].bytes = all[r].bytes;
            f[r].crc32 = all[r].crc32;
        }
    }
    int replicas = checkpoint_replicas(c),
        places = c->rank == 0 && c->agree ? c->ranks / replicas : 0;
    for (int i = 0; e == GW_OK && i < places * replicas; i++) {
        int a = checkpoint_rank_at(c, 0, i / replicas);
        int b = checkpoint_rank_at(c, i % replicas, i / replicas);
        if (all[a].params_crc32 != all[b].params_crc32)
            e = gw_fail(GW_ERR_DIVERGED,
                        "step %lld: parameters of rank %d differ from rank %d's (crc32 %08x, "
                        "%08x), so no checkpoint is kept of it: the strategy, algorithm or codec "
                        "does not keep replicas equal",
                        (long long)c->state.at.step, b, a, all[b].params_crc32,
                        all[a].params_crc32);
    }
    free(all);
    return gw_agree(c->s.comm, e);
}

/* The ranks' threads are done, or this waits for them; of those that complete, rank 0's knows. */
static gw_err checkpoint_advance(gw_checkpoint *c) {
    gw_err e = checkpoint_wait_for_worker(&c->worker);
    if (c->phase == WRITING) {
        e = gw_agree(c->s.comm, e);
        if (e != GW_OK)
            return checkpoint_failed(c, e);
        GW_TRY(checkpoint_gather(c));
        c->phase = COMMITTING;
        c->final[0] = '\0';
        if (c->rank == 0)
            checkpoint_start_worker(c, checkpoint_commit);
        return GW_OK;
    }
    int end[2] = {c->final[0] != '\0', e}; /* complete; why not */
    GW_TRY(gw_bcast(end, 2, MPI_INT, 0, c->s.comm));
    if (end[1] == GW_ERR_LOST)
        return gw_agree(c->s.comm, e);
    if (!end[0])
        return checkpoint_failed(c, e);
    c->phase = REST;
    c->counts.written++;
    c->counts.step = c->state.at.step;
    c->failing = false;
    if (e != GW_OK)
        checkpoint_warn(c, "the checkpoint is kept, an older one could not be removed",
                        &c->cramped);
    else
        c->cramped = false;
    return GW_OK;
}

gw_err gw_checkpoint_voted(gw_checkpoint *c, int64_t step, const gw_ballot *ballot) {
    if (!c)
        return GW_OK;
    if (c->phase != REST && !ballot->writing)
        GW_TRY(checkpoint_advance(c));
    if (c->phase == REST && (c->owed || ballot->keep_due))
        c->at = step + 1;
    return GW_OK;
}

gw_err gw_checkpoint_wait(gw_checkpoint *c) {
    while (c && c->phase != REST)
        GW_TRY(checkpoint_advance(c));
    return GW_OK;
}

const char *gw_checkpoint_warning(gw_checkpoint *c) {
    bool says = c && c->unsaid;
    if (says)
        c->unsaid = false;
    return says ? c->warning : NULL;
}

gw_checkpoint_counts gw_checkpoint_count(const gw_checkpoint *c) {
    return c ? c->counts : (gw_checkpoint_counts){0};
}
