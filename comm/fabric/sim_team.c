/* Communicators of simulated ranks (mpi/team.h), over a simulated fabric. */
#include "comm/fabric/sim_parts.h"

#include "base/mem.h"
#include "mpi/team.h"

#include <stdlib.h>

typedef struct sim_team {
    gw_team head;
    gw_fabric *f;
    gw_posts *post; /* room for the message of a blocking call */
} sim_team;

static gw_err team_show(gw_team *g, const void *mine, const void *const **all) {
    const gw_sim_meeting *met;
    GW_TRY(gw_sim_meet(((sim_team *)g)->f, GW_OK, 0, mine, &met));
    *all = met->shown;
    return GW_OK;
}

static gw_err team_make(gw_fabric *f, gw_team **out);

static gw_err team_split(gw_team *g, int color, gw_team **out) {
    gw_fabric *f = ((sim_team *)g)->f, *part;
    *out = NULL;
    GW_TRY(f->ops->split(f, color, &part));
    return part ? team_make(part, out) : GW_OK;
}

static gw_err team_message(gw_team *g, void *data, size_t bytes, int peer, int tag, bool sends) {
    sim_team *s = (sim_team *)g;
    size_t len;
    if (sends)
        GW_TRY(s->f->ops->isend(s->f, s->post, 0, data, bytes, peer, tag));
    else
        GW_TRY(s->f->ops->irecv(s->f, s->post, 0, data, bytes, peer, tag, &len));
    return s->f->ops->wait(s->f, s->post, 0, 1);
}

/* Recursive doubling, as MPICH has it for short messages (team.c): ranks beyond a power of two join
 * another one before it, and hear of the sum behind it. Switches add no latency here. */
static void team_reduced(gw_team *g, size_t bytes) {
    const gw_fabric *f = ((sim_team *)g)->f;
    const gw_sim_setup *w = &gw_sim_me(f)->w->setup;
    bool within = f->world[0] / w->per_host == f->world[f->size - 1] / w->per_host;
    const gw_sim_link *link = within ? &w->memory : &w->link;
    int rounds = 0, left = 1;
    for (; 2 * left <= f->size; left *= 2)
        rounds++;
    rounds += left < f->size ? 2 : 0;
    gw_sim_spend(gw_sim_me(f),
                 rounds * (link->latency_s + 2 * link->overhead_s +
                           (double)bytes * (1 / link->bytes_per_s + 2 * link->byte_s)));
}

static void team_close(gw_team *g) {
    sim_team *s = (sim_team *)g;
    s->f->ops->close(s->f);
    free(s->post);
    free(s);
}

static const gw_team_ops team_ops = {.show = team_show,
                                     .split = team_split,
                                     .message = team_message,
                                     .reduced = team_reduced,
                                     .close = team_close};

/* Takes `f` over. */
static gw_err team_make(gw_fabric *f, gw_team **out) {
    sim_team *s = NULL;
    gw_posts *post = NULL;
    gw_err e = gw_alloc(&s, 1, sizeof *s);
    GW_THEN(e, f->ops->room(1, &post));
    if (e != GW_OK) {
        free(s);
        f->ops->close(f);
        return e;
    }
    *s = (sim_team){.head = {.ops = &team_ops,
                             .rank = f->rank,
                             .size = f->size,
                             .host = f->world[f->rank] / gw_sim_me(f)->w->setup.per_host},
                    .f = f,
                    .post = post};
    *out = &s->head;
    return GW_OK;
}

gw_err gw_sim_comm(gw_fabric *f, MPI_Comm *out) {
    gw_team *g;
    GW_TRY(team_make(f, &g));
    gw_err e = gw_team_comm(g, out);
    if (e != GW_OK)
        team_close(g);
    return e;
}

gw_fabric *gw_sim_fabric_of(MPI_Comm comm) {
    const gw_team *g = gw_team_of(comm);
    return g ? ((const sim_team *)g)->f : NULL;
}
