/* Local steps and outer optimizers, step by step against the published algorithms, written down
 * here in doubles for all ranks at once: `diloco` with its fragments and codecs, `noloco`. */
#include "base/mem.h"
#include "run/session.h"

enum { N = 1003, MOST_RANKS = 4 };

#include "small_run.h"

#include <math.h>
#include <string.h>

typedef double table[MOST_RANKS][N];

/* A run, and what the algorithm says that it comes to. */
typedef struct trial {
    run run;
    bool lazy;
    int step;                    /* done so far */
    float momentum[N], moved[N]; /* of the inner optimizer; parameters that it has left */
    float all[MOST_RANKS][N];    /* these, of all ranks */
    table want;                  /* parameters of all ranks after the step */
} trial;

static gw_err open_trial(trial *t, const char *comm, const char *codec, bool lazy) {
    memset(t, 0, sizeof *t);
    t->lazy = lazy;
    float start[N];
    for (size_t i = 0; i < N; i++)
        start[i] = 1 + (float)gw_rng_unit(3, i) / 4;
    return try_session(&t->run, comm, codec, "auto",
                       (gw_session_setup){.by_layer = lazy, .params = start});
}

/* The outer optimizer sees what plain SGD with momentum has left. */
static void descend(trial *t, gw_span s, float rate) {
    gw_update u;
    float *param = t->run.session->env.param;
    CHECK_OK(gw_session_finish(t->run.session, s, &u));
    for (size_t i = u.own.off; i < gw_span_end(u.own); i++) {
        t->momentum[i] = 0.5f * t->momentum[i] + u.scale * u.grad[i];
        param[i] -= rate * t->momentum[i];
    }
    memcpy(t->moved + s.off, param + s.off, s.n * sizeof *param);
    CHECK_OK(gw_session_publish(t->run.session, s));
}

/* A rank has (rank + 1) of the samples, and draws towards a place of its own. */
static void walk(trial *t) {
    gw_session *s = t->run.session;
    double share = (me + 1) * 2.0 / (ranks * (ranks + 1));
    gw_session_begin(s, share);
    for (size_t i = 0; i < N; i++) {
        double place = gw_rng_unit(gw_rng_key(7, (uint64_t)me), i) + 0.1 * (t->step % 5);
        s->env.grad[i] = (float)(share * ((double)s->env.param[i] - place));
    }
    for (int l = LAYERS - 1; l >= 0; l--) {
        CHECK_OK(gw_session_ready(s, t->run.layers[l]));
        CHECK_OK(gw_session_progress(s));
    }
    for (int i = 0; i < gw_env_spans(&s->env); i++)
        descend(t, gw_env_span(&s->env, i), 0.125f);
    CHECK_OK(gw_session_await(s, (gw_span){0, N}));
    t->step++;
    CHECK_MPI(MPI_Allgather(t->moved, N, MPI_FLOAT, t->all, N, MPI_FLOAT, MPI_COMM_WORLD));
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < N; i++)
            t->want[r][i] = (double)t->all[r][i];
}

static void compare(const trial *t, const char *what) {
    const float *param = t->run.session->env.param;
    for (size_t i = 0; i < N; i++)
        CHECK(fabs((double)param[i] - t->want[me][i]) < 4e-6,
              "%s, lazy=%d, step %d: parameter %zu is %.9g, the algorithm says %.9g", what, t->lazy,
              t->step, i, (double)param[i], t->want[me][i]);
}

static void want_mean(trial *t) {
    for (size_t i = 0; i < N; i++) {
        double sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += t->want[r][i];
        for (int r = 0; r < ranks; r++)
            t->want[r][i] = sum / ranks;
    }
}

/* ---- diloco ---- */

typedef struct outer {
    int period, fragments, tau;
    double eta, mu, alpha;
    double w[N], v[N], d[N]; /* common parameters, their momentum, the mean difference */
    bool waits;              /* d was exchanged and not taken in */
} outer;

static bool in_fragment(const trial *t, const outer *o, size_t i, int turn) {
    int layer = 0;
    while (i >= gw_span_end(t->run.layers[layer]))
        layer++;
    return layer % o->fragments == turn % o->fragments;
}

static void outer_send(const trial *t, outer *o, int turn) {
    for (size_t i = 0; i < N; i++) {
        if (!in_fragment(t, o, i, turn))
            continue;
        o->d[i] = 0;
        for (int r = 0; r < ranks; r++)
            o->d[i] += (o->w[i] - t->want[r][i]) / ranks;
    }
    o->waits = true;
}

static void outer_take(trial *t, outer *o, int turn) {
    for (size_t i = 0; i < N; i++) {
        if (!in_fragment(t, o, i, turn))
            continue;
        o->v[i] = o->mu * o->v[i] + o->d[i];
        o->w[i] -= o->eta * (o->d[i] + o->mu * o->v[i]);
        for (int r = 0; r < ranks; r++)
            t->want[r][i] = (1 - o->alpha) * o->w[i] + o->alpha * t->want[r][i];
    }
    o->waits = false;
}

