/* shm: the ranks of one node work on each other's memory; nothing goes through MPI.
 *
 * Exact lanes. The arenas lie in memory that all ranks map, and so do gradients that lie with the
 * caller in lent memory (comm/lent.h): those are weighed in the same pass.
 *  1. Each rank signals that its values are ready and waits for all others.
 *  2. Rank r reads part r of all arenas, adds them in the order of the ranks and stores the sum
 *     straight into all of them: one pass, P reads and P writes of n/P floats. Parts end at cache
 *     lines.
 *  3. Each signals again and waits for all: the sum is complete, and no arena is read any more.
 *
 * With a codec. The same two meetings, over encodings that lie in shared memory; the numerics are
 * those of sra, bit for bit.
 *  1. Each rank encodes its part of every foreign slice into its own block; meeting.
 *  2. The owner of a slice decodes the P-1 encodings in the order of the ranks onto its own,
 *     unencoded values, encodes the sum once and adopts what that decodes to; meeting.
 *  3. Every rank decodes the other owners' encodings. The next exchange's first meeting confirms
 *     that all have done so before an owner overwrites its block.
 *
 * Meetings are counts in shared memory (comm/schedule/crew.h). Bytes and messages through MPI:
 * none; P n floats are read and P n written in memory, the minimum for sums that all ranks hold.
 * Sharing a node's memory between MPI ranks: Hoefler et al., "MPI + MPI: a new hybrid approach to
 * parallel programming with MPI plus shared memory", Computing 95, 2013; reducing in it by slices:
 * Jain et al., "Framework for scalable intra-node collective operations using shared memory", SC
 * 2018. */
#include "comm/algo.h"

#include "base/mem.h"
#include "comm/channel.h"
#include "comm/lent.h"
#include "comm/schedule/crew.h"
#include "comm/sum.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    const gw_schedule *schedule;
    gw_lane *lane;
    int me, ranks;
    float *base;
    gw_span span;
    int root; /* of a reduction */
    gw_crew *crew;
    float **values; /* exact: base[span] of each rank, as mapped here */
    float **rows;   /* scratch: one part of each, */
    float *weights; /* and how they weigh in lent memory, */
    uint32_t *most; /* and the greatest magnitudes there */
    char **block;   /* with a codec: each rank's encodings, a length and a slot a part */
    size_t *at;     /* offset of each part's slot in a block */
} job;

static void shm_release(void *ctx) {
    job *j = ctx;
    free(j->crew);
    free(j->values);
    free(j->rows);
    free(j->weights);
    free(j->most);
    free(j->block);
    free(j->at);
    free(j);
}

/* ---- exact: values ---- */

/* Lent memory may come after the schedule was laid down. It stands for one arena of the lane's. */
static gw_lent *shm_lent(const job *j) {
    gw_lent *lent = gw_lane_channel(j->lane)->lent;
    return lent && gw_lent_arena(lent) == j->base ? lent : NULL;
}

/* Where all ranks have the first floats of `part`, and how many of them. */
static size_t shm_find_rows(job *j, gw_span part) {
    if (shm_lent(j))
        return gw_lent_rows(shm_lent(j), part, j->rows, j->weights);
    for (int r = 0; r < j->ranks; r++)
        j->rows[r] = j->values[r] + (part.off - j->span.off);
    return part.n;
}

static gw_span shm_behind(gw_span part, size_t n) {
    return (gw_span){part.off + n, part.n - n};
}

/* To rank `to`; -1: to all. */
static gw_err shm_sum_to(job *j, gw_span part, int to) {
    gw_lent *lent = shm_lent(j);
    while (part.n > 0) {
        size_t n = shm_find_rows(j, part);
        gw_sum_rows(j->rows, lent ? j->weights : NULL, j->ranks, j->rows + (to < 0 ? 0 : to),
                    to < 0 ? j->ranks : 1, n, lent ? j->most : NULL);
        if (lent)
            gw_lent_saw(lent, part.off, j->most);
        part = shm_behind(part, n);
    }
    return GW_OK;
}

static gw_err shm_sum_for_all(void *ctx) {
    job *j = ctx;
    return shm_sum_to(j, gw_sum_part(j->span, j->me, j->ranks), -1);
}

static gw_err shm_sum_for_root(void *ctx) {
    job *j = ctx;
    return shm_sum_to(j, gw_sum_part(j->span, j->me, j->ranks), j->root);
}

static gw_err shm_sum_for_me(void *ctx) {
    job *j = ctx;
    return shm_sum_to(j, gw_span_part(j->span, j->me, j->ranks), j->me);
}

static void shm_copy_from(job *j, gw_span part, int r) {
    while (r != j->me && part.n > 0) {
        size_t n = shm_find_rows(j, part);
        memcpy(j->rows[j->me], j->rows[r], n * sizeof(float));
        part = shm_behind(part, n);
    }
}

