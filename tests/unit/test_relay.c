/* Algorithms that hand blocks on in rounds (comm/schedule/relay.h), on 2 to 17 ranks in memory:
 * each part reaches each rank once, and partners and blocks are those of the papers. */
#include "comm/algo.h"
#include "comm/schedule/schedule_parts.h"

#include "../mpi/memory_fabric.h"
#include "../specs.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = MEMORY_RANKS, N = 3 * MOST + 1, ROUNDS = 12 };

static const char *const algos[] = {"halving", "swing", "bine", "pat"};

typedef struct trial {
    const char *algo, *codec;
    gw_verb what;
    size_t n;
    int ranks;
    gw_cost want, sent;
    int to[MOST][ROUNDS]; /* by rank and round of a schedule of one strand; -1: nothing is sent */
    size_t floats[MOST][ROUNDS];
    int packs, most_encodings; /* of all ranks; of one element on one rank */
} trial;

/* ---- a run ---- */

static void note_ops(trial *t, const gw_schedule *s, int rank) {
    int round = 0, encodings[N] = {0};
    for (const gw_op *o = s->ops.x; o < s->ops.x + s->ops.n; o++) {
        round += o->kind == GW_OP_ROUND;
        if (o->kind == GW_OP_SEND) {
            t->sent.bytes += s->slots.x[o->slot].len;
            t->sent.messages++;
        }
        if (o->kind == GW_OP_SEND && s->strands.n == 1) {
            t->to[rank][round] = o->peer;
            t->floats[rank][round] += s->slots.x[o->slot].len / sizeof(float);
        }
        t->packs += o->kind == GW_OP_PACK;
        for (size_t i = o->part.off; o->kind == GW_OP_PACK && i < gw_span_end(o->part); i++)
            if (++encodings[i] > t->most_encodings)
                t->most_encodings = encodings[i];
    }
}

/* Rank r adds 2^r: a part that is missing, or comes twice, makes another sum. */
static gw_err judge(const trial *t, const float *x, int rank) {
    for (size_t i = 0; i < t->n; i++) {
        int owner = 0;
        while (i >= gw_span_end(gw_span_part((gw_span){0, t->n}, owner, t->ranks)))
            owner++;
        float sum = t->what == GW_ALLGATHER ? (float)(1 << owner) : (float)((1 << t->ranks) - 1);
        if ((t->what != GW_REDUCE_SCATTER || owner == rank) && x[i] != sum)
            return gw_fail(GW_ERR_DIVERGED, "element %zu is %g, must be %g", i, x[i], sum);
    }
    return GW_OK;
}

static gw_err run_rank(void *ctx, gw_fabric *fabric) {
    trial *t = ctx;
    float x[N];
    int rank = fabric->rank;
    gw_codec codec;
    gw_algo algo = {0};
    gw_lane *lane = NULL;
    gw_schedule *s = NULL;
    gw_lane_setup setup = {.codec = &codec, .n = t->n};
    for (size_t i = 0; i < t->n; i++)
        x[i] = (float)(1 << rank);
    GW_TRY(open_codec(&codec, t->codec));
    gw_err e = open_algo(&algo, t->algo, &codec);
    GW_THEN(e, gw_lane_open_on(&lane, fabric, &setup));
    GW_THEN(e, gw_schedule_new(&s, lane, x, (gw_span){0, t->n}));
    GW_THEN(e, gw_algo_lay_down(&algo, s, t->what, 0));
    GW_THEN(e, gw_schedule_run(s));
    if (e == GW_OK && strcmp(t->codec, "bf16") != 0) /* which rounds */
        e = judge(t, x, rank);
    if (e == GW_OK) {
        note_ops(t, s, rank);
        t->want = gw_algo_cost(&algo, lane, t->what, t->n);
    }
    gw_schedule_free(s);
    gw_lane_close(lane);
    gw_algo_close(&algo);
    gw_codec_close(&codec);
    return e;
}

static void run(trial *t) {
    memset(t->to, -1, sizeof t->to);
    if (memory_run(t->ranks, 7, run_rank, t) != GW_OK)
        fail_msg("%s %s, verb %d, %d ranks, %zu floats: %s", t->algo, t->codec, (int)t->what,
                 t->ranks, t->n, gw_err_text());
}

/* ---- for any P ---- */

static void try_spans(const char *algo, const char *codec, gw_verb what, int ranks) {
    size_t spans[] = {1, (size_t)ranks - 1, 3 * (size_t)ranks + 1};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        trial t = {.algo = algo, .codec = codec, .what = what, .n = spans[i], .ranks = ranks};
        run(&t);
        if (strcmp(codec, "zlib") != 0 && /* whose size depends on the floats */
            (t.sent.bytes != t.want.bytes || t.sent.messages != t.want.messages))
            fail_msg("%s %s, verb %d, %d ranks, %zu floats: %d bytes in %d messages, not %d in %d",
                     algo, codec, (int)what, ranks, t.n, (int)t.sent.bytes, (int)t.sent.messages,
                     (int)t.want.bytes, (int)t.want.messages);
        assert_true(strcmp(codec, "none") == 0 || t.most_encodings <= 1);
    }
}

