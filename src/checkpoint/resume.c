#include "checkpoint/resume.h"

#include "base/mem.h"
#include "base/text.h"
#include "mpi/wait.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- finding ---- */

static bool resume_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static gw_err resume_newest(gw_resume *r, const char *ckpt_dir) {
    enum { ROOM = 4096 };
    char skipped[ROOM];
    GW_TRY(gw_store_newest(ckpt_dir, &r->manifest, r->path, skipped, sizeof skipped));
    for (char *rest = skipped, *line; *skipped && (line = strsep(&rest, "\n")) != NULL;)
        GW_TRY(gw_notes_add(&r->notes, GW_NOTE_PASSED_OVER, "%s", line));
    return GW_OK;
}

static gw_err resume_find_auto(gw_resume *r, const char *out) {
    char ckpt_dir[GW_STORE_PATH];
    GW_TRY(gw_store_path(ckpt_dir, out, GW_STORE_FOLDER));
    GW_TRY(resume_newest(r, ckpt_dir));
    if (*r->path)
        return GW_OK;
    const char *why = gw_notes_first(&r->notes, GW_NOTE_PASSED_OVER);
    if (why) /* what cannot be used is not thrown away unasked */
        return gw_fail(GW_ERR_INPUT,
                       "--resume auto: all checkpoints in %s are damaged (%s): --overwrite, "
                       "without --resume, begins anew",
                       ckpt_dir, why);
    return gw_notes_add(&r->notes, GW_NOTE_TOLD,
                        "no checkpoint in %s: the run starts at the beginning", ckpt_dir);
}

/* A checkpoint, a folder of them, or a run's folder. */
static gw_err resume_find_named(gw_resume *r, const char *path) {
    char inner[GW_STORE_PATH];
    GW_TRY(gw_store_path(inner, path, GW_STORE_MANIFEST));
    if (!resume_is_folder(path))
        return gw_fail(GW_ERR_INPUT, "--resume %s: there is no such folder", path);
    if (access(inner, F_OK) == 0) {
        GW_TRY(gw_store_open(path, &r->manifest));
        gw_text_copy(r->path, sizeof r->path, path);
        return GW_OK;
    }
    GW_TRY(gw_store_path(inner, path, GW_STORE_FOLDER));
    GW_TRY(resume_newest(r, resume_is_folder(inner) ? inner : path));
    if (*r->path)
        return GW_OK;
    return gw_fail(GW_ERR_INPUT,
                   "--resume %s: holds no complete checkpoint%s: name a step-.. folder, a "
                   "model.ckpt.d or a run's folder",
                   path, r->notes.n > 0 ? ", but damaged ones" : "");
}

/* Rank 0 has read it. */
static gw_err resume_share(gw_resume *r, int rank, MPI_Comm comm) {
    char *text = NULL;
    size_t len = 0;
    gw_err e = rank == 0 ? gw_store_print(&r->manifest, &text, &len) : GW_OK;
    if (e == GW_ERR_INTERNAL) /* printed as we do it, it is larger than it came */
        e = gw_fail(GW_ERR_INPUT, "%s: %s", r->path, gw_err_text());
    GW_TRY(gw_agree(comm, e));
    uint64_t bytes = len;
    e = gw_bcast(&bytes, 1, MPI_UINT64_T, 0, comm);
    GW_THEN(e, gw_agree(comm, rank == 0 ? GW_OK : gw_alloc(&text, (size_t)bytes + 1, 1)));
    if (e == GW_OK)
        e = gw_bcast(text, (int)bytes, MPI_CHAR, 0, comm); /* at most GW_STORE_MOST_BYTES */
    if (e == GW_OK && rank != 0)
        e = gw_store_parse(text, (size_t)bytes, r->path, &r->manifest);
    free(text);
    return gw_agree(comm, e);
}

