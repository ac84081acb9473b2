/* `gradwire replay`'s exchange is the library, as a program calls it that trains the model; on the
 * way, gradients are drawn or copied to where PyTorch would have them. */
#include "play/player.h"

#include "base/mem.h"
#include "base/nap.h"
#include "base/text.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RATE 1e-3F

int gw_player_declare(gradwire *g, const gw_step_profile *profile, size_t most) {
    for (int t = 0; t < profile->n_tensors; t++) {
        const gw_step_tensor *of = &profile->tensor[t];
        bool cut = most && of->n > most;
        int e =
            gradwire_tensor(g, of->name, of->group, cut ? most : of->n, cut ? 0 : of->rows, NULL);
        if (e < 0)
            return e;
    }
    return 0;
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
    float *to = p->own + a->has->tensors[tensor].span.off;
    if (!a->idle)
        gw_gradients_write(p->gradients, tensor, a->has->tensors[tensor].span.off, a->step, to);
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

static gw_err player_memory(gw_player *p) {
    const gw_step_profile *of = p->script.profile;
    size_t tensors = (size_t)of->n_tensors;
    GW_TRY(gw_alloc(&p->backward, tensors, sizeof *p->backward));
    GW_TRY(gw_alloc(&p->grad, tensors, sizeof *p->grad));
    GW_TRY(gw_alloc(&p->owned, (size_t)of->groups, sizeof *p->owned));
    const char *in_place = gradwire_text(p->g, "in_place");
    p->lends = in_place && strcmp(in_place, "yes") == 0;
    GW_TRY(p->lends ? player_share(p) : gw_alloc(&p->own, of->n, sizeof *p->own));
    for (int t = of->n_tensors - 1, i = 0; t >= 0; t--, i++) {
        p->backward[i] = t;
        p->grad[i] = p->own + p->actor.has->tensors[t].span.off;
    }
    return GW_OK;
}

gw_err gw_player_open(gw_player *p, gradwire *g, MPI_Comm comm) {
    const char *shape = gradwire_text(g, "shape");
    int more, t;
    size_t n;
    p->g = g;
    gw_nap_lightly();
    if (p->script.sleeps)
        gw_nap_instead();
    p->actor = (gw_actor){
        .world = &gw_play_real, .exchange = &player_exchange, .ctx = p, .script = p->script};
    p->actor.script.mesh = &p->mesh;
    GW_TRY(gw_fabric_of(&p->actor.fabric, comm));
    GW_TRY(gw_sim_mesh_open(&p->mesh, NULL, p->script.profile, p->ranks));
    GW_TRY(gw_actor_open(&p->actor, p->servers, NULL, NULL));
    GW_TRY(player_memory(p));
    p->moves = shape && strcmp(shape, "parameters") == 0;
    for (int i = 0; (more = gradwire_owned(g, i, &t, NULL, &n)) == 1; i++)
        p->owned[p->script.profile->tensor[t].group] += n;
    return player_error(more);
}

gw_err gw_player_run(gw_player *p) {
    int lent = p->lends ? gradwire_lend(p->g, p->own, player_bytes(p), p->file) : 1;
    GW_TRY(player_error(lent));
    if (!lent)
        gw_text_copy(p->copied, sizeof p->copied, gradwire_error());
    p->since_s = NAN;
    GW_TRY(gw_actor_play(&p->actor, p->steps));
    p->step_s = (gw_nap_now() - p->since_s) / (double)(p->steps - 1);
    if (p->steps > 0)
        GW_TRY(gw_actor_settle(&p->actor));
    return player_error(gradwire_settle(p->g));
}

void gw_player_free(gw_player *p) {
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
