#include "train/signals.h"

#include "base/wait.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

enum { WATCHED = 2 };

static const int watched[WATCHED] = {SIGTERM, SIGINT};
static struct sigaction before[WATCHED];
static atomic_int noted; /* free of locks: the handler runs in any thread */

/* Impatience is Ctrl-C's: a batch system may well send SIGTERM twice, to the launcher, which hands
 * it on, and to the ranks. */
static void note(int sig) {
    int none = 0;
    if (atomic_compare_exchange_strong(&noted, &none, sig) || sig != SIGINT)
        return;
    signal(SIGINT, SIG_DFL);
    raise(SIGINT); /* comes through when this handler returns */
}

gw_err gw_signals_watch(void) {
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    atomic_store(&noted, 0);
    for (int i = 0; i < WATCHED; i++)
        if (sigaction(watched[i], &action, &before[i]) != 0)
            return gw_fail(GW_ERR_INTERNAL, "sigaction: %s", strerror(errno));
    return GW_OK;
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

void gw_signals_restore(void) {
    for (int i = 0; i < WATCHED; i++)
        sigaction(watched[i], &before[i], NULL);
}
