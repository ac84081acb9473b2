#include "watch/signals.h"

#include "mpi/wait.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static atomic_int noted; /* free of locks: it is set by a handler */

/* Impatience is Ctrl-C's: a batch system may well send SIGTERM twice, to the launcher, which hands
 * it on, and to the ranks. */
static void signals_note(int sig) {
    int none = 0;
    if (atomic_compare_exchange_strong(&noted, &none, sig) || sig != SIGINT)
        return;
    signal(SIGINT, SIG_DFL);
    raise(SIGINT); /* comes through when this handler returns */
}

static void *signals_take(void *mask) {
    pthread_sigmask(SIG_UNBLOCK, mask, NULL);
    for (;;)
        pause();
    return NULL;
}

/* While oneDNN 2.6 multiplies, the stack pointer of its thread points into a buffer on the heap,
 * and a handler that ran there would write over what lies below it. So a thread that computes takes
 * no signal: this one and those that it will start have them blocked, and one that does nothing
 * else takes them. */
gw_err gw_signals_watch(void) {
    static sigset_t mask; /* the taker reads it */
    struct sigaction action = {.sa_handler = signals_note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigaction(SIGTERM, &action, NULL); /* cannot fail: both exist and can be caught. A thread of */
    sigaction(SIGINT, &action, NULL);  /* the MPI library's may take them as well */
    pthread_t taker;
    int rc = pthread_sigmask(SIG_BLOCK, &mask, NULL);
    rc = rc == 0 ? pthread_create(&taker, NULL, signals_take, &mask) : rc;
    rc = rc == 0 ? pthread_detach(taker) : rc;
    return rc == 0 ? GW_OK : gw_fail(GW_ERR_NOMEM, "no thread to take signals: %s", strerror(rc));
}

int gw_signals_seen(void) {
    return atomic_load_explicit(&noted, memory_order_relaxed);
}

gw_err gw_signals_agree(int *sig, MPI_Comm comm) {
    *sig = gw_signals_seen();
    return gw_allreduce(MPI_IN_PLACE, sig, 1, MPI_INT, MPI_MAX, comm);
}

const char *gw_signals_name(int sig) {
    return sig == SIGTERM ? "SIGTERM" : "SIGINT";
}
