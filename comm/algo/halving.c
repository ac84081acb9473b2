/* halving: recursive halving and recursive doubling. R. Rabenseifner, "Optimization of collective
 * reduction operations", ICCS 2004; R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
 * collective communication operations in MPICH", IJHPCA 2005.
 *
 *  1. Fold. Of P ranks the first Q, the largest power of two, form the core. Each of the P-Q others
 *     sends its whole part to a partner in the core, which adds it.
 *  2. Reduce-scatter by halving, log2 Q rounds. Partners at distance Q/2, Q/4, .., 1 share a range
 *     of blocks: each sends the half that the other keeps and adds what arrives to its own. In the
 *     end core rank r owns block r of Q. No rank encodes an element twice; an element is encoded
 *     log2 P times on its way, not P-1 times as in a ring.
 *  3. Allgather by doubling, log2 Q rounds. The owner encodes its block once and adopts what that
 *     decodes to; partners at distance 1, 2, .., Q/2 exchange all they have. On an exact lane that
 *     is one message, else one for each block's encoding, passed on verbatim.
 *  4. Unfold. Partners send the result to the ranks outside the core, in the same form.
 *
 * 2(Q-1) b + 2(P-Q) b bytes, all ranks together; messages on an exact lane 2 Q log2 Q + 2(P-Q),
 * with a codec Q log2 Q + Q(Q-1) + (P-Q)(Q+1). All of this per chunk: `chunk` cuts the span into
 * chunks that pass these phases side by side, `window` at a time. */
#include "comm/algo.h"

#include "base/mem.h"

#include <stdlib.h>

typedef struct fold {
    gw_schedule *s;
    gw_span span;
    bool exact;
    int me, ranks, core;
    int *slots; /* of each block's final encoding */
} fold;

static gw_span halving_blocks(const fold *f, int first, int count) {
    gw_span a = gw_span_part(f->span, first, f->core);
    gw_span b = gw_span_part(f->span, first + count - 1, f->core);
    return (gw_span){a.off, gw_span_end(b) - a.off};
}

static gw_err halving_fold(const fold *f) {
    int slot;
    if (f->me >= f->core) {
        GW_TRY(gw_schedule_pack(f->s, f->span, false, &slot));
        GW_TRY(gw_schedule_send(f->s, slot, f->me - f->core));
        return gw_schedule_round(f->s);
    }
    if (f->me + f->core >= f->ranks)
        return GW_OK;
    GW_TRY(gw_schedule_recv(f->s, f->span, f->me + f->core, false, &slot));
    GW_TRY(gw_schedule_round(f->s));
    return gw_schedule_unpack(f->s, slot, f->span, true);
}

static gw_err halving_reduce_scatter(const fold *f) {
    for (int low = 0, half = f->core / 2; half > 0; half /= 2) {
        bool upper = f->me & half;
        gw_span give = halving_blocks(f, upper ? low : low + half, half);
        low = upper ? low + half : low;
        gw_span keep = halving_blocks(f, low, half);
        int in, out, peer = f->me ^ half;
        GW_TRY(gw_schedule_recv(f->s, keep, peer, false, &in));
        GW_TRY(gw_schedule_pack(f->s, give, false, &out));
        GW_TRY(gw_schedule_send(f->s, out, peer));
        GW_TRY(gw_schedule_round(f->s));
        GW_TRY(gw_schedule_unpack(f->s, in, keep, true));
    }
    return GW_OK;
}

/* Blocks [first, first + count): on an exact lane one message, else one a block. */
static gw_err halving_send(const fold *f, int first, int count, int peer) {
    int step = f->exact ? count : 1;
    for (int i = first; i < first + count; i += step) {
        if (f->exact) /* the arena itself */
            GW_TRY(gw_schedule_pack(f->s, halving_blocks(f, i, step), true, &f->slots[i]));
        GW_TRY(gw_schedule_send(f->s, f->slots[i], peer));
    }
    return GW_OK;
}

static gw_err halving_recv(const fold *f, int first, int count, int peer) {
    int step = f->exact ? count : 1;
    for (int i = first; i < first + count; i += step)
        GW_TRY(gw_schedule_recv(f->s, halving_blocks(f, i, step), peer, true, &f->slots[i]));
    return GW_OK;
}

static gw_err halving_unpack(const fold *f, int first, int count) {
    int step = f->exact ? count : 1;
    for (int i = first; i < first + count; i += step)
        GW_TRY(gw_schedule_unpack(f->s, f->slots[i], halving_blocks(f, i, step), false));
    return GW_OK;
}

