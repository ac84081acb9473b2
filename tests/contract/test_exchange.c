/* The contract of the comm layer, over the whole registries: every strategy x algorithm x codec
 * that is not refused, on as many ranks as this program is started with. Whatever is added to a
 * .def file is tested here without a line of test code. */
#include "base/mem.h"
#include "base/rng.h"
#include "base/wait.h"
#include "prof/clock.h"
#include "prof/ledger.h"
#include "train/session.h"

#include "../mpi/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { LAYERS = 3, STEPS = 4 };

static int me, ranks;
static bool yield, framed;

typedef struct trial {
    char comm[128], codec[64];
    const char *feedback;
    size_t n;
    bool lazy;
} trial;

typedef struct outcome {
    bool refused;
    uint32_t crc; /* of the parameters, settled after STEPS steps */
    double error; /* relative, of the summed updates */
    bool exact;   /* largest error of an element is rounding */
    bool lossy;   /* the strategy compresses by itself */
} outcome;

/* What every rank holds in a trial; params of the last step. */
typedef struct run_state {
    gw_session *session;
    const trial *t;
    gw_span layers[LAYERS];
    gw_tensor tensors[2 * LAYERS];
    int servers; /* ranks from 0 on without samples */
} run_state;

/* Any rank can compute any rank's gradient, so the expected sum needs no communication. */
static float gradient(int rank, int step, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(77, (uint64_t)rank), (uint64_t)step);
    uint64_t u = gw_rng_u64(key, i);
    return u % 8 == 0 ? 0.0f : (float)((double)(u >> 11) * 0x1p-53 - 0.5);
}

static gw_err settle(run_state *r, gw_span span) {
    gw_update u;
    float *param = gw_session_params(r->session);
    GW_TRY(gw_session_finish(r->session, span, &u));
    for (size_t i = u.own.off; i < gw_span_end(u.own); i++)
        param[i] -= u.scale * u.grad[i];
    return gw_session_publish(r->session, span);
}

/* As the trainer does: whole and at once, or layer by layer, one ahead of what is read. */
static gw_err settle_all(run_state *r) {
    gw_span all = {0, r->t->n};
    if (!r->t->lazy) {
        GW_TRY(settle(r, all));
        return gw_session_await(r->session, all);
    }
    for (int l = 0; l < LAYERS; l++) {
        GW_TRY(settle(r, r->layers[l]));
        if (l > 0)
            GW_TRY(gw_session_await(r->session, r->layers[l - 1]));
    }
    return gw_session_await(r->session, r->layers[LAYERS - 1]);
}

/* One exchange, from the first ready() to agreed parameters. */
static gw_err step(run_state *r, int number) {
    bool works = me >= r->servers;
    float *grad = gw_session_grads(r->session);
    gw_session_begin(r->session, works ? 1.0 / (ranks - r->servers) : 0.0);
    for (int l = LAYERS - 1; l >= 0; l--) {
        gw_span s = r->layers[l];
        for (size_t i = s.off; i < gw_span_end(s); i++)
            grad[i] = works ? gradient(me, number, i) : 0.0f;
        GW_TRY(gw_session_ready(r->session, s));
        GW_TRY(gw_session_progress(r->session));
    }
    return settle_all(r);
}

/* ---- what every combination owes ---- */

/* Parameters against the sums of `steps` steps in double precision. */
static void judge(const run_state *r, const float *param, int steps, outcome *o) {
    double err = 0, norm = 0;
    o->exact = true;
    for (size_t i = 0; i < r->t->n; i++) {
        double want = 0, size = 0;
        for (int k = 0; k < steps; k++)
            for (int q = r->servers; q < ranks; q++) {
                want -= gradient(q, k, i);
                size += fabs(gradient(q, k, i));
            }
        double d = (double)param[i] - want;
        err += d * d;
        norm += want * want;
        if (fabs(d) > 1e-6 * size)
            o->exact = false;
    }
    o->error = norm > 0 ? sqrt(err / norm) : sqrt(err);
}

