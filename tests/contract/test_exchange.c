/* The contract of the comm layer for the whole registries: every strategy x algorithm x codec that
 * is not refused, on as many ranks as the program is started with. A new line in a .def file is
 * tested here without any new test code. */
#include "exchange.h"

#include "../mpi/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static outcome combination(const char *strategy, const char *options, const char *algo,
                           const char *codec, const char *feedback, size_t n, bool lazy) {
    trial t = {.feedback = feedback, .n = n, .lazy = lazy};
    bool freezes = !strcmp(strategy, "onebitadam") || !strcmp(strategy, "zerooneadam");
    if (freezes && !*options)
        options = *algo ? "freeze=1," : "freeze=1"; /* it is to compress before the trial is over */
    if (*algo)
        snprintf(t.comm, sizeof t.comm, "%s:%salgo=(%s)", strategy, options, algo);
    else /* the strategy's own */
        snprintf(t.comm, sizeof t.comm, "%s:%s", strategy, options);
    snprintf(t.codec, sizeof t.codec, "%s", codec);
    /* With one algorithm all strategies send messages of their own in all that they do, and their
     * bits are those of simulated ranks. */
    bool own = strcmp(algo, "sra") == 0;
    gw_algo_messages_only(own);
    outcome o = exchange_try(&t);
    if (own && me == 0 && !o.refused && n == 1003 && !strstr(options, "progress=thread"))
        CHECK(exchange_simulate(&t, ranks) == o.crc, "%s %s lazy=%d: other bits on simulated ranks",
              t.comm, codec, lazy);
    gw_algo_messages_only(false);
    return o;
}

/* ---- the registries, and options of what they hold that are worth trials of their own ---- */

typedef struct variant {
    const char *name, *options;
} variant;

static const variant strategy_variants[] = {
    {"iallreduce", "bucket=1K,progress=poll,"},
    {"iallreduce", "bucket=1K,progress=none,"},
    {"iallreduce", "bucket=1K,progress=thread,"},
    {"iallreduce", "bucket=64M,"},
    {"iallreduce", "bucket=1K,order=priority,credit=1K,"},
    {"iallreduce", "bucket=1K,order=priority,credit=2K,progress=thread,"},
    {"ps", "dedicated=1,"},
    {"local", "period=1,"},
    {"local", "period=3,"},
    {"diloco", "period=1,outer-lr=1,outer-momentum=0,"},
    {"diloco", "period=3,outer-lr=1,outer-momentum=0,"},
    {"diloco", "period=4,fragments=2,outer-lr=1,outer-momentum=0,"},
    {"diloco", "period=6,fragments=3,tau=1,alpha=1,"},
    {"delayed", "progress=none,bucket=1K,"},
    {"sharded", "progress=thread,"},
    {"gossip", "topology=exponential,"},
    {"noloco", "period=1,outer-lr=1,outer-momentum=0,"},
    {"powersgd", "rank=1,feedback=off,"},
    {"powersgd", "rank=9,warm=off,"},
    {"dion", "rank=1,orth=qr,"},
    {"dion", "rank=32,"},
    {"zerooneadam", "freeze=1,double=2,local=2,"},
    {"zerooneadam", "freeze=3,kappa=1,"},
    {"oktopk", "ratio=0.1,every=3,boundaries=2,"},
    {"oktopk", "ratio=1,every=1,"},
};
static const variant codec_variants[] = {
    {"qsgd", "qsgd:bits=8,bucket=64"},
    {"qsgd", "qsgd:bits=4"},
    {"qsgd", "qsgd:bits=4+zlib"},
    {"qsgd", "qsgd:bits=4,rounding=correlated"},
    {"adaptive", "adaptive:bits=3,bucket=64"},
    {"thc", "thc:granularity=20,bucket=256"},
    {"topk", "topk+zlib"},
    {"chunktopk", "chunktopk:k=32,chunk=64,bits=4"},
    {"e3m0", "e3m0:bucket=64,rounding=nearest"},
    {"fp16", "fp16+zlib"},
};
static const variant algo_variants[] = {
    {"hier", "hier:group=1"},
    {"hier", "hier:group=2,inner=sra"},
    {"file", "file:path=" SCHEDULES "/2.json"}, /* that of so many ranks; others are refused */
    {"file", "file:path=" SCHEDULES "/3.json,chunk=400"},
    {"file", "file:path=" SCHEDULES "/4.json"},
};
#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

