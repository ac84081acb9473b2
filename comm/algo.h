/** The algorithm seam: HOW a span is reduced over the ranks, laid down as a schedule.
 *
 *  To add one: ONE new file comm/algo/NAME.c that defines `const gw_algo_ops gw_algo_NAME` and ONE
 *  line X(NAME) in algos.def. Out of tree: a shared object that exports `gw_algo_plugin`. */
#ifndef GW_COMM_ALGO_H
#define GW_COMM_ALGO_H

#include "comm/schedule.h"

#define GW_ALGO_ABI 1

typedef struct gw_algo_ops {
    gw_entry head;
    /** Why this codec cannot be carried ("..."; completes "algorithm A cannot carry codec C: "),
     *  or NULL when it can. NULL function: carries every codec. */
    const char *(*refuses)(const gw_codec_ops *codec);
    /** Lay down: afterwards base[span] holds the sum over the ranks, the same bits on all ranks. */
    gw_err (*allreduce)(const gw_args *args, gw_schedule *s);
    /** Optional, else the kit's: the sum at `root` only; elsewhere base[span] is undefined. */
    gw_err (*reduce)(const gw_args *args, gw_schedule *s, int root);
    /** Optional, else the kit's: base[span] of `root` to all ranks; called for exact lanes only. */
    gw_err (*bcast)(const gw_args *args, gw_schedule *s, int root);
    /** Bytes that all ranks together send in an allreduce of n floats over `ranks` ranks, headers
     *  included, for codecs of fixed size; the ledger's count must equal it. */
    uint64_t (*wire_bytes)(const gw_args *args, const gw_codec *codec, size_t n, int ranks);
} gw_algo_ops;

/** An algorithm bound to its options. */
typedef struct gw_algo {
    const gw_algo_ops *ops;
    gw_args *args;
} gw_algo;

extern const gw_registry gw_algos;

/** Open `spec` for `codec`; NULL or "": `native` where it carries the codec, else `sra`.
 *  GW_ERR_UNSUPPORTED: it cannot carry the codec, with the reason. */
gw_err gw_algo_open(gw_algo *out, const char *spec, const gw_codec *codec);
void gw_algo_close(gw_algo *a);

/** Lay down a reduction to, or a broadcast from, `root`: the algorithm's own or the kit's. */
gw_err gw_algo_reduce(const gw_algo *a, gw_schedule *s, int root);
gw_err gw_algo_bcast(const gw_algo *a, gw_schedule *s, int root);

#endif
