#include "play/play.h"

#include "base/mem.h"
#include "base/text.h"
#include "comm/lane_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* As `replay`: between two polls of a host that waits for its device; DistributedDataParallel's
 * first bucket. */
#define POLL_S       1e-4
#define FIRST_BUCKET ((size_t)1 << 20)

/* All ranks'. */
typedef struct stage {
    gw_sim_play *play;
    gw_sim_mesh *mesh;
    gw_phantom phantom;         /* what each rank begins with */
    int64_t begun, *end;        /* [step]: when the last rank was through with it */
    int64_t drained;            /* nothing is in flight any more */
    int skipped;                /* first steps, which count in no figure of a step */
    double exposed_s, bubble_s; /* sums over ranks and the other steps */
    gw_sim_tally before;
    gw_cost cost, exchanged, before_counted; /* of all; of the strategy: in all steps, in those */
} stage;

typedef struct actor {
    stage *on;
    gw_fabric *f;
    gw_phantom phantom;
    gw_env env;
    void *self;
    gw_sim_pipe pipe;
    const gw_sim_share *has;
    int step, passed, left;    /* groups from `passed` on are announced; tensors that are not due */
    size_t filling;            /* bytes of gradients that wait for their bucket to be full, */
    bool first;                /* which is a step's first */
    double due_s;              /* when the device is through with what it was given */
    double computed_s;         /* so far, and held up, */
    double phase_s[GW_PHASES]; /* and of that in this step */
    int64_t counts_from;       /* the end of the last step that does not count, */
    double skipped_s;          /* and what was computed until then */
} actor;

/* ---- a step, on one rank ---- */

static double play_now_s(const actor *a) {
    return 1e-9 * (double)a->f->ops->now_ns(a->f);
}

static const gw_strategy_ops *play_ops(const actor *a) {
    return a->on->play->strategy.ops;
}

static gw_err play_beside(void *act) {
    actor *a = act;
    return play_ops(a)->progress ? play_ops(a)->progress(a->self) : GW_OK;
}

static gw_err play_poll(actor *a) {
    if (a->pipe.runner.queue)
        GW_TRY(gw_queue_poll(a->pipe.runner.queue));
    return play_beside(a);
}

/* What was given to the device so far is over, at the earliest now. */
static void play_restart(actor *a) {
    a->due_s = fmax(a->due_s, play_now_s(a));
}

static gw_err play_compute(actor *a, gw_phase phase, double seconds) {
    seconds /= a->on->play->speed;
    a->computed_s += seconds;
    a->phase_s[phase] += seconds;
    a->due_s += seconds;
    if (!a->on->play->sleeps) {
        gw_sim_compute(a->f, seconds);
        return play_poll(a);
    }
    for (double now; (now = play_now_s(a)) + 1e-9 < a->due_s;) {
        gw_sim_compute(a->f, fmin(POLL_S, a->due_s - now));
        GW_TRY(play_poll(a));
    }
    return GW_OK;
}

/* The i-th span that finish() and publish() come with. */
static gw_err play_update(actor *a, int i) {
    const gw_strategy_ops *ops = play_ops(a);
    const gw_step_profile *of = a->on->play->profile;
    gw_span s = gw_env_span(&a->env, i);
    gw_update u = {0};
    GW_TRY(ops->finish(a->self, s, &u));
    play_restart(a);
    GW_TRY(play_compute(a, GW_PHASE_UPDATE, of->optimizer_s * (double)u.own.n / (double)of->n));
    return ops->publish ? ops->publish(a->self, s) : GW_OK;
}

static gw_err play_await(actor *a, int i) {
    const gw_strategy_ops *ops = play_ops(a);
    return ops->await ? ops->await(a->self, gw_env_span(&a->env, i)) : GW_OK;
}

static gw_err play_joined(actor *a, const gw_sim_join *j) {
    GW_TRY(gw_sim_pipe_join(&a->pipe, j, false));
    if (a->pipe.among && j->floats)
        play_restart(a);
    return GW_OK;
}

/* A tensor forward, with what tensor ranks exchange before and behind it: in pieces, one of which
 * travels while another is computed. */