static gw_err shm_copy_parts(void *ctx) {
    job *j = ctx;
    for (int r = 0; r < j->ranks; r++)
        shm_copy_from(j, gw_span_part(j->span, r, j->ranks), r);
    return GW_OK;
}

static gw_err shm_copy_root(void *ctx) {
    job *j = ctx;
    shm_copy_from(j, j->span, j->root);
    return GW_OK;
}

/* ---- with a codec: encodings ---- */

static gw_err shm_encode(job *j, int slot, gw_span part, unsigned how) {
    char *mine = j->block[j->me];
    size_t *len = (size_t *)mine + slot;
    size_t cap = gw_codec_bound(gw_lane_codec(j->lane), part.n);
    if (part.n == 0)
        return GW_OK;
    return gw_encoder_encode(gw_lane_encoder(j->lane), gw_schedule_ticket(j->schedule), j->base,
                             part, how, mine + j->at[slot], cap, len);
}

static gw_err shm_decode(job *j, int r, int slot, gw_span part, bool add) {
    size_t len = ((size_t *)j->block[r])[slot];
    char *in = j->block[r] + j->at[slot];
    return part.n == 0 ? GW_OK
                       : gw_encoder_decode(gw_lane_encoder(j->lane), in, len, j->base, part, add);
}

/* Slot i of rank r holds r's share of slice i, and for i == r the sum. */
static gw_err shm_encode_foreign(void *ctx) {
    job *j = ctx;
    for (int i = 1; i < j->ranks; i++) {
        int peer = (j->me + i) % j->ranks;
        GW_TRY(shm_encode(j, peer, gw_span_part(j->span, peer, j->ranks), 0));
    }
    return GW_OK;
}

static gw_err shm_encode_own(void *ctx) {
    job *j = ctx;
    return shm_encode(j, j->me, gw_span_part(j->span, j->me, j->ranks),
                      GW_ENCODE_ADOPT | GW_ENCODE_ALONE);
}

static gw_err shm_add_shares(void *ctx) {
    job *j = ctx;
    gw_span own = gw_span_part(j->span, j->me, j->ranks);
    for (int r = 0; r < j->ranks; r++)
        if (r != j->me)
            GW_TRY(shm_decode(j, r, j->me, own, true));
    return GW_OK;
}

static gw_err shm_decode_sums(void *ctx) {
    job *j = ctx;
    for (int r = 0; r < j->ranks; r++)
        if (r != j->me)
            GW_TRY(shm_decode(j, r, r, gw_span_part(j->span, r, j->ranks), false));
    return GW_OK;
}

/* A reduction to one rank: the whole span in slot 0. */
static gw_err shm_encode_whole(void *ctx) {
    job *j = ctx;
    return j->me == j->root ? GW_OK : shm_encode(j, 0, j->span, 0);
}

static gw_err shm_add_whole(void *ctx) {
    job *j = ctx;
    for (int r = 0; r < j->ranks && j->me == j->root; r++)
        if (r != j->root)
            GW_TRY(shm_decode(j, r, 0, j->span, true));
    return GW_OK;
}

static gw_err shm_check_node(const gw_lane *lane) {
    const gw_channel *c = gw_lane_channel(lane);
    if (!c->shared)
        return gw_fail(GW_ERR_UNSUPPORTED, "algorithm shm: these ranks share no memory");
    if (gw_shared_size(c->shared) == gw_lane_size(lane))
        return GW_OK;
    int nodes = gw_shared_rank(c->shared) == 0; /* all ranks get here, or none */
    GW_TRY(c->fabric->ops->sum(c->fabric, &nodes));
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "algorithm shm: the ranks lie on %d nodes: use algo=hier, which works so inside "
                   "each",
                   nodes);
}

static gw_err shm_find_values(job *j) {
    size_t ranks = (size_t)j->ranks;
    GW_TRY(gw_alloc(&j->values, ranks, sizeof *j->values));
    GW_TRY(gw_alloc(&j->rows, ranks, sizeof *j->rows));
    GW_TRY(gw_alloc(&j->weights, ranks, sizeof *j->weights));
    GW_TRY(gw_alloc(&j->most, ranks, sizeof *j->most));
    for (int r = 0; r < j->ranks; r++)
        j->values[r] = gw_crew_twin(j->crew, j->base + j->span.off, r);
    return j->values[0] ? GW_OK
                        : gw_fail(GW_ERR_UNSUPPORTED,
                                  "algorithm shm: the span is not in memory that the ranks share: "
                                  "take it from gw_lane_floats, or use another algorithm");
}

