#include "exchange.h"

#include "base/mem.h"
#include "base/rng.h"
#include "mpi/wait.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include "../mpi/check.h"
#include "../specs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { LAYERS = 3, STEPS = 4, VOID = 1 };

static MPI_Comm all_ranks = MPI_COMM_WORLD;
static bool yield, framed;

/* What every rank holds in a trial. */
typedef struct run_state {
    gw_session *session;
    const trial *t;
    gw_span layers[LAYERS];
    gw_tensor tensors[2 * LAYERS];
    int servers;             /* ranks 0 to servers - 1 have no samples */
    uint32_t crc[STEPS + 1]; /* of the parameters after each step and when settled */
    bool agrees[STEPS + 1];  /* and whether the strategy says that replicas agree then */
} run_state;

void exchange_start(int n) {
    ranks = n;
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &me));
    yield = ranks >= sysconf(_SC_NPROCESSORS_ONLN); /* a progress thread a rank counts, too */
    gw_wait_yields(yield);
    gw_clock_start();
    gw_ledger_start();
}

int exchange_be(int rank, MPI_Comm comm, bool yields) {
    int before = me;
    me = rank;
    all_ranks = comm;
    yield = yields || ranks >= sysconf(_SC_NPROCESSORS_ONLN);
    return before;
}

void exchange_frames(void) {
    framed = true;
}

/* ---- gradients: any rank can compute any rank's, so expected sums need no communication ---- */

static uint64_t key_of(int rank, int step) {
    return gw_rng_key(gw_rng_key(77, (uint64_t)rank), (uint64_t)step);
}

static float gradient(uint64_t key, size_t i) {
    uint64_t u = gw_rng_u64(key, i);
    return u % 8 == 0 ? 0.0f : (float)((double)(u >> 11) * 0x1p-53 - 0.5);
}

/* One element summed over all workers and steps: its value, and its magnitude, to which rounding
 * errors are proportional. */
typedef struct sum {
    double value, size;
} sum;

/* Sums of elements 0 to n over `steps` steps, valid until the next call. They are cached, because
 * most trials ask for the same ones as the trial before. */
static const sum *expected(int servers, int steps, size_t n) {
    static struct {
        sum *sums;
        size_t n;
        int servers;
    } kept[STEPS + 1];
    if (kept[steps].sums && kept[steps].n >= n && kept[steps].servers == servers)
        return kept[steps].sums;
    free(kept[steps].sums);
    sum *s = NULL;
    CHECK_OK(gw_alloc(&s, n + 1, sizeof *s));
    for (int k = 0; k < steps; k++)
        for (int q = servers; q < ranks; q++)
            for (size_t i = 0; i < n; i++) {
                double g = (double)gradient(key_of(q, k), i);
                s[i].value += g;
                s[i].size += fabs(g);
            }
    kept[steps].sums = s;
    kept[steps].n = n;
    kept[steps].servers = servers;
    return s;
}

/* ---- steps, as the trainer does them ---- */

static gw_err settle(run_state *r, gw_span span) {
    gw_update u;
    float *param = r->session->env.param;
    gw_span part = gw_session_owned(r->session, span);
    bool at_times = r->session->strategy.ops->gives > GW_GIVES_ROOT;
    GW_TRY(gw_session_finish(r->session, span, &u));
    CHECK(u.own.off == part.off && (u.own.n == part.n || (at_times && u.own.n == 0)),
          "%s: hands out [%zu, +%zu), and owns [%zu, +%zu)", r->t->comm, u.own.off, u.own.n,
          part.off, part.n);
    if (!gw_session_voids(r->session))
        for (size_t i = u.own.off; i < gw_span_end(u.own); i++)
            param[i] -= u.scale * u.grad[i];
    return gw_session_publish(r->session, span);
}