typedef struct visitor {
    void (*f)(const struct visitor *v, const char *algo, const char *codec);
    const char *strategy, *options;
} visitor;

/* f for every codec with this algorithm, with defaults and with each variant's options. */
static void each_codec(const visitor *v, const char *algo) {
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        v->f(v, algo, (*c)->name);
    for (int i = 0; i < COUNT(codec_variants); i++)
        v->f(v, algo, codec_variants[i].options);
}

/* The same for this algorithm. Its variants differ only in which ranks exchange messages, so one
 * codec of each kind is enough: exact, fixed size, variable size. */
static void each_variant(const visitor *v, const char *algo) {
    static const char *const kinds[] = {"none", "qsgd:bits=4", "topk"};
    each_codec(v, algo);
    for (int i = 0; i < COUNT(algo_variants); i++)
        for (int c = 0; c < COUNT(kinds) && strcmp(algo_variants[i].name, algo) == 0; c++)
            v->f(v, algo_variants[i].options, kinds[c]);
}

static void each_pair(const visitor *v) {
    for (const gw_entry *const *a = gw_algos.entries; *a; a++)
        each_variant(v, (*a)->name);
}

/* Every algorithm with an exact codec, and one algorithm with a lossy one. */
static void some_pairs(const visitor *v) {
    for (const gw_entry *const *a = gw_algos.entries; *a; a++)
        v->f(v, (*a)->name, "none");
    v->f(v, "sra", "qsgd");
}

/* Any strategy: one size with each codec and algorithm, eager and lazy. */
static void both_updates(const visitor *v, const char *algo, const char *codec) {
    if (combination(v->strategy, v->options, algo, codec, "auto", 1003, false).refused)
        return;
    if (combination(v->strategy, v->options, algo, codec, "on", 1003, true).refused)
        combination(v->strategy, v->options, algo, codec, "auto", 1003, true);
}

/* Odd spans, where a rank's part may be empty. */
static void odd_spans(const visitor *v, const char *algo, const char *codec) {
    /* If ranks share cores, 391 small buckets are enough: each message waits for a core. */
    bool few = ranks > 2 && strstr(v->options, "bucket=1K");
    size_t p = (size_t)ranks, n[] = {0, 1, p - 1, p, p + 1, few ? 100003 : 1000003};
    bool exact = strcmp(codec, "none") == 0; /* the largest takes long: once per algorithm */
    for (int i = 0; i < COUNT(n) - !exact; i++)
        if (combination(v->strategy, v->options, algo, codec, "auto", n[i], i % 2).refused)
            return;
}

/* Overlapped in any way, the bits equal those of the blocking exchange of the same spans. "auto" is
 * excluded: it measures and chooses anew each time (test_tuning.c tests it with a table). */
static void same_bits(const visitor *v, const char *algo, const char *codec) {
    enum { N = 2003 }; /* eight buckets, the last one odd */
    (void)v;
    for (int on = 0; on < 2; on++) {
        const char *ef = on ? "on" : "off";
        outcome whole = combination("allreduce", "", algo, codec, ef, N, false);
        if (whole.refused)
            return;
        outcome one = combination("iallreduce", "bucket=64M,", algo, codec, ef, N, false);
        bool mpi = strcmp(algo, "native") == 0 || strcmp(algo, "persistent") == 0;
        bool own_order = mpi && ranks > 2; /* MPI may sum in another order */
        CHECK(whole.crc == one.crc || own_order,
              "%s %s: one bucket overlapped differs from blocking", algo, codec);
        outcome first = {0};
        for (int i = 0; i < COUNT(strategy_variants); i++) {
            const variant *w = &strategy_variants[i];
            if (strncmp(w->options, "bucket=1K", 9) != 0)
                continue;
            outcome o = combination(w->name, w->options, algo, codec, ef, N, i % 2);
            if (o.refused)
                continue;
            first = i == 0 ? o : first;
            CHECK(o.crc == first.crc, "%s %s: %s gives other bits", algo, codec, w->options);
        }
    }
}

