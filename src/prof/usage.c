#include "prof/usage.h"

#include "prof/clock.h"

#include <math.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <time.h>

enum { ASK_EVERY = 64, TRIES = 3 };
#define CLOSE_S    2e-6  /* between two clocks' readings: a system call and no more */
#define JUST_NOW_S 20e-6 /* no switch and hardly a fault fits in, nor does much of a batch */

typedef struct reading {
    uint64_t when;
    long nivcsw, nvcsw, minflt;
    double cpu_s;
} reading;

static struct {
    bool heard;
    reading last;
    double begin_cpu_s; /* of the open batch */
    unsigned ends;
} use;

/* CPU time at `when` of a thread that was not switched out since the last reading. */
static double usage_extrapolate(uint64_t when) {
    uint64_t gone = when > use.last.when ? when - use.last.when : 0;
    return use.last.cpu_s + gw_clock_seconds(gone);
}

/* Both clocks are read as near to each other as a few tries allow: what comes between them, an
 * interrupt or the loss of the core, would be counted or missed in each batch that follows. */
static void usage_ask(void) {
    uint64_t before = gw_clock_ticks(), nearest = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        struct timespec t = {0};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        uint64_t after = gw_clock_ticks();
        if (after - before < nearest) {
            nearest = after - before;
            use.last.cpu_s = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
            use.last.when = after;
        }
        if (gw_clock_seconds(nearest) < CLOSE_S)
            return;
        before = after;
    }
}

static void usage_look(uint64_t when) {
    struct rusage now = {0};
    getrusage(RUSAGE_THREAD, &now);
    reading r = {when, now.ru_nivcsw, now.ru_nvcsw, now.ru_minflt, 0};
    bool on = use.heard && r.nivcsw == use.last.nivcsw && r.nvcsw == use.last.nvcsw;
    r.cpu_s = usage_extrapolate(when);
    use.last = r;
    use.heard = true;
    if (!on)
        usage_ask();
}

void gw_usage_start(void) {
    use.heard = false;
    use.ends = 0;
}

void gw_usage_begin(uint64_t now) {
    bool recent = use.heard && gw_clock_seconds(now - use.last.when) < JUST_NOW_S;
    if (!recent)
        usage_look(now);
    use.begin_cpu_s = usage_extrapolate(now);
}

gw_usage gw_usage_end(uint64_t now) {
    reading before = use.last;
    usage_look(now);
    gw_usage u = {.nivcsw = use.last.nivcsw - before.nivcsw,
                  .minflt = use.last.minflt - before.minflt,
                  /* The begin may be extrapolated over a time without the core: then it is late. */
                  .cpu_s = fmax(use.last.cpu_s - use.begin_cpu_s, 0)};
    if (++use.ends % ASK_EVERY == 0)
        usage_ask();
    return u;
}
