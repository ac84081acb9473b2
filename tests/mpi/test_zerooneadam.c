/* 0/1 Adam, step by step, against algorithm 1 of its paper, written down in doubles for all ranks
 * at once: when v learns, when ranks meet, and what of their momenta is encoded. */
#include "base/mem.h"
#include "prof/ledger.h"
#include "run/session.h"

enum { N = 1003, MOST_RANKS = 4, STEPS = 40, UNUSED = 7 };

#include "small_run.h"

#include <math.h>
#include <string.h>

static const float rate = 0.01f;
static const double b1 = 0.9, b2 = 0.99, eps = 1e-3;
static int lost_together, lost_alone; /* void steps */

typedef double table[MOST_RANKS][N];

/* What happens beside the steps, each in the step of its number; 0: never. */
typedef struct events {
    int idle;    /* rank 0 has no samples then and two steps later */
    int lost[2]; /* the last rank's gradient is void */
    int settles; /* after the first step from there on that leaves replicas apart */
} events;

typedef struct trial {
    run run;
    bool lazy;
    /* what the algorithm says */
    table x, m, u, e;
    double v[N], start[N];
    int step, learnt, next, met; /* steps that counted; of v; when it learns next; last meeting */
} trial;

typedef struct options {
    int freeze, kappa, twice, local;
} options;

static double place(int rank, int step, size_t i) {
    return gw_rng_unit(gw_rng_key(7, (uint64_t)rank), i) + 0.1 * (step % 5) - 0.5;
}

static double share_of(const events *of, int rank, int step) {
    bool idle = of->idle && (step == of->idle || step == of->idle + 2);
    if (!idle)
        return (rank + 1) * 2.0 / (ranks * (ranks + 1));
    return rank == 0 ? 0 : (rank + 1) / (ranks * (ranks + 1) / 2.0 - 1);
}

/* The loss is a parabola; where i is a multiple of UNUSED it has no slope before step `used`. */
static double slope(double x, int rank, int step, size_t i, int used) {
    return i % UNUSED == 0 && step < used ? 0 : x - place(rank, step, i);
}

static void begin_trial(trial *t, const char *comm, const char *codec, bool lazy) {
    static float start[N];
    memset(t, 0, sizeof *t);
    t->lazy = lazy;
    t->next = 1;
    for (size_t i = 0; i < N; i++) {
        start[i] = 1 + (float)gw_rng_unit(3, i) / 4;
        for (int r = 0; r < ranks; r++)
            t->x[r][i] = (double)start[i];
    }
    open_session(&t->run, comm, codec, "auto",
                 (gw_session_setup){.by_layer = lazy, .params = start, .undo = true});
}

static gw_span part_of(const trial *t, int i) {
    return t->lazy ? t->run.layers[i] : (gw_span){0, N};
}

static void descend(trial *t, gw_span s) {
    gw_update u;
    float *param = t->run.session->env.param;
    CHECK_OK(gw_session_finish(t->run.session, s, &u));
    for (size_t i = u.own.off; i < gw_span_end(u.own); i++)
        if (!t->run.session->env.skip)
            param[i] -= rate * u.grad[i];
    CHECK_OK(gw_session_publish(t->run.session, s));
}

/* As the trainer takes a step; `lost`: this rank's gradient is. Of what ranks decide together the
 * test knows by itself. */
static void take(trial *t, const events *of, int number, bool lost, bool meets, int used) {
    gw_session *s = t->run.session;
    double share = share_of(of, me, number);
    gw_session_begin(s, share);
    CHECK(s->together == meets, "step %d: decided together: %d", number, s->together);
    for (size_t i = 0; i < N; i++) {
        double x = (double)s->env.param[i];
        s->env.grad[i] = lost ? NAN : (float)(share * slope(x, me, number, i, used));
    }
    for (int l = LAYERS - 1; l >= 0; l--)
        CHECK_OK(gw_session_ready(s, t->run.layers[l]));
    s->env.skip = lost;
    CHECK(gw_session_leaves_out(s) == (lost && meets), "step %d: left out", number);
    for (int i = 0; i < (t->lazy ? LAYERS : 1) && !gw_session_leaves_out(s); i++)
        descend(t, part_of(t, i));
    if (lost)
        gw_session_undo(s, gw_session_leaves_out(s));
    s->env.skip = false;
}