/* 14 steps; after the 8th the replicas are settled, in the middle of most rounds. */
static void diloco_is_as_published(const char *comm, outer o, bool lazy) {
    static trial t;
    int each = o.period / o.fragments;
    CHECK_OK(open_trial(&t, comm, "none", lazy));
    for (size_t i = 0; i < N; i++)
        o.w[i] = (double)t.run.session->env.param[i];
    for (int k = 1; k <= 14; k++) {
        walk(&t);
        if ((k + o.tau) % each == 0)
            outer_send(&t, &o, (k + o.tau) / each - 1);
        if (k % each == 0 && o.waits)
            outer_take(&t, &o, k / each - 1);
        compare(&t, comm);
        if (k != 8)
            continue;
        CHECK_OK(gw_session_settle(t.run.session));
        if (o.waits)
            outer_take(&t, &o, k / each);
        if (k % each != 0 || o.fragments > 1 || o.alpha > 0)
            want_mean(&t);
        compare(&t, "settled");
    }
    close_run(&t.run);
}

static void every_diloco_is_as_published(void) {
    static const struct {
        const char *comm;
        outer o;
    } all[] = {
        {"diloco:period=3", {3, 1, 0, 0.7, 0.9, 0}},
        {"diloco:period=1,outer-lr=0.5", {1, 1, 0, 0.5, 0.9, 0}},
        {"diloco:period=4,outer-lr=1,outer-momentum=0", {4, 1, 0, 1, 0, 0}},
        {"diloco:period=5,tau=2", {5, 1, 2, 0.7, 0.9, 0.5}},
        {"diloco:period=5,tau=4,alpha=0,algo=ring", {5, 1, 4, 0.7, 0.9, 0}},
        {"diloco:period=6,fragments=3", {6, 3, 0, 0.7, 0.9, 0}},
        {"diloco:period=6,fragments=3,tau=1,alpha=0.25", {6, 3, 1, 0.7, 0.9, 0.25}},
        {"diloco:period=6,fragments=2,tau=2,algo=native", {6, 2, 2, 0.7, 0.9, 0.5}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int lazy = 0; lazy < 2; lazy++)
            diloco_is_as_published(all[i].comm, all[i].o, lazy);
}

/* SparseLoCo: e = beta e + (W - w); s = Q(e); e -= s; W -= mean of s over all ranks. */
static void sparseloco_is_as_published(void) {
    static trial t;
    static float e[MOST_RANKS][N], w[N], s[N], sum[N];
    const float beta = 0.9f;
    gw_codec codec;
    CHECK_OK(open_codec(&codec, "chunktopk:k=4,chunk=64"));
    size_t len, cap = gw_codec_bound(&codec, N);
    char *wire = NULL;
    CHECK_OK(gw_alloc(&wire, cap, 1));
    CHECK_OK(open_trial(&t, "diloco:period=2,outer-lr=1,outer-momentum=0,decay=0.9",
                        "chunktopk:k=4,chunk=64", false));
    memset(e, 0, sizeof e);
    memcpy(w, t.run.session->env.param, sizeof w);
    for (int k = 1; k <= 8; k++) {
        walk(&t);
        memset(sum, 0, sizeof sum);
        for (int r = 0; r < ranks && k % 2 == 0; r++) {
            for (size_t i = 0; i < N; i++)
                e[r][i] = beta * e[r][i] + (w[i] - t.all[r][i]);
            CHECK_OK(gw_codec_encode(&codec, (gw_turn){0, 1}, e[r], N, wire, cap, &len));
            CHECK_OK(gw_codec_decode(&codec, wire, len, s, N, GW_INTO_SET));
            for (size_t i = 0; i < N; i++) {
                sum[i] += ranks > 1 ? s[i] : e[r][i]; /* one rank sends nothing */
                e[r][i] -= ranks > 1 ? s[i] : e[r][i];
            }
        }
        for (size_t i = 0; i < N && k % 2 == 0; i++) {
            w[i] -= sum[i] / (float)ranks;
            for (int r = 0; r < ranks; r++)
                t.want[r][i] = (double)w[i];
        }
        compare(&t, "sparseloco");
    }
    free(wire);
    gw_codec_close(&codec);
    close_run(&t.run);
}

/* H = 1, plain steps, eta = 1, mu = 0 is `allreduce`: to the bit where no float rounds; else within
 * the rounding of W - (W - x), an ulp of W a rank's x and step, and of the sum. */
static void one_step_rounds_are_allreduce(bool rounds) {
    static trial a, b;
    CHECK_OK(open_trial(&a, "diloco:period=1,outer-lr=1,outer-momentum=0,algo=sra", "none", 0));
    CHECK_OK(open_trial(&b, "allreduce:algo=sra", "none", 0));
    trial *both[] = {&a, &b};
    float *x = a.run.session->env.param, *y = b.run.session->env.param;
    for (size_t i = 0; i < N; i++)
        x[i] = y[i] = rounds ? 1.5f + (float)gw_rng_unit(9, i) / 4 : (float)(i % 64) / 8;
    for (int k = 1; k <= 20; k++) {
        for (int which = 0; which < 2; which++) {
            gw_session *s = both[which]->run.session;
            gw_session_begin(s, 1.0 / ranks);
            for (size_t i = 0; i < N; i++) {
                double u = gw_rng_unit(gw_rng_key(11 + (uint64_t)k, (uint64_t)me), i) - 0.5;
                s->env.grad[i] = (float)(rounds ? 0.1 * u / ranks : floor(64 * u));
            }
            CHECK_OK(gw_session_ready(s, (gw_span){0, N}));
            memset(both[which]->momentum, 0, sizeof(float[N]));
            descend(both[which], (gw_span){0, N}, rounds ? 0.1f : 0.125f);
        }
        for (size_t i = 0; i < N; i++)
            CHECK(fabsf(x[i] - y[i]) <= (rounds ? (float)k * 1.5f * 0x1p-23f : 0),
                  "step %d: parameter %zu is %.9g, by allreduce %.9g", k, i, (double)x[i],
                  (double)y[i]);
    }
    close_run(&a.run);
    close_run(&b.run);
}

/* ---- noloco ---- */

static void noloco_is_as_published(const char *comm, int period, double a, double b, double g,
                                   bool lazy) {
    static trial t;
    static table w, v, next;
    uint32_t order[MOST_RANKS];
    CHECK_OK(open_trial(&t, comm, "none", lazy));
    memset(v, 0, sizeof v);
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < N; i++)
            w[r][i] = (double)t.run.session->env.param[i];
    for (int k = 1; k <= 11; k++) {
        walk(&t);
        for (uint32_t r = 0; r < (uint32_t)ranks; r++)
            order[r] = r;
        gw_rng_shuffle(gw_rng_key(5, (uint64_t)((k - 1) / period)), order, (uint32_t)ranks);
        for (int at = 0; at < ranks && k % period == 0; at++) {
            int alone = at + 1 == ranks && ranks % 2, r = (int)order[at];
            int q = alone ? r : (int)order[at ^ 1];
            for (size_t i = 0; i < N; i++) {
                double d = (t.want[r][i] - w[r][i] + t.want[q][i] - w[q][i]) / 2;
                v[r][i] = a * v[r][i] + b * d - g * (w[r][i] - (w[r][i] + w[q][i]) / 2);
                next[r][i] = w[r][i] + v[r][i];
            }
        }
        for (int r = 0; r < ranks && k % period == 0; r++) {
            memcpy(w[r], next[r], sizeof w[r]);
            memcpy(t.want[r], next[r], sizeof w[r]);
        }
        compare(&t, comm);
        if (k != 7)
            continue;
        CHECK_OK(gw_session_settle(t.run.session)); /* a round keeps how far it has come */
        for (int r = 0; r < ranks; r++)
            for (size_t i = 0; i < N; i++)
                w[r][i] -= t.want[r][i];
        want_mean(&t);
        for (int r = 0; r < ranks; r++)
            for (size_t i = 0; i < N; i++)
                w[r][i] += t.want[r][i];
        compare(&t, "settled");
    }
    close_run(&t.run);
}

