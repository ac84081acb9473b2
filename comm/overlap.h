/** Overlap, the common part of strategies that hide communication: a collective over an arena, cut
 *  into parts (buckets, layers or one whole). Each part starts on a queue as soon as all of it is
 *  final, and is waited for where it is needed. All calls come from one thread. */
#ifndef GW_COMM_OVERLAP_H
#define GW_COMM_OVERLAP_H

#include "comm/schedule/collective.h"
#include "comm/schedule/queue.h"
#include "comm/strategy.h"

typedef struct gw_overlap {
    gw_collective collective;
    int count;
    gw_span *parts;
    size_t *filled; /* floats of each part that are final */
    gw_schedule **schedules;
} gw_overlap;

/** The state of such a strategy: all of its `self`, or the first member. */
typedef struct gw_overlapped {
    const gw_env *env;
    gw_queue *queue;
    gw_overlap grads;  /* of env->grad by default: filled by ready(), waited for by finish() */
    gw_overlap params; /* of env->param, if it `gathers` */
} gw_overlapped;

typedef enum gw_overlap_parts {
    GW_OVERLAP_BUCKETS, /* in backward order, of the size of option `bucket` */
    GW_OVERLAP_LAYERS,
    GW_OVERLAP_SPANS /* those of finish and publish */
} gw_overlap_parts;

/** Lay the parts down and open the queue. What is set in `grads.collective` before stays; the
 *  default is an allreduce of env->grad. `gathers`: instead a reduce-scatter and, unless
 *  env->parts, an allgather of env->param. GW_ERR_USAGE: too many buckets, or options that do not
 *  go together. Collective. */
gw_err gw_overlapped_open(gw_overlapped *me, const gw_env *env, gw_overlap_parts parts,
                          bool gathers);
/** Hooks of gw_strategy_ops, for a `self` that begins with a gw_overlapped. finish() hands out the
 *  collective's arena. */
void gw_overlapped_close(void *self);
gw_err gw_overlapped_ready(void *self, gw_span s);
gw_err gw_overlapped_progress(void *self);
gw_err gw_overlapped_finish(void *self, gw_span s, gw_update *u);
gw_cost gw_overlapped_cost(const void *self, int64_t exchange, int64_t *period);

/** base[s] is final: start the parts that this completes. Does not block. */
gw_err gw_overlap_fill(gw_overlap *o, gw_queue *queue, gw_span s);

/** Block until all parts that overlap `s` and were started are complete. */
gw_err gw_overlap_wait(gw_overlap *o, gw_queue *queue, gw_span s);

/** The options `bucket`, `progress` and `team` of a strategy, and its `plan` with them; it refuses
 *  nothing. */
#define GW_OVERLAP_BUCKET                                                                          \
    {                                                                                              \
        "bucket", GW_OPT_BYTES, "1M", 4, 0x1p40, NULL, "BYTES",                                    \
            "bytes of gradients per bucket; a full bucket is sent"                                 \
    }
#define GW_OVERLAP_PROGRESS                                                                        \
    {                                                                                              \
        "progress",                                                                                \
        GW_OPT_CHOICE,                                                                             \
        "poll",                                                                                    \
        0,                                                                                         \
        0,                                                                                         \
        "poll|thread|none",                                                                        \
        NULL,                                                                                      \
        "who drives messages: polls between kernels, a thread, or nobody until the wait"},         \
    {                                                                                              \
        "team", GW_OPT_INT, "1", 1, 1024, NULL, "N",                                               \
            "progress=thread: threads that encode and decode, in addition to --threads"            \
    }
const char *gw_overlap_plan(gw_strategy_plan *p);

#endif
