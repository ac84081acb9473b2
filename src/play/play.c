/* A profile's step on all ranks of a simulated world: the actors' exchange is a strategy on phantom
 * lanes, and what they did is counted against what the strategy's `cost` says. */
#include "play/play.h"

#include "base/mem.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENAS = 16 /* that lanes hand out at most, of the model's size */ };

/* All ranks'. */
typedef struct stage {
    gw_sim_play *play;
    const gw_sim_mesh *mesh;
    gw_phantom phantom;         /* what each rank begins with */
    int64_t begun, *end;        /* [step]: when the last rank was through with it */
    int64_t drained;            /* nothing is in flight any more */
    int skipped;                /* first steps, which count in no figure of a step */
    double exposed_s, bubble_s; /* sums over ranks and the other steps */
    gw_sim_tally before;
    gw_cost cost, exchanged, before_counted; /* of all; of the strategy: in all steps, in those */
} stage;

/* One of them. */
typedef struct player {
    gw_actor actor;
    stage *on;
    gw_phantom phantom;
    gw_env env;
    gw_lane_notes notes; /* of its lanes */
    void *self;
    int passed;          /* groups from here on are announced */
    int64_t step_from;   /* when the step began, */
    int64_t counts_from; /* and the first that counts; */
    double skipped_s;    /* what was computed until then */
} player;

/* ---- its world: virtual time ---- */

static void play_spend(gw_actor *a, double seconds) {
    gw_sim_compute(a->fabric, seconds);
}

static const gw_play_world play_world = {.spend = play_spend, .count = gw_sim_count};

/* ---- its exchange: a strategy ---- */

static const gw_strategy_ops *play_ops(const player *p) {
    return p->on->play->strategy.ops;
}

/* The span that finish() and publish() come with. */
static gw_span play_span(const player *p, int group) {
    return gw_env_span(&p->env, group < 0 ? 0 : group);
}

static gw_err play_progress(gw_actor *a) {
    const player *p = a->ctx;
    return play_ops(p)->progress ? play_ops(p)->progress(p->self) : GW_OK;
}

static gw_err play_finish(gw_actor *a, int group, size_t *own) {
    const player *p = a->ctx;
    gw_update u;
    GW_TRY(gw_strategy_finish(play_ops(p), p->self, &p->env, play_span(p, group), &u));
    *own = u.own.n;
    return GW_OK;
}

static gw_err play_publish(gw_actor *a, int group) {
    const player *p = a->ctx;
    return play_ops(p)->publish ? play_ops(p)->publish(p->self, play_span(p, group)) : GW_OK;
}

static gw_err play_await(gw_actor *a, int group) {
    const player *p = a->ctx;
    bool whole = group > 0 && !p->env.by_layer; /* awaited with the first one */
    return play_ops(p)->await && !whole ? play_ops(p)->await(p->self, play_span(p, group)) : GW_OK;
}

/* Strategies see whole groups. Before the first of a step all parameters have been awaited. */
static gw_err play_ready(gw_actor *a, int first, int end) {
    player *p = a->ctx;
    if (end == p->env.n_tensors) {
        gw_lane_begin(p->env.grads);
        gw_lane_begin(p->env.params);
        p->passed = p->env.n_layers;
    }
    while (p->passed > 0 && p->env.layers[p->passed - 1].off >= p->env.tensors[first].span.off) {
        gw_span group = p->env.layers[--p->passed];
        if (play_ops(p)->ready)
            GW_TRY(play_ops(p)->ready(p->self, group));
        GW_TRY(gw_actor_poll(a));
    }
    return GW_OK;
}

/* ---- a step, on one rank ---- */

/* A rank that is held up looks at no message meanwhile, as in a real run. */
static gw_err play_hold_up(gw_actor *a) {
    player *p = a->ctx;
    const gw_sim_play *of = p->on->play;
    double held_s = gw_delay_draw(&of->skew, of->seed, a->fabric->rank, (uint64_t)a->step + 1);
    p->step_from = a->step == 0 ? a->fabric->ops->now_ns(a->fabric) : p->step_from;
    if (held_s > 0)
        gw_sim_compute(a->fabric, held_s);
    a->computed_s += held_s;
    a->phase_s[GW_PHASE_DATA] += held_s;
    return GW_OK;
}

const char *gw_sim_alone(const gw_sim_play *p) {
    return p->script.mesh->shape.size[GW_DIM_DATA] > 1 ? NULL
           : p->world.ranks == 1                       ? "there is 1 rank"
                                                       : "there is 1 replica";
}

