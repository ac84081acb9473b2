/* The public functions: a batch, from its begin to its end. */
#include "api/handle.h"
#include "base/probe.h"
#include "comm/strategy/plain.h"
#include "watch/watchdog.h"

#include <limits.h>
#include <math.h>

static gw_span all_of(const gradwire *g) {
    return (gw_span){0, g->arena.n};
}

/* The region that the caller named is left, and another entered; -1: none. */
static void batch_phase(gradwire *g, int phase) {
    if (g->batch.phase >= 0)
        gw_phase_leave();
    g->batch.phase = phase;
    if (phase >= 0)
        gw_phase_enter((gw_phase)phase);
}

int gradwire_begin(gradwire *g, long samples, long global) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "begin", GW_IN_OPEN, false);
    bool again = e == GW_OK && g->state == GW_HANDLE_BATCH;
    if (again && g->batch.begun)
        e = gw_call_refuse("begin", "a batch is open, and its exchange has begun: call "
                                    "gradwire_end first");
    bool odd = samples < 0 || samples > INT_MAX || global < 1 || samples > global;
    if (e == GW_OK && odd && !g->inside)
        e = gw_fail(GW_ERR_USAGE,
                    "gradwire_begin: %ld samples of %ld: a rank has none or more, all together at "
                    "least one",
                    samples, global);
    if (e == GW_OK && samples > 0 && g->rank < g->session->strategy.plan.servers)
        e = gw_fail(GW_ERR_USAGE,
                    "gradwire_begin: %ld samples: rank %d only serves with --comm %s: begin it "
                    "with 0",
                    samples, g->rank, g->words.run.comm->text);
    if (e != GW_OK)
        return gw_call_end(&c, e);
    g->batch.samples = (int)samples;
    g->batch.share = (double)samples / (double)global;
    if (again)
        return gw_call_end(&c, GW_OK);
    if (g->batch.fresh && g->publishes)
        gw_layout_take_params(g, all_of(g));
    g->batch.fresh = false;
    g->batch.step++;
    g->batch.begun = false;
    g->state = GW_HANDLE_BATCH;
    if (g->records)
        gw_files_begin(g);
    return gw_call_end(&c, GW_OK);
}

int gradwire_phase(gradwire *g, int phase) {
    static const gw_phase of[] = {
        [GRADWIRE_OTHER] = GW_PHASE_OTHER,     [GRADWIRE_DATA] = GW_PHASE_DATA,
        [GRADWIRE_FORWARD] = GW_PHASE_FORWARD, [GRADWIRE_BACKWARD] = GW_PHASE_BACKWARD,
        [GRADWIRE_UPDATE] = GW_PHASE_UPDATE,   [GRADWIRE_CHECKPOINT] = GW_PHASE_CHECKPOINT,
        [GRADWIRE_MPI] = GW_PHASE_MPI_WAIT};
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "phase", GW_IN_OPEN, false);
    if (e == GW_OK && (phase < 0 || phase > GRADWIRE_MPI))
        e = gw_fail(GW_ERR_USAGE, "gradwire_phase: %d: must be GRADWIRE_OTHER to GRADWIRE_MPI",
                    phase);
    if (e == GW_OK && g->state == GW_HANDLE_BATCH && (g->records || g->inside))
        batch_phase(g, phase == GRADWIRE_OTHER ? -1 : (int)of[phase]);
    return gw_call_end(&c, e);
}

/* ---- gradients ---- */

gw_err gw_batch_exchange(gradwire *g) {
    if (g->batch.pending)
        return gw_call_refuse("ready", "the last batch's exchange is not over: finish, update and "
                                       "await every group first");
    gw_session_begin(g->session, g->batch.share);
    g->guard.together = g->session->together;
    for (int t = 0; t < g->arena.n_tensors; t++)
        g->arena.tensor[t].ready = false;
    g->batch.ready = 0;
    g->batch.passed = g->arena.groups;
    g->batch.finished = g->batch.moved = g->batch.updated = g->batch.awaited = 0;
    g->batch.begun = g->batch.pending = true;
    g->batch.agreed = g->batch.abandoned = g->batch.owns = false;
    if (g->optimizer)
        gw_optimizer_begin(g->optimizer);
    gw_guard_loss(&g->guard, 0); /* a step begins */
    g->guard.step = g->batch.step;
    g->guard.most =
        gw_session_most(g->session, g->batch.share) / (g->words.scaled ? 1 : (float)g->batch.share);
    return GW_OK;
}

