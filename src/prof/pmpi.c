/* Completion of requests, persistent requests, and point-to-point operations. */
#include "prof/pmpi.h"

#include "base/mem.h"
#include "prof/matrix.h"

#include <pthread.h>
#include <stdatomic.h>

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
static int listed, room;
static atomic_bool any_persistent;

static persistent *pmpi_persistent_find(MPI_Request request) {
    for (int i = 0; i < listed; i++)
        if (list[i].request == request)
            return &list[i];
    return NULL;
}

int gw_pmpi_persistent_add(MPI_Request request, uint64_t bytes, unsigned messages,
                           unsigned collectives, int peer) {
    pthread_mutex_lock(&lock);
    bool fits = gw_grow(&list, &room, listed + 1, sizeof *list) == GW_OK;
    if (fits)
        list[listed++] = (persistent){request, bytes, messages, collectives, peer, false};
    atomic_store(&any_persistent, true);
    pthread_mutex_unlock(&lock);
    return fits ? MPI_SUCCESS : MPI_ERR_NO_MEM;
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

/* ---- point-to-point: a send counts its bytes and one message, also for whom it is; a receive
 * counts nothing ---- */

uint64_t gw_pmpi_bytes(MPI_Count count, MPI_Datatype type) {
    MPI_Count size = 0;
    if (count <= 0 || PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size <= 0)
        return 0;
    return (uint64_t)count * (uint64_t)size;
}

/* Bytes of a message to `dest`: none to MPI_PROC_NULL. */
static uint64_t pmpi_sent_bytes(MPI_Count count, MPI_Datatype type, int dest) {
    return dest == MPI_PROC_NULL ? 0 : gw_pmpi_bytes(count, type);
}

/* Bytes of a message that was sent, entered in the matrix. */
#define SENT(count, type, dest)                                                                    \
    gw_matrix_sent(gw_matrix_peer(dest, comm), pmpi_sent_bytes(count, type, dest))

#define SENDS(call, count, type, dest)                                                             \
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, call, SENT(count, type, dest), dest != MPI_PROC_NULL, 0)
#define POSTS_SEND(call, count, type, dest)                                                        \
    GW_PMPI_POST(call, request, SENT(count, type, dest), dest != MPI_PROC_NULL, 0)
#define INITS_SEND(call, count, type, dest)                                                        \
    GW_PMPI_INIT(call, request, pmpi_sent_bytes(count, type, dest), dest != MPI_PROC_NULL, 0,      \
                 gw_matrix_peer(dest, comm))
#define RECEIVES(call)      GW_PMPI_CALL(GW_PHASE_MPI_WAIT, call, 0, 0, 0)
#define POSTS_RECEIVE(call) GW_PMPI_POST(call, request, 0, 0, 0)
#define INITS_RECEIVE(call) GW_PMPI_INIT(call, request, 0, 0, 0, -1)
#define POLLS(call)         GW_PMPI_CALL(GW_PHASE_MPI_POLL, call, 0, 0, 0)

#define SEND(count_t)                                                                              \
    const void *buf, count_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm
#define SEND_ARGS buf, count, type, dest, tag, comm
#define RECV(count_t)                                                                              \
    void *buf, count_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm
#define RECV_ARGS buf, count, type, source, tag, comm
#define BOTH(count_t)                                                                              \
    const void *sendbuf, count_t sendcount, MPI_Datatype sendtype, int dest, int sendtag,          \
        void *recvbuf, count_t recvcount, MPI_Datatype recvtype, int source, int recvtag,          \
        MPI_Comm comm
#define BOTH_ARGS                                                                                  \
    sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, comm
#define REPLACE(count_t)                                                                           \
    void *buf, count_t count, MPI_Datatype type, int dest, int sendtag, int source, int recvtag,   \
        MPI_Comm comm
#define REPLACE_ARGS buf, count, type, dest, sendtag, source, recvtag, comm

