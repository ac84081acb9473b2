#include "comm/schedule/queue.h"

#include "base/mem.h"
#include "base/turn.h"
#include "comm/channel.h"
#include "comm/schedule/pending.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MOST_SWEEPS = 64, /* of a poll */
    MOST_LOOKS = 32,  /* at schedules that wait, in a sweep: each is a call of MPI */
    NAP_NS = 150000   /* of a thread whose core computation needs */
};

struct gw_queue {
    gw_progress mode;
    bool yield;
    gw_fabric *fabric; /* of what was started, all in one world; NULL: nothing was */
    int capacity, n;
    gw_schedule **inflight;      /* in the order started */
    size_t credit, bytes;        /* most bytes in flight (0: no limit), and how many are */
    int64_t idle_ns;             /* the least that a call of a sweep has taken: it found nothing */
    gw_err (*beside)(void *ctx); /* NULL: nothing else is under way */
    void *ctx;
    int n_waiting, look;   /* look: where the last one was */
    gw_schedule **waiting; /* for credit; the highest span first, so the last is the next */
    /* GW_PROGRESS_THREAD only: who has the turn (base/turn.h) has the queue, too */
    pthread_t thread;
    pthread_cond_t changed;
    int team;     /* OpenMP threads of the thread */
    int turn;     /* the schedule that the thread tests next */
    int blocked;  /* callers that wait for the thread */
    int tested;   /* calls of its round of tests */
    int64_t busy; /* ns that these took */
    bool stop;
    gw_err failed; /* what the thread ran into, for whoever waits */
    char message[512];
};

static size_t queue_bytes(const gw_schedule *s) {
    return gw_schedule_span(s).n * sizeof(float);
}

static gw_err queue_launch(gw_queue *q, gw_schedule *s) {
    if (q->credit > 0)
        gw_pending_defer(s, false);
    q->fabric = gw_lane_channel(gw_schedule_lane(s))->fabric;
    GW_TRY(gw_schedule_start(s));
    q->inflight[q->n++] = s;
    q->bytes += queue_bytes(s);
    return GW_OK;
}

/* Start of those that wait what there is credit for. */
static gw_err queue_admit(gw_queue *q) {
    while (q->n_waiting > 0) {
        gw_schedule *next = q->waiting[q->n_waiting - 1];
        if (q->n > 0 && q->bytes + queue_bytes(next) > q->credit)
            return GW_OK;
        q->n_waiting--;
        GW_TRY(queue_launch(q, next));
    }
    return GW_OK;
}

static gw_err queue_launch_waiting(gw_queue *q, int i) {
    gw_schedule *s = q->waiting[i];
    for (q->n_waiting--; i < q->n_waiting; i++)
        q->waiting[i] = q->waiting[i + 1];
    return queue_launch(q, s);
}

static int queue_looks(const gw_queue *q) {
    return q->n_waiting < MOST_LOOKS ? q->n_waiting : MOST_LOOKS;
}

/* Start of those that wait what a peer has started, whatever the credit: its bytes are on their way
 * already, and hold the peer's credit until they are answered. Ranks that choose differently would
 * else use up their credit for what the others put off. */
static gw_err queue_answer(gw_queue *q) {
    for (int k = queue_looks(q); k > 0; k--) {
        bool called;
        q->look = (q->look > 0 && q->look < q->n_waiting ? q->look : q->n_waiting) - 1;
        GW_TRY(gw_schedule_called(q->waiting[q->look], &called));
        if (called)
            GW_TRY(queue_launch_waiting(q, q->look));
    }
    return GW_OK;
}

/* Test schedule `i` once and drop it if it is complete. */
static gw_err queue_test(gw_queue *q, int i, bool *done) {
    *done = false;
    GW_TRY(gw_schedule_test(q->inflight[i], done));
    if (!*done)
        return GW_OK;
    q->bytes -= queue_bytes(q->inflight[i]);
    q->n--;
    memmove(q->inflight + i, q->inflight + i + 1, (size_t)(q->n - i) * sizeof(gw_schedule *));
    return queue_admit(q);
}

static gw_err queue_sweep(gw_queue *q) {
    bool (*quiet)(gw_fabric *, const void *) = q->n ? q->fabric->ops->quiet : NULL;
    for (int i = 0; i < q->n;) {
        bool done = false;
        if (!quiet || !quiet(q->fabric, q->inflight[i]))
            GW_TRY(queue_test(q, i, &done));
        i += !done;
    }
    if (quiet)
        quiet(q->fabric, NULL);
    return queue_answer(q);
}

