/* Preloaded into ranks that are more than the cores. MPICH's device ch4:ucx polls without ever
 * giving way, so that ranks which wait take the cores from those that they wait for, a time slice
 * at a time. Here they yield after IDLE polls that found nothing: soon in a call that blocks, and
 * later than gradwire's own loops of MPI_Test do. Where MPI does not use UCX, nothing changes. */
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
        void *ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD); /* which called this */
        *(void **)&next = ucp ? dlsym(ucp, "ucp_worker_progress") : NULL;
        if (!next || next == ucp_worker_progress)
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