/* Tensors with different codecs, each with an algorithm that carries it, or all with one. */
static void mixes(const visitor *v) {
    static const char *const mix[] = {"qsgd:bits=4;layer1=none", "topk:ratio=0.5;min_bytes=256",
                                      "qsgd:bits=4;layer0=fp16;layer2=topk:ratio=0.9;min_bytes=1K"};
    static const char *const algos[] = {"", "sra", "gathersum", "ring"};
    for (int m = 0; m < COUNT(mix); m++)
        for (int a = 0; a < COUNT(algos); a++)
            both_updates(v, algos[a], mix[m]);
}

/* GW_STRATEGY_ENCODES: nothing reads a gradient's arena. So the bits stay the same if the gradients
 * are in the residual already and the arena holds NaN, also after a void step, which is undone
 * there. */
static void stale_gradients(const visitor *v, const char *algo, const char *codec) {
    int ways = *v->options ? 2 : 4; /* options do not change what a void step leaves */
    for (int way = 0; way < ways; way++) {
        trial t = {.feedback = "on", .n = 1003, .lazy = way & 1, .voids = way & 2, .adds = true};
        snprintf(t.comm, sizeof t.comm, "%s:%salgo=(%s)", v->strategy, v->options, algo);
        snprintf(t.codec, sizeof t.codec, "%s", codec);
        outcome added = exchange_try(&t);
        if (!added.fed)
            return;
        t.adds = false;
        CHECK(exchange_try(&t).crc == added.crc,
              "%s %s lazy=%d void step=%d: has GW_STRATEGY_ENCODES, but reads gradients", t.comm,
              codec, t.lazy, t.voids);
    }
}

/* The whole contract of one strategy. */
static void strategy(const char *name, const char *options) {
    visitor v = {both_updates, name, options};
    if (*options) /* an option changes when and how much is sent, not what may be combined */
        some_pairs(&v);
    else
        each_pair(&v), mixes(&v);
    v.f = stale_gradients;
    each_pair(&v);
    v.f = odd_spans;
    v.f(&v, "sra", "none");
    v.f(&v, "sra", "qsgd");
}

static void every_option(const char *name) {
    strategy(name, "");
    for (int i = 0; i < COUNT(strategy_variants); i++)
        if (strcmp(strategy_variants[i].name, name) == 0)
            strategy(name, strategy_variants[i].options);
}

/* The same in frames: every strategy, every algorithm, encodings of fixed and of any length. */
static void frames(void) {
    static const char *const codecs[] = {"none", "qsgd:bits=4", "topk", "fp16+zlib"};
    exchange_frames();
    for (int c = 0; c < COUNT(codecs); c++) {
        for (const gw_entry *const *a = gw_algos.entries; *a; a++) {
            both_updates(&(visitor){NULL, "allreduce", ""}, (*a)->name, codecs[c]);
            if (c > 0) /* the exact codec takes long and cuts spans the same way */
                odd_spans(&(visitor){NULL, "allreduce", ""}, (*a)->name, codecs[c]);
        }
        for (const gw_entry *const *s = gw_strategies.entries; *s; s++)
            both_updates(&(visitor){NULL, (*s)->name, ""}, "sra", codecs[c]);
        CHECK(!combination("allreduce", "", "", codecs[c], "auto", 1003, false).refused,
              "%s: no algorithm for frames", codecs[c]);
        CHECK(combination("allreduce", "", "native", codecs[c], "auto", 1003, false).refused,
              "%s: MPI adds frames", codecs[c]);
    }
    CHECK(!combination("gossip", "", "sra", "none", "auto", 1003, false).refused || ranks == 1,
          "gossip refuses frames: %s", gw_err_text());
}

