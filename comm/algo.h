/** The algorithm seam: HOW a span is reduced over the ranks, laid down as a schedule.
 *
 *  To add one: ONE new file comm/algo/NAME.c that defines `const gw_algo_ops gw_algo_NAME` and ONE
 *  line X(NAME) in algos.def. Out of tree: a shared object that exports `gw_algo_plugin`. */
#ifndef GW_COMM_ALGO_H
#define GW_COMM_ALGO_H

#include "comm/schedule/schedule.h"

#define GW_ALGO_ABI 9

/** The collectives over base[span] that strategies ask for. part(r) = gw_span_part(span, r, P). */
typedef enum gw_verb {
    GW_ALLREDUCE,      /* the sum of all ranks, the same bits everywhere */
    GW_REDUCE,         /* the sum, at the root only; elsewhere base[span] is undefined */
    GW_BCAST,          /* the root's values to all ranks */
    GW_REDUCE_SCATTER, /* the sum of part(rank); the other parts are undefined */
    GW_ALLGATHER       /* part(r) of rank r to all ranks */
} gw_verb;

#define GW_VERB(what) (1u << (what))

/** What a collective sends, all ranks together, as the ledger counts it: bytes passed to MPI,
 *  headers included, and point-to-point messages (an MPI collective counts as none). */
typedef struct gw_cost {
    uint64_t bytes, messages;
} gw_cost;

static inline gw_cost gw_cost_sum(gw_cost a, gw_cost b) {
    return (gw_cost){a.bytes + b.bytes, a.messages + b.messages};
}

enum {
    GW_ALGO_ORDERED = 1, /* starts MPI collectives: all ranks must start schedules in one order */
    GW_ALGO_ONCE = 4,    /* an allreduce encodes each rank's own values, once, and nothing else */
    GW_ALGO_LENT = 8,    /* for exact lanes, also works on memory that callers lent (comm/lent.h) */
    GW_ALGO_SHARED = 2,  /* works on memory that the ranks of a node share: the session's arenas */
    /* All ranks do the same, in step, and their peers lie as rank 0's do: at the same distances, or
     * by the same exclusive or. */
    GW_ALGO_ALIKE = 16,
    GW_ALGO_ALIKE_UNCUT = 32 /* the same if option `chunk` leaves a span whole */
};

typedef struct gw_algo_ops {
    gw_entry head;
    unsigned caps;
    /** GW_VERB()s that it lays down besides the allreduce, which all do. The kit (direct messages)
     *  lays down the rest, and every broadcast on lanes that are not exact. */
    unsigned verbs;
    /** Bytes and messages of an allreduce over all ranks, for `gradwire list`, in n, P and b =
     *  bytes of the encoded span. */
    const char *formula;
    /** Return why it cannot carry this codec (completes "algorithm A cannot carry codec C: "), or
     *  NULL if it can. NULL function: carries every codec. */
    const char *(*refuses)(const gw_args *args, const gw_codec *codec);
    /** Check its options, whatever the codec, such as the contents of a file that they name.
     *  GW_ERR_INPUT; GW_ERR_UNSUPPORTED: an option is missing. NULL function: all good. Local. */
    gw_err (*check)(const gw_args *args);
    /** Lay down an allreduce or another of `verbs`, over two ranks or more and a span that is not
     *  empty; `root` is 0 if the verb needs none. Refuse here, alike on all ranks, what only shows
     *  now, such as ranks on several nodes: GW_ERR_UNSUPPORTED. Collective: may make communicators
     *  and memory, kept with gw_lane_attach. */
    gw_err (*lay_down)(const gw_args *args, gw_schedule *s, gw_verb what, int root);
    /** Return its cost over n floats on `lane`, for codecs of fixed size; the ledger must count the
     *  same. */
    gw_cost (*cost)(const gw_args *args, gw_lane *lane, gw_verb what, size_t n);
} gw_algo_ops;

/** An algorithm bound to its options. */
typedef struct gw_algo {
    const gw_algo_ops *ops;
    gw_args *args;
    const char *stands_for; /* the algorithm that it replaces (gw_algo_replace); else NULL */
} gw_algo;

extern const gw_registry gw_algos;

/** Open `spec` for `codec`. NULL: `native` if MPI can add the codec's encodings, `gathersum` if it
 *  is sparse, else `sra`. GW_ERR_UNSUPPORTED: it cannot carry the codec, with the reason. Else the
 *  errors of its `check`. */
gw_err gw_algo_open(gw_algo *out, const gw_spec *spec, const gw_codec *codec);

/** Return whether it sends messages of its own, which a simulation plays. The others call MPI's
 *  collectives or work in memory that ranks share. */
bool gw_algo_sends_messages(const gw_algo_ops *ops);

/** Close `a` and open `halving:chunk=0` instead, which stands for it: by halving in one piece MPICH
 *  reduces long spans (R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 2005). Errors of
 *  gw_algo_open. */
gw_err gw_algo_replace(gw_algo *a, const gw_codec *codec);

/** From now on (`on`) the process opens only algorithms that send messages of their own, as
 *  simulated ranks need them; the others are replaced. */
void gw_algo_messages_only(bool on);
/** Return the names of those that were replaced and used since then: "native, shm"; "": none. */
const char *gw_algo_replaced(void);
void gw_algo_close(gw_algo *a);

/** Lay down a collective, the algorithm's own or the kit's; `root` if the verb needs it. */
gw_err gw_algo_lay_down(const gw_algo *a, gw_schedule *s, gw_verb what, int root);

/** Return its cost; nothing on one rank or for an empty span. */
gw_cost gw_algo_cost(const gw_algo *a, gw_lane *lane, gw_verb what, size_t n);

/** Return the cost of `messages` messages, each an encoding of n floats; nothing if n is 0. */
gw_cost gw_cost_messages(const gw_lane *lane, uint64_t messages, size_t n);

/** The kit: direct messages, one hop, for algorithms composed of parts. */
gw_err gw_kit_reduce(gw_schedule *s, int root);
gw_err gw_kit_reduce_scatter(gw_schedule *s);
gw_err gw_kit_allgather(gw_schedule *s);
gw_cost gw_kit_scatter_cost(const gw_lane *lane, size_t n); /* of either of these */

/** gw_algo_ops.cost if P-1 messages of a whole span reduce it, and as many broadcast it. */
gw_cost gw_kit_rooted_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n);

/** Return the largest power of two that is not above `ranks`. */
int gw_kit_core(int ranks);

/** Return how many chunks option `chunk` (most bytes of floats; 0: one chunk) makes of n floats. */
int gw_kit_chunks(const gw_args *args, size_t n);

#endif