/* ---- the paper's ---- */

static bool learns(const trial *t, const options *o, int step) {
    return step == t->next && step <= o->freeze;
}

/* Algorithm 1's T_u: the interval after a meeting is what it is at that meeting. */
static bool meets(const trial *t, const options *o, int step) {
    int since = t->met - o->freeze, period = 1;
    for (int k = o->twice; k <= since && period < o->local; k += o->twice)
        period *= 2;
    period = period < o->local ? period : o->local;
    return step <= o->freeze || step - t->met == period;
}

/* What of h arrives: it is encoded span by span. */
static void pass(const trial *t, const gw_codec *codec, const double *h, double *c) {
    static float in[N], out[N];
    size_t len, cap = gw_codec_bound(codec, N);
    char *wire = NULL;
    CHECK_OK(gw_alloc(&wire, cap, 1));
    for (size_t i = 0; i < N; i++)
        in[i] = (float)h[i];
    for (int i = 0; i < (t->lazy ? LAYERS : 1); i++) {
        gw_span s = part_of(t, i);
        CHECK_OK(gw_codec_encode(codec, (gw_turn){0, 1}, in + s.off, s.n, wire, cap, &len));
        CHECK_OK(gw_codec_decode(codec, wire, len, out + s.off, s.n, GW_INTO_SET));
    }
    for (size_t i = 0; i < N; i++)
        c[i] = ranks > 1 ? (double)out[i] : h[i]; /* one rank sends nothing */
    free(wire);
}

/* A direction, corrected for zeros at the start, times the rate. */
static double moved(const trial *t, double by, double v, int step) {
    double root = sqrt(v / (1 - pow(b2, t->learnt)));
    return (double)rate * by / (1 - pow(b1, step)) / (root + eps);
}

static void learn(trial *t, const events *of, const options *o, int number, int step) {
    int every = t->learnt / o->kappa; /* the paper's j over kappa */
    t->learnt++;
    t->next += 1 << every;
    for (size_t i = 0; i < N; i++) {
        double g = 0, m;
        for (int r = 0; r < ranks; r++)
            g += share_of(of, r, number) * slope(t->x[r][i], r, number, i, o->freeze + 1);
        m = b1 * t->m[0][i] + (1 - b1) * g;
        t->v[i] = b2 * t->v[i] + (1 - b2) * g * g;
        for (int r = 0; r < ranks; r++) {
            t->m[r][i] = m;
            t->x[r][i] -= moved(t, m, t->v[i], step);
        }
    }
}

/* Rank r's half step, and all that it has to send. */
static void walk(trial *t, const events *of, const options *o, int r, int number, bool moves) {
    double share = share_of(of, r, number);
    int step = t->step;
    for (size_t i = 0; i < N && share > 0; i++) {
        double g = slope(t->x[r][i], r, number, i, o->freeze + 1);
        t->m[r][i] = b1 * t->m[r][i] + (1 - b1) * g;
        if (t->v[i] == 0 && moves) /* nothing moves where nothing was learnt */
            t->m[r][i] = 0;
        t->u[r][i] += share * t->m[r][i];
        if (moves)
            t->x[r][i] -= moved(t, t->m[r][i], t->v[i], step);
    }
}