gw_err gw_resume_find(gw_resume *r, const gw_train_config *c, MPI_Comm comm) {
    int rank;
    if (!c->keep.resume)
        return GW_OK;
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    bool automatic = strcmp(c->keep.resume, "auto") == 0;
    gw_err e = GW_OK;
    if (rank == 0)
        e = automatic ? resume_find_auto(r, c->run.out) : resume_find_named(r, c->keep.resume);
    GW_TRY(gw_agree(comm, e));
    GW_TRY(gw_bcast(r->path, (int)sizeof r->path, MPI_CHAR, 0, comm));
    return *r->path ? resume_share(r, rank, comm) : GW_OK;
}

/* ---- checking ---- */

static gw_err resume_check(gw_resume *r, const gw_facts_of *run) {
    const json_t *facts = r->manifest.facts;
    const gw_store_manifest *m = &r->manifest;
    const gw_train_config *c = run->c;
    GW_TRY(gw_facts_check(facts, run, r->path));
    if (c->until.steps > 0 && c->until.steps < m->step)
        return gw_fail(GW_ERR_USAGE,
                       "--resume %s: it has %lld step%s done already, and --steps is %lld", r->path,
                       (long long)m->step, m->step == 1 ? "" : "s", (long long)c->until.steps);
    if (c->until.epochs < m->epoch)
        return gw_fail(GW_ERR_USAGE, "--resume %s: it is in epoch %d already, and --epochs is %d",
                       r->path, m->epoch, c->until.epochs);
    GW_TRY(gw_notes_add(&r->notes, GW_NOTE_TOLD, "%s: %lld step%s done, in epoch %d", r->path,
                        (long long)m->step, m->step == 1 ? "" : "s", m->epoch));
    GW_TRY(gw_facts_dropped(facts, run, m->batch > 0, &r->notes));
    const char *first = gw_notes_first(&r->notes, GW_NOTE_DROPPED);
    if (first && c->keep.strict)
        return gw_fail(GW_ERR_INPUT, "--resume-strict: resume: %s", first);
    return gw_facts_changed(facts, run, &r->notes);
}

gw_err gw_resume_check(gw_resume *r, const gw_facts_of *run, MPI_Comm comm) {
    if (!*r->path)
        return GW_OK;
    const json_t *facts = r->manifest.facts;
    GW_TRY(gw_agree(comm, resume_check(r, run)));
    r->whole = gw_facts_whole(facts, run);
    r->statistics = gw_facts_statistics(facts, run);
    r->state = gw_facts_vectors(facts, run->optimizer);
    r->best = gw_facts_best(facts, run);
    const char *codec, *algo, *table;
    gw_facts_choices(facts, &codec, &algo, &table);
    if (!r->whole)
        return GW_OK;
    r->codec = codec;
    r->algo = algo;
    r->table = *table ? table : NULL;
    return GW_OK;
}

gw_err gw_resume_forget_later(gw_resume *r, const char *out) {
    char ckpt_dir[GW_STORE_PATH];
    int removed = 0;
    GW_TRY(gw_store_path(ckpt_dir, out, GW_STORE_FOLDER));
    GW_TRY(gw_store_forget_later(ckpt_dir, r->manifest.serial, &removed));
    return removed == 0
               ? GW_OK
               : gw_notes_add(&r->notes, GW_NOTE_TOLD,
                              "%d checkpoint%s that the run wrote later %s removed: it "
                              "goes on from before",
                              removed, removed == 1 ? "" : "s", removed == 1 ? "is" : "are");
}

/* ---- loading ---- */

static gw_err resume_read_rank(const gw_resume *r, int rank, size_t whole, gw_rank_state *state) {
    const gw_store_manifest *m = &r->manifest;
    char name[GW_STORE_NAME];
    gw_store_rank_name(rank, name);
    size_t i = 0;
    while (i < m->n_files && strcmp(m->files[i].name, name) != 0)
        i++;
    if (i == m->n_files)
        return gw_fail(GW_ERR_INPUT, "%s: lacks the file of rank %d", r->path, rank);
    GW_TRY(gw_rank_state_load(state, r->path, rank, m->files[i].bytes, whole));
    const gw_position *at = &state->at;
    bool here = at->step == m->step && at->epoch == m->epoch && at->batch == m->batch;
    if (here && (state->n == 0 || state->vectors.count == r->state.count))
        return GW_OK;
    gw_rank_state_free(state);
    return gw_fail(GW_ERR_INPUT, "%s: the file of rank %d is of another %s", r->path, rank,
                   here ? "optimizer" : "step");
}

