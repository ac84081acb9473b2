/** What a rank that is stuck says of itself and of the others on its host. */
#ifndef GW_WATCH_LAST_WORDS_H
#define GW_WATCH_LAST_WORDS_H

#include "mpi/shared.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** A rank of this host. */
typedef struct gw_peer {
    int rank; /* in MPI_COMM_WORLD */
    pid_t pid;
    unsigned long long born; /* by the kernel's count: tells it from a later one with this number */
    bool seen;               /* this process can look at that one */
    int64_t step;            /* that it was last known to be at */
} gw_peer;

typedef struct gw_last_words {
    int rank, ranks;
    char host[64];
    double timeout_s, silent_s;
    int asked_by; /* the rank that has spoken before; -1: none */
    const char *stage, *comm, *compress;
    const char *call; /* of the library's functions the one that is at work; NULL: none */
    int64_t step;
    int epoch;
    gw_peer *peers; /* by their rank on this host */
    int n_peers;
} gw_last_words;

/** Collective over the host's ranks: *out: who they are, gw_shared_size(m) of them; free() it. */
gw_err gw_last_words_peers(gw_peer **out, const gw_shared *m);

/** True unless the kernel says that the host's rank `r` is stopped or gone. */
bool gw_last_words_alive(const gw_last_words *w, int r);

/** Lines, each with its end, that fit in `room`. No MPI call, no lock of the main thread's. */
void gw_last_words_write(const gw_last_words *w, char *text, size_t room);

#endif