static void meet(trial *t, const gw_codec *codec) {
    static double h[N], c[N], sum[N];
    int k = t->step - t->met;
    memset(sum, 0, sizeof sum);
    for (int r = 0; r < ranks; r++) {
        for (size_t i = 0; i < N; i++)
            h[i] = t->u[r][i] + t->e[r][i];
        pass(t, codec, h, c);
        for (size_t i = 0; i < N; i++) {
            t->e[r][i] = h[i] - c[i];
            sum[i] += c[i];
            t->u[r][i] = 0;
        }
    }
    for (size_t i = 0; i < N; i++)
        for (int r = 0; r < ranks; r++) {
            double u = t->v[i] > 0 ? sum[i] : 0;
            t->m[r][i] = u / k;
            t->x[r][i] = t->start[i] - moved(t, u, t->v[i], t->step);
        }
}

/* False: the step is void for all. */
static bool publish(trial *t, const events *of, const options *o, const gw_codec *codec, int number,
                    bool lost) {
    int step = t->step + 1;
    bool learning = learns(t, o, step), meeting = meets(t, o, step);
    if (lost && meeting)
        return false;
    t->step = step;
    if (step == t->met + 1)
        for (size_t i = 0; i < N; i++)
            t->start[i] = t->x[0][i];
    if (learning)
        learn(t, of, o, number, step);
    for (int r = 0; r < ranks && !learning; r++)
        if (!lost || r < ranks - 1)
            walk(t, of, o, r, number, !meeting);
    if (meeting && !learning)
        meet(t, codec);
    if (meeting)
        t->met = step;
    return true;
}

/* ---- both ---- */

static void compare(const trial *t, const char *comm, int number) {
    const float *param = t->run.session->env.param;
    for (size_t i = 0; i < N; i++)
        CHECK(fabs((double)param[i] - t->x[me][i]) < 2e-5,
              "%s, lazy=%d, step %d: parameter %zu is %.9g, the algorithm says %.9g", comm, t->lazy,
              number, i, (double)param[i], t->x[me][i]);
}

static void settle(trial *t, const char *comm, int number) {
    gw_batch_cost sent;
    gw_ledger_begin();
    CHECK_OK(gw_session_settle(t->run.session));
    gw_ledger_end(&sent);
    check_charges(comm, &sent, t->run.session->settled);
    CHECK(gw_session_agrees(t->run.session, 0), "%s: settled, and not agreed", comm);
    for (size_t i = 0; i < N && t->met < t->step; i++) {
        double mean = 0;
        for (int r = 0; r < ranks; r++)
            mean += t->x[r][i] / ranks;
        for (int r = 0; r < ranks; r++)
            t->x[r][i] = mean;
    }
    compare(t, comm, number);
}

static void as_published(const options *o, const events *of, const char *name, bool lazy) {
    static trial t;
    gw_codec codec;
    char comm[200];
    int local = 0;
    bool settled = false;
    snprintf(comm, sizeof comm,
             "zerooneadam:freeze=%d,kappa=%d,double=%d,local=%d,beta2=0.99,eps=1e-3,algo=gathersum",
             o->freeze, o->kappa, o->twice, o->local);
    CHECK_OK(open_codec(&codec, name));
    begin_trial(&t, comm, name, lazy);
    const gw_strategy_ops *ops = t.run.session->strategy.ops;
    for (int k = 1; k <= STEPS; k++) {
        bool lost = k == of->lost[0] || k == of->lost[1];
        bool together = meets(&t, o, t.step + 1);
        gw_batch_cost sent;
        gw_ledger_begin();
        take(&t, of, k, lost && (together || me == ranks - 1), together, o->freeze + 1);
        gw_ledger_end(&sent);
        bool counts = publish(&t, of, o, &codec, k, lost);
        int64_t period;
        gw_cost cost = ops->cost(t.run.session->self, t.step - 1, &period);
        if (codec.caps & GW_CODEC_FIXED)
            check_charges(comm, &sent, counts ? cost : (gw_cost){0});
        CHECK(together || sent.wire_bytes == 0, "%s, step %d: a local step sends", comm, k);
        local += !together;
        lost_together += lost && together;
        lost_alone += lost && !together;
        compare(&t, comm, k);
        if (of->settles && k >= of->settles && !settled && t.met < t.step) {
            settled = true;
            settle(&t, comm, k);
        }
    }
    CHECK(t.learnt > 2 * o->kappa && local > STEPS / 4, "%s: %d local steps, learnt %d times", comm,
          local, t.learnt);
    CHECK(settled == (of->settles > 0), "%s: settled: %d", comm, settled);
    CHECK_OK(gw_session_settle(t.run.session));
    close_run(&t.run);
    gw_codec_close(&codec);
}