/* ---- refusals ---- */

static void refused(const char *comm, const char *codec, const char *says) {
    static trial t;
    gw_err e = open_trial(&t, comm, codec, false);
    CHECK(e == GW_ERR_USAGE && strstr(gw_err_text(), says), "%s: %d: %s", comm, e, gw_err_text());
    close_run(&t.run);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    every_diloco_is_as_published();
    sparseloco_is_as_published();
    one_step_rounds_are_allreduce(false);
    one_step_rounds_are_allreduce(true);
    for (int lazy = 0; lazy < 2; lazy++) {
        noloco_is_as_published("noloco:period=3", 3, 0.5, 0.7, 0.75, lazy);
        noloco_is_as_published("noloco:period=1,outer-momentum=0.25,outer-lr=0.5,pull=1", 1, 0.25,
                               0.5, 1, lazy);
    }
    refused("diloco:period=10,fragments=3", "none", "period=10 is not a multiple of fragments=3");
    refused("diloco:period=8,fragments=4", "none", "fragments=4: a rank holds 3 layers");
    refused("diloco:period=9,fragments=3,tau=3", "none", "must be below period / fragments = 3");
    refused("diloco:decay=0.9", "none", "no error feedback");
    refused("noloco:outer-momentum=0.5,pull=1.5", "none", "below 1.5");
    CHECK_MPI(MPI_Finalize());
    return 0;
}
