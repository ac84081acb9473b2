/* An outside observer of a run's communication, in the manner of mpiP (Vetter, Chambreau, "mpiP:
 * lightweight, scalable MPI profiling", 2005). Preloaded, it defines PMPI_X: below a program that
 * defines MPI_X itself and reaches the library by PMPI_X. It shares no code, no clock and no
 * bookkeeping with what it observes. It looks from MPI_Pcontrol(1) to MPI_Pcontrol(0), the
 * standard's hook for this (MPI 4.0, section 15.2.4), and calls such a stretch a batch.
 *
 * Observed: point-to-point calls, allreduces, and what completes requests. $GW_OBSERVER names a
 * folder for RANK.csv, a row a batch, and RANK.calls.csv, a row a function.
 *
 *   call_s      within MPI's functions, of the thread that marks the batches
 *   burst_s     the same, with the pauses between two calls in which the thread had the processor
 *               for less than 3 us, whoever else had it: it did nothing but come and look again
 *   bursts      rows of calls with no other pauses
 *   sent        bytes: as sent; an allreduce of n bytes on P ranks as 2 (P-1)/P n
 *   received    bytes that the statuses of finished receives tell; an allreduce as above
 *   cpu_s       CPU time of that thread, by its clock (getrusage may count interrupts, too)
 *   stolen_s    what interrupts and a hypervisor took from that thread since the batch before: it
 *               did not run and was not switched out. A gap below 20 us counts even with a switch,
 *               which the observed program may not notice
 *
 * A process that was granted less than MPI_THREAD_MULTIPLE and calls two of them at once, from two
 * threads, is aborted. $GW_OBSERVER_LINGER makes MPI_Pcontrol last so many microseconds, in which
 * that is seen. */
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 1 << 16, FUNCTIONS = 64, RECEIVES = 4096 };
static const int64_t pause_ns = 3000, short_gap_ns = 20000;

typedef struct batch {
    int64_t wall_ns, call_ns, burst_ns, cpu_ns, stolen_ns;
    int64_t calls, bursts, sent, received, messages, collectives;
} batch;

typedef struct function {
    const char *name;
    void *real;
    int64_t calls, ns;
} function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static batch *batches, now_open;
static int n_batches;
static bool open;
static int64_t last_end_ns, last_end_cpu_ns;
static struct {
    int64_t ns, cpu_ns;
    long switches;
} begun, ended; /* the last batch */
static function functions[FUNCTIONS];
static int n_functions;
static MPI_Request receives[RECEIVES]; /* that are under way */
static int n_receives;
static _Thread_local bool marks; /* this thread calls MPI_Pcontrol */
static _Thread_local int depth;  /* > 0: the library calls itself */