/* ---- void batches ---- */

/* Do the ranks agree before they exchange anything? Lazy, when the batch ends; and where nothing
 * has begun a void batch need not be taken back. Else they meet when the exchange is done. */
static bool batch_agrees_first(const gradwire *g) {
    return g->words.run.lazy || (!g->session->strategy.ops->ready && !gw_layout_looks_later(g));
}

/* Nothing of the exchange has begun when all gradients are there, and none of it need. */
static bool batch_starts_late(const gradwire *g) {
    return batch_agrees_first(g) && !g->session->strategy.ops->ready && g->guard.together;
}

/* Is this exchange void? Settled once. */
static gw_err batch_agree(gradwire *g, gw_call *c) {
    if (g->batch.agreed || g->inside || g->words.run.on_nan == GW_ON_NAN_KEEP)
        return GW_OK;
    gw_guard *guard = &g->guard;
    g->batch.agreed = true;
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = gw_guard_agree(guard);
    if (e == GW_OK && guard->out && !guard->given_up && guard->how == GW_ON_NAN_STOP) {
        c->together = guard->together;
        g->batch.pending =
            g->words.run.lazy && !batch_starts_late(g); /* else nothing is under way */
        e = gw_guard_fail(guard, "try a smaller rate, or --on-nan skip");
    }
    gw_phase_leave();
    g->session->env.skip = guard->out;
    g->batch.abandoned =
        guard->out && batch_starts_late(g) && (guard->given_up || gw_session_voids(g->session));
    return e;
}

/* Is it void: do the buffers hold nothing to update by? Known once the ranks agreed. */
static bool batch_void(const gradwire *g) {
    return g->guard.out && (gw_session_voids(g->session) || g->batch.abandoned);
}

int gradwire_left_out(gradwire *g) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "left_out", GW_IN_OPEN, false);
    int end = gw_call_end(&c, e);
    return end < 0 ? end : g->guard.out;
}

static gw_err batch_take(gradwire *g, int t, float *grad) {
    if (t < 0 || t >= g->arena.n_tensors)
        return gw_fail(GW_ERR_USAGE, "gradwire_ready: tensor %d: there are 0 to %d", t,
                       g->arena.n_tensors - 1);
    if (g->arena.tensor[t].ready)
        return gw_fail(GW_ERR_USAGE, "gradwire_ready: tensor %d (%s) is ready twice in this batch",
                       t, g->arena.tensor[t].name);
    g->arena.tensor[t].ready = true;
    g->arena.tensor[t].grad = grad;
    g->batch.ready++;
    if (g->inside) /* it lies where it must */
        return GW_OK;
    gw_phase_enter(GW_PHASE_ENCODE);
    gw_layout_take_grad(g, t);
    gw_phase_leave();
    return GW_OK;
}

static bool batch_group_ready(const gradwire *g, int group) {
    for (int t = g->arena.first[group]; t < g->arena.first[group + 1]; t++)
        if (!g->arena.tensor[t].ready)
            return false;
    return true;
}

/* Strategies see groups from the last to the first, and so alike on all ranks, in whatever order
 * they get ready. */
static gw_err batch_pass_on(gradwire *g) {
    while (g->batch.passed > 0 && batch_group_ready(g, g->batch.passed - 1)) {
        GW_TRY(gw_session_ready(g->session, g->arena.group[--g->batch.passed]));
        GW_TRY(gw_session_progress(g->session));
    }
    return GW_OK;
}

