/* In every progress mode the counts equal the formula, even if an exchange ends in the next step,
 * with a pause between two batches in which only a progress thread can continue it. Bytes and
 * messages add up, the log has every exchange in a step of the run, from its start to its end, and
 * the progress thread opens no OpenMP team larger than asked for. */
enum { N = 3000 };

#include "small_run.h"

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

enum { STEPS = 6, ENTRIES = 64, PAUSE_US = 3000 };

typedef struct mode {
    const char *comm, *codec;
    bool lazy;
} mode;

/* As the trainer does it; the last step is settled. */
static void step(run *r, const mode *m, int number) {
    if (m->lazy && number > 1)
        update_all(r);
    gw_session_begin(r->session, 1.0 / ranks);
    backward(r, number);
    if (!m->lazy || number == STEPS)
        update_all(r);
}

static void add(gw_batch_cost *sum, const gw_batch_cost *c) {
    sum->wire_bytes += c->wire_bytes;
    sum->messages += c->messages;
    sum->collectives += c->collectives;
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
    run r = {0};
    gw_batch_cost cost, sum = {0};
    gw_cost want = {0};
    open_session(&r, m->comm, m->codec, "auto", (gw_session_setup){.by_layer = m->lazy});
    gw_session *s = r.session;
    for (int k = 1; k <= STEPS; k++) {
        gw_exchange_log_begin(steps + k);
        gw_ledger_begin();
        step(&r, m, k);
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
    check_charges(m->comm, &sum, want);
    if (ranks > 1)
        check_times(m, steps);
    steps += STEPS;
    close_run(&r);
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
    check_start(argc, argv);
    omp_set_num_threads(1);
    CHECK_OK(gw_exchange_log_open(ENTRIES));
    try_all();
    gw_exchange_log_close();
    polls_are_of_use();
    check_team(0, 1);
    check_team(3, 3);
    MPI_Finalize();
    return 0;
}