/* The whole arena at once, or layer by layer, one layer ahead of the one that is read. */
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
    uint64_t key = key_of(me, number);
    float *grad = r->session->env.grad;
    gw_session_begin(r->session, works ? 1.0 / (ranks - r->servers) : 0.0);
    float *sums = gw_session_sums(r->session);
    for (int l = LAYERS - 1; l >= 0; l--) {
        gw_span s = r->layers[l];
        for (size_t i = s.off; i < gw_span_end(s); i++) {
            grad[i] = works ? gradient(key, i) : 0.0f;
            if (sums) {
                sums[i] += grad[i];
                grad[i] = NAN; /* nobody may read this */
            }
        }
        GW_TRY(gw_session_ready(r->session, s));
        GW_TRY(gw_session_progress(r->session));
    }
    r->session->env.skip = r->t->voids && number == VOID;
    if (r->session->strategy.ops->ready || !gw_session_leaves_out(r->session))
        GW_TRY(settle_all(r));
    if (r->session->env.skip)
        gw_session_undo(r->session, false);
    return GW_OK;
}

/* ---- what every combination owes ---- */

/* Parameters against the sums of `steps` steps in double precision. */
static void judge(const run_state *r, int steps, outcome *o) {
    const float *param = r->session->env.param;
    const sum *want = expected(r->servers, steps, r->t->n);
    double err = 0, norm = 0;
    o->exact = true;
    for (size_t i = 0; i < r->t->n; i++) {
        double d = (double)param[i] + want[i].value;
        err += d * d;
        norm += want[i].value * want[i].value;
        if (fabs(d) > 1e-6 * want[i].size)
            o->exact = false;
    }
    o->error = norm > 0 ? sqrt(err / norm) : sqrt(err);
}

static void keep_crc(run_state *r, int when) {
    const float *param = r->session->env.param;
    r->crc[when] = (uint32_t)crc32_z(0, (const Bytef *)param, r->t->n * sizeof(float));
}

/* All at once at the end: a collective after each step would take most of a trial's time. */
static void check_replicas(const run_state *r) {
    uint32_t ends[2][STEPS + 1], least[2][STEPS + 1];
    for (int k = 0; k <= STEPS; k++) {
        ends[0][k] = r->crc[k];
        ends[1][k] = ~r->crc[k];
    }
    gw_allreduce(ends, least, 2 * (STEPS + 1), MPI_UINT32_T, MPI_MIN, all_ranks);
    for (int k = 0; k <= STEPS; k++)
        CHECK(!r->agrees[k] || least[0][k] == ~least[1][k],
              "%s %s n=%zu lazy=%d: replicas differ %s %d", r->t->comm, r->t->codec, r->t->n,
              r->t->lazy, k < STEPS ? "after step" : "when settled, step", k);
}

/* The ledger's count of all ranks against the formula. */
static void check_cost(const run_state *r, const gw_batch_cost *c, gw_cost want) {
    const gw_codec *codec = r->session->mix.codec;
    uint64_t mine[3] = {c->wire_bytes, c->messages, c->collectives}, all[3];
    gw_allreduce(mine, all, 3, MPI_UINT64_T, MPI_SUM, all_ranks);
    bool picks = r->session->strategy.plan.picks;
    /* For an MPI collective the ledger charges each rank a whole number of bytes. */
    if (codec->caps & GW_CODEC_FIXED)
        CHECK(all[0] <= want.bytes && (picks || all[0] + all[2] >= want.bytes),
              "%s %s n=%zu lazy=%d: %llu bytes on the wire, the formula says %llu", r->t->comm,
              r->t->codec, r->t->n, r->t->lazy, (unsigned long long)all[0],
              (unsigned long long)want.bytes);
    CHECK(all[1] == want.messages, "%s %s n=%zu lazy=%d: %llu messages, the formula says %llu",
          r->t->comm, r->t->codec, r->t->n, r->t->lazy, (unsigned long long)all[1],
          (unsigned long long)want.messages);
}

static void add_cost(gw_batch_cost *to, const gw_batch_cost *c) {
    to->wire_bytes += c->wire_bytes;
    to->messages += c->messages;
    to->collectives += c->collectives;
}