static gw_err halving_gather(const fold *f) {
    GW_TRY(gw_schedule_pack(f->s, halving_blocks(f, f->me, 1), true, &f->slots[f->me]));
    for (int have = 1; have < f->core; have *= 2) {
        int peer = f->me ^ have, mine = f->me & ~(have - 1), theirs = peer & ~(have - 1);
        GW_TRY(halving_recv(f, theirs, have, peer));
        GW_TRY(halving_send(f, mine, have, peer));
        GW_TRY(gw_schedule_round(f->s));
        GW_TRY(halving_unpack(f, theirs, have));
    }
    if (f->me + f->core < f->ranks)
        GW_TRY(halving_send(f, 0, f->core, f->me + f->core));
    return GW_OK;
}

static gw_err halving_chunk(const fold *f) {
    GW_TRY(halving_fold(f));
    if (f->me < f->core) {
        GW_TRY(halving_reduce_scatter(f));
        return halving_gather(f);
    }
    GW_TRY(halving_recv(f, 0, f->core, f->me - f->core));
    GW_TRY(gw_schedule_round(f->s));
    return halving_unpack(f, 0, f->core);
}

static gw_err halving_chunks(const gw_args *args, fold *f) {
    gw_span whole = f->span;
    int chunks = gw_kit_chunks(args, whole.n);
    gw_schedule_window(f->s, (int)gw_args_int(args, "window"));
    for (int c = 0; c < chunks; c++) {
        f->span = gw_span_part(whole, c, chunks);
        if (c > 0)
            GW_TRY(gw_schedule_strand(f->s));
        GW_TRY(halving_chunk(f));
    }
    return GW_OK;
}

static gw_err halving_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)what, (void)root;
    const gw_lane *lane = gw_schedule_lane(s);
    fold f = {.s = s,
              .span = gw_schedule_span(s),
              .exact = gw_lane_exact(lane),
              .me = gw_lane_rank(lane),
              .ranks = gw_lane_size(lane),
              .core = gw_kit_core(gw_lane_size(lane))};
    GW_TRY(gw_alloc(&f.slots, (size_t)f.core, sizeof *f.slots));
    gw_err e = halving_chunks(args, &f);
    free(f.slots);
    return e;
}

static void halving_add_message(gw_cost *sum, const gw_lane *lane, gw_span part) {
    *sum = gw_cost_sum(*sum, gw_cost_messages(lane, 1, part.n));
}

static void halving_add_blocks(gw_cost *sum, const gw_lane *lane, const fold *f, int first,
                               int count) {
    int step = f->exact ? count : 1;
    for (int i = first; i < first + count; i += step)
        halving_add_message(sum, lane, halving_blocks(f, i, step));
}

static gw_cost halving_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)what;
    gw_cost sum = {0};
    fold f = {.exact = gw_lane_exact(lane), .core = gw_kit_core(gw_lane_size(lane))};
    int chunks = gw_kit_chunks(args, n);
    for (int c = 0; c < chunks; c++) {
        f.span = gw_span_part((gw_span){0, n}, c, chunks);
        for (int r = f.core; r < gw_lane_size(lane); r++) {
            halving_add_message(&sum, lane, f.span);
            halving_add_blocks(&sum, lane, &f, 0, f.core);
        }
        for (int r = 0; r < f.core; r++)
            for (int half = 1; half < f.core; half *= 2) {
                int mine = r & ~(half - 1);
                halving_add_message(
                    &sum, lane, halving_blocks(&f, mine ^ half, half)); /* what the peer keeps */
                halving_add_blocks(&sum, lane, &f, mine, half);
            }
    }
    return sum;
}

static const gw_opt halving_opts[] = {
    {"chunk", GW_OPT_BYTES, "512K", 0, 1 << 30, NULL, NULL,
     "bytes of floats per chunk (0: one chunk)"},
    {"window", GW_OPT_INT, "4", 0, 1024, NULL, NULL, "chunks in flight at a time (0: all)"},
    {0},
};

const gw_algo_ops gw_algo_halving = {
    .head = {GW_ALGO_ABI, "halving", "recursive halving and doubling: log2 P rounds each",
             halving_opts},
    .formula = "2(P-1) b bytes, 2P log2 P messages per chunk (exact, P = 2^k)",
    .lay_down = halving_lay_down,
    .cost = halving_cost,
};
