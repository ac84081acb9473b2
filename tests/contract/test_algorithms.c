/* The algorithm interface by itself, in cases that no strategy reaches: every verb with every root,
 * options that cut spans into many strands, spans that leave some ranks without elements, and
 * schedules that are started again. */
#include "base/mem.h"
#include "base/rng.h"
#include "comm/algo.h"
#include "mpi/wait.h"
#include "prof/ledger.h"

#include "../mpi/check.h"
#include "../specs.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum {
    GUARD = 3, /* floats of the arena before and after the span */
    SHORT = 1003,
    LONG = 1000003
};

static bool yield;

typedef struct trial {
    const char *algo, *codec;
    gw_verb what;
    int root;
    size_t n;
    bool blocking;
} trial;

static const char *const verbs[] = {"allreduce", "reduce", "bcast", "reduce_scatter", "allgather"};

/* Whole numbers, whose float sums are exact in any order. They are drawn once, because drawing
 * takes most of a trial's time. */
enum { ROUNDS = 2, MOST_RANKS = 16 };
static int8_t values[MOST_RANKS][ROUNDS][LONG];
static float sums[ROUNDS][LONG];

static void draw_values(void) {
    CHECK(ranks <= MOST_RANKS, "values are kept for %d ranks", MOST_RANKS);
    for (int rank = 0; rank < ranks; rank++)
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t key = gw_rng_key(gw_rng_key(11, (uint64_t)rank), (uint64_t)round);
            for (size_t i = 0; i < LONG; i++) {
                values[rank][round][i] = (int8_t)((int)(gw_rng_u64(key, i) % 33) - 16);
                sums[round][i] += values[rank][round][i];
            }
        }
}

/* Is element i of the span, in the part of rank `owner`, defined on this rank afterwards? If so,
 * *value is what it must be. */
static bool wanted(const trial *t, int round, size_t i, int owner, float *want) {
    bool copies = t->what == GW_BCAST || t->what == GW_ALLGATHER;
    *want = copies ? values[t->what == GW_BCAST ? t->root : owner][round][i] : sums[round][i];
    return (t->what != GW_REDUCE || me == t->root) && (t->what != GW_REDUCE_SCATTER || me == owner);
}

static void same_everywhere(const trial *t, const float *x) {
    CHECK(same_on_all(x, t->n * sizeof *x), "%s %s %s root %d n=%zu: ranks differ", t->algo,
          t->codec, verbs[t->what], t->root, t->n);
}

static void judge(const trial *t, bool exact, int round, const float *x) {
    double err = 0, norm = 0;
    int owner = 0;
    for (size_t i = 0; i < t->n; i++) {
        float want;
        while (i >= gw_span_end(gw_span_part((gw_span){0, t->n}, owner, ranks)))
            owner++;
        if (!wanted(t, round, i, owner, &want))
            continue;
        CHECK(!exact || x[i] == want, "%s %s root %d n=%zu: element %zu is %g, must be %g", t->algo,
              verbs[t->what], t->root, t->n, i, x[i], want);
        err += ((double)x[i] - want) * ((double)x[i] - want);
        norm += (double)want * want;
    }
    CHECK(err <= 0.01 * norm, "%s %s %s root %d n=%zu: relative error %g", t->algo, t->codec,
          verbs[t->what], t->root, t->n, sqrt(err / norm));
    for (size_t i = 0; i < GUARD; i++)
        CHECK(x[-1 - (int)i] == 7.0f && x[t->n + i] == 7.0f, "%s %s n=%zu: outside of its span",
              t->algo, verbs[t->what], t->n);
    if (t->what != GW_REDUCE && t->what != GW_REDUCE_SCATTER)
        same_everywhere(t, x);
}

static void execute(const trial *t, gw_schedule *s) {
    if (t->blocking) {
        CHECK_OK(gw_schedule_run(s));
        return;
    }
    CHECK_OK(gw_schedule_start(s));
    for (bool done = false; !done;) {
        CHECK_OK(gw_schedule_test(s, &done));
        if (!done && yield)
            sched_yield();
    }
}