static void check_replicas(const run_state *r, const char *when) {
    const float *param = gw_session_params(r->session);
    uint32_t mine = (uint32_t)crc32_z(0, (const Bytef *)param, r->t->n * sizeof(float));
    uint32_t ends[2] = {mine, ~mine}, least[2];
    gw_allreduce(ends, least, 2, MPI_UINT32_T, MPI_MIN, MPI_COMM_WORLD);
    CHECK(least[0] == ~least[1], "%s %s n=%zu lazy=%d: replicas differ %s", r->t->comm, r->t->codec,
          r->t->n, r->t->lazy, when);
}

/* The ledger's count of all ranks against the formula. */
static void check_cost(const run_state *r, const gw_batch_cost *c, gw_cost want, const char *what) {
    const gw_codec *codec = gw_session_codec(r->session);
    uint64_t mine[3] = {c->wire_bytes, c->messages, c->collectives}, sum[3];
    gw_allreduce(mine, sum, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    /* Of MPI's own collectives the ledger charges each rank a whole number of bytes. */
    if (codec->caps & GW_CODEC_FIXED)
        CHECK(sum[0] <= want.bytes && sum[0] + sum[2] >= want.bytes,
              "%s %s n=%zu lazy=%d: %s: %llu bytes on the wire, the formula says %llu", r->t->comm,
              r->t->codec, r->t->n, r->t->lazy, what, (unsigned long long)sum[0],
              (unsigned long long)want.bytes);
    CHECK(sum[1] == want.messages, "%s %s n=%zu lazy=%d: %s: %llu messages, the formula says %llu",
          r->t->comm, r->t->codec, r->t->n, r->t->lazy, what, (unsigned long long)sum[1],
          (unsigned long long)want.messages);
}

static void add_cost(gw_batch_cost *sum, const gw_batch_cost *c) {
    sum->wire_bytes += c->wire_bytes;
    sum->messages += c->messages;
    sum->collectives += c->collectives;
}

static gw_err steps(run_state *r, outcome *o) {
    unsigned traits = gw_session_strategy(r->session)->traits;
    bool synchronous = traits & GW_STRATEGY_SYNCHRONOUS;
    gw_batch_cost cost, sum = {0};
    gw_cost want = {0};
    for (int k = 0; k < STEPS; k++) {
        gw_ledger_begin();
        GW_TRY(step(r, k));
        gw_ledger_end(&cost);
        add_cost(&sum, &cost);
        want = gw_cost_sum(want, gw_session_cost(r->session, k));
        if (synchronous)
            check_replicas(r, "after a step");
    }
    want = gw_cost_sum(want, gw_session_settle_cost(r->session));
    gw_ledger_begin();
    GW_TRY(gw_session_settle(r->session));
    gw_ledger_end(&cost);
    add_cost(&sum, &cost);
    /* Over all of them: what one step starts, a later one or the settling may complete. */
    check_cost(r, &sum, want, "steps and settling");
    check_replicas(r, "when settled");
    const float *param = gw_session_params(r->session);
    judge(r, param, STEPS, o);
    /* A strategy that is not exact may still hold the last step back. */
    outcome late = *o;
    judge(r, param, STEPS - 1, &late);
    if (!(traits & (GW_STRATEGY_EXACT | GW_STRATEGY_LOSSY)) && late.error < o->error)
        *o = late;
    o->lossy = traits & GW_STRATEGY_LOSSY;
    o->crc = (uint32_t)crc32_z(0, (const Bytef *)param, r->t->n * sizeof(float));
    return GW_OK;
}

/* Of a layer about seven eighths are a nearly square matrix, the rest its biases. */
static void cut_layers(run_state *r) {
    for (int l = 0; l < LAYERS; l++) {
        gw_span s = gw_span_part((gw_span){0, r->t->n}, l, LAYERS);
        size_t most = s.n - s.n / 8, rows = (size_t)sqrt((double)most);
        size_t cols = rows ? most / rows : 0, weights = rows * cols;
        r->layers[l] = s;
        r->tensors[2 * l] = (gw_tensor){{s.off, weights}, l, (int)rows, (int)cols};
        r->tensors[2 * l + 1] =
            (gw_tensor){{s.off + weights, s.n - weights}, l, 1, (int)(s.n - weights)};
    }
}

static gw_err run(gw_session *s, const trial *t, outcome *o) {
    run_state r = {.session = s, .t = t, .servers = gw_session_servers(s)};
    cut_layers(&r);
    gw_session_setup setup = {.n = t->n,
                              .layers = r.layers,
                              .n_layers = LAYERS,
                              .tensors = r.tensors,
                              .n_tensors = 2 * LAYERS,
                              .by_layer = t->lazy,
                              .seed = 5,
                              .yield = yield};
    gw_err e = gw_session_open(s, MPI_COMM_WORLD, &setup);
    if (e == GW_OK)
        e = steps(&r, o);
    gw_session_close(s);
    return e;
}

static outcome refusal(gw_session *s) {
    CHECK(strlen(gw_err_text()) > 20 && !strchr(gw_err_text(), '\n'),
          "a refusal is one line with its reason: '%s'", gw_err_text());
    gw_session_free(s);
    return (outcome){.refused = true};
}

static outcome try(const trial *t) {
    outcome o = {0};
    gw_session *s = NULL;
    gw_err e = gw_session_new(&s, t->comm, t->codec, t->feedback, framed);
    if (e == GW_ERR_UNSUPPORTED)
        return refusal(NULL);
    CHECK(e == GW_OK, "%s %s: %s", t->comm, t->codec, gw_err_text());
    e = run(s, t, &o);
    /* What needs several ranks, or several nodes, shows at the opening. */
    if (e == GW_ERR_UNSUPPORTED || (e == GW_ERR_USAGE && ranks <= gw_session_servers(s)))
        return refusal(s);
    CHECK(e == GW_OK, "%s %s n=%zu: %s", t->comm, t->codec, t->n, gw_err_text());
    gw_session_free(s);
    return o;
}

/* Relative error of one encoding of the sum of `parts` gradients. */
static double one_error(const gw_codec *c, size_t n, int parts) {
    float *x = NULL, *y = NULL;
    char *wire = NULL;
    size_t cap = gw_codec_bound(c, n), len;
    CHECK(gw_alloc(&x, n, sizeof *x) == GW_OK && gw_alloc(&y, n, sizeof *y) == GW_OK &&
              gw_alloc(&wire, cap, 1) == GW_OK,
          "%s", gw_err_text());
    for (size_t i = 0; i < n; i++)
        for (int rank = 0; rank < parts; rank++)
            x[i] += gradient(rank, 0, i);
    CHECK(gw_codec_encode(c, (gw_turn){9, 1}, x, n, wire, cap, &len) == GW_OK, "%s", gw_err_text());
    CHECK(gw_codec_decode(c, wire, len, y, n, 0) == GW_OK, "%s", gw_err_text());
    double err = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        err += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)x[i] * x[i];
    }
    free(x);
    free(y);
    free(wire);
    return sqrt(err / norm);
}

