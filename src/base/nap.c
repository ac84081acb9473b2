#include "base/nap.h"

#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

double gw_nap_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void gw_nap_until(double due_s) {
    struct timespec t = {.tv_sec = (time_t)due_s};
    t.tv_nsec = (long)((due_s - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

void gw_nap_lightly(void) {
    prctl(PR_SET_TIMERSLACK, 1UL);
}