/* How many are played. */
static int play_ranks(const gw_sim_play *p) {
    return p->world.played ? p->world.played : p->world.ranks;
}

/* The end of the run: what the next step would end ends, and what is in flight arrives. */
static gw_err play_drain(player *p) {
    stage *on = p->on;
    const gw_actor *a = &p->actor;
    bool leads = a->walk.runner.stage == 0 && a->at.at[GW_DIM_TENSOR] == 0 && !a->idle;
    gw_cost cost = {0}, skipped = {0};
    GW_TRY(gw_actor_settle(&p->actor));
    for (int i = 0; i < on->play->steps; i++) {
        int64_t period;
        cost = gw_cost_sum(cost, play_ops(p)->cost(p->self, i, &period));
        skipped = i < on->skipped ? cost : skipped;
        on->cost = leads ? gw_cost_sum(on->cost, on->mesh->cost) : on->cost;
    }
    on->cost = gw_cost_sum(on->cost, a->lanes.joins);
    if (a->at.at[GW_DIM_DATA] == 0) { /* of its replica group */
        on->cost = gw_cost_sum(on->cost, cost);
        on->exchanged = gw_cost_sum(on->exchanged, cost);
        on->before_counted = gw_cost_sum(on->before_counted, skipped);
    }
    if (a->fabric->rank == 0 && p->notes.lines)
        gw_text_copy(on->play->notes, sizeof on->play->notes, p->notes.lines);
    gw_strategy_close(&on->play->strategy, p->self); /* drains */
    p->self = NULL;
    return GW_OK;
}

/* A step among others takes over what the last one left, and leaves as much. A single one ends when
 * nothing is in flight. */
static gw_err play_end(gw_actor *a) {
    player *p = a->ctx;
    stage *on = p->on;
    if (on->play->steps == 1)
        GW_TRY(play_drain(p));
    int64_t now = a->fabric->ops->now_ns(a->fabric);
    /* The exchange has all of this rank's step that is neither computed nor held up. */
    const gw_sim_play *of = on->play;
    gw_batch_cost c = {.start_s = 1e-9 * (double)(p->step_from - on->begun),
                       .wall_s = 1e-9 * (double)(now - p->step_from),
                       .inflight_s = NAN,
                       .nivcsw = -1,
                       .minflt = -1,
                       .cpu_s = NAN};
    memcpy(c.phase_s, a->phase_s, sizeof c.phase_s);
    c.phase_s[GW_PHASE_MPI_WAIT] =
        fmax(0, c.wall_s - c.phase_s[GW_PHASE_DATA] - gw_phases_computation(c.phase_s));
    double rest_s = c.phase_s[GW_PHASE_MPI_WAIT] - a->comm_s - a->joins_s,
           comm_s[GW_DIMS] = {rest_s, a->comm_s, a->joins_s};
    for (int d = 0; d < GW_DIMS; d++) {
        c.dim[d] = (gw_dim_cost){comm_s[d], a->sent[d].bytes, a->sent[d].messages};
        c.wire_bytes += c.dim[d].bytes;
        c.messages += c.dim[d].messages;
    }
    c.phase_s[GW_PHASE_ENCODE] = c.phase_s[GW_PHASE_DECODE] = NAN; /* in that, and not told apart */
    for (int r = a->fabric->rank; of->log && r < of->world.ranks; r += play_ranks(of))
        of->log[(size_t)a->step * (size_t)of->world.ranks + (size_t)r] =
            (gw_sim_step){c, a->bubble_s}; /* of its likes, too */
    memset(a->phase_s, 0, sizeof a->phase_s);
    memset(a->sent, 0, sizeof a->sent);
    on->end[a->step] = now > on->end[a->step] ? now : on->end[a->step];
    on->bubble_s += a->step >= on->skipped ? a->bubble_s : 0;
    if (a->step + 1 == on->skipped) {
        p->counts_from = now;
        p->skipped_s = a->computed_s;
    }
    p->step_from = now;
    return GW_OK;
}

static const gw_play_exchange play_exchange = {.begin = play_hold_up,
                                               .ready = play_ready,
                                               .finish = play_finish,
                                               .publish = play_publish,
                                               .await = play_await,
                                               .poll = play_progress,
                                               .end = play_end};

/* ---- a run ---- */

static gw_err play_lane(player *p, gw_codec *codec, const char *name, gw_lane **lane,
                        float **arena) {
    gw_lane_setup setup = {
        .codec = codec, .n = p->env.n, .phantom = &p->phantom, .name = name, .notes = &p->notes};
    GW_TRY(gw_actor_lane(&p->actor, GW_DIM_DATA, setup, lane));
    return gw_lane_floats(*lane, p->env.n, arena);
}

