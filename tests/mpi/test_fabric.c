/* Schedules over another fabric than MPI (memory_fabric.h). Every algorithm that needs nothing but
 * messages gives, with every codec, the bits that it gives over MPI on as many ranks, whatever the
 * order in which ranks and messages come: many seeds, each an interleaving. And what such a test is
 * for, it finds: schedules with a fault fail, and the same schedules without it do not.
 *
 * By hand: test_fabric RANKS SEEDS. */
#include "base/rng.h"
#include "comm/algo.h"
#include "comm/lane.h"
#include "comm/schedule/queue.h"
#include "mpi/wait.h"

#include "../specs.h"
#include "check.h"
#include "memory_fabric.h"

#include <string.h>

enum { N = 200, BUCKETS = 3, STEPS = 2 };

static int seeds;

/* ---- every algorithm, with every codec ---- */

typedef struct result {
    float sum[STEPS][N], residual[N];
} result;

typedef struct trial {
    const char *algo, *codec;
    gw_verb what;
    int root;
    size_t n;
    uint64_t seed;
    result *want; /* of each rank; what is undefined is 0 */
} trial;

/* How the buckets of a step are run. */
typedef enum mode { IN_TURN, YIELDING, QUEUED, MODES } mode;

static gw_verb verbs[] = {GW_ALLREDUCE, GW_REDUCE, GW_BCAST, GW_REDUCE_SCATTER, GW_ALLGATHER};

static void fill(float *base, size_t n, int rank, int step) {
    uint64_t key = gw_rng_key(gw_rng_key(31, (uint64_t)rank), (uint64_t)step);
    for (size_t i = 0; i < n; i++)
        base[i] = i % 7 == 0 ? 0.0f : (float)(gw_rng_unit(key, i) - 0.5);
}

static void forget(float *x, gw_span s) {
    memset(x + s.off, 0, s.n * sizeof *x);
}

/* Only what the collective defines on this rank. */
static void keep(const trial *t, int rank, const float *base, float *sum) {
    memcpy(sum, base, t->n * sizeof *sum);
    for (int b = 0; b < BUCKETS; b++) {
        gw_span bucket = gw_span_part((gw_span){0, t->n}, b, BUCKETS);
        for (int r = 0; r < ranks; r++)
            if ((t->what == GW_REDUCE && rank != t->root) ||
                (t->what == GW_REDUCE_SCATTER && rank != r))
                forget(sum, gw_span_part(bucket, r, ranks));
    }
}

/* Each rank starts with another bucket, has credit for one, and waits in another order. */
static gw_err run_queued(gw_schedule **s, uint64_t key, int rank) {
    gw_queue *q;
    uint64_t drawn = 0;
    GW_TRY(gw_queue_open(&q, GW_PROGRESS_POLL, BUCKETS, gw_rng_u64(key, drawn++) % 2));
    if (gw_rng_u64(key, drawn++) % 2)
        gw_queue_limit(q, 1);
    gw_err e = GW_OK;
    for (int b = 0; b < BUCKETS; b++) {
        GW_THEN(e, gw_queue_start(q, s[(b + rank) % BUCKETS]));
        for (uint64_t polls = gw_rng_u64(key, drawn++) % 4; polls > 0; polls--)
            GW_THEN(e, gw_queue_poll(q));
    }
    for (int b = 0; b < BUCKETS; b++)
        GW_THEN(e, gw_queue_wait(q, s[BUCKETS - 1 - b]));
    gw_queue_close(q);
    return e;
}

static gw_err run_step(gw_schedule **s, mode how, uint64_t key, int rank) {
    if (how == QUEUED)
        return run_queued(s, key, rank);
    for (int b = 0; b < BUCKETS; b++)
        GW_TRY(gw_schedule_run(s[b]));
    return GW_OK;
}

static gw_err run_steps(const trial *t, gw_lane *lane, const gw_algo *algo, mode how, result *out) {
    float base[N];
    gw_schedule *s[BUCKETS] = {NULL};
    gw_err e = GW_OK;
    for (int b = 0; b < BUCKETS; b++) {
        GW_THEN(e,
                gw_schedule_new(&s[b], lane, base, gw_span_part((gw_span){0, t->n}, b, BUCKETS)));
        GW_THEN(e, gw_algo_lay_down(algo, s[b], t->what, t->root));
    }
    for (int k = 0; k < STEPS && e == GW_OK; k++) {
        gw_lane_begin_at(lane, (uint64_t)k);
        fill(base, t->n, gw_lane_rank(lane), k);
        e = run_step(s, how, gw_rng_key(t->seed, (uint64_t)(k * ranks + gw_lane_rank(lane))),
                     gw_lane_rank(lane));
        keep(t, gw_lane_rank(lane), base, out->sum[k]);
    }
    if (gw_lane_encoder(lane)->residual)
        memcpy(out->residual, gw_lane_encoder(lane)->residual, t->n * sizeof(float));
    for (int b = 0; b < BUCKETS; b++)
        gw_schedule_free(s[b]);
    return e;
}

