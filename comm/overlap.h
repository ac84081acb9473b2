/** Overlap: a collective over an arena, cut into parts (buckets, layers or one whole), each started
 *  on a queue as soon as all of it is final, and waited for where it is needed. What strategies
 * that hide communication have in common; all of it is the calling thread's. */
#ifndef GW_COMM_OVERLAP_H
#define GW_COMM_OVERLAP_H

#include "comm/plan.h"
#include "comm/queue.h"
#include "comm/strategy.h"

typedef struct gw_overlap {
    gw_plan plan;    /* the caller sets algorithm, verb, lane, base and root */
    gw_queue *queue; /* the caller's; may serve several overlaps; must outlive this one's use */
    int count;
    gw_span *parts;
    size_t *filled; /* floats of each part that are final */
    gw_schedule **schedules;
} gw_overlap;

/** Collective: cut `n` floats into buckets of `bytes` in backward order and lay all down.
 *  GW_ERR_USAGE: too many buckets; `owner` is who the message names. */
gw_err gw_overlap_buckets(gw_overlap *o, const char *owner, size_t n, size_t bytes);
/** The same, a part each layer; or a part each span that finish and publish come with. */
gw_err gw_overlap_layers(gw_overlap *o, const gw_env *env);
gw_err gw_overlap_finish(gw_overlap *o, const gw_env *env);

/** base[s] is final: start the parts that are full by that. Does not block. */
gw_err gw_overlap_fill(gw_overlap *o, gw_span s);

/** Block until all parts that overlap `s` and were started are complete. */
gw_err gw_overlap_wait(gw_overlap *o, gw_span s);

/** By formula: what one exchange of all parts sends, all ranks together. */
gw_cost gw_overlap_cost(const gw_overlap *o);

/** Free; the queue has been closed, so nothing is in flight. */
void gw_overlap_clear(gw_overlap *o);

/** Collective: the queue that the options of GW_OVERLAP_PROGRESS ask for. GW_ERR_USAGE: they do not
 *  go together. */
gw_err gw_overlap_queue(gw_queue **out, const gw_env *env, int capacity);

/** The option `bucket` of a strategy; `progress` and `team`, and what these say: of the queue's
 *  mode, whether polls move it on, the MPI thread level and the threads (for gw_strategy_ops.polls,
 *  thread_level and helpers). */
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
gw_progress gw_overlap_mode(const gw_args *args);
bool gw_overlap_polls(const gw_args *args);
int gw_overlap_thread_level(const gw_args *args);
int gw_overlap_helpers(const gw_args *args);

#endif