/* Between two meetings, so that nobody sends meanwhile. */
static gw_err play_count(player *p, bool begins) {
    stage *on = p->on;
    gw_fabric *f = p->actor.fabric;
    GW_TRY(f->ops->barrier(f));
    if (begins) {
        on->before = *gw_sim_so_far(f);
        memset(p->actor.sent, 0, sizeof p->actor.sent);
        on->begun = f->ops->now_ns(f);
    } else {
        on->play->tally = *gw_sim_so_far(f);
        on->drained = f->ops->now_ns(f);
    }
    return f->ops->barrier(f);
}

static gw_err play_whole(player *p) {
    stage *on = p->on;
    gw_sim_play *of = on->play;
    const gw_strategy *s = &of->strategy;
    int steps = of->steps, servers = s->plan.servers;
    p->actor.script = of->script;
    p->actor.script.mesh = on->mesh;
    p->actor.script.ahead = of->script.profile->ahead && s->ops->await;
    p->phantom = on->phantom;
    GW_TRY(gw_actor_open(&p->actor, servers, &of->exact, &p->phantom));
    const gw_sim_share *has = p->actor.has;
    int replicas = on->mesh->shape.size[GW_DIM_DATA];
    p->env = (gw_env){.n = has->n,
                      .layers = has->layers,
                      .n_layers = has->n_layers,
                      .tensors = has->tensors,
                      .n_tensors = has->n_tensors,
                      .by_layer = of->script.lazy,
                      .share = p->actor.idle ? 0 : 1.0 / (replicas - servers),
                      .link_bytes_per_s = of->world.link.bytes_per_s,
                      .algo = &of->algo,
                      .args = s->args,
                      .name = s->ops->head.name};
    GW_TRY(play_lane(p, &of->codec, "gradients", &p->env.grads, &p->env.grad));
    GW_TRY(play_lane(p, &of->exact, "parameters", &p->env.params, &p->env.param));
    gw_err e = gw_strategy_open(s, &p->env, &p->self);
    if (e == GW_ERR_UNSUPPORTED)
        return gw_fail(e, "simulate: --comm %s: %s", p->env.name, gw_err_text());
    GW_TRY(e);
    /* The first step counts in no figure unless it is the only one. Of the others whole periods of
     * the exchange count, or all if it never repeats. */
    int most = steps > 1 ? steps - 1 : 1;
    int64_t period = gw_strategy_period(play_ops(p), p->self, steps > 1);
    if (period > most && steps > 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--comm %s: its exchange repeats after %" PRId64
                       " steps, and of %d steps %d "
                       "count in a step's figures: play %" PRId64 " or more",
                       p->env.name, period, steps, most, period + 1);
    of->counted = period > 1 ? (int)(most / period * period) : most;
    on->skipped = steps - of->counted;
    GW_TRY(play_count(p, true));
    GW_TRY(gw_actor_play(&p->actor, steps));
    if (steps > 0)
        on->exposed_s +=
            1e-9 * (double)(p->step_from - (on->skipped ? p->counts_from : on->begun)) -
            (p->actor.computed_s - p->skipped_s);
    if (steps != 1)
        GW_TRY(play_drain(p));
    return play_count(p, false);
}

static gw_err play_rank(void *ctx, gw_fabric *f) {
    player p = {.actor = {.world = &play_world, .exchange = &play_exchange, .fabric = f},
                .on = ctx};
    p.actor.ctx = &p;
    gw_err e = play_whole(&p);
    gw_strategy_close(&p.on->play->strategy, p.self);
    gw_actor_close(&p.actor);
    gw_lane_close(p.env.grads);
    gw_lane_close(p.env.params);
    free(p.notes.lines);
    f->ops->close(f);
    return e;
}

/* Folded, parts that are a float longer on one rank than on the other count as those played. What
 * data decide, `cost` only knows the most of. */
static gw_err play_compare(const stage *on) {
    gw_sim_tally *t = &on->play->tally;
    const gw_cost *all = &on->cost;
    uint64_t off = on->play->world.played ? 2 * sizeof(float) * all->messages : 0;
    t->bytes -= on->before.bytes;
    t->messages -= on->before.messages;
    if (t->messages == all->messages && on->phantom.bytes > 0)
        return GW_OK;
    if (t->messages == all->messages && t->bytes <= all->bytes + off &&
        t->bytes + off >= all->bytes) {
        t->bytes = all->bytes;
        return GW_OK;
    }
    return gw_fail(GW_ERR_INTERNAL,
                   "simulate: %" PRIu64 " bytes in %" PRIu64 " messages were sent, and strategy %s "
                   "says %" PRIu64 " in %" PRIu64,
                   t->bytes, t->messages, on->play->strategy.ops->head.name, all->bytes,
                   all->messages);
}