/* The three forms of one mode of sending, for one type of count; `c` is empty or _c. */
#define SEND_MODE(Name, name, c, count_t)                                                          \
    int MPI_##Name##c(SEND(count_t)) {                                                             \
        SENDS(PMPI_##Name##c(SEND_ARGS), count, type, dest);                                       \
    }                                                                                              \
    int MPI_I##name##c(SEND(count_t), MPI_Request *request) {                                      \
        POSTS_SEND(PMPI_I##name##c(SEND_ARGS, request), count, type, dest);                        \
    }                                                                                              \
    int MPI_##Name##_init##c(SEND(count_t), MPI_Request *request) {                                \
        INITS_SEND(PMPI_##Name##_init##c(SEND_ARGS, request), count, type, dest);                  \
    }

/* All transfers for one type of count. */
#define TRANSFERS(c, count_t)                                                                      \
    SEND_MODE(Send, send, c, count_t)                                                              \
    SEND_MODE(Ssend, ssend, c, count_t)                                                            \
    SEND_MODE(Rsend, rsend, c, count_t)                                                            \
    SEND_MODE(Bsend, bsend, c, count_t)                                                            \
    int MPI_Recv##c(RECV(count_t), MPI_Status *status) {                                           \
        RECEIVES(PMPI_Recv##c(RECV_ARGS, status));                                                 \
    }                                                                                              \
    int MPI_Irecv##c(RECV(count_t), MPI_Request *request) {                                        \
        POSTS_RECEIVE(PMPI_Irecv##c(RECV_ARGS, request));                                          \
    }                                                                                              \
    int MPI_Recv_init##c(RECV(count_t), MPI_Request *request) {                                    \
        INITS_RECEIVE(PMPI_Recv_init##c(RECV_ARGS, request));                                      \
    }                                                                                              \
    int MPI_Mrecv##c(void *buf, count_t count, MPI_Datatype type, MPI_Message *message,            \
                     MPI_Status *status) {                                                         \
        RECEIVES(PMPI_Mrecv##c(buf, count, type, message, status));                                \
    }                                                                                              \
    int MPI_Imrecv##c(void *buf, count_t count, MPI_Datatype type, MPI_Message *message,           \
                      MPI_Request *request) {                                                      \
        POSTS_RECEIVE(PMPI_Imrecv##c(buf, count, type, message, request));                         \
    }                                                                                              \
    int MPI_Sendrecv##c(BOTH(count_t), MPI_Status *status) {                                       \
        SENDS(PMPI_Sendrecv##c(BOTH_ARGS, status), sendcount, sendtype, dest);                     \
    }                                                                                              \
    int MPI_Sendrecv_replace##c(REPLACE(count_t), MPI_Status *status) {                            \
        SENDS(PMPI_Sendrecv_replace##c(REPLACE_ARGS, status), count, type, dest);                  \
    }

#define BOTH_WAYS(c, count_t)                                                                      \
    int MPI_Isendrecv##c(BOTH(count_t), MPI_Request *request) {                                    \
        POSTS_SEND(PMPI_Isendrecv##c(BOTH_ARGS, request), sendcount, sendtype, dest);              \
    }                                                                                              \
    int MPI_Isendrecv_replace##c(REPLACE(count_t), MPI_Request *request) {                         \
        POSTS_SEND(PMPI_Isendrecv_replace##c(REPLACE_ARGS, request), count, type, dest);           \
    }

TRANSFERS(, int)
GW_PMPI_4(TRANSFERS(_c, MPI_Count) BOTH_WAYS(, int) BOTH_WAYS(_c, MPI_Count))

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status) {
    RECEIVES(PMPI_Probe(source, tag, comm, status));
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    POLLS(PMPI_Iprobe(source, tag, comm, flag, status));
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    RECEIVES(PMPI_Mprobe(source, tag, comm, message, status));
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                MPI_Status *status) {
    POLLS(PMPI_Improbe(source, tag, comm, flag, message, status));
}

/* Waits until the buffered messages have left. */
int MPI_Buffer_detach(void *buffer, int *size) {
    RECEIVES(PMPI_Buffer_detach(buffer, size));
}

#if MPI_VERSION >= 4
int MPI_Buffer_detach_c(void *buffer, MPI_Count *size) {
    RECEIVES(PMPI_Buffer_detach_c(buffer, size));
}
#endif