static void check_values(const trial *t, const outcome *o) {
    gw_codec c;
    char first[64]; /* of a mix, whose other codecs err less */
    snprintf(first, sizeof first, "%.*s", (int)strcspn(t->codec, ";"), t->codec);
    CHECK(gw_codec_open(&c, first) == GW_OK, "%s", gw_err_text());
    CHECK(gw_codec_join(&c, ranks) == GW_OK, "%s", gw_err_text());
    /* Every further encoding on the way adds an error of this size; a rank's gradient lost on the
     * way would show as sqrt(1 / ranks) or more. Codes so coarse that chance alone does as much,
     * the more the more gradients are in a sum, cannot show it: the finer ones do. */
    double one = t->n > 100 ? one_error(&c, t->n, 1) : 0, further = fmin(2.0 * ranks, 4.0);
    double most = fmin(further * one, fmax(1.5 * one, 0.45));
    if (c.caps & GW_CODEC_UNBIASED && one > 0.2)
        most = further * one_error(&c, t->n, ranks);
    if (o->lossy) /* of noise a few factors hold little; but never worse than nothing sent */
        CHECK(o->exact || o->error < 1, "%s %s n=%zu lazy=%d: relative error %g", t->comm, t->codec,
              t->n, t->lazy, o->error);
    else if (c.caps & GW_CODEC_LOSSLESS)
        CHECK(o->exact, "%s %s n=%zu lazy=%d: sums are not exact (error %g)", t->comm, t->codec,
              t->n, t->lazy, o->error);
    else if (t->n > 100)
        CHECK(o->error < most, "%s %s n=%zu lazy=%d: relative error %g, of one encoding %g",
              t->comm, t->codec, t->n, t->lazy, o->error, one);
    if (ranks == 1)
        CHECK(o->exact, "%s %s: one rank sends nothing and loses nothing", t->comm, t->codec);
    gw_codec_close(&c);
}

