#include "comm/schedule/sparse_sum.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Floats of a piece that are added up side by side: they stay in the first-level cache. */
enum { PIECE = 4096, WORD = 64, WORDS = PIECE / WORD };

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
        for (int r = 0; r < t->ranks; r++) {
            const gw_elements *l = &t->of[r];
            size_t i = t->taken[r];
            for (; i < l->n && l->at[i] < lo + PIECE; i++) {
                size_t at = l->at[i] - lo;
                t->value[at] += l->value[i];
                t->filled[at / WORD] |= (uint64_t)1 << at % WORD;
            }
            t->taken[r] = i;
        }
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

gw_err gw_sparse_sum_open(gw_sparse_sum *t, int ranks) {
    t->ranks = ranks;
    GW_TRY(gw_alloc(&t->of, (size_t)ranks, sizeof *t->of));
    GW_TRY(gw_alloc(&t->taken, (size_t)ranks, sizeof *t->taken));
    GW_TRY(gw_alloc(&t->value, PIECE, sizeof *t->value));
    return gw_alloc(&t->filled, WORDS, sizeof *t->filled);
}

gw_err gw_sparse_sum_lay_down(gw_sparse_sum *t, gw_schedule *s) {
    int me = gw_lane_rank(gw_schedule_lane(s)), ranks = gw_lane_size(gw_schedule_lane(s)), own;
    t->span = gw_schedule_span(s);
    GW_TRY(gw_sparse_sum_open(t, ranks));
    for (int i = 1; i < ranks; i++)
        GW_TRY(gw_schedule_recv(s, t->span, (me + ranks - i) % ranks, false, &own));
    GW_TRY(gw_schedule_copy(s, t->span, false, &own));
    for (int i = 1; i < ranks; i++) /* staggered: not everybody to rank 0 first */
        GW_TRY(gw_schedule_send(s, own, (me + i) % ranks));
    GW_TRY(gw_schedule_round(s));
    for (int r = 0; r < ranks; r++) { /* slots are numbered on, the own one last */
        int slot = own == GW_NO_SLOT ? own : own - (r - me + ranks) % ranks;
        GW_TRY(gw_schedule_list(s, slot, t->span, &t->of[r]));
    }
    return gw_schedule_work(s, sparse_sum_work, t);
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
