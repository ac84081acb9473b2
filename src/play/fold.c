/* Which ranks are played: a few that stand for all, where ranks, network and algorithm are known to
 * be alike, else all. */
#include "play/play.h"

/* How many ranks stand for all, if algorithm and network allow that; else 0. */
static int fold_played(gw_sim_play *p, const gw_sim_mesh *m) {
    gw_sim_setup *w = &p->world;
    unsigned caps = p->algo.ops->caps;
    int few = gw_network_period(w->network) * w->per_host;
    bool alike = caps & (GW_ALGO_ALIKE | GW_ALGO_ALIKE_UNCUT) && !p->skew.law && !w->watch &&
                 !p->unfolded && !gw_mesh_divides(&m->shape);
    w->even = caps & GW_ALGO_ALIKE_UNCUT && gw_kit_chunks(p->algo.args, p->profile->n) > 1;
    return alike && few < w->ranks && w->ranks % few == 0 ? few : 0;
}

static gw_err fold_run(gw_sim_play *p, gw_sim_mesh *mesh) {
    int few = fold_played(p, mesh);
    bool powers = (few & (few - 1)) == 0 && (p->world.ranks & (p->world.ranks - 1)) == 0;
    for (int pairs = 0; few > 0 && pairs <= powers; pairs++) {
        p->world.played = few;
        p->world.pairs = pairs;
        if (gw_sim_play_once(p, mesh) == GW_OK)
            return GW_OK;
    }
    p->world.played = 0;
    p->world.even = false;
    return p->most_played > 0 && p->world.ranks > p->most_played
               ? gw_fail(GW_ERR_UNSUPPORTED, "simulate: all %d ranks would have to be played",
                         p->world.ranks)
               : gw_sim_play_once(p, mesh);
}

gw_err gw_sim_play_run(gw_sim_play *p) {
    gw_sim_mesh whole = {0};
    if (p->mesh)
        return fold_run(p, p->mesh);
    gw_err e = gw_sim_mesh_open(&whole, NULL, p->profile, p->world.ranks);
    GW_THEN(e, fold_run(p, &whole));
    gw_sim_mesh_close(&whole);
    return e;
}
