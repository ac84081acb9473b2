/* file: an allreduce that a file lays down, round by round (comm/schedule/transfers.h,
 * docs/schedules.md): what a program has searched for a network, or a plan of one's own. Schedules
 * as data: Cowan et al., "MSCCLang: Microsoft collective communication language", ASPLOS 2023; Shah
 * et al., "TACCL: guiding collective algorithm synthesis using communication sketches", NSDI 2023.
 *
 * The span is cut into the file's blocks.
 *
 *  - add: the blocks are encoded as one message; who receives it adds it, in the order of the file.
 *    A rank gives each block away once, so it encodes each element once.
 *  - set: the rank on which a block's sum came together encodes it once and adopts what that
 *    decodes to; all others forward these bytes verbatim. So all ranks hold the same bits. On an
 *    exact lane the blocks of a transfer are one message, else one each.
 *
 * What a round receives is added after the receives of the next one are posted. Blocks that are set
 * land straight in the arena, which is safe: by the checked rule a rank sends no part of a block
 * while it gets its sum. */
#include "comm/algo.h"

#include "base/mem.h"
#include "comm/schedule/transfers.h"

#include <stdlib.h>

typedef struct walk {
    gw_schedule *s;
    const gw_transfers *t;
    gw_span span;
    bool exact;
    int me;
    int *sent, *sum; /* slots: of a transfer that adds, of a block's whole sum */
} walk;

/* ---- the file ---- */

/* Also on one rank, where nothing is laid down. */
static gw_err file_check(const gw_args *args) {
    gw_transfers t = {0};
    const char *path = gw_args_text(args, "path");
    if (!path)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "algorithm file: no schedule is named: algo=file:path=FILE reads one");
    gw_err e = gw_transfers_load(&t, path);
    gw_transfers_clear(&t);
    return e;
}

static gw_err file_load(const gw_args *args, const gw_lane *lane, gw_transfers *t) {
    const char *path = gw_args_text(args, "path");
    GW_TRY(gw_transfers_load(t, path));
    return t->ranks == gw_lane_size(lane)
               ? GW_OK
               : gw_fail(GW_ERR_UNSUPPORTED,
                         "algorithm file: %s is for %d ranks, and %d exchange here: name one for "
                         "so many",
                         path, t->ranks, gw_lane_size(lane));
}

static void file_release(void *t) {
    gw_transfers_clear(t);
    free(t);
}

/* Collective at the first call on a lane. */
static gw_err file_transfers(const gw_args *args, gw_lane *lane, const gw_transfers **out) {
    gw_transfers *t = gw_lane_attached(lane, args);
    if (!t) {
        gw_err e = gw_alloc(&t, 1, sizeof *t);
        GW_THEN(e, file_load(args, lane, t));
        e = gw_lane_agree(lane, e);
        if (e != GW_OK) {
            if (t)
                file_release(t);
            return e;
        }
        GW_TRY(gw_lane_attach(lane, args, t, file_release));
    }
    *out = t;
    return GW_OK;
}

/* ---- laying it down ---- */

static gw_span file_blocks(const walk *w, int first, int count) {
    gw_span a = gw_span_part(w->span, first, w->t->blocks);
    gw_span b = gw_span_part(w->span, first + count - 1, w->t->blocks);
    return (gw_span){a.off, gw_span_end(b) - a.off};
}

/* Blocks of a message of transfer `x`. */
static int file_step(const walk *w, const gw_move *x) {
    return x->add || w->exact ? x->count : 1;
}

static int *file_slot(const walk *w, const gw_move *x, int block) {
    return x->add ? &w->sent[x - w->t->x] : &w->sum[block];
}

static gw_err file_send(const walk *w, const gw_move *x) {
    int step = file_step(w, x);
    for (int b = x->first; b < x->first + x->count; b += step) {
        int *slot = file_slot(w, x, b);
        if (w->exact || *slot == GW_NO_SLOT)
            GW_TRY(gw_schedule_pack(w->s, file_blocks(w, b, step), !x->add, slot));
        GW_TRY(gw_schedule_send(w->s, *slot, x->to));
    }
    return GW_OK;
}

static gw_err file_recv(const walk *w, const gw_move *x) {
    int step = file_step(w, x);
    for (int b = x->first; b < x->first + x->count; b += step)
        GW_TRY(
            gw_schedule_recv(w->s, file_blocks(w, b, step), x->from, !x->add, file_slot(w, x, b)));
    return GW_OK;
}

