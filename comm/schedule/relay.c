#include "comm/schedule/relay.h"

#include "base/mem.h"

#include <stdlib.h>

typedef struct relay {
    const gw_relay *how;
    gw_schedule *s;
    gw_span span; /* of a chunk */
    bool exact;
    size_t most; /* floats a message; 0: any number */
    int me, ranks, core, rounds;
    int *here;      /* runs of blocks that arrive here */
    int *there;     /* and where this rank sends to */
    int *slots;     /* of messages, by their first block */
    gw_span *parts; /* of one message */
} relay;

/* Blocks of a round, as gw_relay.blocks has them. */
typedef struct relay_set {
    const int *run;
    int n;
} relay_set;

/* Of the set's block `first` and others before `next` of a run, n parts in memory. */
typedef struct relay_message {
    int first, run, next, n;
    size_t floats;
} relay_message;

const gw_opt gw_relay_opts[] = {
    {"chunk", GW_OPT_BYTES, "512K", 0, 1 << 30, NULL, NULL,
     "bytes of floats per chunk (0: one chunk)"},
    {"window", GW_OPT_INT, "4", 0, 1024, NULL, NULL, "chunks in flight at a time (0: all)"},
    {"message", GW_OPT_BYTES, "0", 0, 1 << 30, NULL, NULL,
     "bytes of floats per message at most, but for single blocks (0: a round's in one)"},
    {0},
};

int gw_relay_rounds(int core) {
    return core < 2 ? 0 : 32 - __builtin_clz((unsigned)core - 1);
}

int gw_relay_halves(int own, int round, int *run) {
    run[0] = (own >> round ^ 1) << round;
    run[1] = run[0] + (1 << round);
    return 1;
}

static void relay_close(relay *k) {
    free(k->here);
    free(k->parts);
}

static gw_err relay_open(relay *k, const gw_relay *how, const gw_args *args, const gw_lane *lane) {
    int ranks = gw_lane_size(lane), core = how->core(ranks);
    *k = (relay){.how = how,
                 .exact = gw_lane_exact(lane),
                 .most = gw_args_bytes(args, "message") / sizeof(float),
                 .me = gw_lane_rank(lane),
                 .ranks = ranks,
                 .core = core,
                 .rounds = gw_relay_rounds(core)};
    GW_TRY(gw_alloc(&k->here, 5 * (size_t)core, sizeof *k->here));
    k->there = k->here + 2 * core;
    k->slots = k->there + 2 * core;
    gw_err e = gw_alloc(&k->parts, (size_t)core, sizeof *k->parts);
    if (e != GW_OK)
        relay_close(k);
    return e;
}

static relay_set relay_all(const relay *k) {
    k->here[0] = 0;
    k->here[1] = k->core;
    return (relay_set){k->here, 1};
}

static relay_set relay_blocks(const relay *k, int rank, int round, int *run) {
    int n = k->how->blocks(k->core, rank, round, run);
    return (relay_set){run, n};
}

/* Is there another message of the set, after *m? `single`: of one block. */
static bool relay_next(const relay *k, relay_set set, bool single, relay_message *m) {
    bool whole = !single && k->most == 0; /* no run need be cut */
    *m = (relay_message){.first = -1, .run = m->run, .next = m->next};
    for (; m->run < set.n; m->run++) {
        int end = set.run[2 * m->run + 1];
        if (m->next < set.run[2 * m->run])
            m->next = set.run[2 * m->run];
        for (int step; m->next < end; m->next += step) {
            gw_span b = gw_span_part(k->span, m->next, k->core);
            step = whole ? end - m->next : 1;
            if (whole)
                b.n = gw_span_end(gw_span_part(k->span, end - 1, k->core)) - b.off;
            bool joins = m->n > 0 && gw_span_end(k->parts[m->n - 1]) == b.off;
            if (m->first >= 0 &&
                (single || (k->most > 0 && m->floats + b.n > k->most) || !(joins || k->exact)))
                return true;
            if (m->first < 0)
                m->first = m->next;
            if (joins)
                k->parts[m->n - 1].n += b.n;
            else if (b.n > 0)
                k->parts[m->n++] = b;
            m->floats += b.n;
        }
    }
    return m->first >= 0;
}