static int64_t read_clock(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t now(void) {
    return read_clock(CLOCK_MONOTONIC);
}

static int64_t cpu(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static long switches(void) {
    struct rusage use = {0};
    getrusage(RUSAGE_THREAD, &use);
    return use.ru_nvcsw + use.ru_nivcsw;
}

static int64_t stolen(void) {
    int64_t gap = begun.ns - ended.ns;
    if (n_batches == 0 || (begun.switches != ended.switches && gap >= short_gap_ns))
        return 0;
    return gap - (begun.cpu_ns - ended.cpu_ns);
}

static void fail(const char *why) {
    fprintf(stderr, "observer: %s\n", why);
    abort();
}

static _Atomic(const char *) within; /* the call that a thread is in */

static void enter(const char *call) {
    const char *other = atomic_exchange(&within, call);
    if (other) {
        fprintf(stderr, "observer: %s while another thread is in %s\n", call, other);
        abort();
    }
}

static void leave(void) {
    atomic_store(&within, NULL);
}

int MPI_Pcontrol(const int level, ...) {
    const char *linger = getenv("GW_OBSERVER_LINGER");
    enter("MPI_Pcontrol");
    if (linger)
        usleep((useconds_t)atoi(linger));
    leave();
    pthread_mutex_lock(&lock);
    marks = true;
    if (level != 0 && !open) {
        begun.switches = switches();
        begun.cpu_ns = cpu();
        begun.ns = now();
        now_open = (batch){.stolen_ns = stolen()};
        last_end_ns = 0;
    } else if (level == 0 && open) {
        ended.cpu_ns = cpu();
        ended.ns = now();
        ended.switches = switches();
        now_open.wall_ns = ended.ns - begun.ns;
        now_open.cpu_ns = ended.cpu_ns - begun.cpu_ns;
        if (!batches && !(batches = malloc(BATCHES * sizeof *batches)))
            fail("out of memory");
        if (n_batches == BATCHES)
            fail("too many batches");
        batches[n_batches++] = now_open;
    }
    open = level != 0;
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

static function *find(const char *name) {
    pthread_mutex_lock(&lock);
    if (n_functions == FUNCTIONS)
        fail("too many functions");
    function *f = &functions[n_functions++];
    *f = (function){.name = name + 1, .real = dlsym(RTLD_NEXT, name)}; /* PMPI_X -> MPI_X */
    pthread_mutex_unlock(&lock);
    if (!f->real)
        fail(name);
    return f;
}

/* Did the thread do nothing since its last call? Reading its CPU clock is a system call. */
static bool goes_on(int64_t entered) {
    return last_end_ns && (entered - last_end_ns < pause_ns || cpu() - last_end_cpu_ns < pause_ns);
}

/* For the program, the observer's own time is part of the call. */
static void charge(function *f, int64_t ns, int64_t entered, bool on) {
    pthread_mutex_lock(&lock);
    if (open && marks) {
        f->calls++;
        f->ns += ns;
        now_open.calls++;
        now_open.call_ns += ns;
        now_open.bursts += !on;
        int64_t from = on ? last_end_ns : entered;
        last_end_cpu_ns = cpu();
        last_end_ns = now();
        now_open.burst_ns += last_end_ns - from;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- what moves ---- */

static int64_t size_of(MPI_Count count, MPI_Datatype type) {
    MPI_Count size = 0;
    MPI_Type_size_x(type, &size);
    return (int64_t)count * (int64_t)size;
}

static void sent(MPI_Count count, MPI_Datatype type) {
    pthread_mutex_lock(&lock);
    if (open) {
        now_open.sent += size_of(count, type);
        now_open.messages++;
    }
    pthread_mutex_unlock(&lock);
}

static void reduced(MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
    int ranks = 1;
    MPI_Comm_size(comm, &ranks);
    pthread_mutex_lock(&lock);
    if (open) {
        int64_t bytes = 2 * (ranks - 1) * size_of(count, type) / ranks;
        now_open.sent += bytes;
        now_open.received += bytes;
        now_open.collectives++;
    }
    pthread_mutex_unlock(&lock);
}

static void receiving(MPI_Request request) {
    pthread_mutex_lock(&lock);
    if (n_receives == RECEIVES)
        fail("too many receives under way");
    receives[n_receives++] = request;
    pthread_mutex_unlock(&lock);
}

/* A completing call clears the requests, and its caller may want no statuses: both are kept
 * here. */
enum { AT_ONCE = 64 };

typedef struct kept {
    MPI_Request before[AT_ONCE];
    MPI_Status statuses[AT_ONCE];
} kept;

static void keep(kept *k, int n, const MPI_Request *requests) {
    if (n > AT_ONCE)
        fail("too many requests in one call");
    memcpy(k->before, requests, (size_t)n * sizeof *requests);
}

static void completed(const kept *k, int n, int done, MPI_Status *wanted, const MPI_Status *none) {
    if (!done)
        return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        int bytes = 0, r = 0;
        while (r < n_receives && receives[r] != k->before[i])
            r++;
        if (r == n_receives)
            continue;
        receives[r] = receives[--n_receives];
        MPI_Get_count(&k->statuses[i], MPI_BYTE, &bytes);
        now_open.received += open ? bytes : 0;
    }
    pthread_mutex_unlock(&lock);
    if (wanted != none)
        memcpy(wanted, k->statuses, (size_t)n * sizeof *wanted);
}

/* ---- the calls ---- */

/* Define PMPI_name(params): `before`, forward and time, then `after` if all went well. */
#define OBSERVE(name, params, args, before, after)                                                 \
    int P##name params {                                                                           \
        static _Atomic(function *) known;                                                          \
        if (!known)                                                                                \
            known = find("P" #name);                                                               \
        function *f = known;                                                                       \
        int(*real) params = (int(*) params)f->real;                                                \
        int64_t entered = now();                                                                   \
        bool on = marks && goes_on(entered);                                                       \
        before;                                                                                    \
        if (depth++ == 0)                                                                          \
            enter(#name);                                                                          \
        int64_t start = now();                                                                     \
        int rc = real args;                                                                        \
        int64_t end = now();                                                                       \
        if (depth == 1)                                                                            \
            leave();                                                                               \
        if (--depth > 0 || rc != MPI_SUCCESS)                                                      \
            return rc;                                                                             \
        after;                                                                                     \
        charge(f, end - start, entered, on);                                                       \
        return rc;                                                                                 \
    }

#define MESSAGES(c, count_t)                                                                       \
    OBSERVE(MPI_Send##c,                                                                           \
            (const void *buf, count_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm), \
            (buf, count, type, dest, tag, comm), , sent(count, type))                              \
    OBSERVE(MPI_Isend##c,                                                                          \
            (const void *buf, count_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,  \
             MPI_Request *request),                                                                \
            (buf, count, type, dest, tag, comm, request), , sent(count, type))                     \
    OBSERVE(MPI_Irecv##c,                                                                          \
            (void *buf, count_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm,      \
             MPI_Request *request),                                                                \
            (buf, count, type, source, tag, comm, request), , receiving(*request))                 \
    OBSERVE(                                                                                       \
        MPI_Allreduce##c,                                                                          \
        (const void *in, void *out, count_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),   \
        (in, out, count, type, op, comm), , reduced(count, type, comm))                            \
    OBSERVE(MPI_Iallreduce##c,                                                                     \
            (const void *in, void *out, count_t count, MPI_Datatype type, MPI_Op op,               \
             MPI_Comm comm, MPI_Request *request),                                                 \
            (in, out, count, type, op, comm, request), , reduced(count, type, comm))

MESSAGES(, int)
MESSAGES(_c, MPI_Count)

#define KEEP(n, requests)                                                                          \
    kept k;                                                                                        \
    keep(&k, n, requests)

OBSERVE(MPI_Wait, (MPI_Request * request, MPI_Status *status), (request, k.statuses),
        KEEP(1, request), completed(&k, 1, 1, status, MPI_STATUS_IGNORE))
OBSERVE(MPI_Test, (MPI_Request * request, int *flag, MPI_Status *status),
        (request, flag, k.statuses), KEEP(1, request),
        completed(&k, 1, *flag, status, MPI_STATUS_IGNORE))
OBSERVE(MPI_Waitall, (int n, MPI_Request requests[], MPI_Status statuses[]),
        (n, requests, k.statuses), KEEP(n, requests),
        completed(&k, n, 1, statuses, MPI_STATUSES_IGNORE))
OBSERVE(MPI_Testall, (int n, MPI_Request requests[], int *flag, MPI_Status statuses[]),
        (n, requests, flag, k.statuses), KEEP(n, requests),
        completed(&k, n, *flag, statuses, MPI_STATUSES_IGNORE))

/* ---- the end ---- */

static FILE *create(const char *dir, int rank, const char *end) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d%s", dir, rank, end);
    FILE *to = fopen(path, "w");
    if (!to)
        fail("cannot write to the folder that GW_OBSERVER names");
    return to;
}

static void write_files(const char *dir) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    FILE *to = create(dir, rank, ".csv");
    fprintf(to, "wall_s,call_s,burst_s,cpu_s,stolen_s,calls,bursts,sent,received,messages,"
                "collectives\n");
    for (int i = 0; i < n_batches; i++) {
        const batch *b = &batches[i];
        fprintf(to, "%.9f,%.9f,%.9f,%.9f,%.9f,%lld,%lld,%lld,%lld,%lld,%lld\n",
                (double)b->wall_ns * 1e-9, (double)b->call_ns * 1e-9, (double)b->burst_ns * 1e-9,
                (double)b->cpu_ns * 1e-9, (double)b->stolen_ns * 1e-9, (long long)b->calls,
                (long long)b->bursts, (long long)b->sent, (long long)b->received,
                (long long)b->messages, (long long)b->collectives);
    }
    fclose(to);
    to = create(dir, rank, ".calls.csv");
    fprintf(to, "function,calls,seconds\n");
    for (int i = 0; i < n_functions; i++)
        fprintf(to, "%s,%lld,%.9f\n", functions[i].name, (long long)functions[i].calls,
                (double)functions[i].ns * 1e-9);
    fclose(to);
}

/* The program calls MPI_Finalize, which nobody above defines, so this one comes first. */
int MPI_Finalize(void) {
    const char *dir = getenv("GW_OBSERVER");
    if (dir)
        write_files(dir);
    return PMPI_Finalize();
}
