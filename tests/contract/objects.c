#include "objects.h"

#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16, AT_ONCE = 4096 };

/* MPI may return the same handle for several sends that complete at once; then it is listed as
 * often. */
static struct object {
    object_kind kind;
    uint64_t handle;
    const char *by;
} live[MOST];
static int n_live;
static object_count counts[OBJECT_KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all above */

static _Thread_local int depth; /* depth > 0: the library calls itself, not the program */

static void fail(const char *what, const char *name) {
    fprintf(stderr, "objects: %s: %s\n", name, what);
    abort();
}

const char *object_name(object_kind kind) {
    static const char *const names[] = {"requests",   "persistent", "communicators", "types",
                                        "operations", "windows",    "groups"};
    return names[kind];
}

void object_counts(object_count out[OBJECT_KINDS]) {
    pthread_mutex_lock(&lock);
    memcpy(out, counts, sizeof counts);
    pthread_mutex_unlock(&lock);
}

void object_list(FILE *to) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_live; i++)
        fprintf(to, "objects: %s: of %s\n", object_name(live[i].kind), live[i].by);
    pthread_mutex_unlock(&lock);
}

static uint64_t handle_of(const void *handle, size_t size) {
    uint64_t bits = 0;
    memcpy(&bits, handle, size);
    return bits;
}
#define HANDLE(h) handle_of(&(h), sizeof(h))

static void made(object_kind kind, uint64_t handle, const char *by) {
    pthread_mutex_lock(&lock);
    if (n_live == MOST)
        fail("too many objects", by);
    live[n_live++] = (struct object){kind, handle, by};
    counts[kind].live++;
    counts[kind].made++;
    pthread_mutex_unlock(&lock);
}

/* True if it was in the list. */
static bool gone(object_kind kind, uint64_t handle) {
    pthread_mutex_lock(&lock);
    int i = n_live - 1;
    while (i >= 0 && (live[i].kind != kind || live[i].handle != handle))
        i--;
    if (i >= 0) {
        live[i] = live[--n_live];
        counts[kind].live--;
    }
    pthread_mutex_unlock(&lock);
    return i >= 0;
}

/* An unknown object was made by a function that this file does not wrap. */
static void freed(object_kind kind, uint64_t handle, const char *by) {
    if (!gone(kind, handle) && depth == 0)
        fail("frees what no watched function made", by);
}

static bool persists(uint64_t handle) {
    pthread_mutex_lock(&lock);
    int i = n_live - 1;
    while (i >= 0 && (live[i].kind != OBJECT_PERSISTENT || live[i].handle != handle))
        i--;
    pthread_mutex_unlock(&lock);
    return i >= 0;
}

static void completed(MPI_Request r, const char *by) {
    uint64_t handle = HANDLE(r);
    if (r != MPI_REQUEST_NULL && !persists(handle))
        freed(OBJECT_REQUEST, handle, by);
}

static void *find(const char *name) {
    void *f = dlsym(RTLD_NEXT, name);
    if (!f)
        fail("not in the MPI library", name);
    return f;
}

/* Define name(params): run `before`, call the library, and run `after` if that succeeded and the
 * program made the call. */