static gw_lane_setup setup_of(const trial *t, gw_codec *codec, mode how) {
    return (gw_lane_setup){
        .codec = codec, .n = t->n, .feedback = true, .seed = 5, .yield = how == YIELDING};
}

static gw_err run_in_memory(void *ctx, gw_fabric *fabric) {
    const trial *t = ctx;
    result have = {0};
    gw_codec codec;
    gw_algo algo = {0};
    gw_lane *lane = NULL;
    int rank = fabric->rank;
    mode how = (mode)(gw_rng_u64(t->seed, 0) % MODES);
    GW_TRY(open_codec(&codec, t->codec));
    gw_err e = open_algo(&algo, t->algo, &codec);
    gw_lane_setup setup = setup_of(t, &codec, how);
    GW_THEN(e, gw_lane_open_on(&lane, fabric, &setup));
    GW_THEN(e, run_steps(t, lane, &algo, how, &have));
    gw_lane_close(lane);
    gw_algo_close(&algo);
    gw_codec_close(&codec);
    if (e == GW_OK && memcmp(&have, &t->want[rank], sizeof have) != 0)
        e = gw_fail(GW_ERR_DIVERGED, "other bits than over MPI");
    return e;
}

/* false: the algorithm does not carry the codec. */
static bool run_over_mpi(const trial *t, result *want) {
    result have = {0};
    gw_codec codec;
    gw_algo algo;
    gw_lane *lane;
    CHECK_OK(open_codec(&codec, t->codec));
    gw_err e = open_algo(&algo, t->algo, &codec);
    CHECK(e == GW_OK || e == GW_ERR_UNSUPPORTED, "%s", gw_err_text());
    if (e == GW_OK) {
        gw_lane_setup setup = setup_of(t, &codec, YIELDING);
        CHECK_OK(gw_lane_open(&lane, MPI_COMM_WORLD, &setup));
        CHECK_OK(run_steps(t, lane, &algo, YIELDING, &have));
        gw_lane_close(lane);
        gw_algo_close(&algo);
        CHECK_MPI(MPI_Allgather(&have, sizeof have, MPI_BYTE, want, sizeof have, MPI_BYTE,
                                MPI_COMM_WORLD));
    }
    gw_codec_close(&codec);
    return e == GW_OK;
}

/* The ranks share the seeds. */
static void try_collective(const char *algo, const char *codec, gw_verb what, size_t n) {
    static uint64_t trials;
    static result want[MEMORY_RANKS];
    trial t = {.algo = algo, .codec = codec, .what = what, .n = n, .want = want};
    t.root = what == GW_REDUCE || what == GW_BCAST ? (int)(trials % (uint64_t)ranks) : 0;
    trials++;
    if (!run_over_mpi(&t, want))
        return;
    for (int k = me; k < seeds; k += ranks) {
        t.seed = gw_rng_key(trials, (uint64_t)k);
        CHECK(memory_run(ranks, t.seed, run_in_memory, &t) == GW_OK,
              "%s %s, verb %d, root %d, %zu floats, seed %d: %s", algo, codec, (int)what, t.root, n,
              k, gw_err_text());
    }
}

static void try_algorithm(const char *algo) {
    static const char *const more[] = {"qsgd:bits=4+zlib", "topk:ratio=0.1"};
    enum { MORE = sizeof more / sizeof *more };
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        for (size_t n = 5; n <= N; n += N - 5) {
            bool exact = c == gw_codecs.entries;
            for (int v = 0; v < (exact ? (int)(sizeof verbs / sizeof *verbs) : 1); v++)
                try_collective(algo, (*c)->name, verbs[v], n);
        }
    for (int i = 0; i < MORE; i++)
        for (int v = 0; v < (int)(sizeof verbs / sizeof *verbs); v++)
            try_collective(algo, more[i], verbs[v], N);
}