static gw_err play_tensor(actor *a, const gw_step_tensor *t, int micro, double seconds) {
    int n = gw_sim_pipe_pieces(&a->pipe, micro, t->input_parts + t->forward_sum);
    gw_sim_join in = {GW_ALLGATHER, t->input_parts, micro, n, 0},
                out = {GW_ALLREDUCE, t->forward_sum, micro, n, 0},
                told = {GW_ALLGATHER, t->forward_gather, micro, 1, 0};
    for (in.piece = 0; in.piece < n; in.piece++)
        GW_TRY(gw_sim_pipe_join(&a->pipe, &in, true));
    for (; out.piece < n; out.piece++) {
        in.piece = out.piece;
        GW_TRY(play_joined(a, &in));
        GW_TRY(play_compute(a, GW_PHASE_FORWARD, seconds / n));
        GW_TRY(gw_sim_pipe_join(&a->pipe, &out, true));
    }
    for (out.piece = 0; out.piece < n; out.piece++)
        GW_TRY(play_joined(a, &out));
    GW_TRY(gw_sim_pipe_join(&a->pipe, &told, true));
    return play_joined(a, &told);
}

/* `first`: of the microbatches, before which parameters are awaited. */
static gw_err play_forward(actor *a, gw_act act, double part, bool first) {
    const gw_sim_share *has = a->has;
    for (int t = has->first[act.chunk], group = -1; t < has->first[act.chunk + 1]; t++) {
        if (has->tensors[t].layer != group) {
            group = has->tensors[t].layer;
            if (first && a->env.by_layer && a->step > 0)
                GW_TRY(play_update(a, group));
            if (first && (a->env.by_layer || group == 0))
                GW_TRY(play_await(a, group));
            play_restart(a);
        }
        GW_TRY(play_tensor(a, &has->of[t], act.micro, part * has->of[t].forward_s));
    }
    return GW_OK;
}

/* Gradient t is there: strategies see whole groups. */
static gw_err play_announce(actor *a, int t) {
    const gw_strategy_ops *ops = play_ops(a);
    size_t bucket = a->on->play->bucket,
           limit = a->first && bucket > FIRST_BUCKET ? FIRST_BUCKET : bucket;
    if (t != --a->left)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "simulate: --timetable %s: a chunk ends before a later one",
                       gw_timetable_name(a->on->mesh->timetable));
    a->filling += a->env.tensors[t].span.n * sizeof(float);
    if (t > 0 && a->filling < limit)
        return GW_OK;
    a->filling = 0;
    a->first = false;
    while (a->passed > 0 && a->env.layers[a->passed - 1].off >= a->env.tensors[t].span.off) {
        gw_span group = a->env.layers[--a->passed];
        if (ops->ready)
            GW_TRY(ops->ready(a->self, group));
        GW_TRY(play_poll(a));
    }
    return GW_OK;
}

/* Of the tensors [first, end) of this rank. `last`: their gradients are final behind it. */
static gw_err play_gradients(actor *a, int first, int end, double part, bool last) {
    for (int t = end - 1; t >= first; t--) {
        GW_TRY(play_compute(a, GW_PHASE_BACKWARD, part * a->has->of[t].backward_s));
        if (last)
            GW_TRY(play_announce(a, t));
    }
    return GW_OK;
}

/* A profile does not tell the gradient of a layer's input from that of its weights: each takes half
 * of its time. As in a real stage, a delta leaves, or is summed, before the weights' gradient. */
static gw_err play_layer(actor *a, gw_act act, int first, int end, double part) {
    bool last = act.micro + 1 == a->on->mesh->micros && act.kind != GW_ACT_INPUT;
    bool hops = first == a->has->first[act.chunk] && gw_runner_hop(&a->pipe.runner, act, false);
    gw_sim_join sum = {GW_ALLREDUCE, 0, act.micro, 1, 0};
    for (int t = first; t < end && a->pipe.among && act.kind != GW_ACT_WEIGHTS; t++) {
        sum.verb = a->has->of[t].input_parts ? GW_REDUCE_SCATTER : sum.verb;
        sum.floats += a->has->of[t].input_parts + a->has->of[t].backward_sum;
    }
    if (!hops && sum.floats == 0)
        return play_gradients(a, first, end, act.kind == GW_ACT_BACKWARD ? part : part / 2, last);
    sum.pieces = gw_sim_pipe_pieces(&a->pipe, act.micro, sum.floats);
    for (; sum.piece < sum.pieces; sum.piece++) {
        GW_TRY(play_gradients(a, first, end, part / 2 / sum.pieces, false));
        GW_TRY(gw_sim_pipe_join(&a->pipe, &sum, true));
    }
    if (hops && sum.floats == 0)
        GW_TRY(gw_sim_pipe_send(&a->pipe, act));
    if (act.kind == GW_ACT_BACKWARD)
        GW_TRY(play_gradients(a, first, end, part / 2, last));
    for (sum.piece = 0; sum.piece < sum.pieces; sum.piece++)
        GW_TRY(play_joined(a, &sum));
    return hops && sum.floats ? gw_sim_pipe_send(&a->pipe, act) : GW_OK;
}