static gw_err batch_ready(gradwire *g, int n, const int *tensor, float *const *grad) {
    if (n < 0 || (n > 0 && !tensor))
        return gw_call_refuse("ready", "n is negative, or tensor is NULL");
    if (!g->batch.begun) /* it begins with its first gradient */
        GW_TRY(gw_batch_exchange(g));
    if (g->batch.finished > 0)
        return gw_call_refuse("ready", "this batch's exchange is finished");
    gw_err e = GW_OK;
    for (int i = 0; i < n && e == GW_OK; i++) {
        e = batch_take(g, tensor[i], grad ? grad[i] : NULL);
        GW_THEN(e, batch_pass_on(g));
    }
    return e;
}

int gradwire_ready(gradwire *g, int n, const int *tensor, float *const *grad) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "ready", GW_IN_BATCH, false);
    GW_THEN(e, batch_ready(g, n, tensor, grad));
    return gw_call_end(&c, e);
}

int gradwire_lend(gradwire *g, void *memory, size_t bytes, int fd) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "lend", GW_IN_OPEN, true);
    if (e == GW_OK && !gw_session_takes_lent(g->session))
        e = gw_fail(GW_ERR_UNSUPPORTED,
                    "gradwire_lend: gradients are summed in place by an algorithm of shared memory "
                    "alone, on several ranks, without a codec, --clip-norm or --compress-stats: "
                    "--comm %s:algo=shm",
                    GW_STRATEGY_PLAIN);
    GW_THEN(e, gw_session_lend(g->session, memory, bytes, fd));
    bool copies = e == GW_ERR_UNSUPPORTED;
    int end = gw_call_end(&c, copies ? GW_OK : e);
    return end < 0 ? end : !copies;
}

int gradwire_poll(gradwire *g) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "poll", GW_IN_OPEN, false);
    GW_THEN(e, gw_session_progress(g->session));
    return gw_call_end(&c, e);
}

/* ---- updates ---- */

gw_err gw_batch_next(const gradwire *g, const char *name, int group, int next) {
    if (!g->batch.pending || g->batch.ready < g->arena.n_tensors)
        return gw_call_refuse(name, "not every tensor is ready: call gradwire_ready for all of "
                                    "them first");
    if (group == GRADWIRE_ALL || (group == next && group < g->arena.groups && g->words.run.lazy) ||
        (group == 0 && g->arena.groups == 1))
        return GW_OK;
    if (!g->words.run.lazy)
        return gw_fail(GW_ERR_USAGE,
                       "gradwire_%s: group %d: without --update lazy all groups are finished "
                       "together: GRADWIRE_ALL",
                       name, group);
    return gw_fail(GW_ERR_USAGE, "gradwire_%s: group %d: groups rise: %s %d", name, group,
                   next < g->arena.groups ? "the next is" : "there is none left after",
                   next < g->arena.groups ? next : g->arena.groups - 1);
}

/* What is finished at once, from group i on. */
static gw_span batch_span(const gradwire *g, int i) {
    return g->by_group ? g->arena.group[i] : all_of(g);
}

/* So many groups. */
static int batch_stride(const gradwire *g) {
    return g->by_group ? 1 : g->arena.groups;
}

int gw_batch_until(const gradwire *g, int group, int next) {
    return group == GRADWIRE_ALL ? g->arena.groups : next + batch_stride(g);
}

static gw_err batch_finish(gradwire *g, gw_call *c, int *owns) {
    gw_span s = batch_span(g, g->batch.finished);
    gw_update *u = &g->batch.update;
    *u = (gw_update){0};
    if (batch_agrees_first(g))
        GW_TRY(batch_agree(g, c));
    if (!g->batch.abandoned)
        GW_TRY(gw_session_finish(g->session, s, u));
    if (g->publishes && g->session->strategy.ops->gives == GW_GIVES_DIRECTION)
        gw_layout_give_params(g, s); /* finish() may have put them back */
    gw_layout_look(g);
    GW_TRY(batch_agree(g, c));
    if (batch_void(g))
        u->own.n = 0;
    if (!g->inside) {
        gw_phase_enter(GW_PHASE_DECODE);
        if (batch_void(g))
            gw_layout_clear_grads(g, s);
        else if (u->own.n > 0)
            gw_layout_give_grads(g, u);
        gw_phase_leave();
    }
    *owns |= u->own.n > 0;
    g->batch.owns |= u->own.n > 0;
    g->batch.finished += batch_stride(g);
    return GW_OK;
}