/* Address space for what lanes hand out to one rank; NULL: there is none. */
static void *play_map(size_t bytes, int access) {
    void *at = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static gw_err play_once(gw_sim_play *p, const gw_sim_mesh *mesh) {
    stage on = {.play = p, .mesh = mesh};
    gw_phantom *of = &on.phantom;
    size_t most = p->script.profile->n + mesh->joined, wire = 16 * (most + (1 << 20));
    of->room = ARENAS * most + mesh->room + (1 << 20);
    of->floats = play_map(of->room * sizeof(float), PROT_READ | PROT_WRITE);
    of->wire = play_map(wire, PROT_NONE);
    of->bytes = p->world.coded_bytes;
    gw_err e = of->floats && of->wire ? gw_alloc(&on.end, (size_t)p->steps, sizeof *on.end)
                                      : gw_fail(GW_ERR_NOMEM, "simulate: cannot reserve %zu bytes",
                                                of->room * sizeof(float) + wire);
    GW_THEN(e, gw_sim_run(&p->world, play_rank, &on));
    GW_THEN(e, play_compare(&on));
    if (e == GW_OK && p->steps > 0) {
        int64_t from = on.skipped ? on.end[on.skipped - 1] : on.begun;
        p->step_s = 1e-9 * (double)(on.end[p->steps - 1] - from) / p->counted;
        p->elapsed_s = 1e-9 * (double)(on.drained - on.begun);
        p->exposed_s = on.exposed_s / p->counted / play_ranks(p);
        p->bubble_s = on.bubble_s / p->counted / play_ranks(p);
        const gw_cost *all = &on.exchanged, *skipped = &on.before_counted;
        double bytes = (double)p->tally.bytes, messages = (double)p->tally.messages;
        p->sent = (gw_sim_sent){bytes / p->steps, messages / p->steps};
        /* Replicas exchange the same between their parts in every step. */
        if (on.phantom.bytes == 0) {
            p->sent.bytes = (double)(all->bytes - skipped->bytes) / p->counted +
                            (bytes - (double)all->bytes) / p->steps;
            p->sent.messages = (double)(all->messages - skipped->messages) / p->counted +
                               (messages - (double)all->messages) / p->steps;
        }
    }
    if (of->floats)
        munmap(of->floats, of->room * sizeof(float));
    if (of->wire)
        munmap(of->wire, wire);
    free(on.end);
    return e;
}

/* ---- which ranks are played: a few that stand for all, where that is known ---- */

static gw_err play_folded(gw_sim_play *p, const gw_sim_mesh *mesh) {
    gw_sim_setup *w = &p->world;
    unsigned caps = p->algo.ops->caps;
    int few =
        gw_network_period(w->network) * w->per_host; /* may stand for all, where that is so: */
    bool alike = caps & (GW_ALGO_ALIKE | GW_ALGO_ALIKE_UNCUT) && !p->skew.law && !w->watch &&
                 !p->unfolded && !gw_mesh_divides(&mesh->shape) && few < w->ranks &&
                 w->ranks % few == 0;
    bool powers = (few & (few - 1)) == 0 && (w->ranks & (w->ranks - 1)) == 0;
    w->even = caps & GW_ALGO_ALIKE_UNCUT && gw_kit_chunks(p->algo.args, p->script.profile->n) > 1;
    for (int pairs = 0; alike && pairs <= powers; pairs++) {
        w->played = few;
        w->pairs = pairs;
        if (play_once(p, mesh) == GW_OK)
            return GW_OK;
    }
    w->played = 0;
    w->even = false;
    return p->most_played > 0 && w->ranks > p->most_played
               ? gw_fail(GW_ERR_UNSUPPORTED, "simulate: all %d ranks would have to be played",
                         w->ranks)
               : play_once(p, mesh);
}

gw_err gw_sim_play_run(gw_sim_play *p) {
    gw_sim_mesh whole = {0};
    if (p->script.mesh)
        return play_folded(p, p->script.mesh);
    gw_err e = gw_sim_mesh_open(&whole, &gw_parallel_plain, p->script.profile, p->world.ranks);
    GW_THEN(e, play_folded(p, &whole));
    gw_sim_mesh_close(&whole);
    return e;
}
