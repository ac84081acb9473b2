/* The contract of the comm layer, over the whole registries: every strategy x algorithm x codec
 * that is not refused, on as many ranks as this program is started with. Whatever is added to a
 * .def file is tested here without a line of test code. */
#include "base/mem.h"
#include "base/rng.h"
#include "prof/clock.h"
#include "prof/ledger.h"
#include "train/session.h"

#include "../mpi/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { LAYERS = 3, STEPS = 3 };

static int me, ranks;
static bool yield;

typedef struct trial {
    char comm[96], codec[64];
    const char *feedback;
    size_t n;
    bool lazy;
} trial;

typedef struct outcome {
    bool refused;
    uint32_t crc;        /* of the parameters, after STEPS steps */
    uint64_t wire_bytes; /* of the last step, all ranks */
    double error;        /* relative, of the summed updates */
    bool exact;          /* largest error of an element is rounding */
} outcome;

/* Any rank can compute any rank's gradient, so the expected sum needs no communication. */
static float gradient(int rank, int step, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(77, (uint64_t)rank), (uint64_t)step);
    uint64_t u = gw_rng_u64(key, i);
    return u % 8 == 0 ? 0.0f : (float)((double)(u >> 11) * 0x1p-53 - 0.5);
}

static void cut(gw_span *layers, size_t n) {
    for (int l = 0; l < LAYERS; l++)
        layers[l] = gw_span_part((gw_span){0, n}, l, LAYERS);
}

static gw_err settle(gw_session *s, gw_span span, float *param) {
    gw_update u;
    GW_TRY(gw_session_finish(s, span, &u));
    for (size_t i = u.own.off; i < gw_span_end(u.own); i++)
        param[i] -= u.scale * u.grad[i];
    return gw_session_publish(s, span);
}

static gw_err step(gw_session *s, const trial *t, int number, float *param, float *grad,
                   const gw_span *layers) {
    for (int l = 0; t->lazy && number > 0 && l < LAYERS; l++)
        GW_TRY(settle(s, layers[l], param));
    if (number == STEPS)
        return GW_OK;
    gw_session_begin(s);
    for (int l = LAYERS - 1; l >= 0; l--) {
        for (size_t i = layers[l].off; i < gw_span_end(layers[l]); i++)
            grad[i] = gradient(me, number, i);
        GW_TRY(gw_session_ready(s, layers[l]));
        GW_TRY(gw_session_progress(s));
    }
    return t->lazy ? GW_OK : settle(s, (gw_span){0, t->n}, param);
}

static void judge(const trial *t, const float *param, outcome *o) {
    double err = 0, norm = 0;
    o->exact = true;
    for (size_t i = 0; i < t->n; i++) {
        double want = 0, size = 0;
        for (int k = 0; k < STEPS; k++)
            for (int r = 0; r < ranks; r++) {
                want -= gradient(r, k, i);
                size += fabs(gradient(r, k, i));
            }
        double d = (double)param[i] - want;
        err += d * d;
        norm += want * want;
        if (fabs(d) > 1e-6 * size)
            o->exact = false;
    }
    o->error = norm > 0 ? sqrt(err / norm) : sqrt(err);
    o->crc = (uint32_t)crc32_z(0, (const Bytef *)param, t->n * sizeof(float));
}

