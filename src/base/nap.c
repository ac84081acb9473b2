#include "base/nap.h"

#include <errno.h>
#include <math.h>
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

/* Nine naps in ten end in time; they are shortened by no more than the last of these. */
#define WAKE_UP_S   4.5e-6
#define WAKE_DOWN_S 0.5e-6
#define MOST_WAKE_S 1e-4

void gw_nap_in_time(double due_s, double *wake_s) {
    double until = due_s - *wake_s;
    if (until <= gw_nap_now())
        return;
    gw_nap_until(until);
    bool late = gw_nap_now() > due_s;
    *wake_s = fmin(MOST_WAKE_S, fmax(0, *wake_s + (late ? WAKE_UP_S : -WAKE_DOWN_S)));
}

static bool nap_instead;

void gw_nap_instead(void) {
    nap_instead = true;
}

bool gw_nap_computes(void) {
    return !nap_instead;
}

void gw_nap_lightly(void) {
    prctl(PR_SET_TIMERSLACK, 1UL);
}