/* What this rank had. */
static gw_err resume_load_own(gw_resume *r, int rank, gw_stepper *t, uint32_t *alike) {
    const gw_shard *shard = gw_model_shard(t->model);
    gw_optimizer *o = t->optimizer;
    gw_rank_state state = {0}, mine = {0};
    gw_io *io = NULL;
    GW_TRY(resume_read_rank(r, rank, shard->whole, &state));
    r->at = state.at;
    t->owned = state.owned;
    gw_rank_state_shape(&mine, shard);
    gw_err e =
        gw_rank_state_alike(&state, &mine)
            ? gw_io_recall(&io, &state.exchange)
            : gw_fail(GW_ERR_INPUT, "%s: the file of rank %d is of another part of the model",
                      r->path, rank);
    if (e == GW_OK) {
        e = gw_inside_state(t->g, io);
        *alike = gw_io_alike_sum(io);
        e = gw_io_end(io, e);
    }
    if (e == GW_OK) { /* last: draining must not touch them */
        memcpy(gw_model_params(t->model), state.params, state.n * sizeof(float));
        for (int i = 0; i < r->state.count; i++)
            if (r->state.to[i] >= 0)
                memcpy(o->state.x + (size_t)r->state.to[i] * o->n,
                       state.vectors.x + (size_t)i * state.n, state.n * sizeof(float));
        if (r->state.same)
            o->updates = state.updates;
    }
    r->collected = state.statistics;
    state.statistics = (gw_io_memory){0};
    gw_rank_state_free(&state);
    return e;
}

/* Whether all ranks of `comm` have the same. */
static gw_err resume_same(const gw_resume *r, const int64_t *figures, int n, MPI_Comm comm) {
    enum { MOST = 4 };
    int64_t most[2 * MOST];
    for (int i = 0; i < n; i++) {
        most[i] = figures[i];
        most[n + i] = ~figures[i]; /* whose greatest is the least's */
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, most, 2 * n, MPI_INT64_T, MPI_MAX, comm));
    for (int i = 0; i < n; i++)
        if (most[i] != ~most[n + i])
            return gw_fail(GW_ERR_INPUT, "%s: the ranks' files do not belong together", r->path);
    return GW_OK;
}

/* ---- out of another mesh, another exchange ---- */

static gw_err resume_add_ranks(gw_resume *r, gw_merge *m) {
    for (int rank = 0; rank < r->manifest.ranks; rank++) {
        gw_rank_state state = {0};
        GW_TRY(resume_read_rank(r, rank, m->n, &state));
        gw_merge_add(m, &state);
        if (rank > 0) {
            r->at.loss_sum += state.at.loss_sum;
            r->at.left_out += state.at.left_out;
            gw_checks_add(&r->at.checks, &state.at.checks);
            r->at.wire_bytes += state.at.wire_bytes;
        } else {
            r->at = state.at;
        }
        gw_rank_state_free(&state);
    }
    return GW_OK;
}

/* To each rank what it holds of rank 0's whole arena. */
static gw_err resume_deal(const float *whole, float *own, gw_stepper *t, const gw_mesh *mesh,
                          MPI_Comm comm) {
    enum { PIECE = 1 << 20 }; /* a count that fits an int */
    size_t n = gw_model_size(t->model);
    if (!gw_pipeline_is_whole(t->pipeline))
        GW_TRY(gw_pipeline_deal(t->pipeline, whole, own, comm));
    else if (whole)
        memcpy(own, whole, n * sizeof *own);
    for (size_t at = 0; at < n; at += PIECE)
        GW_TRY(gw_bcast(own + at, (int)(n - at < PIECE ? n - at : PIECE), MPI_FLOAT, 0,
                        mesh->comm[GW_DIM_DATA]));
    return GW_OK;
}