static gw_err play_backward(actor *a, gw_act act, double part) {
    const int *chunk = a->has->first + act.chunk;
    if (a->left == 0) { /* its first of the step: all parameters have been awaited */
        a->env.grads->ticket++;
        a->env.params->ticket++;
        a->passed = a->env.n_layers;
        a->left = a->env.n_tensors;
        a->first = true;
    }
    if (a->pipe.hops) /* it may have waited for one */
        play_restart(a);
    for (int t = chunk[1] - 1, end = chunk[1]; t >= chunk[0]; t--)
        if (t == chunk[0] || a->has->tensors[t - 1].layer != a->has->tensors[t].layer) {
            GW_TRY(play_layer(a, act, t, end, part));
            end = t;
        }
    return GW_OK;
}

static gw_err play_act(void *ctx, gw_act act, double part) {
    actor *a = ctx;
    if (act.kind != GW_ACT_FORWARD)
        return play_backward(a, act, part);
    GW_TRY(play_forward(a, act, part, act.micro == 0));
    return gw_sim_pipe_send(&a->pipe, act);
}

/* A rank that is held up looks at no message meanwhile, as in a real run. */
static void play_hold_up(actor *a) {
    const gw_sim_play *p = a->on->play;
    double held_s = gw_delay_draw(&p->skew, p->seed, a->f->rank, a->step + 1);
    if (held_s > 0)
        gw_sim_compute(a->f, held_s);
    a->computed_s += held_s;
    a->phase_s[GW_PHASE_DATA] += held_s;
}

/* How many are played. */
static int play_ranks(const gw_sim_play *p) {
    return p->world.played ? p->world.played : p->world.ranks;
}

/* What this rank's step was: all that is neither computed nor held up is its exchange's. */
static void play_log(actor *a, int64_t from, int64_t now) {
    const gw_sim_play *p = a->on->play;
    gw_batch_cost c = {.start_s = 1e-9 * (double)(from - a->on->begun),
                       .wall_s = 1e-9 * (double)(now - from),
                       .inflight_s = NAN,
                       .nivcsw = -1,
                       .minflt = -1,
                       .cpu_s = NAN};
    memcpy(c.phase_s, a->phase_s, sizeof c.phase_s);
    c.phase_s[GW_PHASE_MPI_WAIT] =
        fmax(0, c.wall_s - c.phase_s[GW_PHASE_DATA] - gw_phases_computation(c.phase_s));
    double rest_s = c.phase_s[GW_PHASE_MPI_WAIT] - a->pipe.comm_s - a->pipe.joins_s,
           comm_s[GW_DIMS] = {rest_s, a->pipe.comm_s, a->pipe.joins_s};
    for (int d = 0; d < GW_DIMS; d++) {
        c.dim[d] = (gw_dim_cost){comm_s[d], a->pipe.sent[d].bytes, a->pipe.sent[d].messages};
        c.wire_bytes += c.dim[d].bytes;
        c.messages += c.dim[d].messages;
    }
    c.phase_s[GW_PHASE_ENCODE] = c.phase_s[GW_PHASE_DECODE] = NAN; /* in that, and not told apart */
    for (int r = a->f->rank; p->log && r < p->world.ranks; r += play_ranks(p))
        p->log[(size_t)a->step * (size_t)p->world.ranks + (size_t)r] =
            (gw_sim_step){c, a->pipe.bubble_s}; /* of its likes, too */
    memset(a->phase_s, 0, sizeof a->phase_s);
    memset(a->pipe.sent, 0, sizeof a->pipe.sent);
}

/* Adds what a real run would tell, too; the lane knows it when all is laid down. */
static void play_tell_unmet(const actor *a) {
    gw_sim_play *p = a->on->play;
    const char *said = a->env.grads->said.unmet;
    char what[GW_UNMET_WHAT], why[GW_UNMET_WHY];
    if (a->env.grads->size == 1)
        said = a->f->size == 1 ? "nothing is exchanged\tthere is 1 rank\n"
                               : "nothing is exchanged\tthere is 1 replica\n";
    for (size_t at = 0; gw_lane_unmet_next(&said, what, why);)
        at += gw_text_print(p->unmet + at, sizeof p->unmet - at, "%s: %s\n", what, why);
}

