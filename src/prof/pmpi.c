/* Completion of requests, and persistent requests. */
#include "prof/pmpi.h"
#include "prof/matrix.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Persistent requests keep their handle when they complete, so which of them are under way must
 * be kept here. Few programs have any, and those have few: a list, and one branch for the rest. */
typedef struct persistent {
    MPI_Request request;
    uint64_t bytes;
    unsigned messages, collectives;
    int peer;
    bool active;
} persistent;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static persistent *list; /* lives as long as the process */
static size_t listed, room;
static atomic_bool any_persistent;

static persistent *pmpi_persistent_find(MPI_Request request) {
    for (size_t i = 0; i < listed; i++)
        if (list[i].request == request)
            return &list[i];
    return NULL;
}

int gw_pmpi_persistent_add(MPI_Request request, uint64_t bytes, unsigned messages,
                           unsigned collectives, int peer) {
    pthread_mutex_lock(&lock);
    if (listed == room) {
        size_t more = room ? 2 * room : 16;
        persistent *grown = realloc(list, more * sizeof *grown);
        if (grown) {
            list = grown;
            room = more;
        }
    }
    int rc = listed < room ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (rc == MPI_SUCCESS)
        list[listed++] = (persistent){request, bytes, messages, collectives, peer, false};
    atomic_store(&any_persistent, true);
    pthread_mutex_unlock(&lock);
    return rc;
}

static void pmpi_persistent_started(MPI_Request request) {
    pthread_mutex_lock(&lock);
    persistent *p = pmpi_persistent_find(request);
    if (p) {
        p->active = true;
        gw_ledger_posted(1);
        gw_ledger_count(p->bytes, p->messages, p->collectives);
        if (gw_ledger_counts())
            gw_matrix_sent(p->peer, p->bytes);
    }
    pthread_mutex_unlock(&lock);
}

/* 1 if `request` was under way (it is not from now on), 0 if not, -1 if it is not persistent. */
static int pmpi_persistent_done(MPI_Request request, bool forget) {
    if (!atomic_load_explicit(&any_persistent, memory_order_relaxed))
        return -1;
    pthread_mutex_lock(&lock);
    persistent *p = pmpi_persistent_find(request);
    int done = p ? p->active : -1;
    if (p && forget)
        *p = list[--listed];
    else if (p)
        p->active = false;
    pthread_mutex_unlock(&lock);
    return done;
}

/* How many of requests[0..n) are not null. */
static int pmpi_pending(int n, const MPI_Request requests[]) {
    int found = 0;
    for (int i = 0; i < n; i++)
        found += requests[i] != MPI_REQUEST_NULL;
    return found;
}

/* Report the completion of one request: null now, or persistent. */
static void pmpi_completed_one(MPI_Request now) {
    gw_ledger_completed(now == MPI_REQUEST_NULL ? 1 : pmpi_persistent_done(now, false));
}

/* Report those of requests[0..n) that completed in a call before which `before` were not null. */
static void pmpi_completed_all(int n, const MPI_Request requests[], int before) {
    int done = before - pmpi_pending(n, requests);
    for (int i = 0; i < n; i++)
        if (requests[i] != MPI_REQUEST_NULL && pmpi_persistent_done(requests[i], false) == 1)
            done++;
    gw_ledger_completed(done);
}

/* Report requests[indices[0..outcount)]; MPI names only such as were under way. */
static void pmpi_completed_some(const MPI_Request requests[], int outcount, const int indices[]) {
    for (int i = 0; outcount != MPI_UNDEFINED && i < outcount; i++)
        pmpi_completed_one(requests[indices[i]]);
}

/* What completes requests. */
#define WAITS(call, before, tell) GW_PMPI_MEASURED(GW_PHASE_MPI_WAIT, call, before, tell)
#define TESTS(call, before, tell)                                                                  \
    GW_PMPI_MEASURED(GW_PHASE_MPI_POLL, call, before, if (rc == MPI_SUCCESS && *flag) tell)

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    WAITS(PMPI_Wait(request, status), bool open = *request != MPI_REQUEST_NULL,
          if (open) pmpi_completed_one(*request));
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    WAITS(PMPI_Waitall(count, requests, statuses), int before = pmpi_pending(count, requests),
          pmpi_completed_all(count, requests, before));
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status) {
    WAITS(PMPI_Waitany(count, requests, index, status), ,
          if (rc == MPI_SUCCESS && *index != MPI_UNDEFINED) pmpi_completed_one(requests[*index]));
}

int MPI_Waitsome(int count, MPI_Request requests[], int *outcount, int indices[],
                 MPI_Status statuses[]) {
    WAITS(PMPI_Waitsome(count, requests, outcount, indices, statuses), ,
          if (rc == MPI_SUCCESS) pmpi_completed_some(requests, *outcount, indices));
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    TESTS(PMPI_Test(request, flag, status), bool open = *request != MPI_REQUEST_NULL,
          if (open) pmpi_completed_one(*request));
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[]) {
    TESTS(PMPI_Testall(count, requests, flag, statuses), int before = pmpi_pending(count, requests),
          pmpi_completed_all(count, requests, before));
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status) {
    TESTS(PMPI_Testany(count, requests, index, flag, status), ,
          if (*index != MPI_UNDEFINED) pmpi_completed_one(requests[*index]));
}

int MPI_Testsome(int count, MPI_Request requests[], int *outcount, int indices[],
                 MPI_Status statuses[]) {
    GW_PMPI_MEASURED(GW_PHASE_MPI_POLL, PMPI_Testsome(count, requests, outcount, indices, statuses),
                     , if (rc == MPI_SUCCESS) pmpi_completed_some(requests, *outcount, indices));
}

/* A freed request may still be under way, but nobody will see it complete. */
int MPI_Request_free(MPI_Request *request) {
    int done = 0;
    if (*request != MPI_REQUEST_NULL)
        done = pmpi_persistent_done(*request, true) == 0 ? 0 : 1;
    int rc = PMPI_Request_free(request);
    gw_ledger_completed(done);
    return rc;
}

/* Looks at a request and lets it be: it completes in a later call. */
int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status) {
    GW_PMPI_CALL(GW_PHASE_MPI_POLL, PMPI_Request_get_status(request, flag, status), 0, 0, 0);
}

int MPI_Start(MPI_Request *request) {
    gw_present_post(__func__);
    GW_PMPI_MEASURED(GW_PHASE_MPI_POST, PMPI_Start(request), ,
                     if (rc == MPI_SUCCESS) pmpi_persistent_started(*request));
}

int MPI_Startall(int count, MPI_Request requests[]) {
    gw_present_post(__func__);
    GW_PMPI_MEASURED(GW_PHASE_MPI_POST, PMPI_Startall(count, requests), ,
                     for (int i = 0; rc == MPI_SUCCESS && i < count; i++)
                         pmpi_persistent_started(requests[i]));
}
