/* `gradwire replay`'s exchange is the library, as a program calls it that trains the model; on the
 * way, gradients are drawn or copied to where PyTorch would have them. */
#include "play/player.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/nap.h"
#include "base/rng.h"
#include "base/text.h"
#include "mpi/agree.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RATE 1e-3F

enum {
    TABLE = 1 << 20,    /* floats, which come again and again, from another one on each time */
    CHECK_FLOATS = 4096 /* of a tensor, where no step is played */
};

/* ---- gradients ---- */

static gw_err gradients_map(gw_gradients *g, const char *path) {
    FILE *in;
    GW_TRY(gw_file_open(path, &in, &g->bytes));
    size_t step = g->profile->n * sizeof(float);
    if (g->bytes == 0 || g->bytes % step != 0) {
        fclose(in);
        return gw_fail(GW_ERR_INPUT,
                       "replay: gradients: %s has %zu bytes: must be a multiple of the %zu of one "
                       "step, 4 for each parameter",
                       path, g->bytes, step);
    }
    void *map = mmap(NULL, g->bytes, PROT_READ, MAP_SHARED, fileno(in), 0);
    fclose(in);
    if (map == MAP_FAILED)
        return gw_fail(GW_ERR_INPUT, "replay: gradients: %s: cannot be mapped", path);
    g->captured = map;
    g->steps = (long)(g->bytes / step);
    return GW_OK;
}

/* ---- the exchange ---- */

/* What the library returns, without what is no error. */
static gw_err player_error(int e) {
    return e < 0 ? (gw_err)e : GW_OK;
}

static gw_err player_begin(gw_actor *a) {
    const gw_player *p = a->ctx;
    long batch = p->script.profile->batch;
    return player_error(gradwire_begin(p->g, a->idle ? 0 : batch, batch * (p->ranks - p->servers)));
}

static gw_err player_enter(gw_actor *a, gw_phase phase) {
    const gw_player *p = a->ctx;
    return player_error(gradwire_phase(p->g, phase == GW_PHASE_FORWARD    ? GRADWIRE_FORWARD
                                             : phase == GW_PHASE_BACKWARD ? GRADWIRE_BACKWARD
                                                                          : GRADWIRE_UPDATE));
}

static gw_err player_draw(gw_actor *a, int tensor) {
    const gw_player *p = a->ctx;
    const gw_gradients *g = &p->gradients;
    const gw_step_tensor *t = &g->profile->tensor[tensor];
    size_t at = a->has->tensors[tensor].span.off, from;
    float *to = p->own + at;
    if (a->idle)
        return GW_OK;
    if (g->captured) {
        long which = (a->step + (long)(g->key % (uint64_t)g->steps)) % g->steps;
        memcpy(to, g->captured + (size_t)which * g->profile->n + at, t->n * sizeof *to);
        return GW_OK;
    }
    from = gw_rng_u64(gw_rng_key(g->key, (uint64_t)a->step), (uint64_t)tensor) % TABLE;
    for (size_t i = 0; i < t->n; from = 0) {
        size_t n = t->n - i < TABLE - from ? t->n - i : TABLE - from;
        for (size_t k = 0; k < n; k++)
            to[i + k] = (float)t->std * g->table[from + k];
        i += n;
    }
    return GW_OK;
}

/* In the order of the backward pass. */
static gw_err player_ready(gw_actor *a, int first, int end) {
    const gw_player *p = a->ctx;
    int passed = p->script.profile->n_tensors - end;
    return player_error(gradwire_ready(p->g, end - first, p->backward + passed, p->grad + passed));
}

static gw_err player_finish(gw_actor *a, int group, size_t *own) {
    const gw_player *p = a->ctx;
    int updates = gradwire_finish(p->g, group);
    for (int k = 0; updates > 0 && k < p->script.profile->groups; k++)
        *own += group == GRADWIRE_ALL || group == k ? p->owned[k] : 0;
    return player_error(updates);
}