/* `whole`: one slot for the whole span, else one a part. */
static gw_err shm_make_block(job *j, bool whole) {
    enum { LINE = 64 };
    size_t ranks = (size_t)j->ranks, end = ranks * sizeof(size_t);
    void *mine = NULL;
    gw_err e = gw_alloc(&j->block, ranks, sizeof *j->block);
    GW_THEN(e, gw_alloc(&j->at, ranks, sizeof *j->at));
    int slots = whole ? 1 : j->ranks;
    for (int i = 0; i < slots; i++) {
        end = (end + LINE - 1) / LINE * LINE;
        if (e == GW_OK)
            j->at[i] = end;
        end += gw_codec_bound(gw_lane_codec(j->lane), gw_span_part(j->span, i, slots).n);
    }
    GW_TRY(gw_shared_alloc(gw_lane_channel(j->lane)->shared, end, &mine)); /* collective */
    GW_TRY(e);
    for (int r = 0; r < j->ranks; r++)
        j->block[r] = gw_crew_twin(j->crew, mine, r);
    return GW_OK;
}

static gw_err shm_meet(gw_schedule *s, job *j) {
    GW_TRY(gw_schedule_work(s, gw_crew_signal, j->crew));
    return gw_schedule_await(s, gw_crew_all, j->crew);
}

/* Meeting, work, meeting: all exact collectives but the broadcast. */
static gw_err shm_between_meetings(gw_schedule *s, job *j, gw_err (*work)(void *ctx)) {
    GW_TRY(shm_meet(s, j));
    GW_TRY(gw_schedule_work(s, work, j));
    return shm_meet(s, j);
}

/* Write encodings, meeting, read them, meeting, after which the next exchange may overwrite
 * them. */
static gw_err shm_around_meeting(gw_schedule *s, job *j, gw_err (*write)(void *ctx),
                                 gw_err (*read)(void *ctx)) {
    GW_TRY(gw_schedule_work(s, write, j));
    GW_TRY(shm_meet(s, j));
    GW_TRY(gw_schedule_work(s, read, j));
    return shm_meet(s, j);
}

static gw_err shm_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args;
    gw_lane *lane = gw_schedule_lane(s);
    bool exact = gw_lane_exact(lane), whole = what == GW_REDUCE || what == GW_BCAST;
    GW_TRY(shm_check_node(lane));
    job *j = NULL;
    GW_TRY(gw_alloc(&j, 1, sizeof *j));
    GW_TRY(gw_schedule_own(s, j, shm_release));
    *j = (job){.schedule = s,
               .lane = lane,
               .me = gw_lane_rank(lane),
               .ranks = gw_lane_size(lane),
               .base = gw_schedule_base(s),
               .span = gw_schedule_span(s),
               .root = root};
    GW_TRY(gw_crew_new(&j->crew, gw_lane_channel(lane)->shared, 0, j->ranks));
    j->crew->lead = root;
    GW_TRY(exact ? shm_find_values(j) : shm_make_block(j, whole));
    switch (what) {
    case GW_REDUCE:
        return exact ? shm_between_meetings(s, j, shm_sum_for_root)
                     : shm_around_meeting(s, j, shm_encode_whole, shm_add_whole);
    case GW_BCAST:
        GW_TRY(gw_schedule_work(s, gw_crew_signal, j->crew));
        GW_TRY(gw_schedule_await(s, gw_crew_lead, j->crew));
        GW_TRY(gw_schedule_work(s, shm_copy_root, j));
        GW_TRY(gw_schedule_work(s, gw_crew_signal, j->crew));
        /* Only the root needs to know that all have read. */
        return j->me == root ? gw_schedule_await(s, gw_crew_all, j->crew) : GW_OK;
    case GW_REDUCE_SCATTER:
        return exact ? shm_between_meetings(s, j, shm_sum_for_me)
                     : shm_around_meeting(s, j, shm_encode_foreign, shm_add_shares);
    case GW_ALLGATHER:
        return exact ? shm_between_meetings(s, j, shm_copy_parts)
                     : shm_around_meeting(s, j, shm_encode_own, shm_decode_sums);
    default:
        if (exact)
            return shm_between_meetings(s, j, shm_sum_for_all);
        GW_TRY(gw_schedule_work(s, shm_encode_foreign, j));
        GW_TRY(shm_meet(s, j));
        GW_TRY(gw_schedule_work(s, shm_add_shares, j));
        GW_TRY(gw_schedule_work(s, shm_encode_own, j));
        GW_TRY(shm_meet(s, j));
        return gw_schedule_work(s, shm_decode_sums, j);
    }
}

static gw_cost shm_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args, (void)lane, (void)what, (void)n;
    return (gw_cost){0};
}

const gw_algo_ops gw_algo_shm = {
    .head = {GW_ALGO_ABI, "shm", "one node: each rank sums its slice in the memory of all ranks",
             NULL},
    .caps = GW_ALGO_SHARED | GW_ALGO_LENT,
    .verbs = ~0u,
    .formula = "no bytes, no messages (8 P n bytes read and written in shared memory)",
    .lay_down = shm_lay_down,
    .cost = shm_cost,
};
