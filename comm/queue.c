#include "comm/queue.h"

#include "base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct gw_queue {
    gw_progress mode;
    bool yield;
    int capacity, n;
    gw_schedule **inflight; /* in the order started */
    uint64_t completed;     /* since the queue was opened */
    size_t credit, bytes;   /* most bytes in flight (0: no limit), and how many are */
    int n_waiting;
    gw_schedule **waiting; /* for credit; the highest span first, so the last is the next */
    /* GW_PROGRESS_THREAD only: all MPI calls of the queue are made under the lock */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    gw_err failed; /* what the thread ran into, for whoever waits */
    char message[512];
};

static size_t bytes_of(const gw_schedule *s) {
    return gw_schedule_span(s).n * sizeof(float);
}

static gw_err launch(gw_queue *q, gw_schedule *s) {
    GW_TRY(gw_schedule_start(s));
    q->inflight[q->n++] = s;
    q->bytes += bytes_of(s);
    return GW_OK;
}

/* Start of those that wait what there is credit for. */
static gw_err admit(gw_queue *q) {
    while (q->n_waiting > 0) {
        gw_schedule *next = q->waiting[q->n_waiting - 1];
        if (q->n > 0 && q->bytes + bytes_of(next) > q->credit)
            return GW_OK;
        q->n_waiting--;
        GW_TRY(launch(q, next));
    }
    return GW_OK;
}

/* Test each schedule once and drop those that are complete. */
static gw_err sweep(gw_queue *q) {
    int kept = 0;
    gw_err e = GW_OK;
    for (int i = 0; i < q->n; i++) {
        bool done = false;
        if (e == GW_OK)
            e = gw_schedule_test(q->inflight[i], &done);
        if (!done) {
            q->inflight[kept++] = q->inflight[i];
        } else {
            q->bytes -= bytes_of(q->inflight[i]);
            q->completed++;
        }
    }
    q->n = kept;
    return e == GW_OK ? admit(q) : e;
}

static void *progress_thread(void *arg) {
    gw_queue *q = arg;
    gw_flush_denormals_here();
    pthread_mutex_lock(&q->lock);
    while (!q->stop) {
        if (q->n == 0 || q->failed != GW_OK) {
            pthread_cond_wait(&q->changed, &q->lock);
            continue;
        }
        uint64_t before = q->completed;
        q->failed = sweep(q);
        if (q->failed != GW_OK)
            snprintf(q->message, sizeof q->message, "%s", gw_err_text());
        if (q->completed != before || q->failed != GW_OK)
            pthread_cond_broadcast(&q->changed);
        pthread_mutex_unlock(&q->lock);
        sched_yield(); /* let the main thread have the lock, and the core if there are too few */
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

gw_err gw_queue_open(gw_queue **out, gw_progress mode, int capacity, bool yield) {
    gw_queue *q = NULL;
    GW_TRY(gw_alloc(&q, 1, sizeof *q));
    q->mode = mode;
    q->yield = yield;
    q->capacity = capacity;
    gw_err e = gw_alloc(&q->inflight, (size_t)capacity, sizeof *q->inflight);
    if (e == GW_OK)
        e = gw_alloc(&q->waiting, (size_t)capacity, sizeof *q->waiting);
    if (e == GW_OK && mode == GW_PROGRESS_THREAD) {
        pthread_mutex_init(&q->lock, NULL);
        pthread_cond_init(&q->changed, NULL);
        int rc = pthread_create(&q->thread, NULL, progress_thread, q);
        if (rc != 0)
            e = gw_fail(GW_ERR_INTERNAL, "cannot start the progress thread: %s", strerror(rc));
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

static gw_err append(gw_queue *q, gw_schedule *s) {
    if (q->n + q->n_waiting == q->capacity)
        return gw_fail(GW_ERR_INTERNAL, "queue: more than %d schedules in flight", q->capacity);
    if (q->credit == 0)
        return launch(q, s);
    int i = q->n_waiting++;
    for (; i > 0 && gw_schedule_span(q->waiting[i - 1]).off < gw_schedule_span(s).off; i--)
        q->waiting[i] = q->waiting[i - 1];
    q->waiting[i] = s;
    return admit(q);
}

/* Start `s` now if it still waits for its turn. */
static gw_err urge(gw_queue *q, gw_schedule *s) {
    int i = 0;
    while (i < q->n_waiting && q->waiting[i] != s)
        i++;
    if (i == q->n_waiting)
        return GW_OK;
    for (q->n_waiting--; i < q->n_waiting; i++)
        q->waiting[i] = q->waiting[i + 1];
    return launch(q, s);
}

gw_err gw_queue_start(gw_queue *q, gw_schedule *s) {
    if (q->mode != GW_PROGRESS_THREAD)
        return append(q, s);
    pthread_mutex_lock(&q->lock);
    gw_err e = append(q, s);
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    return e;
}

gw_err gw_queue_poll(gw_queue *q) {
    return q->mode == GW_PROGRESS_POLL ? sweep(q) : GW_OK;
}

static bool in_flight(const gw_queue *q, const gw_schedule *s) {
    for (int i = 0; i < q->n; i++)
        if (q->inflight[i] == s)
            return true;
    return false;
}

static gw_err wait_for_thread(gw_queue *q, gw_schedule *s) {
    pthread_mutex_lock(&q->lock);
    gw_err e = urge(q, s);
    while (e == GW_OK && q->failed == GW_OK && in_flight(q, s))
        pthread_cond_wait(&q->changed, &q->lock);
    if (q->failed != GW_OK)
        e = gw_fail(q->failed, "%s", q->message);
    pthread_mutex_unlock(&q->lock);
    return e;
}

gw_err gw_queue_wait(gw_queue *q, gw_schedule *s) {
    if (q->mode == GW_PROGRESS_THREAD)
        return wait_for_thread(q, s);
    GW_TRY(urge(q, s));
    while (in_flight(q, s)) {
        GW_TRY(sweep(q));
        if (q->yield)
            sched_yield();
    }
    return GW_OK;
}

void gw_queue_close(gw_queue *q) {
    if (!q)
        return;
    while (q->n_waiting > 0 && gw_queue_wait(q, q->waiting[0]) == GW_OK)
        ;
    while (q->n > 0 && gw_queue_wait(q, q->inflight[0]) == GW_OK)
        ;
    if (q->mode == GW_PROGRESS_THREAD) {
        pthread_mutex_lock(&q->lock);
        q->stop = true;
        pthread_cond_broadcast(&q->changed);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->thread, NULL);
        pthread_cond_destroy(&q->changed);
        pthread_mutex_destroy(&q->lock);
    }
    free(q->inflight);
    free(q->waiting);
    free(q);
}