/* The end of the run: what the next step would end ends, and what is in flight arrives. */
static gw_err play_drain(actor *a) {
    stage *on = a->on;
    gw_cost cost = {0}, skipped = {0};
    for (int i = 0; i < gw_env_spans(&a->env); i++) {
        if (a->env.by_layer)
            GW_TRY(play_update(a, i));
        GW_TRY(play_await(a, i));
    }
    for (int i = 0; i < on->play->steps; i++) {
        cost = gw_cost_sum(cost, play_ops(a)->cost(a->self, i));
        skipped = i < on->skipped ? cost : skipped;
        if (a->pipe.runner.stage == 0 && a->pipe.at.at[GW_DIM_TENSOR] == 0 && !a->pipe.idle)
            on->cost = gw_cost_sum(on->cost, on->mesh->cost);
    }
    on->cost = gw_cost_sum(on->cost, a->pipe.joins);
    if (a->pipe.at.at[GW_DIM_DATA] == 0) { /* of its replica group */
        on->cost = gw_cost_sum(on->cost, cost);
        on->exchanged = gw_cost_sum(on->exchanged, cost);
        on->before_counted = gw_cost_sum(on->before_counted, skipped);
    }
    if (a->f->rank == 0)
        play_tell_unmet(a);
    gw_strategy_close(&on->play->strategy, a->self); /* drains */
    a->self = NULL;
    return GW_OK;
}

/* A step among others takes over what the last one left, and leaves as much. A single one ends when
 * nothing is in flight. */
static gw_err play_steps(actor *a) {
    stage *on = a->on;
    int steps = on->play->steps;
    int64_t now = a->f->ops->now_ns(a->f);
    play_restart(a);
    for (a->step = 0; a->step < steps; a->step++) {
        int64_t from = now;
        play_hold_up(a);
        GW_TRY(gw_sim_pipe_step(&a->pipe));
        if (!a->env.by_layer)
            GW_TRY(play_update(a, 0));
        if (steps == 1)
            GW_TRY(play_drain(a));
        now = a->f->ops->now_ns(a->f);
        play_log(a, from, now);
        on->end[a->step] = now > on->end[a->step] ? now : on->end[a->step];
        on->bubble_s += a->step >= on->skipped ? a->pipe.bubble_s : 0;
        if (a->step + 1 == on->skipped) {
            a->counts_from = now;
            a->skipped_s = a->computed_s;
        }
    }
    on->exposed_s += 1e-9 * (double)(now - (on->skipped ? a->counts_from : on->begun)) -
                     (a->computed_s - a->skipped_s);
    return steps == 1 ? GW_OK : play_drain(a);
}

/* ---- a run ---- */

/* The first step counts in no figure unless it is the only one. Of the others whole periods of the
 * exchange count, or all if it never repeats. */
static gw_err play_skip(const actor *a) {
    stage *on = a->on;
    int steps = on->play->steps, most = steps > 1 ? steps - 1 : 1;
    int64_t period = play_ops(a)->period ? play_ops(a)->period(a->self, steps > 1) : 1;
    if (period > most && steps > 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--comm %s: its exchange repeats after %" PRId64
                       " steps, and of %d steps %d "
                       "count in a step's figures: play %" PRId64 " or more",
                       a->env.name, period, steps, most, period + 1);
    on->play->counted = period > 1 ? (int)(most / period * period) : most;
    on->skipped = steps - on->play->counted;
    return GW_OK;
}

static gw_err play_lane(actor *a, gw_codec *codec, const char *name, gw_lane **lane,
                        float **arena) {
    gw_lane_setup setup = {.codec = codec, .n = a->env.n, .phantom = &a->phantom, .name = name};
    GW_TRY(gw_sim_pipe_lane(&a->pipe, GW_DIM_DATA, setup, lane));
    return gw_lane_floats(*lane, a->env.n, arena);
}