static gw_err run(gw_session *s, const trial *t, outcome *o) {
    float *param = NULL, *grad = NULL;
    gw_span layers[LAYERS];
    cut(layers, t->n);
    GW_TRY(gw_alloc(&param, t->n, sizeof *param));
    GW_TRY(gw_alloc(&grad, t->n, sizeof *grad));
    GW_TRY(gw_session_open(s, MPI_COMM_WORLD, param, grad, t->n, layers, LAYERS, 5, yield));
    gw_batch_cost cost;
    for (int k = 0; k <= STEPS; k++) {
        gw_ledger_begin();
        GW_TRY(step(s, t, k, param, grad, layers));
        gw_ledger_end(&cost);
        if (k == STEPS - 1)
            o->wire_bytes = cost.wire_bytes;
    }
    gw_session_close(s);
    MPI_Allreduce(MPI_IN_PLACE, &o->wire_bytes, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    judge(t, param, o);
    uint32_t first = o->crc;
    MPI_Bcast(&first, 1, MPI_UINT32_T, 0, MPI_COMM_WORLD);
    CHECK(first == o->crc, "%s %s n=%zu: replicas differ", t->comm, t->codec, t->n);
    free(param);
    free(grad);
    return GW_OK;
}

static outcome try(const trial *t) {
    outcome o = {0};
    gw_session *s = NULL;
    gw_err e = gw_session_new(&s, t->comm, t->codec, t->feedback);
    if (e == GW_ERR_UNSUPPORTED) {
        CHECK(strlen(gw_err_text()) > 20 && !strchr(gw_err_text(), '\n'),
              "a refusal is one line with its reason: '%s'", gw_err_text());
        o.refused = true;
        return o;
    }
    CHECK(e == GW_OK, "%s %s: %s", t->comm, t->codec, gw_err_text());
    e = run(s, t, &o);
    CHECK(e == GW_OK, "%s %s n=%zu: %s", t->comm, t->codec, t->n, gw_err_text());
    gw_session_free(s);
    return o;
}

/* ---- what every combination owes ---- */

/* Relative error of one encoding of a gradient. */
static double one_error(const gw_codec *c, size_t n) {
    float *x = NULL, *y = NULL;
    char *wire = NULL;
    size_t cap = gw_codec_bound(c, n), len;
    CHECK(gw_alloc(&x, n, sizeof *x) == GW_OK && gw_alloc(&y, n, sizeof *y) == GW_OK &&
              gw_alloc(&wire, cap, 1) == GW_OK,
          "%s", gw_err_text());
    for (size_t i = 0; i < n; i++)
        x[i] = gradient(0, 0, i);
    CHECK(gw_codec_encode(c, 9, x, n, wire, cap, &len) == GW_OK, "%s", gw_err_text());
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

/* Error feedback: whatever a codec drops comes back, so what was sent in K steps plus the residual
 * is what there was to send, wherever in the arena the span lies. */
static void feedback_adds_up(const char *algo, const char *codec) {
    enum { N = 3000, K = 40 };
    (void)algo;
    static float g[N], v[N], sent[N];
    gw_codec c;
    gw_lane *lane = NULL;
    CHECK(gw_codec_open(&c, codec) == GW_OK, "%s", gw_err_text());
    CHECK(gw_lane_open(&lane, MPI_COMM_WORLD, &c, N, true, 3, yield) == GW_OK, "%s", gw_err_text());
    if (!lane->residual) {
        CHECK(c.ops->caps & GW_CODEC_LOSSLESS, "%s: error feedback is not on", codec);
        gw_lane_close(lane);
        gw_codec_close(&c);
        return;
    }
    static char wire[N * 8];
    memset(sent, 0, sizeof sent);
    for (int k = 0; k < K; k++) {
        lane->ticket++;
        for (size_t i = 0; i < N; i++)
            g[i] = v[i] = gradient(me, 0, i) + 0.01f;
        for (int part = 0; part < 2; part++) {
            gw_span span = gw_span_part((gw_span){0, N}, part, 2);
            size_t len;
            CHECK(gw_lane_encode(lane, v, span, part == 1, wire, sizeof wire, &len) == GW_OK, "%s",
                  gw_err_text());
            CHECK(gw_lane_decode(lane, wire, len, sent, span, true) == GW_OK, "%s", gw_err_text());
        }
    }
    double residual = 0;
    for (size_t i = 0; i < N; i++) {
        double want = (double)K * g[i], have = (double)sent[i] + lane->residual[i];
        CHECK(fabs(have - want) < 1e-4 * (1 + fabs(want)), "%s: element %zu: sent %g + residual %g",
              codec, i, sent[i], lane->residual[i]);
        residual += fabs(lane->residual[i]);
    }
    CHECK(residual > 0, "%s: a lossy codec with nothing left over", codec);
    gw_lane_close(lane);
    gw_codec_close(&c);
}

static void check_values(const trial *t, const outcome *o) {
    gw_codec c;
    CHECK(gw_codec_open(&c, t->codec) == GW_OK, "%s", gw_err_text());
    if (c.ops->caps & GW_CODEC_LOSSLESS)
        CHECK(o->exact, "%s %s n=%zu: sums are not exact (error %g)", t->comm, t->codec, t->n,
              o->error);
    else if (t->n > 100) /* a rank's gradient lost on the way would show as 0.5 or more */
        CHECK(o->error < 4 * one_error(&c, t->n),
              "%s %s n=%zu: relative error %g, of one encoding %g", t->comm, t->codec, t->n,
              o->error, one_error(&c, t->n));
    if (ranks == 1)
        CHECK(o->exact, "%s %s: one rank sends nothing and loses nothing", t->comm, t->codec);
    gw_codec_close(&c);
}

/* Bytes of the last step against the formula; eager only, where the spans are known. */
static void check_bytes(const trial *t, const char *strategy, const char *algo, size_t bucket,
                        const outcome *o) {
    gw_codec c;
    gw_algo a;
    CHECK(gw_codec_open(&c, t->codec) == GW_OK, "%s", gw_err_text());
    CHECK(gw_algo_open(&a, algo, &c) == GW_OK, "%s", gw_err_text());
    uint64_t want = 0;
    int collectives = 0;
    if (strcmp(strategy, "ps") == 0) {
        if (t->n > 0)
            want = (uint64_t)(ranks - 1) * (gw_codec_bound(&c, t->n) + t->n * sizeof(float));
        collectives = 2;
    } else {
        size_t each = bucket ? bucket / sizeof(float) : t->n;
        for (size_t left = t->n; left > 0;) {
            size_t n = left < each ? left : each;
            want += a.ops->wire_bytes(a.args, &c, n, ranks);
            left -= n;
            collectives++;
        }
    }
    /* Of MPI's own collectives the ledger charges each rank a whole number of bytes. */
    long long slack = strcmp(algo, "native") == 0 ? (long long)ranks * collectives : 0;
    if ((c.ops->caps & GW_CODEC_FIXED) && ranks > 1)
        CHECK(llabs((long long)(o->wire_bytes - want)) <= slack,
              "%s %s n=%zu: %llu bytes on the wire, the formula says %llu", t->comm, t->codec, t->n,
              (unsigned long long)o->wire_bytes, (unsigned long long)want);
    gw_algo_close(&a);
    gw_codec_close(&c);
}

typedef struct variant {
    const char *strategy, *options;
    size_t bucket;
} variant;

/* The options of built-in strategies worth a trial of their own; any other runs with its defaults.
 */
static const variant variants[] = {
    {"iallreduce", "bucket=1K,progress=poll,", 1024},
    {"iallreduce", "bucket=1K,progress=none,", 1024},
    {"iallreduce", "bucket=1K,progress=thread,", 1024},
    {"iallreduce", "bucket=64M,", 64 << 20},
};

static const char *const codec_options[] = {"qsgd:bits=8,bucket=64", "qsgd:bits=4"};

static outcome combination(const char *strategy, const char *options, size_t bucket,
                           const char *algo, const char *codec, const char *feedback, size_t n,
                           bool lazy) {
    trial t = {.feedback = feedback, .n = n, .lazy = lazy};
    snprintf(t.comm, sizeof t.comm, "%s:%salgo=%s", strategy, options, algo);
    snprintf(t.codec, sizeof t.codec, "%s", codec);
    outcome o = try(&t);
    if (o.refused)
        return o;
    check_values(&t, &o);
    if (!lazy)
        check_bytes(&t, strategy, algo, bucket, &o);
    return o;
}

static void sizes(const char *strategy, const char *options, size_t bucket, const char *algo,
                  const char *codec) {
    size_t p = (size_t)ranks, n[] = {0, 1, p - 1, p + 1, 1003};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        if (combination(strategy, options, bucket, algo, codec, "auto", n[i], false).refused)
            return;
    combination(strategy, options, bucket, algo, codec, "on", 1003, false);
    combination(strategy, options, bucket, algo, codec, "auto", 1003, true);
}

/* However it is overlapped, the bits are those of the blocking exchange of the same spans. */
static void same_bits(const char *algo, const char *codec) {
    for (int on = 0; on < 2; on++) {
        const char *ef = on ? "on" : "off";
        outcome whole = combination("allreduce", "", 0, algo, codec, ef, 5000, false);
        if (whole.refused)
            return;
        outcome one =
            combination("iallreduce", "bucket=64M,", 64 << 20, algo, codec, ef, 5000, false);
        bool own_order = strcmp(algo, "native") == 0 && ranks > 2; /* MPI may sum otherwise */
        CHECK(whole.crc == one.crc || own_order,
              "%s %s: one bucket overlapped differs from blocking", algo, codec);
        outcome first = {0};
        for (int i = 0; i < 3; i++) {
            const variant *v = &variants[i];
            outcome o =
                combination(v->strategy, v->options, v->bucket, algo, codec, ef, 5000, false);
            outcome lazy =
                combination(v->strategy, v->options, v->bucket, algo, codec, ef, 5000, true);
            first = i == 0 ? o : first;
            CHECK(o.crc == first.crc, "%s %s: %s gives other bits", algo, codec, v->options);
            CHECK(lazy.crc == first.crc, "%s %s: %s lazy gives other bits", algo, codec,
                  v->options);
        }
    }
}

static void each_codec(void (*f)(const char *algo, const char *codec), const char *algo) {
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        f(algo, (*c)->name);
    for (size_t i = 0; i < sizeof codec_options / sizeof *codec_options; i++)
        f(algo, codec_options[i]);
}

static void each_strategy(const char *algo, const char *codec) {
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++) {
        bool special = false;
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
            if (strcmp(variants[i].strategy, (*s)->name) == 0) {
                sizes((*s)->name, variants[i].options, variants[i].bucket, algo, codec);
                special = true;
            }
        if (!special)
            sizes((*s)->name, "", 0, algo, codec);
    }
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(level >= MPI_THREAD_SERIALIZED, "MPI gives thread level %d", level);
    yield = ranks >= sysconf(_SC_NPROCESSORS_ONLN); /* a progress thread a rank counts, too */
    gw_clock_start();
    gw_ledger_start();
    for (const gw_entry *const *a = gw_algos.entries; *a; a++) {
        each_codec(each_strategy, (*a)->name);
        each_codec(same_bits, (*a)->name);
    }
    each_codec(feedback_adds_up, NULL);
    MPI_Finalize();
    return 0;
}