/* `sum`: in the reduce-scatter. */
static gw_err relay_recv(const relay *k, relay_set set, int peer, bool sum) {
    for (relay_message m = {0}; relay_next(k, set, !sum && !k->exact, &m);)
        GW_TRY(gw_schedule_recv_parts(k->s, k->parts, m.n, peer, !sum, &k->slots[m.first]));
    return GW_OK;
}

static gw_err relay_send(const relay *k, relay_set set, int peer, bool sum) {
    for (relay_message m = {0}; relay_next(k, set, !sum && !k->exact, &m);) {
        if (sum || k->exact)
            GW_TRY(gw_schedule_pack_parts(k->s, k->parts, m.n, !sum, &k->slots[m.first]));
        GW_TRY(gw_schedule_send(k->s, k->slots[m.first], peer));
    }
    return GW_OK;
}

static gw_err relay_unpack(const relay *k, relay_set set, bool sum) {
    for (relay_message m = {0}; relay_next(k, set, !sum && !k->exact, &m);)
        GW_TRY(gw_schedule_unpack_parts(k->s, k->slots[m.first], k->parts, m.n, sum));
    return GW_OK;
}

static gw_err relay_round(const relay *k, int round, bool sum) {
    int to = k->how->to(k->core, k->me, round), from = to;
    for (int next; (next = k->how->to(k->core, from, round)) != k->me;)
        from = next; /* along the circle: partners are one of two */
    relay_set here = relay_blocks(k, k->me, round, k->here),
              there = relay_blocks(k, to, round, k->there), in = sum ? there : here;
    GW_TRY(relay_recv(k, in, sum ? to : from, sum));
    GW_TRY(relay_send(k, sum ? here : there, sum ? from : to, sum));
    GW_TRY(gw_schedule_round(k->s));
    return relay_unpack(k, in, sum);
}

static gw_err relay_chunk(const relay *k, gw_verb what) {
    int slot;
    bool partnered = k->me + k->core < k->ranks;
    if (k->me >= k->core) { /* outside the core */
        int partner = k->me - k->core;
        GW_TRY(gw_schedule_pack(k->s, k->span, false, &slot));
        GW_TRY(gw_schedule_send(k->s, slot, partner));
        GW_TRY(gw_schedule_round(k->s)); /* both messages may be the arena itself */
        GW_TRY(relay_recv(k, relay_all(k), partner, false));
        GW_TRY(gw_schedule_round(k->s));
        return relay_unpack(k, relay_all(k), false);
    }
    if (partnered) {
        GW_TRY(gw_schedule_recv(k->s, k->span, k->me + k->core, false, &slot));
        GW_TRY(gw_schedule_round(k->s));
        GW_TRY(gw_schedule_unpack(k->s, slot, k->span, true));
    }
    for (int round = k->rounds - 1; round >= 0 && what != GW_ALLGATHER; round--)
        GW_TRY(relay_round(k, round, true));
    if (what != GW_REDUCE_SCATTER) {
        int own = k->how->own ? k->how->own(k->core, k->me) : k->me;
        GW_TRY(gw_schedule_pack(k->s, gw_span_part(k->span, own, k->core), true, &k->slots[own]));
        for (int round = 0; round < k->rounds; round++)
            GW_TRY(relay_round(k, round, false));
    }
    return partnered ? relay_send(k, relay_all(k), k->me + k->core, false) : GW_OK;
}

/* Parts of ranks are cut from the whole span, blocks from a chunk: other verbs have but one. */
static int relay_count_chunks(const gw_args *args, gw_verb what, size_t n) {
    return what == GW_ALLREDUCE ? gw_kit_chunks(args, n) : 1;
}

