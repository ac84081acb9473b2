/* Preloaded into ranks that are more than the free cores. MPICH's device ch4:ucx polls without ever
 * giving way, so that ranks which wait take the cores from those that they wait for, a time slice
 * at a time. Here they yield after IDLE polls that found nothing: soon in a call that blocks, and
 * later than gradwire's own loops of MPI_Test do. Yielding, too, is work for a core: who has
 * yielded YIELDS times for nothing naps, unless the ranks share one core (see one_core), where a
 * yield reaches the one that is waited for. Where MPI does not use UCX, nothing changes. */
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { IDLE = 128, YIELDS = 8, NAP_NS = 50000, SLACK_NS = 1000 };

typedef unsigned poll(void *worker);

unsigned ucp_worker_progress(void *worker);

static _Thread_local int idle;   /* polls since one found something, or since the last yield */
static _Thread_local int yields; /* since a poll found something; 0: of a thread that never polls */

static void yield_nap(void) {
    static _Thread_local int fine;
    if (!fine)
        fine = prctl(PR_SET_TIMERSLACK, SLACK_NS) == 0;
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static int yield_may_nap(void) {
    static _Atomic int cores; /* of this process: 1, or 2 for more */
    if (atomic_load_explicit(&cores, memory_order_relaxed) == 0) {
        cpu_set_t set;
        int one = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
        atomic_store_explicit(&cores, one ? 1 : 2, memory_order_relaxed);
    }
    return atomic_load_explicit(&cores, memory_order_relaxed) > 1;
}

int sched_yield(void) {
    idle = 0;
    if (yields > YIELDS && yield_may_nap()) {
        yield_nap();
        return 0;
    }
    yields += yields > 0 && yields <= YIELDS;
    return (int)syscall(SYS_sched_yield);
}

unsigned ucp_worker_progress(void *worker) {
    static _Atomic(poll *) real;
    poll *next = atomic_load_explicit(&real, memory_order_relaxed);
    if (!next) {
        void *ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD); /* which called this */
        *(void **)&next = ucp ? dlsym(ucp, "ucp_worker_progress") : NULL;
        if (!next || next == ucp_worker_progress)
            *(void **)&next = dlsym(RTLD_NEXT, "ucp_worker_progress");
        atomic_store_explicit(&real, next, memory_order_relaxed);
    }
    unsigned n = next(worker);
    if (n > 0) {
        idle = 0;
        yields = 1;
    } else if (++idle == IDLE) {
        sched_yield();
    }
    return n;
}