/* The largest error of a strategy that compresses by itself. A few factors hold little of the noise
 * in matrices, all of the rest; a few elements hold little of anything. */
static double most_lost(const run_state *r) {
    size_t n = 0;
    if (r->session->strategy.plan.picks)
        return r->t->n > 100 ? 1 : INFINITY;
    for (int l = 0; l < LAYERS; l++)
        n += r->tensors[2 * l].span.n;
    return sqrt((double)n / (double)(r->t->n + !r->t->n));
}

/* Step times are means over whole periods: exchanges that cost differently must be in one. */
static void check_period(const run_state *r) {
    const gw_strategy_ops *ops = r->session->strategy.ops;
    for (int64_t from = 0; from <= 60; from += 20) {
        int64_t period = gw_strategy_period(ops, r->session->self, from), later;
        for (int64_t k = from; period > 0 && k < from + 60; k++) {
            gw_cost one = ops->cost(r->session->self, k, &later);
            gw_cost other = ops->cost(r->session->self, k + period, &later);
            CHECK(one.bytes == other.bytes && one.messages == other.messages,
                  "%s: exchanges %lld and %lld differ, and its period is %lld from %lld on",
                  r->t->comm, (long long)k, (long long)(k + period), (long long)period,
                  (long long)from);
        }
    }
}

static gw_err steps(run_state *r, outcome *o) {
    const gw_strategy_ops *ops = r->session->strategy.ops;
    gw_batch_cost cost, all = {0};
    int64_t period;
    check_period(r);
    gw_cost want = {0};
    for (int k = 0; k < STEPS; k++) {
        bool soon = gw_session_agrees(r->session, 1);
        gw_ledger_begin();
        GW_TRY(step(r, k));
        gw_ledger_end(&cost);
        add_cost(&all, &cost);
        want = gw_cost_sum(want, ops->cost(r->session->self, k, &period));
        keep_crc(r, k);
        r->agrees[k] = gw_session_agrees(r->session, 0);
        CHECK(r->t->lazy || r->t->n == 0 || r->agrees[k] == soon,
              "%s: replicas agree %d after step %d, foretold %d", r->t->comm, r->agrees[k], k,
              soon);
    }
    gw_ledger_begin();
    GW_TRY(gw_session_settle(r->session));
    gw_ledger_end(&cost);
    want = gw_cost_sum(want, r->session->settled);
    add_cost(&all, &cost);
    keep_crc(r, STEPS);
    o->crc = r->crc[STEPS];
    if (r->t->voids)
        return GW_OK;
    r->agrees[STEPS] = true;
    /* Summed over all steps: a later step or the settling may complete what one step starts. */
    check_cost(r, &all, want);
    check_replicas(r);
    o->directs = ops->gives == GW_GIVES_DIRECTION;
    if (o->directs) /* it has tests of its own */
        return GW_OK;
    judge(r, STEPS, o);
    if (ops->gives > GW_GIVES_ROOT) {
        outcome late = *o; /* such a strategy may still hold the last step back */
        judge(r, STEPS - 1, &late);
        if (late.error < o->error)
            *o = late;
    }
    if (ops->traits & GW_STRATEGY_LOSSY)
        o->most = most_lost(r);
    return GW_OK;
}

/* Does error feedback keep everything that this codec does not send? Not if encodings are summed
 * without decoding and the sum rounds. */
static bool keeps_rest(const char *spec, const char *feedback) {
    gw_codec c;
    CHECK_OK(open_codec(&c, spec));
    bool fed = strcmp(feedback, "on") == 0 || c.caps & GW_CODEC_BIASED;
    bool rounds = gw_codec_summable(&c) && !(c.caps & GW_CODEC_LINEAR);
    gw_codec_close(&c);
    return fed && !rounds;
}

/* Error feedback loses nothing: what was sent plus what all ranks kept equals the gradients, no
 * matter who encoded which partial sum or how coarsely. */