static outcome combination(const char *strategy, const char *options, const char *algo,
                           const char *codec, const char *feedback, size_t n, bool lazy) {
    trial t = {.feedback = feedback, .n = n, .lazy = lazy};
    snprintf(t.comm, sizeof t.comm, "%s:%salgo=(%s)", strategy, options, algo);
    snprintf(t.codec, sizeof t.codec, "%s", codec);
    outcome o = try(&t);
    if (!o.refused)
        check_values(&t, &o);
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
    {"delayed", "progress=none,bucket=1K,"},
    {"sharded", "progress=thread,"},
    {"gossip", "topology=exponential,"},
    {"powersgd", "rank=1,feedback=off,"},
    {"powersgd", "rank=9,warm=off,"},
};
static const variant codec_variants[] = {
    {"qsgd", "qsgd:bits=8,bucket=64"},
    {"qsgd", "qsgd:bits=4"},
    {"qsgd", "qsgd:bits=4+zlib"},
    {"topk", "topk+zlib"},
    {"fp16", "fp16+zlib"},
};
static const variant algo_variants[] = {
    {"hier", "hier:group=1"},
    {"hier", "hier:group=2,inner=sra"},
};
#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

typedef struct visitor {
    void (*f)(const struct visitor *v, const char *algo, const char *codec);
    const char *strategy, *options;
} visitor;

/* A few that stand for all: what carries a codec's sums in each of the ways there are; what needs
 * no encoding, and what does. */
static bool stands_for_all(const char *algo, const char *codec) {
    return strcmp(algo, "native") == 0 || strcmp(algo, "sra") == 0 ||
           strcmp(algo, "gathersum") == 0 || strcmp(codec, "none") == 0 ||
           strcmp(codec, "qsgd") == 0;
}

/* f for every algorithm and codec, with defaults and with each variant's options. `all`: every
 * algorithm with every codec; else each with those that stand for all. */
static void each_pair(const visitor *v, bool all) {
    const char *codecs[64], *algos[64];
    int nc = 0, na = 0;
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        codecs[nc++] = (*c)->name;
    for (int i = 0; i < COUNT(codec_variants); i++)
        codecs[nc++] = codec_variants[i].options;
    for (const gw_entry *const *a = gw_algos.entries; *a; a++)
        algos[na++] = (*a)->name;
    for (int i = 0; i < COUNT(algo_variants); i++)
        if (*algo_variants[i].name)
            algos[na++] = algo_variants[i].options;
    for (int a = 0; a < na; a++)
        for (int c = 0; c < nc; c++)
            if (all || stands_for_all(algos[a], codecs[c]))
                v->f(v, algos[a], codecs[c]);
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
    size_t p = (size_t)ranks, n[] = {0, 1, p - 1, p, p + 1, 1000003};
    bool exact = strcmp(codec, "none") == 0; /* the largest takes time: once an algorithm */
    for (int i = 0; i < COUNT(n) - !exact; i++)
        if (combination(v->strategy, v->options, algo, codec, "auto", n[i], i % 2).refused)
            return;
}