/* Rank 0 makes one of all; sums over the ranks stay with it. */
static gw_err resume_load_merged(gw_resume *r, int rank, gw_stepper *t, const gw_mesh *mesh,
                                 MPI_Comm comm) {
    gw_optimizer *o = t->optimizer;
    size_t n = gw_model_shard(t->model)->whole;
    gw_merge m = {0};
    float *params = NULL, *state = NULL; /* rank 0: whole arenas; state: of all vectors */
    gw_err e = GW_OK;
    if (rank == 0) {
        e = gw_merge_open(&m, n, r->state.count);
        GW_THEN(e, gw_alloc(&params, n, sizeof(float)));
        GW_THEN(e, gw_alloc(&state, (size_t)r->state.count * n, sizeof(float)));
        GW_THEN(e, resume_add_ranks(r, &m));
        GW_THEN(e, gw_merge_end(&m, r->path, params, state));
        if (m.differ)
            GW_THEN(e, gw_notes_add(&r->notes, GW_NOTE_TOLD,
                                    "parameters differed over the ranks: their mean is taken"));
    }
    int64_t updates = m.updates;
    gw_merge_free(&m);
    e = gw_agree(comm, e);
    GW_THEN(e, gw_bcast(&updates, 1, MPI_INT64_T, 0, comm));
    GW_THEN(e, gw_bcast(&r->at, (int)sizeof r->at, MPI_BYTE, 0, comm));
    if (rank != 0) {
        r->at.loss_sum = r->at.wire_bytes = 0, r->at.left_out = 0;
        gw_checks_clear(&r->at.checks);
    }
    r->at.checks.bad_steps = 0; /* of each rank, and these are others */
    GW_THEN(e, resume_deal(params, gw_model_params(t->model), t, mesh, comm));
    for (int i = 0; i < r->state.count; i++)
        if (r->state.to[i] >= 0)
            GW_THEN(e, resume_deal(rank == 0 ? state + (size_t)i * n : NULL,
                                   o->state.x + (size_t)r->state.to[i] * o->n, t, mesh, comm));
    if (r->state.same)
        o->updates = updates;
    gw_inside_count_on(t->g, r->at.step);
    free(params);
    free(state);
    return e;
}

gw_err gw_resume_load(gw_resume *r, gw_stepper *t, const gw_mesh *mesh, MPI_Comm comm) {
    int rank;
    if (!*r->path)
        return GW_OK;
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    if (!r->whole)
        return resume_load_merged(r, rank, t, mesh, comm);
    uint32_t alike = 0;
    GW_TRY(gw_agree(comm, resume_load_own(r, rank, t, &alike)));
    /* By what the ranks' files say that is the same on all of them they decide, each for itself,
     * what to do together. Exchanges are those of a replica group. */
    int64_t at[] = {r->at.samples, r->at.checks.comparisons, r->at.checks.compared};
    int64_t exchange = alike;
    GW_TRY(gw_agree(comm, resume_same(r, &exchange, 1, mesh->comm[GW_DIM_DATA])));
    return resume_same(r, at, sizeof at / sizeof *at, comm);
}

gw_err gw_resume_statistics(gw_resume *r, gw_codec_stats *stats, MPI_Comm comm) {
    gw_io *io = NULL;
    if (!*r->path || !r->statistics)
        return GW_OK;
    gw_err e = gw_io_recall(&io, &r->collected);
    GW_THEN(e, gw_io_end(io, gw_codec_stats_state(stats, io)));
    return gw_agree(comm, e);
}

gw_err gw_resume_best(const gw_resume *r, gw_best *b, const gw_spec *model) {
    if (!*r->path || !r->best)
        return GW_OK;
    GW_TRY(gw_best_read(b, r->manifest.facts, r->path));
    return b->params && b->epoch > 0 ? gw_best_load(b, r->path, model) : GW_OK;
}

void gw_resume_free(gw_resume *r) {
    gw_store_manifest_free(&r->manifest);
    gw_notes_free(&r->notes);
    free(r->collected.data);
    *r = (gw_resume){0};
}
