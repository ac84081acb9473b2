/* In every progress mode the counts equal the formula, even if an exchange ends in the next step,
 * with a pause between two batches in which only a progress thread can continue it. Bytes and
 * messages add up, the log has every exchange in a step of the run, from its start to its end, and
 * the progress thread opens no OpenMP team larger than asked for. */
#include "../specs.h"
#include "check.h"

#include "base/rng.h"
#include "comm/lane.h"
#include "comm/schedule/queue.h"
#include "mpi/wait.h"
#include "prof/exchange.h"
#include "prof/ledger.h"
#include "run/session.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { LAYERS = 3, N = 3000, STEPS = 6, ROWS = 64, PAUSE_US = 3000 };

static int me, ranks;
static gw_span layers[LAYERS];

typedef struct mode {
    const char *comm, *codec;
    bool lazy;
} mode;

static void finish(gw_session *s, gw_span span) {
    gw_update u;
    CHECK_OK(gw_session_finish(s, span, &u));
    for (size_t i = u.own.off; i < gw_span_end(u.own); i++)
        s->env.param[i] -= u.scale * u.grad[i];
    CHECK_OK(gw_session_publish(s, span));
    CHECK_OK(gw_session_await(s, span));
}

static void backward(gw_session *s, int step) {
    float *grad = s->env.grad;
    gw_session_begin(s, 1.0 / ranks);
    for (int l = LAYERS - 1; l >= 0; l--) {
        for (size_t i = layers[l].off; i < gw_span_end(layers[l]); i++)
            grad[i] = (float)gw_rng_unit(gw_rng_key((uint64_t)me, (uint64_t)step), i) - 0.5f;
        CHECK_OK(gw_session_ready(s, layers[l]));
        CHECK_OK(gw_session_progress(s));
    }
}

/* As the trainer does it; the last step is settled. */
static void take_step(gw_session *s, const mode *m, int step) {
    for (int l = 0; m->lazy && step > 1 && l < LAYERS; l++)
        finish(s, layers[l]);
    backward(s, step);
    if (!m->lazy)
        finish(s, (gw_span){0, N});
    for (int l = 0; m->lazy && step == STEPS && l < LAYERS; l++)
        finish(s, layers[l]);
}

static void add(gw_batch_cost *sum, const gw_batch_cost *c) {
    sum->wire_bytes += c->wire_bytes;
    sum->messages += c->messages;
    sum->collectives += c->collectives;
}