static int64_t queue_now_ns(const gw_queue *q) {
    return q->fabric->ops->now_ns(q->fabric);
}

static void queue_tell(const gw_queue *q, gw_exchange_event event, const gw_schedule *s) {
    q->fabric->ops->tell(q->fabric, event, gw_schedule_exchange(s));
}

/* Whether so many calls of MPI found something to move, which their time tells. */
static bool queue_moved(gw_queue *q, int64_t took_ns, int calls) {
    int64_t each = took_ns / calls;
    if (q->idle_ns == 0 || each < q->idle_ns)
        q->idle_ns = each > 0 ? each : 1;
    return each >= 3 * q->idle_ns;
}

/* One test a turn, so that ready() waits for no more than that. Whether the thread may rest: it
 * shares its core with a computation, and a round of tests has found nothing. */
static bool queue_take_turn(gw_queue *q) {
    bool done;
    int64_t start = queue_now_ns(q);
    q->turn = q->turn < q->n ? q->turn : 0;
    q->tested += 1 + (q->turn == 0 ? queue_looks(q) : 0);
    q->failed = queue_test(q, q->turn, &done);
    if (q->failed == GW_OK && q->turn == 0)
        q->failed = queue_answer(q);
    if (q->failed != GW_OK)
        snprintf(q->message, sizeof q->message, "%s", gw_err_text());
    if (done || q->failed != GW_OK)
        pthread_cond_broadcast(&q->changed);
    q->turn += !done;
    q->busy += queue_now_ns(q) - start;
    if (q->turn < q->n)
        return false;
    bool found = queue_moved(q, q->busy, q->tested);
    q->busy = q->tested = 0;
    return q->yield && q->blocked == 0 && !found;
}

/* A rest must not last until a computation's slice of the core has ended. Kernels that know no
 * slices of a thread's own (Linux before 6.12) ignore this, and wake sleepers early as it is. */
static void queue_ask_for_short_slices(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {0};
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0 || attr.policy != SCHED_OTHER)
        return;
    attr.runtime = NAP_NS;
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *queue_thread(void *arg) {
    gw_queue *q = arg;
    gw_flush_denormals_here();
    if (q->yield) {
        prctl(PR_SET_TIMERSLACK, 1000);
        queue_ask_for_short_slices();
    }
    gw_turn_take();
    while (!q->stop) {
        if (q->n == 0 || q->failed != GW_OK) {
            gw_turn_wait(&q->changed);
            continue;
        }
        omp_set_num_threads(q->team); /* what the main thread has set holds for that one alone */
        bool rests = queue_take_turn(q);
        const gw_fabric *f = q->fabric;
        gw_turn_leave();
        do /* the core, too, if there are too few */
            f->ops->yield(f, rests ? NAP_NS : 0);
        while (!rests && gw_turn_wanted());
        gw_turn_take();
    }
    gw_turn_leave();
    return NULL;
}

gw_err gw_queue_open(gw_queue **out, gw_progress mode, int capacity, bool yield) {
    gw_queue *q = NULL;
    GW_TRY(gw_alloc(&q, 1, sizeof *q));
    q->mode = mode;
    q->team = 1;
    q->yield = yield;
    q->capacity = capacity;
    gw_err e = gw_alloc(&q->inflight, (size_t)capacity, sizeof *q->inflight);
    GW_THEN(e, gw_alloc(&q->waiting, (size_t)capacity, sizeof *q->waiting));
    if (e == GW_OK && mode == GW_PROGRESS_THREAD) {
        pthread_cond_init(&q->changed, NULL);
        gw_turn_join(true);
        int rc = pthread_create(&q->thread, NULL, queue_thread, q);
        if (rc != 0) {
            gw_turn_join(false);
            e = gw_fail(GW_ERR_INTERNAL, "cannot start the progress thread: %s", strerror(rc));
        }
    }
    if (e != GW_OK) {
        free(q->inflight);
        free(q->waiting);
        free(q);
        return e;
    }
    *out = q;
    return GW_OK;
}

void gw_queue_limit(gw_queue *q, size_t credit) {
    q->credit = credit;
}

void gw_queue_team(gw_queue *q, int threads) {
    q->team = threads;
}

void gw_queue_beside(gw_queue *q, gw_err (*poll)(void *ctx), void *ctx) {
    q->beside = poll;
    q->ctx = ctx;
}

