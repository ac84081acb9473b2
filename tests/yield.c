/* Preloaded into ranks that are more than the free cores. MPICH's device ch4:ucx polls without ever
 * giving way, so that ranks which wait take the cores from those that they wait for, a time slice
 * at a time. Here they yield after IDLE polls that found nothing: soon in a call that blocks, and
 * later than gradwire's own loops of MPI_Test do. Yielding, too, is work for a core: who has
 * yielded YIELDS times for nothing naps, the longer the longer it has waited. On one core (see
 * one_core), where a yield reaches the one that is waited for, that takes ONE_CORE times as many;
 * with YIELDS_ONLY in the environment nobody naps: where short messages go to and fro, naps would
 * be most of the time.
 *
 * While MPI starts and ends, its ranks wait in loops that poll nothing but memory: whom a timer
 * finds at the same place twice gives way there. Where MPI does not use UCX, nothing changes.
 *
 * Nothing that a test writes must outlive the machine, so nobody waits for a disk. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { IDLE = 128, YIELDS = 8, ONE_CORE = 16, NAP_NS = 50000, SLACK_NS = 1000 };
enum { NAPS = 16, DOUBLINGS = 4 };    /* so many naps before each is twice as long, so often */
enum { TICK_NS = 500000, LOOP = 32 }; /* between looks at a start; bytes of code */

typedef unsigned poll(void *worker);

unsigned ucp_worker_progress(void *worker);
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided);
int MPI_Finalize(void);

static _Thread_local int idle;   /* polls since one found something, or since the last yield */
static _Thread_local int yields; /* since a poll found something; 0: of a thread that never polls */
static _Thread_local int naps;

static void yield_nap(int doublings) {
    static _Thread_local int fine;
    if (!fine)
        fine = prctl(PR_SET_TIMERSLACK, SLACK_NS) == 0;
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS << doublings}, NULL);
}

/* Yields before the first nap. */
static int yield_patience(void) {
    static _Atomic int patience;
    int found = atomic_load_explicit(&patience, memory_order_relaxed);
    if (found == 0) {
        cpu_set_t set;
        int one = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
        found = getenv("YIELDS_ONLY") ? INT_MAX - 1 : one ? ONE_CORE * YIELDS : YIELDS;
        atomic_store_explicit(&patience, found, memory_order_relaxed);
    }
    return found;
}

int sched_yield(void) {
    int patience = yield_patience();
    idle = 0;
    if (yields > patience) {
        int doublings = naps / NAPS;
        naps += doublings < DOUBLINGS;
        yield_nap(doublings);
        return 0;
    }
    yields += yields > 0;
    return (int)syscall(SYS_sched_yield);
}

/* The next one of this name, or the library's, which need not be in the scope of this one. */
static void *yield_find(const char *library, const char *name) {
    void *next = dlsym(RTLD_NEXT, name), *file;
    if (!next && (file = dlopen(library, RTLD_LAZY | RTLD_NOLOAD)))
        next = dlsym(file, name);
    return next;
}

unsigned ucp_worker_progress(void *worker) {
    static _Atomic(poll *) real;
    poll *next = atomic_load_explicit(&real, memory_order_relaxed);
    if (!next) {
        *(void **)&next = yield_find("libucp.so.0", "ucp_worker_progress");
        atomic_store_explicit(&real, next, memory_order_relaxed);
    }
    unsigned n = next(worker);
    if (n > 0) {
        idle = naps = 0;
        yields = 1;
    } else if (++idle == IDLE) {
        sched_yield();
    }
    return n;
}

int fsync(int fd) {
    (void)fd;
    return 0;
}

/* ---- MPI's start and its end ---- */

static uintptr_t yield_place(const ucontext_t *c) {
#if defined(__x86_64__)
    return (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)c->uc_mcontext.pc;
#else
    (void)c;
    return 0;
#endif
}

static void yield_look(int number, siginfo_t *info, void *context) {
    static uintptr_t last;
    (void)number, (void)info;
    int before = errno;
    uintptr_t at = yield_place(context);
    if (at - last + LOOP < 2 * LOOP)
        syscall(SYS_sched_yield);
    last = at;
    errno = before;
}

/* A timer that looks at the calling thread; 0: there is none. */
static int yield_begin(timer_t *timer) {
    int number = SIGRTMAX - 1;
    struct sigaction act = {.sa_sigaction = yield_look, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = number};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    struct itimerspec every = {.it_interval.tv_nsec = TICK_NS, .it_value.tv_nsec = TICK_NS};
    return sigaction(number, &act, NULL) == 0 &&
           timer_create(CLOCK_MONOTONIC, &event, timer) == 0 &&
           timer_settime(*timer, 0, &every, NULL) == 0;
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided) {
    int (*next)(int *, char ***, int, int *);
    *(void **)&next = yield_find("libmpich.so.12", "MPI_Init_thread");
    timer_t timer;
    int looks = yield_begin(&timer), status = next(argc, argv, wanted, provided);
    if (looks)
        timer_delete(timer);
    return status;
}

int MPI_Finalize(void) {
    int (*next)(void);
    *(void **)&next = yield_find("libmpich.so.12", "MPI_Finalize");
    timer_t timer;
    int looks = yield_begin(&timer), status = next();
    if (looks)
        timer_delete(timer);
    return status;
}