/* However it is overlapped, the bits are those of the blocking exchange of the same spans. */
static void same_bits(const visitor *v, const char *algo, const char *codec) {
    enum { N = 5000 };
    (void)v;
    if (ranks > 2 && strcmp(codec, "none") != 0 && strcmp(codec, "qsgd") != 0 &&
        strcmp(codec, "topk") != 0)
        return; /* the order of messages, not what is in them, is what more ranks add */
    if (strcmp(algo, "auto") == 0)
        return; /* measures and chooses anew each time; with a table: test_tuning.c */
    for (int on = 0; on < 2; on++) {
        const char *ef = on ? "on" : "off";
        outcome whole = combination("allreduce", "", algo, codec, ef, N, false);
        if (whole.refused)
            return;
        outcome one = combination("iallreduce", "bucket=64M,", algo, codec, ef, N, false);
        bool mpi = strcmp(algo, "native") == 0 || strcmp(algo, "persistent") == 0;
        bool own_order = mpi && ranks > 2; /* MPI may sum otherwise */
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

/* Tensors with different codecs, each over the algorithm that carries it or all over one. */
static void mixes(const visitor *v) {
    static const char *const mix[] = {"qsgd:bits=4;layer1=none", "topk:ratio=0.5;min_bytes=256",
                                      "qsgd:bits=4;layer0=fp16;layer2=topk:ratio=0.9;min_bytes=1K"};
    static const char *const algos[] = {"", "sra", "gathersum", "ring"};
    for (int m = 0; m < COUNT(mix); m++)
        for (int a = 0; a < COUNT(algos); a++)
            both_updates(v, algos[a], mix[m]);
}

/* The whole contract of one strategy. */
static void strategy(const char *name, const char *options) {
    visitor v = {both_updates, name, options};
    if (*options) /* an option changes when and how much, not what may be combined */
        some_pairs(&v);
    else
        each_pair(&v, ranks <= 2), mixes(&v); /* more ranks: pairs that stand for all */
    v.f = odd_spans;
    v.f(&v, "sra", "none");
    v.f(&v, "sra", "qsgd");
}

static void algorithms(void) {
    each_pair(&(visitor){odd_spans, "allreduce", ""}, ranks <= 2);
}

/* The same in frames: every strategy, every algorithm, encodings of fixed and of any length. */
static void frames(void) {
    static const char *const codecs[] = {"none", "qsgd:bits=4", "topk", "fp16+zlib"};
    framed = true;
    for (int c = 0; c < COUNT(codecs); c++) {
        for (const gw_entry *const *a = gw_algos.entries; *a; a++) {
            both_updates(&(visitor){NULL, "allreduce", ""}, (*a)->name, codecs[c]);
            if (c > 0) /* the exact one takes time, and cuts spans likewise */
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

static void part(const char *name) {
    if (strcmp(name, "frames") == 0) {
        frames();
    } else if (strcmp(name, "algorithms") == 0) {
        algorithms();
    } else if (strcmp(name, "bits") == 0) {
        each_pair(&(visitor){same_bits, "", ""}, false);
    } else {
        strategy(name, "");
        for (int i = 0; i < COUNT(strategy_variants); i++)
            if (strcmp(strategy_variants[i].name, name) == 0)
                strategy(name, strategy_variants[i].options);
    }
}

/* Arguments: the number of ranks that must be there; what to try: a strategy (a name or a plugin's
 * path), "algorithms" with all codecs and odd spans, "bits" of blocking and overlapped runs,
 * "frames". */
int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(argc == 3 && atoi(argv[1]) == ranks, "usage: test_exchange %d PART", ranks);
    CHECK(level >= MPI_THREAD_SERIALIZED, "MPI gives thread level %d", level);
    yield = ranks >= sysconf(_SC_NPROCESSORS_ONLN); /* a progress thread a rank counts, too */
    gw_wait_yields(yield);
    gw_clock_start();
    gw_ledger_start();
    part(argv[2]);
    MPI_Finalize();
    return 0;
}