/* Transfers [first, end): of one round. */
typedef struct turn {
    int first, end;
} turn;

/* What of a round was received is unpacked. */
static gw_err file_take(const walk *w, turn k, bool add) {
    for (const gw_move *x = w->t->x + k.first; x < w->t->x + k.end; x++) {
        int step = file_step(w, x);
        if (x->to != w->me || x->add != add)
            continue;
        for (int b = x->first; b < x->first + x->count; b += step)
            GW_TRY(gw_schedule_unpack(w->s, *file_slot(w, x, b), file_blocks(w, b, step), add));
    }
    return GW_OK;
}

static gw_err file_chunk(const walk *w) {
    const gw_transfers *t = w->t;
    turn last, now = {0};
    for (int i = 0; i < t->n; i++)
        w->sent[i] = GW_NO_SLOT;
    for (int b = 0; b < t->blocks; b++)
        w->sum[b] = GW_NO_SLOT;
    do {
        bool any = false;
        last = now;
        now.first = now.end;
        for (; now.end < t->n && t->x[now.end].round == t->x[now.first].round; now.end++)
            if (t->x[now.end].to == w->me)
                GW_TRY(file_recv(w, &t->x[now.end]));
        GW_TRY(file_take(w, last, true));
        for (const gw_move *x = t->x + now.first; x < t->x + now.end; x++) {
            any = any || x->to == w->me || x->from == w->me;
            if (x->from == w->me)
                GW_TRY(file_send(w, x));
        }
        GW_TRY(file_take(w, last, false)); /* forwarded first, then decoded while it travels */
        if (any)
            GW_TRY(gw_schedule_round(w->s));
    } while (now.first < now.end);
    return GW_OK;
}

static gw_err file_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)what, (void)root;
    gw_lane *lane = gw_schedule_lane(s);
    gw_span whole = gw_schedule_span(s);
    int chunks = gw_kit_chunks(args, whole.n);
    walk w = {.s = s, .exact = gw_lane_exact(lane), .me = gw_lane_rank(lane)};
    GW_TRY(file_transfers(args, lane, &w.t));
    GW_TRY(gw_alloc(&w.sent, (size_t)(w.t->n + w.t->blocks), sizeof *w.sent));
    w.sum = w.sent + w.t->n;
    gw_err e = GW_OK;
    gw_schedule_window(s, (int)gw_args_int(args, "window"));
    for (int c = 0; e == GW_OK && c < chunks; c++) {
        w.span = gw_span_part(whole, c, chunks);
        e = c > 0 ? gw_schedule_strand(s) : GW_OK;
        GW_THEN(e, file_chunk(&w));
    }
    free(w.sent);
    return e;
}

/* On this rank alone: a lane on which nothing was laid down yet has the file read for it. */
static gw_cost file_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)what;
    gw_cost sum = {0};
    gw_transfers own = {0};
    const gw_transfers *kept = gw_lane_attached(lane, args);
    walk w = {.t = kept ? kept : &own, .exact = gw_lane_exact(lane)};
    int chunks = kept || file_load(args, lane, &own) == GW_OK ? gw_kit_chunks(args, n) : 0;
    for (int c = 0; c < chunks; c++) {
        w.span = gw_span_part((gw_span){0, n}, c, chunks);
        for (const gw_move *x = w.t->x; x < w.t->x + w.t->n; x++)
            for (int b = x->first; b < x->first + x->count; b += file_step(&w, x))
                sum = gw_cost_sum(
                    sum, gw_cost_messages(lane, 1, file_blocks(&w, b, file_step(&w, x)).n));
    }
    gw_transfers_clear(&own);
    return sum;
}

static const gw_opt file_opts[] = {
    {"path", GW_OPT_PATH, NULL, 0, 0, NULL, "FILE", "file of the rounds: docs/schedules.md"},
    {"chunk", GW_OPT_BYTES, "0", 0, 1 << 30, NULL, NULL,
     "bytes of floats per chunk (0: one chunk)"},
    {"window", GW_OPT_INT, "4", 0, 1024, NULL, NULL, "chunks in flight at a time (0: all)"},
    {0},
};

const gw_algo_ops gw_algo_file = {
    .head = {GW_ALGO_ABI, "file", "the rounds of a file, checked before they run", file_opts},
    .formula = "a message per transfer and chunk (with a codec one per block that is set)",
    .check = file_check,
    .lay_down = file_lay_down,
    .cost = file_cost,
};