/* The owned pieces move by their gradients, where what is sent depends on that. */
static gw_err player_move(gw_actor *a, int group) {
    const gw_player *p = a->ctx;
    int t;
    size_t from, n;
    for (int i = 0; p->moves && gradwire_owned(p->g, i, &t, &from, &n) == 1; i++) {
        float *param = gradwire_memory(p->g, t, GRADWIRE_PARAM);
        const float *grad = p->own + a->has->tensors[t].span.off;
        if (!param || (group != GRADWIRE_ALL && p->script.profile->tensor[t].group != group))
            continue;
        for (size_t k = from; k < from + n; k++)
            param[k] -= RATE * grad[k];
    }
    return GW_OK;
}

static gw_err player_publish(gw_actor *a, int group) {
    return player_error(gradwire_updated(((const gw_player *)a->ctx)->g, group));
}

static gw_err player_await(gw_actor *a, int group) {
    return player_error(gradwire_await(((const gw_player *)a->ctx)->g, group));
}

static gw_err player_poll(gw_actor *a) {
    return player_error(gradwire_poll(((const gw_player *)a->ctx)->g));
}

static gw_err player_end(gw_actor *a) {
    gw_player *p = a->ctx;
    GW_TRY(player_error(gradwire_end(p->g, 0)));
    p->since_s = a->step == 0 ? gw_nap_now() : p->since_s;
    return GW_OK;
}

static const gw_play_exchange player_exchange = {.begin = player_begin,
                                                 .enter = player_enter,
                                                 .draw = player_draw,
                                                 .ready = player_ready,
                                                 .finish = player_finish,
                                                 .move = player_move,
                                                 .publish = player_publish,
                                                 .await = player_await,
                                                 .poll = player_poll,
                                                 .end = player_end};

/* ---- a run ---- */

static size_t player_bytes(const gw_player *p) {
    return p->script.profile->n * sizeof *p->own;
}

static gw_err player_share(gw_player *p) {
    off_t bytes = (off_t)player_bytes(p);
    p->file = memfd_create("gradients", MFD_CLOEXEC);
    if (p->file >= 0 && posix_fallocate(p->file, 0, bytes) == 0)
        p->own = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->file, 0);
    if (p->own && p->own != MAP_FAILED)
        return GW_OK;
    p->own = NULL;
    return gw_fail(GW_ERR_NOMEM, "replay: cannot make %jd bytes of shared memory", (intmax_t)bytes);
}

static gw_err player_open(gw_player *p, MPI_Comm comm) {
    const char *shape = gradwire_text(p->g, "shape"), *in_place = gradwire_text(p->g, "in_place");
    const gw_step_profile *of = p->script.profile;
    size_t tensors = (size_t)of->n_tensors, n;
    int more, t;
    gw_nap_lightly();
    if (p->script.sleeps)
        gw_nap_instead();
    p->actor = (gw_actor){
        .world = &gw_play_real, .exchange = &player_exchange, .ctx = p, .script = p->script};
    p->actor.script.mesh = &p->mesh;
    GW_TRY(gw_fabric_of(&p->actor.fabric, comm));
    GW_TRY(gw_sim_mesh_open(&p->mesh, &gw_parallel_plain, of, p->ranks));
    GW_TRY(gw_actor_open(&p->actor, p->servers, NULL, NULL));
    GW_TRY(gw_alloc(&p->backward, tensors, sizeof *p->backward));
    GW_TRY(gw_alloc(&p->grad, tensors, sizeof *p->grad));
    GW_TRY(gw_alloc(&p->owned, (size_t)of->groups, sizeof *p->owned));
    p->lends = in_place && strcmp(in_place, "yes") == 0;
    GW_TRY(p->lends ? player_share(p) : gw_alloc(&p->own, of->n, sizeof *p->own));
    for (int i = 0; i < of->n_tensors; i++) {
        p->backward[i] = of->n_tensors - 1 - i;
        p->grad[i] = p->own + p->actor.has->tensors[p->backward[i]].span.off;
    }
    p->moves = shape && strcmp(shape, "parameters") == 0;
    for (int i = 0; (more = gradwire_owned(p->g, i, &t, NULL, &n)) == 1; i++)
        p->owned[of->tensor[t].group] += n;
    return player_error(more);
}

