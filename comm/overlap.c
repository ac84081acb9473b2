#include "comm/overlap.h"

#include "comm/buckets.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Each bucket in flight has a tag of its own, and each poll looks at all of them. */
enum { MOST_BUCKETS = 4096 };

static gw_err make_room(gw_overlap *o, int count) {
    GW_TRY(gw_alloc(&o->parts, (size_t)count, sizeof *o->parts));
    GW_TRY(gw_alloc(&o->filled, (size_t)count, sizeof *o->filled));
    GW_TRY(gw_alloc(&o->schedules, (size_t)count, sizeof *o->schedules));
    o->count = count;
    return GW_OK;
}

static gw_err lay_down(gw_overlap *o) {
    for (int i = 0; i < o->count; i++)
        GW_TRY(gw_plan_get(&o->plan, o->parts[i], &o->schedules[i]));
    return GW_OK;
}

gw_err gw_overlap_buckets(gw_overlap *o, const char *owner, size_t n, size_t bytes) {
    gw_buckets cut = gw_buckets_cut(n, bytes);
    if (n / cut.each >= MOST_BUCKETS)
        return gw_fail(GW_ERR_USAGE,
                       "%s: bucket=%zu cuts %zu parameters into more than %d buckets: use larger "
                       "ones",
                       owner, bytes, n, MOST_BUCKETS);
    GW_TRY(make_room(o, cut.count));
    for (int i = 0; i < cut.count; i++)
        o->parts[i] = gw_buckets_span(&cut, i);
    return lay_down(o);
}

gw_err gw_overlap_layers(gw_overlap *o, const gw_env *env) {
    GW_TRY(make_room(o, env->n_layers));
    for (int i = 0; i < o->count; i++)
        o->parts[i] = env->layers[i];
    return lay_down(o);
}

gw_err gw_overlap_finish(gw_overlap *o, const gw_env *env) {
    GW_TRY(make_room(o, gw_env_spans(env)));
    for (int i = 0; i < o->count; i++)
        o->parts[i] = gw_env_span(env, i);
    return lay_down(o);
}

gw_err gw_overlap_fill(gw_overlap *o, gw_span s) {
    for (int i = 0; i < o->count; i++) {
        size_t more = gw_span_common(o->parts[i], s).n;
        o->filled[i] += more;
        if (more == 0 || o->filled[i] < o->parts[i].n)
            continue;
        o->filled[i] = 0; /* what comes next belongs to the next step */
        GW_TRY(gw_queue_start(o->queue, o->schedules[i]));
    }
    return GW_OK;
}

gw_err gw_overlap_wait(gw_overlap *o, gw_span s) {
    for (int i = 0; i < o->count; i++) /* all of them, so that they travel side by side */
        if (gw_span_overlap(o->parts[i], s))
            GW_TRY(gw_queue_urge(o->queue, o->schedules[i]));
    for (int i = 0; i < o->count; i++)
        if (gw_span_overlap(o->parts[i], s))
            GW_TRY(gw_queue_wait(o->queue, o->schedules[i]));
    return GW_OK;
}

gw_cost gw_overlap_cost(const gw_overlap *o) {
    gw_cost sum = {0};
    for (int i = 0; i < o->count; i++)
        sum = gw_cost_sum(sum, gw_plan_cost(&o->plan, o->parts[i]));
    return sum;
}

void gw_overlap_clear(gw_overlap *o) {
    gw_plan_clear(&o->plan);
    free(o->parts);
    free(o->filled);
    free(o->schedules);
    memset(o, 0, sizeof *o);
}

gw_progress gw_overlap_mode(const gw_args *args) {
    const char *mode = gw_args_text(args, "progress");
    if (strcmp(mode, "thread") == 0)
        return GW_PROGRESS_THREAD;
    return strcmp(mode, "poll") == 0 ? GW_PROGRESS_POLL : GW_PROGRESS_NONE;
}

bool gw_overlap_polls(const gw_args *args) {
    return gw_overlap_mode(args) == GW_PROGRESS_POLL;
}

int gw_overlap_helpers(const gw_args *args) {
    return gw_overlap_mode(args) == GW_PROGRESS_THREAD ? (int)gw_args_int(args, "team") : 0;
}

gw_err gw_overlap_queue(gw_queue **out, const gw_env *env, int capacity) {
    gw_progress mode = gw_overlap_mode(env->args);
    if (mode != GW_PROGRESS_THREAD && gw_args_int(env->args, "team") != 1)
        return gw_fail(GW_ERR_USAGE,
                       "team=%s is for the progress thread, and there is none: use "
                       "progress=thread or leave team out",
                       gw_args_text(env->args, "team"));
    GW_TRY(gw_queue_open(out, mode, capacity, env->grads->yield));
    gw_queue_team(*out, (int)gw_args_int(env->args, "team"));
    return GW_OK;
}

int gw_overlap_thread_level(const gw_args *args) {
    return gw_overlap_mode(args) == GW_PROGRESS_THREAD ? MPI_THREAD_SERIALIZED
                                                       : MPI_THREAD_FUNNELED;
}
