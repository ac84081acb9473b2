#include "checkpoint/worker.h"

#include "base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gw_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    gw_err (*job)(void *ctx); /* NULL: nothing to do */
    void *ctx;
    bool stop;
    gw_err result; /* of the last job, and its message */
    char message[1024];
};

static void *work(void *p) {
    gw_worker *w = p;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (!w->job) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        gw_err e = w->job(w->ctx);
        pthread_mutex_lock(&w->lock);
        w->result = e;
        if (e != GW_OK)
            snprintf(w->message, sizeof w->message, "%s", gw_err_text());
        w->job = NULL;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Signals are the main thread's, whose system calls they are to interrupt. */
static int start_thread(gw_worker *w) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

gw_err gw_worker_open(gw_worker **out) {
    gw_worker *w = NULL;
    GW_TRY(gw_alloc(&w, 1, sizeof *w));
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    int rc = start_thread(w);
    if (rc != 0) {
        free(w);
        return gw_fail(GW_ERR_NOMEM, "cannot start a thread that writes checkpoints: %s",
                       strerror(rc));
    }
    *out = w;
    return GW_OK;
}

void gw_worker_start(gw_worker *w, gw_err (*job)(void *ctx), void *ctx) {
    pthread_mutex_lock(&w->lock);
    w->job = job;
    w->ctx = ctx;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

bool gw_worker_idle(gw_worker *w) {
    pthread_mutex_lock(&w->lock);
    bool idle = !w->job;
    pthread_mutex_unlock(&w->lock);
    return idle;
}

gw_err gw_worker_wait(gw_worker *w) {
    pthread_mutex_lock(&w->lock);
    while (w->job)
        pthread_cond_wait(&w->changed, &w->lock);
    gw_err e = w->result;
    w->result = GW_OK;
    pthread_mutex_unlock(&w->lock);
    return e == GW_OK ? GW_OK : gw_fail(e, "%s", w->message);
}

void gw_worker_close(gw_worker *w) {
    if (!w)
        return;
    gw_worker_wait(w);
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