typedef struct bench {
    gw_algo algo;
    gw_lane *lane;
    float *base;
} bench;

static void try(const bench *b, const trial *t) {
    gw_schedule *s = NULL;
    CHECK_OK(gw_schedule_new(&s, b->lane, b->base, (gw_span){GUARD, t->n}));
    gw_err e = gw_algo_lay_down(&b->algo, s, t->what, t->root);
    for (int round = 0; e == GW_OK && round < ROUNDS; round++) {
        gw_batch_cost cost;
        for (size_t i = 0; i < t->n + 2 * GUARD; i++)
            b->base[i] = i < GUARD || i >= t->n + GUARD ? 7.0f : values[me][round][i - GUARD];
        gw_lane_begin(b->lane);
        gw_ledger_begin();
        execute(t, s);
        gw_ledger_end(&cost);
        judge(t, gw_lane_exact(b->lane) || ranks == 1, round, b->base + GUARD);
        if (gw_lane_codec(b->lane)->caps & GW_CODEC_FIXED)
            check_charges(t->algo, &cost, gw_algo_cost(&b->algo, b->lane, t->what, t->n));
    }
    CHECK(e == GW_OK || e == GW_ERR_UNSUPPORTED, "%s: %s", t->algo, gw_err_text());
    gw_schedule_free(s);
}

static void each_verb(const bench *b, const char *algo, const char *codec, size_t longest) {
    size_t p = (size_t)ranks, n[] = {0, 1, p - 1, p, p + 1};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        try(b, &(trial){algo, codec, GW_ALLREDUCE, 0, n[i], i % 2});
    for (int blocking = 0; blocking < 2; blocking++) {
        try(b, &(trial){algo, codec, GW_ALLREDUCE, 0, SHORT, blocking});
        try(b, &(trial){algo, codec, GW_REDUCE_SCATTER, 0, blocking ? SHORT : p - 1, blocking});
        try(b, &(trial){algo, codec, GW_ALLGATHER, 0, blocking ? p - 1 : SHORT, blocking});
    }
    for (int root = 0; root < ranks; root++) {
        try(b, &(trial){algo, codec, GW_REDUCE, root, SHORT, false});
        try(b, &(trial){algo, codec, GW_BCAST, root, SHORT, true});
    }
    try(b, &(trial){algo, codec, GW_ALLREDUCE, 0, longest, true});
}

/* Floats whose sums show the order of additions and a missing addend: mostly zeros of either
 * sign. */
static float awkward(uint64_t key, size_t i) {
    static const float odd[] = {1,        -1,     0x1.000002p0f, 0x1p24f,     -0x1p24f,
                                0x1p-24f, 1e-45f, -1e-45f,       0x1p-126f,   1.5f,
                                -0.5f,    3e-39f, 0x1p-126f,     -0x1.8p-126f};
    uint64_t u = gw_rng_u64(key, i);
    if (u % 8 < 5)
        return u & 8 ? -0.0f : 0.0f;
    return odd[(u >> 4) % (sizeof odd / sizeof *odd)];
}

/* For any data and any codec, all ranks get the same bits. */
static void awkward_floats(const bench *b, const char *algo, const char *codec, size_t longest) {
    for (int round = 0; round < ROUNDS; round++) {
        trial t = {algo, codec, GW_ALLREDUCE, 0, longest - (size_t)round, round};
        uint64_t key = gw_rng_key(gw_rng_key(23, (uint64_t)me), (uint64_t)round);
        gw_schedule *s = NULL;
        CHECK_OK(gw_schedule_new(&s, b->lane, b->base, (gw_span){GUARD, t.n}));
        gw_err e = gw_algo_lay_down(&b->algo, s, t.what, t.root);
        for (size_t i = 0; i < t.n; i++)
            b->base[GUARD + i] = awkward(key, i);
        gw_lane_begin(b->lane);
        if (e == GW_OK) {
            execute(&t, s);
            same_everywhere(&t, b->base + GUARD);
        }
        CHECK(e == GW_OK || e == GW_ERR_UNSUPPORTED, "%s: %s", algo, gw_err_text());
        gw_schedule_free(s);
    }
}