static gw_err player_run(gw_player *p) {
    int lent = p->lends ? gradwire_lend(p->g, p->own, player_bytes(p), p->file) : 1;
    GW_TRY(player_error(lent));
    if (!lent)
        gw_text_copy(p->copied, sizeof p->copied, gradwire_error());
    p->since_s = NAN;
    GW_TRY(gw_actor_play(&p->actor, p->steps));
    p->step_s = (gw_nap_now() - p->since_s) / (double)(p->steps - 1);
    GW_TRY(gw_actor_settle(&p->actor));
    return player_error(gradwire_settle(p->g));
}

/* The library's errors are gw_err here; those of one rank alone end the job. */
static gw_err player_told(gw_err e, bool *alone) {
    *alone |= e < 0 && gradwire_alone(e);
    return e >= 0 ? GW_OK : *alone ? GW_ERR_INTERNAL : e;
}

static gw_err player_steps(gw_player *p, MPI_Comm comm, bool *alone) {
    const gw_step_profile *of = p->script.profile;
    int e = 0; /* open tells what is wrong */
    for (const gw_step_tensor *t = of->tensor; e >= 0 && t < of->tensor + of->n_tensors; t++) {
        bool cut = p->steps == 0 && t->n > CHECK_FLOATS;
        e = gradwire_tensor(p->g, t->name, t->group, cut ? CHECK_FLOATS : t->n, cut ? 0 : t->rows,
                            NULL);
    }
    GW_TRY(player_told((gw_err)gradwire_open(p->g), alone));
    if (p->steps == 0)
        return GW_OK;
    GW_TRY(gw_agree(comm, player_told(player_open(p, comm), alone)));
    return player_told(player_run(p), alone);
}

/* All ranks have the error `e`, if any, whose line stays. */
static gw_err player_close(gw_player *p, gw_err e, bool *alone) {
    char why[1024];
    gw_text_copy(why, sizeof why, gradwire_error());
    gw_err closed = player_told((gw_err)gradwire_close(p->g), alone);
    if (!*alone) {
        if (p->actor.fabric)
            p->actor.fabric->ops->close(p->actor.fabric);
        gw_sim_mesh_close(&p->mesh);
        free(p->backward);
        free(p->grad);
        free(p->owned);
        if (p->lends && p->own)
            munmap(p->own, player_bytes(p));
        else
            free(p->own);
        if (p->lends && p->file >= 0)
            close(p->file);
    }
    return e == GW_OK ? closed : gw_fail(e, "%s", why);
}

gw_err gw_player_play(gw_player *p, const char *words, MPI_Comm comm, bool *alone) {
    gw_gradients *g = &p->gradients;
    int rank;
    GW_TRY(gw_comm_place(comm, &rank, &p->ranks));
    *g = (gw_gradients){.profile = p->script.profile, .key = gw_rng_key(p->seed, (uint64_t)rank)};
    gw_err e = strcmp(p->from, "normal") == 0 ? gw_alloc(&g->table, TABLE, sizeof *g->table)
                                              : gradients_map(g, p->from);
    for (size_t i = 0; g->table && i < TABLE; i++)
        g->table[i] = (float)gw_rng_normal(g->key, i);
    e = gw_agree(comm, e);
    GW_THEN(e, player_told((gw_err)gradwire_new(&p->g, MPI_Comm_c2f(comm), words), alone));
    if (e == GW_OK) {
        if (rank == 0 && p->keep)
            gw_inside_keep(p->g, p->keep);
        e = player_steps(p, comm, alone);
        e = *alone ? e : player_close(p, e, alone);
    }
    if (g->captured)
        munmap((void *)g->captured, g->bytes);
    free(g->table);
    *g = (gw_gradients){0};
    return e;
}
