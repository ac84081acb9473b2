/* What strategies promise beyond the sums and bytes that the contract checks. */
#include "base/mem.h"
#include "comm/schedule/queue.h"
#include "run/session.h"

enum { N = 1003 };

#include "lane_rig.h"
#include "small_run.h"

#include <math.h>
#include <sched.h>
#include <string.h>

/* A step; its gradients are `size` times a value that depends on rank, step and place. */
static void step(run *b, int number, float size) {
    gw_session_begin(b->session, 1.0 / ranks);
    float *sums = gw_session_sums(b->session), *grad = sums ? sums : b->session->env.grad;
    for (int l = LAYERS - 1; l >= 0; l--) {
        for (size_t i = b->layers[l].off; i < gw_span_end(b->layers[l]); i++) {
            int value = (int)(i * 7 + (size_t)(me * 13 + number * 5)) % 31 - 15;
            grad[i] = (sums ? grad[i] : 0) + size * (float)value;
        }
        CHECK_OK(gw_session_ready(b->session, b->layers[l]));
        CHECK_OK(gw_session_progress(b->session));
    }
    update_all(b);
}

/* Largest difference between any rank's values and the mean over ranks. */
static double spread(const float *x) {
    static double mean[N];
    double most = 0;
    for (int i = 0; i < N; i++)
        mean[i] = x[i] / (double)ranks;
    MPI_Allreduce(MPI_IN_PLACE, mean, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) {
        double d = x[i] > mean[i] ? x[i] - mean[i] : mean[i] - x[i];
        most = d > most ? d : most;
    }
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* `delayed` after K+1 steps equals `iallreduce` after K, bit for bit, even with a codec that draws
 * random numbers and whoever polled when. */
static void delayed_is_one_step_late(bool lazy, const char *progress) {
    enum { K = 3 };
    run late = {0}, prompt = {0};
    char comm[96];
    snprintf(comm, sizeof comm, "delayed:algo=sra,bucket=1K,progress=%s", progress);
    open_session(&late, comm, "qsgd:bits=4", "auto", (gw_session_setup){.by_layer = lazy});
    open_session(&prompt, "iallreduce:algo=sra,bucket=1K", "qsgd:bits=4", "auto",
                 (gw_session_setup){.by_layer = lazy});
    const float *param = late.session->env.param;
    step(&late, 0, 1);
    for (int i = 0; i < N; i++)
        CHECK(param[i] == 0, "the first step moves element %d by %g", i, param[i]);
    for (int k = 0; k < K; k++) {
        step(&late, k + 1, 1);
        step(&prompt, k, 1);
        CHECK(memcmp(param, prompt.session->env.param, N * sizeof *param) == 0,
              "step %d, lazy=%d, progress=%s: not the update of the step before", k, lazy,
              progress);
    }
    CHECK_OK(gw_session_settle(late.session));
    CHECK(memcmp(param, prompt.session->env.param, N * sizeof *param) == 0,
          "settling moves parameters");
    close_run(&late);
    close_run(&prompt);
}

/* Sums that come as lists give the same parameters as those in the arena, bit for bit, even if
 * gradients are added to the residual at once. */
static void lists_are_the_sums(const char *codec, bool lazy, const char *progress) {
    run dense = {0}, lists = {0};
    char comm[32];
    snprintf(comm, sizeof comm, "sparse:progress=%s", progress);
    open_session(&dense, comm, codec, "auto", (gw_session_setup){.by_layer = lazy});
    open_session(&lists, comm, codec, "auto",
                 (gw_session_setup){.by_layer = lazy, .lists = true, .adds = true});
    for (int k = 0; k < 5; k++) {
        step(&dense, k, 1);
        step(&lists, k, 1);
        CHECK(memcmp(dense.session->env.param, lists.session->env.param, N * sizeof(float)) == 0,
              "%s, %s, lazy=%d, step %d: not the parameters that dense sums give", codec, comm,
              lazy, k);
    }
    CHECK((lists.listed > 0) == (ranks > 1), "%s: %d lists", codec, lists.listed);
    close_run(&dense);
    close_run(&lists);
}

/* ---- gradients that are added to the residual ---- */

static bool adds(run *r, const char *comm, const char *codec, const char *feedback, bool asked) {
    open_session(r, comm, codec, feedback, (gw_session_setup){.adds = asked, .lists = true});
    gw_session_begin(r->session, 1.0 / ranks);
    return gw_session_sums(r->session);
}

static void see(void *ctx, const float *grad, gw_span s) {
    run *r = ctx;
    for (size_t i = s.off; i < gw_span_end(s); i++) {
        float want = gradient(me, r->step, i);
        CHECK(fabsf(grad[i] - want) < 1e-5f, "step %d, float %zu: saw %g, expected %g", r->step, i,
              grad[i], want);
    }
    r->seen++;
}

static void ignore(void *ctx, const gw_update *u) {
    (void)ctx, (void)u;
}

/* A tap sees the gradient alone. The contract compares the updates. */
static void check_adds(const char *comm, const char *codec) {
    run r = {0};
    gw_session_tap tap = {&r, see, ignore};
    CHECK(adds(&r, comm, codec, "auto", true) == (ranks > 1), "%s %s", comm, codec);
    for (r.step = 0; r.step < 6; r.step++) {
        bool taps = r.step % 2;
        r.seen = 0;
        r.session->tap = taps ? tap : (gw_session_tap){0};
        take_step(&r, r.step);
        CHECK(r.seen == (taps ? LAYERS : 0), "step %d: %d layers seen", r.step, r.seen);
    }
    close_run(&r);
    CHECK(!adds(&r, comm, codec, "auto", false), "%s %s: unasked", comm, codec);
    close_run(&r);
}

/* No gradient is added if the strategy needs the gradient itself or there is no residual. */
static void check_not(const char *comm, const char *codec, const char *feedback) {
    run r = {0};
    CHECK(!adds(&r, comm, codec, feedback, true), "%s %s %s: adds", comm, codec, feedback);
    close_run(&r);
}

static void who_adds(void) {
    static const char *const codecs[] = {"topk:ratio=0.05", "randomk:ratio=0.05",
                                         "threshold:value=0.4"};
    for (int i = 0; i < 3; i++) {
        check_adds("sparse", codecs[i]);
        check_adds("allreduce:algo=gathersum", codecs[i]);
        check_adds("iallreduce:algo=gathersum,bucket=1K", codecs[i]);
    }
    check_adds("allreduce:algo=native", "randomk:ratio=0.05");
    check_adds("sparse:progress=none", "topk:ratio=0.05+zlib");
    check_not("sparse", "topk", "off");
    check_not("sparse", "topk", "dgc");
    check_not("delayed", "topk", "auto");
    check_not("allreduce:algo=ring", "randomk", "auto");
    check_not("allreduce:algo=sra", "onebit", "auto");
}

/* ---- replicas that differ in between ---- */

static void local_meets_every_period(bool lazy) {
    run b = {0};
    open_session(&b, "local:period=3", "none", "auto", (gw_session_setup){.by_layer = lazy});
    const float *param = b.session->env.param;
    for (int k = 0; k < 7; k++) {
        step(&b, k, 1);
        double apart = spread(param);
        if (k % 3 == 2)
            CHECK(apart < 1e-3, "step %d: replicas %g apart after an averaging", k, apart);
        else
            CHECK(apart > 1 || ranks == 1, "step %d: replicas only %g apart", k, apart);
    }
    CHECK_OK(gw_session_settle(b.session));
    CHECK(spread(param) < 1e-3, "replicas differ when settled");
    close_run(&b);
}

static void state_is_averaged(void) {
    enum { VECTORS = 2 };
    static float state[VECTORS * N];
    for (int on = 0; on < 2; on++) {
        run b = {0};
        for (int i = 0; i < VECTORS * N; i++)
            state[i] = (float)(me + i);
        open_session(&b, on ? "local:period=1,momentum=1" : "local:period=1", "none", "auto",
                     (gw_session_setup){.vectors = {state, VECTORS}});
        step(&b, 0, 1);
        for (int i = 0; i < VECTORS * N; i++) {
            float want = (float)i + (on ? (float)(ranks - 1) / 2 : (float)me);
            float off = state[i] - want;
            CHECK(off * off < 1e-6f, "momentum=%d: %g, expected %g", on, state[i], want);
        }
        close_run(&b);
    }
    run b = {0};
    gw_err e = try_session(&b, "local:momentum=1", "none", "auto", (gw_session_setup){0});
    CHECK(e == GW_ERR_USAGE && strstr(gw_err_text(), "momentum"), "%d: %s", e, gw_err_text());
    close_run(&b);
}

/* Without gradients the replicas converge, to about their mean. */
static void gossip_agrees(const char *comm, bool lazy) {
    run b = {0};
    bool exponential = strstr(comm, "exponential"), power = (ranks & (ranks - 1)) == 0;
    open_session(&b, comm, "none", "auto", (gw_session_setup){.by_layer = lazy});
    float *param = b.session->env.param;
    for (int i = 0; i < N; i++)
        param[i] = (float)(me * me + i);
    double start = spread(param), before = start;
    for (int k = 0; k < 6; k++) {
        step(&b, k, 0);
        double now = spread(param);
        CHECK(now <= before + 1e-3, "%s: step %d: %g apart, before %g", comm, k, now, before);
        before = now;
        if (exponential && power && 2 << k >= ranks)
            CHECK(now < 1e-3, "%s: step %d: %g apart, not the mean", comm, k, now);
    }
    CHECK(ranks == 1 || before < start / 10, "%s: still %g apart of %g", comm, before, start);
    CHECK_OK(gw_session_settle(b.session));
    float mean = (float)((ranks - 1) * (2 * ranks - 1)) / 6, off = param[0] - mean;
    CHECK(off * off < 1e-6f && spread(param) == 0, "%s: mean %g, expected %g", comm, param[0],
          mean);
    close_run(&b);
}

static void a_server_needs_workers(void) {
    run b = {0};
    gw_err e = try_session(&b, "ps:dedicated=1", "none", "auto", (gw_session_setup){0});
    CHECK(e == (ranks == 1 ? GW_ERR_USAGE : GW_OK), "%d: %s", e, gw_err_text());
    int servers = b.session->strategy.plan.servers;
    CHECK(servers == 1, "%d servers", servers);
    close_run(&b);
}

/* ---- the queue's order ---- */

enum { BUCKETS = 4 };
static int started[BUCKETS], n_started;
static bool gate[BUCKETS];

static gw_err note_start(void *ctx) {
    started[n_started++] = *(const int *)ctx;
    return GW_OK;
}

static gw_err open_gate(void *ctx, bool *done) {
    *done = gate[*(const int *)ctx];
    return GW_OK;
}

/* Bucket 3, nearest the output, is final first and takes the credit. Of the buckets that wait
 * behind it, the lowest goes first; a bucket that is waited for goes at once. */
static void lowest_goes_first(gw_progress mode) {
    static int id[BUCKETS] = {0, 1, 2, 3};
    static float base[BUCKETS];
    gw_codec codec;
    gw_lane *lane;
    gw_queue *q;
    gw_schedule *s[BUCKETS];
    CHECK_OK(open_codec(&codec, "none"));
    gw_lane_setup setup = {.codec = &codec, .n = BUCKETS, .yield = true};
    CHECK_OK(gw_lane_open(&lane, MPI_COMM_SELF, &setup));
    CHECK_OK(gw_queue_open(&q, mode, BUCKETS, true));
    gw_queue_limit(q, sizeof(float));
    n_started = 0;
    for (int i = BUCKETS - 1; i >= 0; i--) {
        gate[i] = false;
        CHECK_OK(gw_schedule_new(&s[i], lane, base, (gw_span){(size_t)i, 1}));
        CHECK_OK(gw_schedule_work(s[i], note_start, &id[i]));
        CHECK_OK(gw_schedule_await(s[i], open_gate, &id[i]));
        CHECK_OK(gw_queue_start(q, s[i]));
    }
    CHECK(n_started == 1 && started[0] == 3, "%d in flight, credit is for one", n_started);
    gate[3] = true;
    CHECK_OK(gw_queue_wait(q, s[3]));
    CHECK(n_started == 2 && started[1] == 0, "after bucket 3 comes %d", started[1]);
    gate[2] = true; /* while bucket 0 has the credit */
    CHECK_OK(gw_queue_wait(q, s[2]));
    CHECK(n_started == 3 && started[2] == 2, "bucket 2 is waited for, and %d starts", started[2]);
    gate[0] = gate[1] = true;
    CHECK_OK(gw_queue_wait(q, s[0]));
    CHECK_OK(gw_queue_wait(q, s[1]));
    CHECK(n_started == BUCKETS, "%d of %d started", n_started, BUCKETS);
    gw_queue_close(q);
    for (int i = 0; i < BUCKETS; i++)
        gw_schedule_free(s[i]);
    gw_lane_close(lane);
    gw_codec_close(&codec);
}

/* Bytes in flight under order=priority: what the wire carries plus two buckets, or what the user
 * sets. */
static void credit_follows_the_wire(const char *more, double bytes_per_s, int expected) {
    char comm[96], line[64];
    gw_span layer = {0, N};
    gw_session *s;
    gw_session_setup setup = {.n = N,
                              .layers = &layer,
                              .n_layers = 1,
                              .link_bytes_per_s = bytes_per_s,
                              .seed = 5,
                              .yield = true};
    snprintf(comm, sizeof comm, "iallreduce:algo=sra,bucket=64,order=priority%s", more);
    snprintf(line, sizeof line, "credit=%d,", expected);
    CHECK_OK(new_session(&s, comm, "none", "auto", false));
    CHECK_OK(gw_session_open(s, MPI_COMM_WORLD, &setup));
    CHECK(strstr(s->notes.lines, line), "%s and %g B/s: %snot %s", more, bytes_per_s,
          s->notes.lines, line);
    gw_session_close(s);
    gw_session_free(s);
}

static void credit_by_rate(void) {
    double wire = 1e6, slow = 1, unknown = 0;
    int usual = 4 << 20, alone = ranks == 1, buckets = 128, carried = 40000; /* in 40 ms */
    /* an allreduce sends 2 (P - 1) / P of its span */
    credit_follows_the_wire("", wire,
                            alone ? usual : buckets + carried * ranks / (2 * (ranks - 1)));
    credit_follows_the_wire("", slow, alone ? usual : buckets);
    credit_follows_the_wire("", unknown, usual);
    credit_follows_the_wire(",credit=300", wire, 300);
}

/* Each rank starts with a different bucket and has credit for one. It must answer a bucket that a
 * peer has begun, although nobody waits for anything. */
static void peers_choices_are_answered(const char *spec) {
    enum { EACH = 24 };
    static int id[BUCKETS] = {0, 1, 2, 3};
    gw_queue *q;
    gw_schedule *s[BUCKETS];
    rig r;
    rig_open(&r, spec, "none", BUCKETS * EACH, false);
    CHECK_OK(gw_queue_open(&q, GW_PROGRESS_POLL, BUCKETS, true));
    gw_queue_limit(q, EACH * sizeof(float));
    for (int i = 0; i < BUCKETS; i++) {
        s[i] = rig_sum(&r, (gw_span){(size_t)i * EACH, EACH});
        CHECK_OK(gw_schedule_stage(s[i]));
        CHECK_OK(gw_schedule_work(s[i], note_start, &id[i]));
    }
    for (int i = 0; i < BUCKETS * EACH; i++)
        r.base[i] = (float)(me + i);
    n_started = 0;
    for (int i = 0; i < BUCKETS; i++)
        CHECK_OK(gw_queue_start(q, s[(me + i) % BUCKETS]));
    double give_up = MPI_Wtime() + 60;
    while (n_started < BUCKETS && MPI_Wtime() < give_up) {
        CHECK_OK(gw_queue_poll(q));
        sched_yield();
    }
    CHECK(n_started == BUCKETS, "%s: %d of %d buckets done, each rank has another one in flight",
          spec, n_started, BUCKETS);
    for (int i = 0; i < BUCKETS * EACH; i++)
        CHECK(r.base[i] == (float)(ranks * i + ranks * (ranks - 1) / 2), "%s: sum %d is %g", spec,
              i, r.base[i]);
    gw_queue_close(q);
    for (int i = 0; i < BUCKETS; i++)
        gw_schedule_free(s[i]);
    rig_close(&r);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    for (int lazy = 0; lazy < 2; lazy++) {
        delayed_is_one_step_late(lazy, "poll");
        delayed_is_one_step_late(lazy, "none");
        local_meets_every_period(lazy);
        gossip_agrees("gossip:topology=ring", lazy);
        gossip_agrees("gossip:topology=exponential", lazy);
    }
    credit_by_rate();
    who_adds();
    for (int lazy = 0; lazy < 2; lazy++) {
        lists_are_the_sums("topk:ratio=0.1", lazy, "poll");
        lists_are_the_sums("topk:ratio=0.3,warmup=3", lazy, "none");
        lists_are_the_sums("threshold:value=9", lazy, "poll");
        lists_are_the_sums("randomk:ratio=0.2+zlib", lazy, "poll");
    }
    state_is_averaged();
    a_server_needs_workers();
    lowest_goes_first(GW_PROGRESS_POLL);
    lowest_goes_first(GW_PROGRESS_NONE);
    peers_choices_are_answered("sra");
    peers_choices_are_answered("ring");
    MPI_Finalize();
    return 0;
}