/* Those that start MPI's collectives or share memory have no other fabric. */
static void try_all(void) {
    int tried = 0;
    for (const gw_entry *const *a = gw_algos.entries; *a; a++) {
        char cut[64];
        if (!gw_algo_sends_messages((const gw_algo_ops *)*a))
            continue;
        try_algorithm((*a)->name);
        tried++;
        for (const gw_opt *o = (*a)->opts; o && o->name; o++) {
            snprintf(cut, sizeof cut, "%s:chunk=64,window=2", (*a)->name);
            if (strcmp(o->name, "chunk") == 0)
                try_algorithm(cut);
        }
    }
    CHECK(tried > 0, "no algorithm needs nothing but messages");
    char file[4096];
    snprintf(file, sizeof file, "file:path=%s/%d.json", SCHEDULES, ranks);
    try_algorithm(file);
}

/* ---- schedules with a fault ---- */

enum { HALF = 8 };

typedef struct fault {
    const char *what;
    gw_err (*lay)(gw_schedule *s, int rank, bool broken);
    const char *found; /* the error of a broken one contains this; NULL: of some seeds it has one */
    bool broken;
} fault;

static const gw_span low = {0, HALF}, high = {HALF, HALF};

/* Two messages with one tag. */
static gw_err lay_swapped(gw_schedule *s, int rank, bool broken) {
    int one, other;
    if (rank == 0) {
        GW_TRY(gw_schedule_copy(s, low, false, &one));
        GW_TRY(gw_schedule_copy(s, high, false, &other));
        GW_TRY(gw_schedule_send(s, broken ? other : one, 1));
        return gw_schedule_send(s, broken ? one : other, 1);
    }
    GW_TRY(gw_schedule_recv(s, low, 0, false, &one));
    GW_TRY(gw_schedule_recv(s, high, 0, false, &other));
    GW_TRY(gw_schedule_round(s));
    GW_TRY(gw_schedule_unpack(s, one, low, false));
    return gw_schedule_unpack(s, other, high, false);
}

static gw_err clear_low(void *s) {
    memset(gw_schedule_base(s), 0, HALF * sizeof(float));
    return GW_OK;
}

static gw_err lay_written_too_early(gw_schedule *s, int rank, bool broken) {
    int slot;
    if (rank == 1) {
        GW_TRY(gw_schedule_recv(s, low, 0, false, &slot));
        GW_TRY(gw_schedule_round(s));
        return gw_schedule_unpack(s, slot, low, false);
    }
    GW_TRY(gw_schedule_pack(s, low, false, &slot)); /* the arena itself */
    GW_TRY(gw_schedule_send(s, slot, 1));
    if (!broken)
        GW_TRY(gw_schedule_round(s));
    return gw_schedule_work(s, clear_low, s);
}

static gw_err lay_written_where_it_arrives(gw_schedule *s, int rank, bool broken) {
    int slot;
    if (rank == 0) {
        GW_TRY(gw_schedule_pack(s, low, false, &slot));
        return gw_schedule_send(s, slot, 1);
    }
    if (!broken)
        GW_TRY(gw_schedule_work(s, clear_low, s));
    GW_TRY(gw_schedule_recv(s, low, 0, true, &slot)); /* onto the arena */
    if (broken)
        GW_TRY(gw_schedule_work(s, clear_low, s));
    GW_TRY(gw_schedule_round(s));
    return gw_schedule_unpack(s, slot, low, false);
}

static gw_err lay_read_too_early(gw_schedule *s, int rank, bool broken) {
    int slot;
    if (rank == 0) {
        GW_TRY(gw_schedule_pack(s, low, false, &slot));
        return gw_schedule_send(s, slot, 1);
    }
    GW_TRY(gw_schedule_recv(s, low, 0, true, &slot));
    if (!broken)
        GW_TRY(gw_schedule_round(s));
    GW_TRY(gw_schedule_copy(s, low, false, &slot));
    GW_TRY(gw_schedule_round(s));
    return gw_schedule_unpack(s, slot, low, false);
}

static gw_err lay_both_wait(gw_schedule *s, int rank, bool broken) {
    int in, out;
    GW_TRY(gw_schedule_recv(s, high, 1 - rank, false, &in));
    if (broken)
        GW_TRY(gw_schedule_round(s));
    GW_TRY(gw_schedule_pack(s, low, false, &out));
    GW_TRY(gw_schedule_send(s, out, 1 - rank));
    GW_TRY(gw_schedule_round(s));
    return rank == 1 ? gw_schedule_unpack(s, in, low, false) : GW_OK;
}