static gw_err play_open(actor *a) {
    gw_sim_play *p = a->on->play;
    const gw_strategy *s = &p->strategy;
    int servers = s->ops->servers ? s->ops->servers(s->args) : 0;
    double slowest = 0;
    for (int t = 0; t < p->profile->n_tensors; t++)
        slowest = fmax(slowest, p->profile->tensor[t].backward_s / p->speed);
    a->phantom = a->on->phantom;
    a->pipe = (gw_sim_pipe){a->on->mesh, a->f, play_act, play_beside, a};
    GW_TRY(gw_sim_pipe_open(&a->pipe, servers, &p->exact, &a->phantom));
    const gw_sim_share *has = a->has = gw_sim_mesh_share(a->on->mesh, &a->pipe.at);
    int replicas = a->on->mesh->shape.size[GW_DIM_DATA];
    a->env = (gw_env){.n = has->n,
                      .layers = has->layers,
                      .n_layers = has->n_layers,
                      .tensors = has->tensors,
                      .n_tensors = has->n_tensors,
                      .by_layer = p->lazy,
                      .share = a->pipe.idle ? 0 : 1.0 / (replicas - servers),
                      .pace = {p->world.link.bytes_per_s, p->sleeps ? POLL_S : slowest},
                      .algo = &p->algo,
                      .args = s->args,
                      .name = s->ops->head.name};
    GW_TRY(play_lane(a, &p->codec, "gradients", &a->env.grads, &a->env.grad));
    GW_TRY(play_lane(a, &p->exact, "parameters", &a->env.params, &a->env.param));
    gw_err e = gw_strategy_open(s, &a->env, &a->self);
    if (e == GW_ERR_UNSUPPORTED)
        return gw_fail(e, "simulate: --comm %s: %s", a->env.name, gw_err_text());
    GW_THEN(e, play_skip(a));
    return e;
}

/* Between two meetings, so that nobody sends meanwhile. */
static gw_err play_count(actor *a, bool begins) {
    stage *on = a->on;
    GW_TRY(a->f->ops->barrier(a->f));
    if (begins) {
        on->before = *gw_sim_so_far(a->f);
        memset(a->pipe.sent, 0, sizeof a->pipe.sent);
        on->begun = a->f->ops->now_ns(a->f);
    } else {
        on->play->tally = *gw_sim_so_far(a->f);
        on->drained = a->f->ops->now_ns(a->f);
    }
    return a->f->ops->barrier(a->f);
}

static gw_err play_whole(actor *a) {
    GW_TRY(play_open(a));
    GW_TRY(play_count(a, true));
    GW_TRY(play_steps(a));
    return play_count(a, false);
}

static gw_err play_rank(void *ctx, gw_fabric *f) {
    actor a = {.on = ctx, .f = f};
    gw_err e = play_whole(&a);
    gw_strategy_close(&a.on->play->strategy, a.self);
    gw_sim_pipe_close(&a.pipe);
    gw_lane_close(a.env.grads);
    gw_lane_close(a.env.params);
    f->ops->close(f);
    return e;
}

/* Folded, parts that are a float longer on one rank than on the other count as those played. */
static gw_err play_compare(const stage *on) {
    gw_sim_tally *t = &on->play->tally;
    const gw_cost *all = &on->cost;
    uint64_t off = on->play->world.played ? 2 * sizeof(float) * all->messages : 0;
    t->bytes -= on->before.bytes;
    t->messages -= on->before.messages;
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

/* Replicas exchange the same between their parts in every step. */
static void play_count_step(gw_sim_play *p, const stage *on) {
    const gw_cost *all = &on->exchanged, *skipped = &on->before_counted;
    p->sent.bytes = (double)(all->bytes - skipped->bytes) / p->counted +
                    (double)(p->tally.bytes - all->bytes) / p->steps;
    p->sent.messages = (double)(all->messages - skipped->messages) / p->counted +
                       (double)(p->tally.messages - all->messages) / p->steps;
}

gw_err gw_sim_play_once(gw_sim_play *p, gw_sim_mesh *mesh) {
    stage on = {.play = p, .mesh = mesh};
    gw_err e = gw_sim_mesh_reserve(mesh, p->profile->n, &on.phantom);
    GW_THEN(e, gw_alloc(&on.end, (size_t)p->steps, sizeof *on.end));
    GW_THEN(e, gw_sim_run(&p->world, play_rank, &on));
    GW_THEN(e, play_compare(&on));
    if (e == GW_OK && p->steps > 0) {
        int64_t from = on.skipped ? on.end[on.skipped - 1] : on.begun;
        p->step_s = 1e-9 * (double)(on.end[p->steps - 1] - from) / p->counted;
        p->elapsed_s = 1e-9 * (double)(on.drained - on.begun);
        p->exposed_s = on.exposed_s / p->counted / play_ranks(p);
        mesh->bubble_s = on.bubble_s / p->counted / play_ranks(p);
        play_count_step(p, &on);
    }
    gw_sim_mesh_unreserve(mesh, p->profile->n, &on.phantom);
    free(on.end);
    return e;
}