static gw_err queue_append(gw_queue *q, gw_schedule *s) {
    if (q->n + q->n_waiting == q->capacity)
        return gw_fail(GW_ERR_INTERNAL, "queue: more than %d schedules in flight", q->capacity);
    if (q->credit == 0)
        return queue_launch(q, s);
    int i = q->n_waiting++;
    for (; i > 0 && gw_schedule_span(q->waiting[i - 1]).off < gw_schedule_span(s).off; i--)
        q->waiting[i] = q->waiting[i - 1];
    q->waiting[i] = s;
    gw_pending_defer(s, true);
    return queue_admit(q);
}

/* Start `s` now if it still waits for its turn. */
static gw_err queue_urge(gw_queue *q, gw_schedule *s) {
    int i = 0;
    while (i < q->n_waiting && q->waiting[i] != s)
        i++;
    return i == q->n_waiting ? GW_OK : queue_launch_waiting(q, i);
}

gw_err gw_queue_start(gw_queue *q, gw_schedule *s) {
    if (q->mode != GW_PROGRESS_THREAD)
        return queue_append(q, s);
    gw_turn_take();
    gw_err e = queue_append(q, s);
    pthread_cond_broadcast(&q->changed);
    gw_turn_leave();
    return e;
}

/* A call of MPI moves some tens of KiB at most, and more may have come since the last poll: the
 * sweeps go on until one finds nothing, which its time tells. */
gw_err gw_queue_poll(gw_queue *q) {
    bool busy = q->mode == GW_PROGRESS_POLL;
    for (int i = 0; i < MOST_SWEEPS && busy && q->n > 0; i++) {
        int64_t start = queue_now_ns(q);
        int calls = q->n + queue_looks(q);
        GW_TRY(queue_sweep(q));
        busy = queue_moved(q, queue_now_ns(q) - start, calls);
    }
    return GW_OK;
}

gw_err gw_queue_urge(gw_queue *q, gw_schedule *s) {
    if (q->mode == GW_PROGRESS_THREAD)
        gw_turn_take();
    gw_err e = queue_urge(q, s);
    if (q->mode == GW_PROGRESS_THREAD)
        gw_turn_leave();
    return e;
}

bool gw_queue_in_flight(const gw_queue *q, const gw_schedule *s) {
    for (int i = 0; i < q->n; i++)
        if (q->inflight[i] == s)
            return true;
    return false;
}

gw_err gw_queue_wait(gw_queue *q, gw_schedule *s) {
    if (q->mode == GW_PROGRESS_THREAD) {
        gw_turn_take();
        gw_err e = queue_urge(q, s);
        bool blocks = gw_queue_in_flight(q, s);
        if (blocks)
            queue_tell(q, GW_EXCHANGE_BLOCK, s);
        q->blocked += blocks;
        while (e == GW_OK && q->failed == GW_OK && gw_queue_in_flight(q, s))
            gw_turn_wait(&q->changed);
        q->blocked -= blocks;
        if (blocks)
            queue_tell(q, GW_EXCHANGE_UNBLOCK, s);
        if (q->failed != GW_OK)
            e = gw_fail(q->failed, "%s", q->message);
        gw_turn_leave();
        return e;
    }
    GW_TRY(queue_urge(q, s));
    if (!gw_queue_in_flight(q, s))
        return GW_OK;
    gw_err e = GW_OK;
    int before = gw_dim_turn(gw_schedule_exchange(s)->dim);
    queue_tell(q, GW_EXCHANGE_BLOCK, s);
    while (e == GW_OK && gw_queue_in_flight(q, s)) {
        e = queue_sweep(q);
        if (q->beside)
            GW_THEN(e, q->beside(q->ctx));
        if (q->yield)
            q->fabric->ops->yield(q->fabric, 0);
    }
    queue_tell(q, GW_EXCHANGE_UNBLOCK, s);
    gw_dim_turn(before);
    return e;
}

/* Without a limit from now on. */
static gw_err queue_start_all(gw_queue *q) {
    q->credit = SIZE_MAX;
    return queue_admit(q);
}

void gw_queue_close(gw_queue *q) {
    if (!q)
        return;
    if (q->mode == GW_PROGRESS_THREAD) {
        gw_turn_take();
        if (q->failed == GW_OK)
            q->failed = queue_start_all(q);
        while (q->failed == GW_OK && q->n > 0)
            gw_turn_wait(&q->changed);
        q->stop = true;
        pthread_cond_broadcast(&q->changed);
        gw_turn_leave();
        pthread_join(q->thread, NULL);
        gw_turn_join(false);
        pthread_cond_destroy(&q->changed);
    } else {
        gw_err e = queue_start_all(q);
        while (e == GW_OK && q->n > 0)
            e = gw_queue_wait(q, q->inflight[0]);
    }
    free(q->inflight);
    free(q->waiting);
    free(q);
}
