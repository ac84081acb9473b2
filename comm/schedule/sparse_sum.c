#include "comm/schedule/sparse_sum.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Floats of a piece that are added up side by side: they stay in the first-level cache. */
enum { PIECE = 4096, WORD = 64, WORDS = PIECE / WORD };

/* What a rank has sent of the piece that begins at `lo`. */
static void sparse_sum_add(gw_sparse_sum *t, int rank, size_t lo) {
    const gw_elements *l = &t->of[rank];
    size_t i = t->taken[rank];
    for (; i < l->n && l->at[i] < lo + PIECE; i++) {
        size_t at = l->at[i] - lo;
        t->value[at] += l->value[i];
        t->filled[at / WORD] |= (uint64_t)1 << at % WORD;
    }
    t->taken[rank] = i;
}

/* The piece to the list, and zeros in its place. */
static void sparse_sum_list(gw_sparse_sum *t, size_t lo) {
    size_t n = t->sum.n, from = t->span.off + lo;
    for (size_t w = 0; w < WORDS; w++) {
        for (uint64_t word = t->filled[w]; word; word &= word - 1) {
            size_t at = w * WORD + (size_t)__builtin_ctzll(word);
            t->sum.at[n] = (uint32_t)(from + at);
            t->sum.value[n++] = t->value[at];
            t->value[at] = 0;
        }
        t->filled[w] = 0;
    }
    t->sum.n = n;
}

gw_err gw_sparse_sum_add_up(gw_sparse_sum *t) {
    size_t most = 0;
    for (int r = 0; r < t->ranks; r++)
        most += t->of[r].n;
    t->sum.n = 0;
    GW_TRY(gw_elements_reserve(&t->sum, most < t->span.n ? most : t->span.n));
    memset(t->taken, 0, (size_t)t->ranks * sizeof *t->taken);
    for (size_t lo = 0; lo < t->span.n; lo += PIECE) {
        for (int r = 0; r < t->ranks; r++)
            sparse_sum_add(t, r, lo);
        sparse_sum_list(t, lo);
    }
    return GW_OK;
}

static gw_err sparse_sum_work(void *ctx) {
    gw_work_enter(GW_PHASE_DECODE);
    gw_err e = gw_sparse_sum_add_up(ctx);
    gw_work_leave();
    return e;
}

static gw_err sparse_sum_lay_down(gw_sparse_sum *t, gw_schedule *s, int *slots) {
    int me = gw_lane_rank(gw_schedule_lane(s));
    for (int i = 1; i < t->ranks; i++) {
        int peer = (me + t->ranks - i) % t->ranks;
        GW_TRY(gw_schedule_recv(s, t->span, peer, false, &slots[peer]));
    }
    GW_TRY(gw_schedule_copy(s, t->span, false, &slots[me]));
    for (int i = 1; i < t->ranks; i++) /* staggered: not everybody to rank 0 first */
        GW_TRY(gw_schedule_send(s, slots[me], (me + i) % t->ranks));
    GW_TRY(gw_schedule_round(s));
    for (int r = 0; r < t->ranks; r++)
        GW_TRY(gw_schedule_list(s, slots[r], t->span, &t->of[r]));
    return gw_schedule_work(s, sparse_sum_work, t);
}

gw_err gw_sparse_sum_open(gw_sparse_sum *t, int ranks) {
    t->ranks = ranks;
    GW_TRY(gw_alloc(&t->of, (size_t)ranks, sizeof *t->of));
    GW_TRY(gw_alloc(&t->taken, (size_t)ranks, sizeof *t->taken));
    GW_TRY(gw_alloc(&t->value, PIECE, sizeof *t->value));
    return gw_alloc(&t->filled, WORDS, sizeof *t->filled);
}

gw_err gw_sparse_sum_lay_down(gw_sparse_sum *t, gw_schedule *s) {
    int *slots = NULL;
    t->span = gw_schedule_span(s);
    GW_TRY(gw_sparse_sum_open(t, gw_lane_size(gw_schedule_lane(s))));
    GW_TRY(gw_alloc(&slots, (size_t)t->ranks, sizeof *slots));
    gw_err e = sparse_sum_lay_down(t, s, slots);
    free(slots);
    return e;
}

void gw_sparse_sum_free(gw_sparse_sum *t) {
    for (int r = 0; t->of && r < t->ranks; r++)
        gw_elements_free(&t->of[r]);
    gw_elements_free(&t->sum);
    free(t->of);
    free(t->taken);
    free(t->value);
    free(t->filled);
    *t = (gw_sparse_sum){0};
}