static void check_residual(const run_state *r, const float *mine) {
    const float *param = r->session->env.param;
    const sum *want = expected(r->servers, STEPS, r->t->n);
    double *kept = NULL, *all = NULL;
    CHECK_OK(gw_alloc(&kept, r->t->n + 1, sizeof *kept));
    CHECK_OK(gw_alloc(&all, r->t->n + 1, sizeof *all));
    for (size_t i = 0; i < r->t->n; i++)
        kept[i] = (double)mine[i];
    gw_allreduce(kept, all, (int)r->t->n, MPI_DOUBLE, MPI_SUM, all_ranks);
    for (int t = 0; t < 2 * LAYERS; t++) {
        gw_span s = r->tensors[t].span;
        if (s.n == 0 || !keeps_rest(gw_session_codec_of(r->session, s.off), r->t->feedback))
            continue;
        for (size_t i = s.off; i < gw_span_end(s); i++) {
            double sent = -(double)param[i], lost = want[i].value - sent - all[i];
            CHECK(fabs(lost) <= 1e-6 * (want[i].size + fabs(all[i])),
                  "%s %s n=%zu lazy=%d: element %zu: of %g, %g was sent and %g kept", r->t->comm,
                  r->t->codec, r->t->n, r->t->lazy, i, want[i].value, sent, all[i]);
        }
    }
    free(kept);
    free(all);
}

/* About seven eighths of a layer are a nearly square matrix; the rest is its biases. */
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

/* Each codec's encodings are counted; what is said before the first step is so at the end. */
static void check_labels(const run_state *r) {
    gw_session *s = r->session;
    const trial *t = r->t;
    bool idle = s->unmet.idle, none = true, asked = false;
    CHECK_OK(gw_session_find_unmet(s, (gw_unmet_ask){.ended = true}, all_ranks));
    for (int i = 0; i < s->mix.n; i++) {
        bool changes = !(s->mix.codec[i].ops->caps & GW_CODEC_IDENTITY);
        CHECK((s->encoded[i].floats > 0) == (s->encoded[i].bytes > 0),
              "%s %s: bytes without floats", t->comm, t->codec);
        none = none && !(changes && s->encoded[i].floats > 0);
        asked = asked || changes;
    }
    CHECK(!idle || none, "%s %s: said to encode nothing, and did", t->comm, t->codec);
    CHECK(t->n == 0 || s->unmet.idle == (asked && none),
          "%s %s n=%zu lazy=%d: told at the end that nothing is encoded: %d, counted: %d", t->comm,
          t->codec, t->n, t->lazy, s->unmet.idle, none);
}

static gw_err run(gw_session *s, const trial *t, outcome *o) {
    run_state r = {.session = s, .t = t, .servers = s->strategy.plan.servers};
    cut_layers(&r);
    gw_session_setup setup = {.n = t->n,
                              .layers = r.layers,
                              .n_layers = LAYERS,
                              .tensors = r.tensors,
                              .n_tensors = 2 * LAYERS,
                              .by_layer = t->lazy,
                              .adds = t->adds,
                              .undo = t->voids,
                              .seed = 5,
                              .yield = yield};
    gw_err e = gw_session_open(s, all_ranks, &setup);
    if (e == GW_OK)
        e = steps(&r, o);
    if (e == GW_OK)
        check_labels(&r);
    const float *residual = e == GW_OK ? gw_session_residual(s) : NULL;
    o->residual = residual;
    o->kept = residual && gw_strategy_exact(s->strategy.ops) && !t->voids;
    if (o->kept)
        check_residual(&r, residual);
    gw_session_close(s);
    return e;
}

gw_err exchange_run(const trial *t, outcome *o) {
    gw_session *s = NULL;
    gw_err e = new_session(&s, t->comm, t->codec, t->feedback, framed);
    GW_THEN(e, run(s, t, o));
    gw_session_free(s);
    return e;
}

