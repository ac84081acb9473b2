/* Preloaded into ranks that are more than the cores. MPICH's device ch4:ucx polls without ever
 * giving way, so that ranks which wait take the cores from those that they wait for, a time slice
 * at a time. Here the others run after some polls that found nothing: few of a call that blocks,
 * more than a loop of MPI_Test makes before it yields itself. With another MPI nothing calls this
 * function, and nothing changes. */
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>

enum { IDLE = 128 };

typedef unsigned poll(void *worker);

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker) {
    static _Atomic(poll *) real;
    static _Thread_local int idle;
    poll *next = atomic_load_explicit(&real, memory_order_relaxed);
    if (!next) {
        *(void **)&next = dlsym(RTLD_NEXT, "ucp_worker_progress");
        atomic_store_explicit(&real, next, memory_order_relaxed);
    }
    unsigned n = next(worker);
    idle = n == 0 ? idle + 1 : 0;
    if (idle == IDLE) {
        idle = 0;
        sched_yield();
    }
    return n;
}