static void every_way_is_as_published(void) {
    static const options all[] = {{9, 2, 6, 4}, {7, 1, 3, 16}, {12, 3, 4, 3}};
    static const events quiet = {0};
    /* In local steps or meetings, as the options have it. */
    static const events some[] = {{.idle = 13, .lost = {5, 21}, .settles = 26},
                                  {.idle = 4, .lost = {19, 20}, .settles = 31},
                                  {.idle = 22, .lost = {15, 23}, .settles = 18}};
    static const char *const codecs[] = {"none", "topk:ratio=0.05", "onebit"};
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 3; i++)
            for (int lazy = 0; lazy < 2; lazy++) /* one rank is never idle */
                as_published(&all[i], ranks > 1 ? &some[i] : &quiet, codecs[c], lazy);
    CHECK(ranks == 1 || (lost_together > 0 && lost_alone > 0), "%d and %d void steps",
          lost_together, lost_alone);
}

/* Until the first local step it is 1-bit Adam, to the bit. */
static void begins_as_onebitadam(void) {
    static trial a, b;
    static const events quiet = {0};
    for (int lazy = 0; lazy < 2; lazy++) {
        begin_trial(&a, "zerooneadam:freeze=4,kappa=4,double=8", "onebit", lazy);
        begin_trial(&b, "onebitadam:freeze=4", "onebit", lazy);
        for (int k = 1; k <= 13; k++) {
            take(&a, &quiet, k, false, k <= 12, 0);
            take(&b, &quiet, k, false, true, 0);
            bool same =
                memcmp(a.run.session->env.param, b.run.session->env.param, sizeof(float[N])) == 0;
            CHECK(same == (k <= 12 || ranks == 1), "lazy=%d, step %d: the same: %d", lazy, k, same);
        }
        close_run(&a.run);
        close_run(&b.run);
    }
}

/* One bit says no zero: what had no gradient while v learnt never moves, not by rounding either. */
static void unused_parameters_stay(void) {
    static trial t;
    static const events quiet = {0};
    begin_trial(&t, "zerooneadam:freeze=2,double=2,local=2", "onebit", false);
    for (int k = 1; k <= 9; k++) {
        take(&t, &quiet, k, false, k <= 4 || k % 2 == 0, 4);
        if (k == 5)
            CHECK_OK(gw_session_settle(t.run.session));
        for (size_t i = 0; i < N; i += UNUSED)
            CHECK((double)t.run.session->env.param[i] == t.x[0][i], "step %d: parameter %zu moved",
                  k, i);
    }
    close_run(&t.run);
}

/* Running means have to be exact. */
static void refuses_tracked(void) {
    static const gw_span layer = {0, 10};
    static const gw_tensor tensor = {{0, 10}, 0, 1, 10, true};
    gw_session *s;
    gw_session_setup setup = {
        .n = 10, .layers = &layer, .n_layers = 1, .tensors = &tensor, .n_tensors = 1};
    CHECK_OK(new_session(&s, "zerooneadam", "onebit", "auto", false));
    gw_err e = gw_session_open(s, MPI_COMM_WORLD, &setup);
    CHECK(e == GW_ERR_UNSUPPORTED && strstr(gw_err_text(), "running means"), "%d: %s", e,
          gw_err_text());
    gw_session_close(s);
    gw_session_free(s);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    every_way_is_as_published();
    begins_as_onebitadam();
    unused_parameters_stay();
    refuses_tracked();
    CHECK_MPI(MPI_Finalize());
    return 0;
}