gw_err gw_relay_lay_down(const gw_relay *how, const gw_args *args, gw_schedule *s, gw_verb what) {
    relay k;
    gw_span whole = gw_schedule_span(s);
    int ranks = gw_lane_size(gw_schedule_lane(s)), chunks = relay_count_chunks(args, what, whole.n);
    if (what != GW_ALLREDUCE && how->core(ranks) < ranks)
        return what == GW_ALLGATHER ? gw_kit_allgather(s) : gw_kit_reduce_scatter(s);
    GW_TRY(relay_open(&k, how, args, gw_schedule_lane(s)));
    k.s = s;
    gw_schedule_window(s, (int)gw_args_int(args, "window"));
    gw_err e = GW_OK;
    for (int c = 0; e == GW_OK && c < chunks; c++) {
        k.span = gw_span_part(whole, c, chunks);
        e = c > 0 ? gw_schedule_strand(s) : GW_OK;
        GW_THEN(e, relay_chunk(&k, what));
    }
    relay_close(&k);
    return e;
}

/* One way, of all ranks of the core. Blocks one a message, or a round's in one, need no look at who
 * receives them when. */
static gw_cost relay_way_cost(const relay *k, const gw_lane *lane, bool single) {
    gw_cost all = {0};
    for (int b = 0; single && b < k->core; b++)
        all = gw_cost_sum(all, gw_cost_messages(lane, (uint64_t)(k->core - 1),
                                                gw_span_part(k->span, b, k->core).n));
    if (single)
        return all;
    if (k->exact && k->most == 0 && k->span.n >= (size_t)k->core) {
        all = gw_cost_messages(lane, 1, k->span.n);
        return (gw_cost){all.bytes * (uint64_t)(k->core - 1), (uint64_t)(k->core * k->rounds)};
    }
    for (int i = 0; i < k->core * k->rounds; i++) {
        relay_set set = relay_blocks(k, i % k->core, i / k->core, k->here);
        for (relay_message m = {0}; relay_next(k, set, false, &m);)
            all = gw_cost_sum(all, gw_cost_messages(lane, 1, m.floats));
    }
    return all;
}

/* `times` chunks of n floats. */
static gw_cost relay_chunk_cost(relay *k, const gw_lane *lane, gw_verb what, size_t n,
                                uint64_t times) {
    gw_cost all = {0};
    if (times == 0)
        return all;
    k->span = (gw_span){0, n};
    for (int rank = k->core; rank < k->ranks; rank++) {
        all = gw_cost_sum(all, gw_cost_messages(lane, 1, n));
        for (relay_message m = {0}; relay_next(k, relay_all(k), !k->exact, &m);)
            all = gw_cost_sum(all, gw_cost_messages(lane, 1, m.floats));
    }
    if (what != GW_ALLGATHER)
        all = gw_cost_sum(all, relay_way_cost(k, lane, false));
    if (what != GW_REDUCE_SCATTER)
        all = gw_cost_sum(all, relay_way_cost(k, lane, !k->exact));
    return (gw_cost){all.bytes * times, all.messages * times};
}

gw_cost gw_relay_cost(const gw_relay *how, const gw_args *args, const gw_lane *lane, gw_verb what,
                      size_t n) {
    relay k;
    size_t chunks = (size_t)relay_count_chunks(args, what, n), longer = n % chunks;
    int ranks = gw_lane_size(lane);
    if (what != GW_ALLREDUCE && how->core(ranks) < ranks)
        return gw_kit_scatter_cost(lane, n);
    if (relay_open(&k, how, args, lane) != GW_OK)
        return (gw_cost){0}; /* no memory to lay it down, either */
    gw_cost all = gw_cost_sum(relay_chunk_cost(&k, lane, what, n / chunks, chunks - longer),
                              relay_chunk_cost(&k, lane, what, n / chunks + 1, longer));
    relay_close(&k);
    return all;
}
