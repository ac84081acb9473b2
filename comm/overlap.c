#include "comm/overlap.h"

#include "comm/buckets.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Each bucket in flight has a tag of its own, and each poll looks at all of them. */
enum { MOST_BUCKETS = 4096 };

static gw_progress overlap_mode(const gw_args *args) {
    const char *mode = gw_args_text(args, "progress");
    if (strcmp(mode, "thread") == 0)
        return GW_PROGRESS_THREAD;
    return strcmp(mode, "poll") == 0 ? GW_PROGRESS_POLL : GW_PROGRESS_NONE;
}

const char *gw_overlap_plan(gw_strategy_plan *p) {
    gw_progress mode = overlap_mode(p->args);
    p->polls = mode == GW_PROGRESS_POLL;
    p->helpers = mode == GW_PROGRESS_THREAD ? (int)gw_args_int(p->args, "team") : 0;
    return NULL;
}

/* ---- one collective ---- */

static gw_err overlap_cut(gw_overlap *o, const gw_env *env, gw_overlap_parts parts) {
    gw_buckets b = {0};
    if (parts == GW_OVERLAP_BUCKETS)
        b = gw_buckets_cut(env->n, gw_args_bytes(env->args, "bucket"));
    if (parts == GW_OVERLAP_BUCKETS && env->n / b.each >= MOST_BUCKETS)
        return gw_fail(GW_ERR_USAGE,
                       "%s: bucket=%zu cuts %zu parameters into more than %d buckets: use larger "
                       "ones",
                       env->name, gw_args_bytes(env->args, "bucket"), env->n, MOST_BUCKETS);
    o->count = parts == GW_OVERLAP_BUCKETS  ? b.count
               : parts == GW_OVERLAP_LAYERS ? env->n_layers
                                            : gw_env_spans(env);
    GW_TRY(gw_alloc(&o->parts, (size_t)o->count, sizeof *o->parts));
    GW_TRY(gw_alloc(&o->filled, (size_t)o->count, sizeof *o->filled));
    GW_TRY(gw_alloc(&o->schedules, (size_t)o->count, sizeof *o->schedules));
    for (int i = 0; i < o->count; i++) {
        o->parts[i] = parts == GW_OVERLAP_BUCKETS  ? gw_buckets_span(&b, i)
                      : parts == GW_OVERLAP_LAYERS ? env->layers[i]
                                                   : gw_env_span(env, i);
        GW_TRY(gw_collective_get(&o->collective, o->parts[i], &o->schedules[i]));
    }
    return GW_OK;
}

gw_err gw_overlap_fill(gw_overlap *o, gw_queue *queue, gw_span s) {
    for (int i = 0; i < o->count; i++) {
        size_t more = gw_span_common(o->parts[i], s).n;
        o->filled[i] += more;
        if (more == 0 || o->filled[i] < o->parts[i].n)
            continue;
        o->filled[i] = 0; /* what comes next belongs to the next step */
        GW_TRY(gw_queue_start(queue, o->schedules[i]));
    }
    return GW_OK;
}

/* `tell`: whom of each part; NULL: nobody. */
static gw_err overlap_wait(gw_overlap *o, gw_queue *queue, gw_span s, const gw_env *tell) {
    for (int i = 0; i < o->count; i++) /* all of them, so that they travel side by side */
        if (gw_span_overlap(o->parts[i], s))
            GW_TRY(gw_queue_urge(queue, o->schedules[i]));
    for (int i = 0; i < o->count; i++) {
        if (!gw_span_overlap(o->parts[i], s))
            continue;
        GW_TRY(gw_queue_wait(queue, o->schedules[i]));
        if (tell)
            tell->arrived(tell->arrived_ctx, gw_span_common(o->parts[i], s));
    }
    return GW_OK;
}

gw_err gw_overlap_wait(gw_overlap *o, gw_queue *queue, gw_span s) {
    return overlap_wait(o, queue, s, NULL);
}

static void overlap_clear(gw_overlap *o) {
    gw_collective_clear(&o->collective);
    free(o->parts);
    free(o->filled);
    free(o->schedules);
}

/* ---- a strategy's hooks ---- */

gw_err gw_overlapped_open(gw_overlapped *me, const gw_env *env, gw_overlap_parts parts,
                          bool gathers) {
    gw_collective *collective = &me->grads.collective;
    bool late = collective->base; /* begins when the step is over, and the next one hides it */
    me->env = env;
    collective->algo = env->algo;
    collective->verb = gathers ? GW_REDUCE_SCATTER : GW_ALLREDUCE;
    collective->lane = env->grads;
    collective->base = late ? collective->base : env->grad;
    GW_TRY(overlap_cut(&me->grads, env, parts));
    if (me->grads.count == 1 && !env->by_layer && !late && gw_lane_size(env->grads) > 1) {
        char line[160];
        snprintf(line, sizeof line,
                 "%s: nothing is overlapped: all gradients travel in one piece, which --update "
                 "eager waits for at once",
                 env->name);
        gw_lane_note(env->grads, line);
    }
    if (gathers && !env->parts) {
        me->params.collective = (gw_collective){
            .algo = env->algo, .verb = GW_ALLGATHER, .lane = env->params, .base = env->param};
        GW_TRY(overlap_cut(&me->params, env, parts));
    }
    gw_progress mode = overlap_mode(env->args);
    int capacity = me->grads.count + me->params.count;
    GW_TRY(gw_queue_open(&me->queue, mode, capacity, gw_lane_yields(env->grads)));
    if (!gw_args_has(env->args, "team"))
        return GW_OK;
    if (mode != GW_PROGRESS_THREAD && gw_args_int(env->args, "team") != 1)
        return gw_fail(GW_ERR_USAGE,
                       "team=%s is for the progress thread, and there is none: use "
                       "progress=thread or leave team out",
                       gw_args_text(env->args, "team"));
    gw_queue_team(me->queue, (int)gw_args_int(env->args, "team"));
    return GW_OK;
}

void gw_overlapped_close(void *self) {
    gw_overlapped *me = self;
    gw_queue_close(me->queue); /* first: it waits for what is in flight */
    overlap_clear(&me->grads);
    overlap_clear(&me->params);
}

gw_err gw_overlapped_ready(void *self, gw_span s) {
    gw_overlapped *me = self;
    return gw_overlap_fill(&me->grads, me->queue, s);
}

gw_err gw_overlapped_progress(void *self) {
    gw_overlapped *me = self;
    return gw_queue_poll(me->queue);
}

gw_err gw_overlapped_finish(void *self, gw_span s, gw_update *u) {
    gw_overlapped *me = self;
    const gw_collective *c = &me->grads.collective;
    bool tells = me->env->arrived && c->verb == GW_ALLREDUCE && c->base == me->env->grad;
    u->grad = c->base;
    return overlap_wait(&me->grads, me->queue, s, tells ? me->env : NULL);
}

static gw_cost overlap_cost(const gw_overlap *o) {
    gw_cost sum = {0};
    for (int i = 0; i < o->count; i++)
        sum = gw_cost_sum(sum, gw_collective_cost(&o->collective, o->parts[i]));
    return sum;
}

gw_cost gw_overlapped_cost(const void *self, int64_t exchange, int64_t *period) {
    const gw_overlapped *me = self;
    (void)exchange, (void)period; /* every step sends the same */
    return gw_cost_sum(overlap_cost(&me->grads), overlap_cost(&me->params));
}