static void parts_arrive_once(void **state) {
    static const char *const cuts[] = {"", ":message=8", ":chunk=40,window=2"};
    char spec[64];
    for (int ranks = 2; ranks <= MOST; ranks++)
        for (size_t a = 0; a < sizeof algos / sizeof *algos; a++) {
            for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
                snprintf(spec, sizeof spec, "%s%s", algos[a], cuts[i]);
                try_spans(spec, "none", GW_ALLREDUCE, ranks);
                try_spans(spec, i ? "bf16" : "zlib", GW_ALLREDUCE, ranks);
            }
            for (gw_verb what = GW_REDUCE_SCATTER; what <= GW_ALLGATHER; what++) {
                try_spans(algos[a], "none", what, ranks);
                try_spans(algos[a], "bf16", what, ranks);
            }
        }
}

/* ---- partners, and how much goes how far ---- */

static int bits(int ranks) {
    int n = 0;
    while (1 << n < ranks)
        n++;
    return n;
}

/* From a rank to the one that it sends to in round `step` of the reduce-scatter. */
static int halving_hop(int rank, int step, int ranks) {
    return (rank ^ (ranks >> (step + 1))) - rank;
}

/* 1 - 2 + 4 - .. : both papers' distance. */
static int swing_hop(int rank, int step, int ranks) {
    static const int rho[] = {1, -1, 3, -5};
    return rank % 2 ? -rho[step] : rho[step];
}

static int pat_hop(int rank, int step, int ranks) {
    return -(1 << step);
}

/* The reduce-scatter's rounds, then the allgather's, which go the same ways back. */
static void check_hops(trial *t, int (*hop)(int rank, int step, int ranks)) {
    int steps = bits(t->ranks), ranks = t->ranks;
    run(t);
    for (int r = 0; r < ranks; r++)
        for (int step = 0; step < steps; step++) {
            int to = (r + hop(r, step, ranks) + 2 * ranks) % ranks, back = 0;
            assert_int_equal(t->to[r][step], to);
            while ((back + hop(back, step, ranks) + 2 * ranks) % ranks != r)
                back++;
            assert_int_equal(t->to[r][2 * steps - 1 - step], back);
            assert_int_equal(t->floats[to][2 * steps - 1 - step], t->floats[r][step]);
        }
    assert_int_equal(t->sent.messages, 2 * ranks * steps);
    assert_int_equal(t->sent.bytes, 2 * (size_t)(ranks - 1) * t->n * sizeof(float));
}

static trial whole_blocks(const char *algo, int ranks) {
    return (trial){.algo = algo, .codec = "none", .n = 3 * (size_t)ranks, .ranks = ranks};
}

static void butterflies_keep_to_their_partners(void **state) {
    for (int ranks = 2; ranks <= MOST; ranks += 2) {
        trial swing = whole_blocks("swing", ranks);
        check_hops(&swing, swing_hop);
        if (ranks & (ranks - 1))
            continue;
        trial halving = whole_blocks("halving", ranks), bine = whole_blocks("bine", ranks);
        check_hops(&halving, halving_hop);
        check_hops(&bine, swing_hop);
        assert_memory_equal(bine.floats, swing.floats, sizeof bine.floats);
        for (int step = 0; step < bits(ranks); step++) /* half of what is left */
            assert_int_equal(bine.floats[0][step], bine.n >> (step + 1));
    }
}

/* Blocks of a step lie side by side: the arena itself is sent. */
static void bine_packs_nothing(void **state) {
    for (int ranks = 2; ranks <= MOST; ranks++) {
        trial bine = whole_blocks("bine", ranks), swing = whole_blocks("swing", ranks);
        run(&bine);
        run(&swing);
        assert_int_equal(bine.packs, 0);
        assert_int_equal(swing.packs > 0, ranks >= 4);
    }
}

/* As many blocks at distance 2^k as there are offsets below P whose lowest bit is k. */
static void pat_carries_least_farthest(void **state) {
    for (int ranks = 2; ranks <= MOST; ranks++) {
        trial t = whole_blocks("pat", ranks);
        check_hops(&t, pat_hop);
        for (int step = 0; step < bits(ranks); step++) {
            size_t blocks = 0;
            for (int o = 1; o < ranks; o++)
                blocks += o % (2 << step) == 1 << step;
            assert_int_equal(t.floats[0][step], 3 * blocks);
        }
        assert_int_equal(t.floats[0][bits(ranks) - 1], 3);
    }
}

/* Floats times hops on a ring of nodes, in one allreduce. */
static size_t travel(const char *algo, int ranks) {
    trial t = whole_blocks(algo, ranks);
    size_t sum = 0;
    run(&t);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 2 * bits(ranks); i++) {
            int hops = abs(t.to[r][i] - r);
            sum += t.floats[r][i] * (size_t)(hops < ranks - hops ? hops : ranks - hops);
        }
    return sum;
}

/* Recursive halving sends P/2 blocks P/2 hops first, then P/4 blocks P/4 hops, .. */
static void near_partners_shorten_the_way(void **state) {
    size_t floats = 2 * 16 * 3; /* both ways, of a block on each rank */
    assert_int_equal(travel("halving", 16), floats * (8 * 8 + 4 * 4 + 2 * 2 + 1 * 1));
    assert_int_equal(travel("swing", 16), floats * (8 * 1 + 4 * 1 + 2 * 3 + 1 * 5));
    assert_int_equal(travel("bine", 16), travel("swing", 16));
    assert_int_equal(travel("pat", 16), floats * (8 * 1 + 4 * 2 + 2 * 4 + 1 * 8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_arrive_once),
        cmocka_unit_test(butterflies_keep_to_their_partners),
        cmocka_unit_test(bine_packs_nothing),
        cmocka_unit_test(pat_carries_least_farthest),
        cmocka_unit_test(near_partners_shorten_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