/* MPI may complete a send before it is received, and need not. */
static gw_err lay_rests_on_buffers(gw_schedule *s, int rank, bool broken) {
    int in, out;
    GW_TRY(gw_schedule_pack(s, low, false, &out));
    GW_TRY(gw_schedule_send(s, out, 1 - rank));
    if (broken)
        GW_TRY(gw_schedule_round(s));
    GW_TRY(gw_schedule_recv(s, low, 1 - rank, false, &in));
    GW_TRY(gw_schedule_round(s));
    return rank == 1 ? gw_schedule_unpack(s, in, low, false) : GW_OK;
}

static gw_err lay_left_over(gw_schedule *s, int rank, bool broken) {
    int slot;
    if (rank == 0) {
        GW_TRY(gw_schedule_pack(s, low, false, &slot));
        if (broken)
            GW_TRY(gw_schedule_send(s, slot, 1));
        return gw_schedule_send(s, slot, 1);
    }
    GW_TRY(gw_schedule_recv(s, low, 0, false, &slot));
    GW_TRY(gw_schedule_round(s));
    return gw_schedule_unpack(s, slot, low, false);
}

static gw_err run_fault(const fault *f, gw_lane *lane) {
    float base[2 * HALF];
    gw_schedule *s = NULL;
    bool judged = gw_lane_rank(lane) == 1 && f->lay != lay_written_where_it_arrives;
    for (int i = 0; i < 2 * HALF; i++)
        base[i] = (float)(100 * gw_lane_rank(lane) + i);
    GW_TRY(gw_schedule_new(&s, lane, base, (gw_span){0, 2 * HALF}));
    gw_err e = f->lay(s, gw_lane_rank(lane), f->broken);
    GW_THEN(e, gw_schedule_run(s));
    gw_schedule_free(s);
    for (int i = 0; i < HALF && judged && e == GW_OK; i++)
        if (base[i] != (float)i)
            e = gw_fail(GW_ERR_DIVERGED, "element %d is %g", i, base[i]);
    return e;
}

static gw_err fault_in_memory(void *ctx, gw_fabric *fabric) {
    gw_codec codec;
    gw_lane *lane = NULL;
    gw_lane_setup setup = {.codec = &codec, .n = 2 * HALF, .yield = fabric->rank};
    GW_TRY(open_codec(&codec, "none"));
    gw_err e = gw_lane_open_on(&lane, fabric, &setup);
    GW_THEN(e, run_fault(ctx, lane));
    gw_lane_close(lane);
    gw_codec_close(&codec);
    return e;
}

static void find_faults(void) {
    static const fault faults[] = {
        {"two messages swapped", lay_swapped, "element 0 is 8"},
        {"what is sent is written to", lay_written_too_early, "wrote to what it sends"},
        {"what arrives is written to", lay_written_where_it_arrives, "wrote to what arrives"},
        {"read before it is there", lay_read_too_early, "element 0 is "},
        {"both wait", lay_both_wait, "no rank can go on"},
        {"rests on buffers", lay_rests_on_buffers, NULL},
        {"a message too many", lay_left_over, ""},
    };
    enum { FAULTS = sizeof faults / sizeof *faults, SEEDS = 60 };
    for (int i = 0; i < FAULTS; i++) {
        int found = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            fault f = faults[i];
            CHECK(memory_run(2, seed, fault_in_memory, &f) == GW_OK, "%s: without the fault: %s",
                  f.what, gw_err_text());
            f.broken = true;
            bool fails = memory_run(2, seed, fault_in_memory, &f) != GW_OK;
            CHECK(!f.found || (fails && strstr(gw_err_text(), f.found)), "%s, seed %d: %s", f.what,
                  (int)seed, fails ? gw_err_text() : "it is not found");
            found += fails;
        }
        CHECK(faults[i].found || (found > 0 && found < SEEDS), "%s: found by %d of %d seeds",
              faults[i].what, found, SEEDS);
    }
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    CHECK(ranks <= MEMORY_RANKS, "%d ranks, and at most %d", ranks, MEMORY_RANKS);
    seeds = argc > 2 ? atoi(argv[2]) : 16 / ranks;
    if (me == 0)
        find_faults();
    try_all();
    MPI_Finalize();
    return 0;
}
