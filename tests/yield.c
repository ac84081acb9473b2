/* Preloaded into ranks that are more than the cores. MPICH's device ch4:ucx polls without ever
 * giving way, so that ranks which wait take the cores from those that they wait for, a time slice
 * at a time. Here a poll that found nothing lets the others run. With another MPI nothing calls
 * this function, and nothing changes. */
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>

typedef unsigned poll(void *worker);

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker) {
    static _Atomic(poll *) real;
    poll *next = atomic_load_explicit(&real, memory_order_relaxed);
    if (!next) {
        *(void **)&next = dlsym(RTLD_NEXT, "ucp_worker_progress");
        atomic_store_explicit(&real, next, memory_order_relaxed);
    }
    unsigned n = next(worker);
    if (n == 0)
        sched_yield();
    return n;
}