static outcome refusal(gw_session *s) {
    CHECK(strlen(gw_err_text()) > 20 && !strchr(gw_err_text(), '\n'),
          "a refusal is one line with its reason: '%s'", gw_err_text());
    gw_session_free(s);
    return (outcome){.refused = true};
}

/* Relative error of one encoding of the sum of `parts` gradients. */
static double one_error(const gw_codec *c, size_t n, int parts) {
    float *x = NULL, *y = NULL;
    char *wire = NULL;
    size_t cap = gw_codec_bound(c, n), len;
    CHECK(gw_alloc(&x, n, sizeof *x) == GW_OK && gw_alloc(&y, n, sizeof *y) == GW_OK &&
              gw_alloc(&wire, cap, 1) == GW_OK,
          "%s", gw_err_text());
    for (int rank = 0; rank < parts; rank++)
        for (size_t i = 0; i < n; i++)
            x[i] += gradient(key_of(rank, 0), i);
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

/* The largest error of the sums that is allowed for a lossy codec. */
static double most_error(const gw_codec *c, size_t n, const outcome *o) {
    double one = one_error(c, n, 1), of_sum = one_error(c, n, ranks);
    /* Each encoding on the way adds an error. If each hop encodes the sum so far, the squared error
     * grows to (1 + 2 + .. + P) / P times that of one encoding (test_error_growth.c); chance may
     * add half as much again. */
    double grown = 1.5 * sqrt((ranks + 1) / 2.0) * fmax(one, of_sum);
    /* A coarse random codec has errors as large as the sums. It is no contraction, so error
     * feedback grows with each step. check_residual then checks the result, if it can. */
    if (c->caps & GW_CODEC_UNBIASED && one > 0.2)
        return o->kept ? INFINITY : o->residual ? 4 * of_sum : grown;
    /* A rank's gradient lost on the way would show as sqrt(1 / ranks) or more. */
    return fmin(grown, fmax(1.5 * one, 0.45));
}

static void check_values(const trial *t, const outcome *o) {
    gw_codec c;
    char first[SPEC]; /* of a mix: its other codecs have smaller errors */
    snprintf(first, sizeof first, "%.*s", (int)strcspn(t->codec, ";"), t->codec);
    CHECK(open_codec(&c, first) == GW_OK, "%s", gw_err_text());
    CHECK(gw_codec_join(&c, ranks) == GW_OK, "%s", gw_err_text());
    double most = INFINITY; /* a few elements say nothing */
    if (o->most > 0)
        most = o->most;
    else if (c.caps & GW_CODEC_LOSSLESS)
        most = 0;
    else if (t->n > 100)
        most = most_error(&c, t->n, o);
    CHECK(o->exact || o->error < most, "%s %s n=%zu lazy=%d: relative error %g, at most %g",
          t->comm, t->codec, t->n, t->lazy, o->error, most);
    if (ranks == 1)
        CHECK(o->exact, "%s %s: one rank sends nothing and loses nothing", t->comm, t->codec);
    gw_codec_close(&c);
}

outcome exchange_try(const trial *t) {
    outcome o = {0};
    gw_session *s = NULL;
    gw_err e = new_session(&s, t->comm, t->codec, t->feedback, framed);
    if (e == GW_ERR_UNSUPPORTED)
        return refusal(NULL);
    CHECK(e == GW_OK, "%s %s: %s", t->comm, t->codec, gw_err_text());
    o.fed = t->adds && gw_residuals_add(&s->residuals, &s->strategy, &s->mix) && ranks > 1;
    if (t->adds && !o.fed) {
        gw_session_free(s);
        return o;
    }
    e = run(s, t, &o);
    /* What needs several ranks or nodes is refused when it is opened. */
    if (e == GW_ERR_UNSUPPORTED || (e == GW_ERR_USAGE && ranks <= s->strategy.plan.servers))
        return refusal(s);
    CHECK(e == GW_OK, "%s %s n=%zu: %s", t->comm, t->codec, t->n, gw_err_text());
    gw_session_free(s);
    if (!t->voids && !o.directs)
        check_values(t, &o);
    return o;
}