int gradwire_finish(gradwire *g, int group) {
    gw_call c;
    int owns = 0;
    gw_err e = gw_call_begin(&c, g, "finish", GW_IN_OPEN, false);
    GW_THEN(e, gw_batch_next(g, "finish", group, g->batch.finished));
    if (e == GW_OK && g->batch.finished == g->arena.groups)
        e = gw_call_refuse("finish", "this exchange is finished already");
    while (e == GW_OK && g->batch.finished < g->arena.groups) {
        e = batch_finish(g, &c, &owns);
        if (group != GRADWIRE_ALL)
            break;
    }
    int end = gw_call_end(&c, e);
    return end < 0 ? end : owns;
}

int gradwire_owned(gradwire *g, int i, int *tensor, size_t *from, size_t *n) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "owned", GW_IN_OPEN, false);
    if (e == GW_OK && i < 0)
        e = gw_fail(GW_ERR_USAGE, "gradwire_owned: piece %d: they are counted from 0", i);
    bool is = e == GW_OK && i < g->arena.n_pieces;
    if (is && tensor)
        *tensor = g->arena.piece[i].tensor;
    if (is && from)
        *from = g->arena.piece[i].from;
    if (is && n)
        *n = g->arena.piece[i].n;
    int end = gw_call_end(&c, e);
    return end < 0 ? end : is;
}

static gw_err batch_updated(gradwire *g) {
    gw_span s = batch_span(g, g->batch.updated);
    if (g->publishes) {
        gw_phase_enter(GW_PHASE_ENCODE);
        gw_layout_take_params(g, gw_session_owned(g->session, s));
        gw_phase_leave();
    }
    if (!g->batch.abandoned)
        GW_TRY(gw_session_publish(g->session, s));
    g->batch.updated += batch_stride(g);
    return GW_OK;
}

static gw_err batch_await(gradwire *g) {
    gw_span s = batch_span(g, g->batch.awaited);
    if (!g->batch.abandoned)
        GW_TRY(gw_session_await(g->session, s));
    if (g->publishes && !g->batch.abandoned) {
        gw_phase_enter(GW_PHASE_DECODE);
        gw_layout_give_params(g, s);
        gw_phase_leave();
    }
    g->batch.awaited += batch_stride(g);
    g->batch.pending = g->batch.awaited < g->arena.groups;
    if (!g->batch.pending && g->guard.out)
        gw_session_undo(g->session, g->batch.abandoned);
    return GW_OK;
}

int gradwire_updated(gradwire *g, int group) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "updated", GW_IN_OPEN, false);
    GW_THEN(e, gw_batch_next(g, "updated", group, g->batch.updated));
    int until = e == GW_OK ? gw_batch_until(g, group, g->batch.updated) : 0;
    if (e == GW_OK && (until > g->batch.finished || g->batch.updated == g->arena.groups))
        e = gw_call_refuse("updated", "its group is not finished: call gradwire_finish first");
    while (e == GW_OK && g->batch.updated < until)
        e = batch_updated(g);
    while (e == GW_OK && group == GRADWIRE_ALL && g->batch.awaited < g->arena.groups)
        e = batch_await(g);
    return gw_call_end(&c, e);
}

int gradwire_await(gradwire *g, int group) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "await", GW_IN_OPEN, false);
    if (e == GW_OK && !g->batch.pending) /* there is nothing to wait for */
        return gw_call_end(&c, GW_OK);
    GW_THEN(e, gw_batch_next(g, "await", group, g->batch.awaited));
    int until = e == GW_OK ? gw_batch_until(g, group, g->batch.awaited) : 0;
    if (e == GW_OK && until > g->batch.updated)
        e = gw_call_refuse("await", "its group is not updated: call gradwire_updated first");
    while (e == GW_OK && g->batch.awaited < until)
        e = batch_await(g);
    return gw_call_end(&c, e);
}

/* ---- its end ---- */