static void one_update(const visitor *v, const char *algo, const char *codec) {
    static int number;
    combination(v->strategy, v->options, algo, codec, "auto", 1003, number++ % 2);
}

/* Ranks of two nodes, where other ranks encode than on one: every algorithm with every codec and
 * with every strategy, and mixes with a codec that is left no tensor. */
static void nodes(void) {
    static const char *const kinds[] = {"qsgd:bits=4", "topk", "int8sum", "zlib"};
    static const char *const idle[] = {"topk:ratio=0.5;min_bytes=1G",
                                       "qsgd;layer0=fp16;layer1=none;layer2=fp16"};
    each_pair(&(visitor){one_update, "allreduce", ""});
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++) {
        visitor v = {one_update, (*s)->name, ""};
        for (const gw_entry *const *a = gw_algos.entries; *a; a++) {
            bool measures = strcmp((*a)->name, "auto") == 0; /* long, to take one of the others */
            for (int k = 0; k < COUNT(kinds) && !measures; k++)
                one_update(&v, (*a)->name, kinds[k]);
            for (int m = 0; m < COUNT(idle); m++)
                one_update(&v, (*a)->name, idle[m]);
        }
    }
}

static void sums(const char *algo) {
    each_variant(&(visitor){odd_spans, "allreduce", ""}, algo);
    if (strcmp(algo, "auto") != 0)
        each_variant(&(visitor){same_bits, "", ""}, algo);
}

/* ---- by themselves: what is out of the tree ---- */

/* Every strategy with this algorithm and all codecs. */
static void algorithm(const char *name) {
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++)
        each_variant(&(visitor){both_updates, (*s)->name, ""}, name);
    sums(name);
}

/* Every strategy and algorithm with this codec. */
static void codec(const char *name) {
    for (const gw_entry *const *a = gw_algos.entries; *a; a++) {
        for (const gw_entry *const *s = gw_strategies.entries; *s; s++)
            both_updates(&(visitor){NULL, (*s)->name, ""}, (*a)->name, name);
        odd_spans(&(visitor){NULL, "allreduce", ""}, (*a)->name, name);
        if (strcmp((*a)->name, "auto") != 0)
            same_bits(&(visitor){0}, (*a)->name, name);
    }
    exchange_frames();
    odd_spans(&(visitor){NULL, "allreduce", ""}, "sra", name);
}

/* Arguments: the number of ranks, then what to try. "strategy", "algo" or "codec" and a name
 * or a plugin's path: that one with everything of the two other kinds. "sums" and an algorithm: odd
 * spans, and equal bits of blocking and overlapped runs, with all codecs. "frames". "nodes". */
int main(int argc, char **argv) {
    int level;
    if (argc > 2 && strcmp(argv[2], "nodes") == 0) /* MPICH: odd and even ranks are two nodes */
        setenv("MPIR_CVAR_ODD_EVEN_CLIQUES", "1", 1);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    CHECK(argc >= 3 && atoi(argv[1]) == ranks,
          "usage: test_exchange RANKS PART [NAME], here %d ranks", ranks);
    const char *part = argv[2], *name = argc > 3 ? argv[3] : "";
    CHECK(level >= MPI_THREAD_SERIALIZED, "MPI gives thread level %d", level);
    exchange_start(ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (strcmp(part, "frames") == 0)
        frames();
    else if (strcmp(part, "nodes") == 0)
        nodes();
    else if (strcmp(part, "sums") == 0)
        sums(name);
    else if (strcmp(part, "algo") == 0)
        algorithm(name);
    else if (strcmp(part, "codec") == 0)
        codec(name);
    else if (strcmp(part, "strategy") == 0)
        every_option(name);
    else
        CHECK(false, "'%s': must be strategy, algo, codec, sums, frames or nodes", part);
    MPI_Finalize();
    return 0;
}