static void check_counts(const mode *m, const gw_batch_cost *sum, gw_cost want) {
    uint64_t mine[3] = {sum->wire_bytes, sum->messages, sum->collectives}, all[3];
    CHECK_OK(gw_allreduce(mine, all, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    /* For an MPI collective each rank is charged a whole number of bytes. */
    CHECK(all[0] <= want.bytes && all[0] + all[2] >= want.bytes && all[1] == want.messages,
          "%s %s lazy=%d: %llu bytes in %llu messages, the formula says %llu in %llu", m->comm,
          m->codec, m->lazy, (unsigned long long)all[0], (unsigned long long)all[1],
          (unsigned long long)want.bytes, (unsigned long long)want.messages);
}

static void check_times(const mode *m, int64_t before) {
    gw_exchange_view v = gw_exchange_log_view();
    CHECK(v.n_entries > 0 && v.dropped == 0, "%s: %d exchanges", m->comm, v.n_entries);
    for (int i = 0; i < v.n_entries; i++) {
        const gw_exchange_entry *e = &v.entries[i];
        CHECK(e->step > before && e->step <= before + STEPS && e->start <= e->done,
              "%s %s lazy=%d: exchange %d of step %d, %s", m->comm, m->codec, m->lazy, i,
              (int)(e->step - before), e->done ? "complete" : "not complete");
    }
    gw_exchange_log_clear(true);
}

static void try_mode(const mode *m) {
    static int64_t steps;
    gw_session *s = NULL;
    gw_session_setup setup = {.n = N,
                              .layers = layers,
                              .n_layers = LAYERS,
                              .by_layer = m->lazy,
                              .seed = 5,
                              .yield = true};
    gw_batch_cost cost, sum = {0};
    gw_cost want = {0};
    CHECK_OK(new_session(&s, m->comm, m->codec, "auto", false));
    CHECK_OK(gw_session_open(s, MPI_COMM_WORLD, &setup));
    for (int k = 1; k <= STEPS; k++) {
        gw_exchange_log_begin(steps + k);
        gw_ledger_begin();
        take_step(s, m, k);
        if (k == STEPS)
            CHECK_OK(gw_session_settle(s));
        gw_ledger_end(&cost);
        gw_exchange_log_end();
        add(&sum, &cost);
        int64_t period;
        want = gw_cost_sum(want, s->strategy.ops->cost(s->self, k - 1, &period));
        usleep(PAUSE_US); /* long enough for a progress thread to send */
    }
    want = gw_cost_sum(want, s->settled);
    check_counts(m, &sum, want);
    if (ranks > 1)
        check_times(m, steps);
    steps += STEPS;
    gw_session_close(s);
    gw_session_free(s);
}

static void try_all(void) {
    static const char *const comms[] = {
        "iallreduce:bucket=2K,algo=ring,progress=",
        "iallreduce:bucket=2K,algo=sra,progress=",
        "iallreduce:bucket=2K,algo=sra,order=priority,credit=2K,progress=",
        "iallreduce:bucket=2K,algo=native,progress=",
        "sharded:algo=sra,progress=",
        "sparse:progress=",
        "delayed:bucket=2K,algo=ring,progress=",
    };
    static const char *const progress[] = {"poll", "none", "thread"};
    for (size_t c = 0; c < sizeof comms / sizeof *comms; c++)
        for (int p = 0; p < 3; p++)
            for (int lazy = 0; lazy < 2; lazy++) {
                char comm[128];
                bool sparse = strncmp(comms[c], "sparse", 6) == 0;
                snprintf(comm, sizeof comm, "%s%s", comms[c], progress[p]);
                if (p < 2 || strncmp(comms[c], "delayed", 7) != 0)
                    try_mode(&(mode){comm, sparse ? "randomk" : "none", lazy});
            }
}

/* Products are cut into pieces only if polls between them advance messages. */
static void check_polls(const char *comm, const char *codec, bool expected) {
    gw_session *s = NULL;
    CHECK_OK(new_session(&s, comm, codec, "auto", false));
    CHECK(s->strategy.plan.polls == expected, "%s: polls are told to be %s", comm,
          expected ? "idle" : "of use");
    gw_session_free(s);
}

static void polls_are_of_use(void) {
    static const char *const comms[] = {"iallreduce", "sharded", "sparse", "delayed"};
    static const char *const progress[] = {"poll", "none", "thread"};
    char comm[64];
    for (size_t c = 0; c < sizeof comms / sizeof *comms; c++)
        for (int p = 0; p < 3; p++) {
            snprintf(comm, sizeof comm, "%s:progress=%s", comms[c], progress[p]);
            if (p < 2 || strcmp(comms[c], "delayed") != 0)
                check_polls(comm, strcmp(comms[c], "sparse") == 0 ? "topk" : "none", p == 0);
        }
    check_polls("allreduce", "none", false);
    check_polls("gossip", "none", true);
}

/* ---- the thread's team ---- */

static atomic_int team;

/* Only the thread polls: the caller of gw_queue_start looks first. */
static gw_err see_team(void *caller, bool *done) {
    *done = !pthread_equal(pthread_self(), *(const pthread_t *)caller);
    if (*done)
        atomic_store(&team, omp_get_max_threads());
    return GW_OK;
}

static void check_team(int asked, int expected) {
    static float base[1];
    pthread_t caller = pthread_self();
    gw_codec codec;
    gw_lane *lane;
    gw_queue *q;
    gw_schedule *s;
    CHECK_OK(open_codec(&codec, "none"));
    gw_lane_setup setup = {.codec = &codec, .n = 1, .yield = true};
    CHECK_OK(gw_lane_open(&lane, MPI_COMM_SELF, &setup));
    CHECK_OK(gw_queue_open(&q, GW_PROGRESS_THREAD, 1, true));
    if (asked > 0)
        gw_queue_team(q, asked);
    CHECK_OK(gw_schedule_new(&s, lane, base, (gw_span){0, 1}));
    CHECK_OK(gw_schedule_await(s, see_team, &caller));
    CHECK_OK(gw_queue_start(q, s));
    CHECK_OK(gw_queue_wait(q, s));
    CHECK(atomic_load(&team) == expected, "a team of %d, expected %d", atomic_load(&team),
          expected);
    gw_queue_close(q);
    gw_schedule_free(s);
    gw_lane_close(lane);
    gw_codec_close(&codec);
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    ranks = check_ranks(argc, argv);
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &me));
    gw_wait_yields(true);
    omp_set_num_threads(1);
    for (int l = 0; l < LAYERS; l++)
        layers[l] = gw_span_part((gw_span){0, N}, l, LAYERS);
    gw_ledger_start();
    CHECK_OK(gw_exchange_log_open(ROWS));
    try_all();
    gw_exchange_log_close();
    polls_are_of_use();
    check_team(0, 1);
    check_team(3, 3);
    MPI_Finalize();
    return 0;
}