typedef void try_all(const bench *b, const char *algo, const char *codec, size_t longest);

static void with_codec(try_all *all, const char *algo, const char *spec, size_t longest) {
    gw_codec codec;
    bench b;
    CHECK_OK(open_codec(&codec, spec));
    gw_err e = open_algo(&b.algo, algo, &codec);
    CHECK(e == GW_OK || e == GW_ERR_UNSUPPORTED, "%s: %s", algo, gw_err_text());
    if (e == GW_OK) {
        gw_lane_setup setup = {.codec = &codec,
                               .n = longest + 2 * GUARD,
                               .seed = 5,
                               .yield = yield,
                               .shared = b.algo.ops->caps & GW_ALGO_SHARED};
        CHECK_OK(gw_lane_open(&b.lane, MPI_COMM_WORLD, &setup));
        CHECK_OK(gw_lane_floats(b.lane, setup.n, &b.base));
        all(&b, algo, spec, longest);
        gw_lane_close(b.lane);
        gw_algo_close(&b.algo);
    }
    gw_codec_close(&codec);
}

/* Chunks smaller than a span, of one float, and of no float for some ranks; uneven groups. */
static const struct {
    const char *algo;
    size_t longest;
} options[] = {{"ring:chunk=4,window=1", SHORT},
               {"ring:chunk=100,window=3", SHORT},
               {"ring:chunk=40K,window=0", LONG},
               {"ring:chunk=0", LONG},
               {"halving:chunk=4,window=2", SHORT},
               {"halving:chunk=1000,window=1", SHORT},
               {"halving:chunk=64K", LONG},
               {"swing:chunk=1000,message=100", SHORT},
               {"hier:group=1", SHORT},
               {"hier:group=2", LONG},
               {"hier:group=3", SHORT},
               {"bine:message=64K", LONG},
               {"pat:chunk=64K,message=4K", LONG},
               {"file:path=" SCHEDULES "/2.json", LONG},
               {"file:path=" SCHEDULES "/3.json,chunk=100", SHORT},
               {"file:path=" SCHEDULES "/4.json,chunk=40K,window=2", LONG}};

static void each_codec(const char *algo, size_t longest) {
    with_codec(each_verb, algo, "none", longest);
    with_codec(each_verb, algo, "qsgd:bits=8,bucket=64", longest);
}

/* One codec of each kind; all codecs if each rank has a core of its own. */
static void each_codec_awkward(const char *algo) {
    static const char *const kinds[] = {"none",
                                        "bf16",
                                        "qsgd:bits=4",
                                        "topk:ratio=0.5",
                                        "threshold:value=0",
                                        "topk:ratio=0.5+zlib"};
    if (strcmp(algo, "auto") == 0) /* one of the others */
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        with_codec(awkward_floats, algo, kinds[i], SHORT);
    for (const gw_entry *const *c = gw_codecs.entries; *c && ranks <= 2; c++)
        with_codec(awkward_floats, algo, (*c)->name, SHORT);
}

/* Arguments: the number of ranks that must be there; an algorithm or a plugin's path [all]. */
int main(int argc, char **argv) {
    const char *only = argc > 2 ? argv[2] : NULL;
    check_start(argc, argv);
    yield = ranks >= sysconf(_SC_NPROCESSORS_ONLN); /* tests share the machine with others */
    gw_wait_yields(yield);
    draw_values();
    for (const gw_entry *const *a = gw_algos.entries; *a && !only; a++) {
        each_codec((*a)->name, LONG);
        each_codec_awkward((*a)->name);
    }
    for (size_t i = 0; i < sizeof options / sizeof *options && !only; i++)
        each_codec(options[i].algo, options[i].longest);
    if (only) {
        each_codec(only, LONG);
        each_codec_awkward(only);
    }
    MPI_Finalize();
    return 0;
}