static gw_err batch_check_end(const gradwire *g) {
    if (!g->batch.begun || g->batch.ready < g->arena.n_tensors)
        return gw_fail(GW_ERR_USAGE,
                       "gradwire_end: %d of %d tensors are ready: call gradwire_ready for all of "
                       "them first",
                       g->batch.begun ? g->batch.ready : 0, g->arena.n_tensors);
    bool within = !g->words.run.lazy || g->batch.finished > 0;
    if (g->batch.pending && within && !g->inside)
        return gw_call_refuse("end", "the exchange is not over: finish, updated and await come "
                                     "before (or, with --update lazy, in the next batch)");
    return GW_OK;
}

static gw_err batch_end(gradwire *g, gw_call *c, double loss) {
    if (g->words.run.lazy)
        GW_TRY(batch_agree(g, c));
    batch_phase(g, -1);
    gw_err e = g->records ? gw_files_end(g, loss) : GW_OK;
    c->together = e != GW_OK;
    if (e == GW_OK)
        g->state = GW_HANDLE_BETWEEN;
    if (e == GW_OK && g->records)
        gw_watchdog_step(g->batch.step, g->batch.epoch);
    return e;
}

int gradwire_end(gradwire *g, double loss) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "end", GW_IN_BATCH, false);
    GW_THEN(e, batch_check_end(g));
    GW_THEN(e, batch_end(g, &c, loss));
    return gw_call_end(&c, e);
}

/* Zeros for the gradients that are not there yet: other ranks may be waiting for them. */
static gw_err batch_give_up(gradwire *g) {
    gw_err e = GW_OK;
    g->batch.samples = 0;
    if (!g->batch.begun)
        GW_TRY(gw_batch_exchange(g));
    g->guard.given_up = true;
    for (int t = g->arena.n_tensors - 1; t >= 0 && e == GW_OK; t--)
        if (!g->arena.tensor[t].ready)
            e = batch_take(g, t, NULL);
    GW_THEN(e, batch_pass_on(g));
    return e;
}

static gw_err batch_cancel(gradwire *g, gw_call *c) {
    int owns;
    if (g->words.run.on_nan == GW_ON_NAN_KEEP)
        return gw_call_refuse("cancel", "--on-nan keep keeps nothing to go back to: skip or stop");
    if (g->batch.pending && !g->batch.begun)
        return gw_call_refuse("cancel", "the last batch's exchange is not over: finish, update and "
                                        "await every group first");
    if (!g->batch.begun || g->batch.finished == 0)
        GW_TRY(batch_give_up(g));
    while (g->batch.finished < g->arena.groups && !g->words.run.lazy)
        GW_TRY(batch_finish(g, c, &owns));
    while (g->batch.updated < g->batch.finished)
        GW_TRY(batch_updated(g));
    while (g->batch.awaited < g->batch.updated)
        GW_TRY(batch_await(g));
    return batch_end(g, c, NAN);
}

int gradwire_cancel(gradwire *g) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "cancel", GW_IN_BATCH, false);
    GW_THEN(e, batch_cancel(g, &c));
    return gw_call_end(&c, e);
}

static gw_err batch_settle(gradwire *g, const char *name) {
    if (g->batch.pending)
        return gw_call_refuse(name, "an exchange is pending: finish, update and await every group "
                                    "first");
    return gw_files_settle(g);
}

int gradwire_settle(gradwire *g) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "settle", GW_IN_BETWEEN, false);
    GW_THEN(e, batch_settle(g, "settle"));
    return gw_call_end(&c, e);
}

int gradwire_validated(gradwire *g, double loss, double accuracy) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "validated", GW_IN_BETWEEN, false);
    if (e == GW_OK) {
        g->batch.validation_loss = loss;
        g->batch.validation_accuracy = accuracy;
    }
    return gw_call_end(&c, e);
}

int gradwire_epoch(gradwire *g, double test_loss, double test_accuracy) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "epoch", GW_IN_BETWEEN, false);
    if (e == GW_OK && g->words.parts)
        e = gw_call_refuse("epoch", "with --parameters parts there are no replicas to compare");
    GW_THEN(e, batch_settle(g, "epoch"));
    if (e == GW_OK) {
        c.together = true;
        e = gw_files_epoch(g, test_loss, test_accuracy);
    }
    return gw_call_end(&c, e);
}