#define WATCH(name, params, args, before, after)                                                   \
    int name params {                                                                              \
        static int(*real) params;                                                                  \
        if (!real)                                                                                 \
            *(void **)&real = find(#name);                                                         \
        before;                                                                                    \
        depth++;                                                                                   \
        int rc = real args;                                                                        \
        if (--depth == 0 && rc == MPI_SUCCESS) {                                                   \
            after;                                                                                 \
        }                                                                                          \
        return rc;                                                                                 \
    }
#define MADE(kind, handle) made(OBJECT_##kind, HANDLE(handle), __func__)
#define MADE_SOME(kind, handle, none)                                                              \
    if ((handle) != (none))                                                                        \
    MADE(kind, handle)
#define FREED(kind, handle) freed(OBJECT_##kind, HANDLE(handle), __func__)

/* ---- requests ---- */

#define MESSAGES(c, count_t)                                                                       \
    WATCH(PMPI_Isend##c,                                                                           \
          (const void *buf, count_t n, MPI_Datatype type, int to, int tag, MPI_Comm comm,          \
           MPI_Request *request),                                                                  \
          (buf, n, type, to, tag, comm, request), , MADE(REQUEST, *request))                       \
    WATCH(PMPI_Irecv##c,                                                                           \
          (void *buf, count_t n, MPI_Datatype type, int from, int tag, MPI_Comm comm,              \
           MPI_Request *request),                                                                  \
          (buf, n, type, from, tag, comm, request), , MADE(REQUEST, *request))
MESSAGES(, int)
#if MPI_VERSION >= 4
MESSAGES(_c, MPI_Count)
#endif

WATCH(PMPI_Ibarrier, (MPI_Comm comm, MPI_Request *request), (comm, request), ,
      MADE(REQUEST, *request))
WATCH(PMPI_Ibcast, (void *buf, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *r),
      (buf, n, type, root, comm, r), , MADE(REQUEST, *r))
WATCH(PMPI_Iallreduce,
      (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
       MPI_Request *r),
      (in, out, n, type, op, comm, r), , MADE(REQUEST, *r))
WATCH(PMPI_Ireduce,
      (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
       MPI_Request *r),
      (in, out, n, type, op, root, comm, r), , MADE(REQUEST, *r))
WATCH(PMPI_Igather,
      (const void *in, int n, MPI_Datatype type, void *out, int n_out, MPI_Datatype type_out,
       int root, MPI_Comm comm, MPI_Request *r),
      (in, n, type, out, n_out, type_out, root, comm, r), , MADE(REQUEST, *r))
WATCH(PMPI_Iallgather,
      (const void *in, int n, MPI_Datatype type, void *out, int n_out, MPI_Datatype type_out,
       MPI_Comm comm, MPI_Request *r),
      (in, n, type, out, n_out, type_out, comm, r), , MADE(REQUEST, *r))
WATCH(PMPI_Iallgatherv,
      (const void *in, int n, MPI_Datatype type, void *out, const int *n_out, const int *at,
       MPI_Datatype type_out, MPI_Comm comm, MPI_Request *r),
      (in, n, type, out, n_out, at, type_out, comm, r), , MADE(REQUEST, *r))
#if MPI_VERSION >= 4
WATCH(PMPI_Ibcast_c,
      (void *buf, MPI_Count n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *r),
      (buf, n, type, root, comm, r), , MADE(REQUEST, *r))
WATCH(PMPI_Iallreduce_c,
      (const void *in, void *out, MPI_Count n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
       MPI_Request *r),
      (in, out, n, type, op, comm, r), , MADE(REQUEST, *r))
WATCH(PMPI_Ireduce_c,
      (const void *in, void *out, MPI_Count n, MPI_Datatype type, MPI_Op op, int root,
       MPI_Comm comm, MPI_Request *r),
      (in, out, n, type, op, root, comm, r), , MADE(REQUEST, *r))
WATCH(PMPI_Allreduce_init_c,
      (const void *in, void *out, MPI_Count n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
       MPI_Info info, MPI_Request *r),
      (in, out, n, type, op, comm, info, r), , MADE(PERSISTENT, *r))
#endif

/* A completing call clears the requests, so they are copied here first. */
#define KEEP(n, requests)                                                                          \
    static _Thread_local MPI_Request kept[AT_ONCE];                                                \
    if ((n) > AT_ONCE)                                                                             \
        fail("too many requests in one call", __func__);                                           \
    memcpy(kept, requests, (size_t)(n) * sizeof *kept)
#define COMPLETED(n)                                                                               \
    for (int i = 0; i < (n); i++)                                                                  \
    completed(kept[i], __func__)

WATCH(PMPI_Wait, (MPI_Request * r, MPI_Status *s), (r, s), KEEP(1, r), COMPLETED(1))
WATCH(PMPI_Test, (MPI_Request * r, int *done, MPI_Status *s), (r, done, s), KEEP(1, r),
      COMPLETED(*done ? 1 : 0))
WATCH(PMPI_Waitall, (int n, MPI_Request r[], MPI_Status s[]), (n, r, s), KEEP(n, r), COMPLETED(n))
WATCH(PMPI_Testall, (int n, MPI_Request r[], int *done, MPI_Status s[]), (n, r, done, s),
      KEEP(n, r), COMPLETED(*done ? n : 0))
WATCH(PMPI_Request_free, (MPI_Request * r), (r), const MPI_Request was = *r;
      const object_kind kind = persists(HANDLE(was)) ? OBJECT_PERSISTENT : OBJECT_REQUEST,
      freed(kind, HANDLE(was), __func__))

/* ---- what outlives a step ---- */

WATCH(PMPI_Comm_idup, (MPI_Comm comm, MPI_Comm *out, MPI_Request *r), (comm, out, r), ,
      MADE(COMM, *out);
      MADE(REQUEST, *r))
WATCH(MPI_Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *out), (comm, color, key, out), ,
      MADE_SOME(COMM, *out, MPI_COMM_NULL))
WATCH(MPI_Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out),
      (comm, type, key, info, out), , MADE_SOME(COMM, *out, MPI_COMM_NULL))
/* Attribute callbacks may free objects inside the library, so frees count at any depth. */
WATCH(MPI_Comm_free, (MPI_Comm * comm), (comm), FREED(COMM, *comm), )
WATCH(MPI_Type_contiguous, (int n, MPI_Datatype of, MPI_Datatype *out), (n, of, out), ,
      MADE(TYPE, *out))
WATCH(MPI_Type_create_struct,
      (int n, const int lengths[], const MPI_Aint places[], const MPI_Datatype of[],
       MPI_Datatype *out),
      (n, lengths, places, of, out), , MADE(TYPE, *out))
WATCH(MPI_Type_free, (MPI_Datatype * type), (type), FREED(TYPE, *type), )
WATCH(MPI_Op_create, (MPI_User_function * f, int commutes, MPI_Op *out), (f, commutes, out), ,
      MADE(OP, *out))
WATCH(MPI_Op_free, (MPI_Op * op), (op), FREED(OP, *op), )
WATCH(MPI_Win_allocate_shared,
      (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *out),
      (size, unit, info, comm, base, out), , MADE(WINDOW, *out))
WATCH(MPI_Win_free, (MPI_Win * win), (win), FREED(WINDOW, *win), )
WATCH(PMPI_Comm_group, (MPI_Comm comm, MPI_Group *out), (comm, out), , MADE(GROUP, *out))
WATCH(PMPI_Group_free, (MPI_Group * group), (group), FREED(GROUP, *group), )
