/* The world of processes: their own clock and cores, which `gradwire replay` and `bench pipe` play
 * in. */
#include "play/actor.h"

#include "base/nap.h"

#include <sched.h>
#include <time.h>

#define TAKEN_S 1e-6 /* between two readings of the clock, of some 30 ns: the core was taken away */

enum { REST_NS = 20000 /* between two polls of a wait */ };

/* A rest too short for a nap passes without one. What the kernel takes of a core that computes,
 * above all for messages, makes computation last longer. */
static void world_spend(gw_actor *a, double seconds) {
    double last = gw_nap_now(), until_s = last + seconds, now;
    if (!a->script.sleeps)
        for (; seconds > 0; last = now) {
            now = gw_nap_now();
            seconds -= now - last < TAKEN_S ? now - last : 0;
        }
    else if (seconds > a->wake_s)
        gw_nap_in_time(until_s, &a->wake_s);
    else
        while (gw_nap_now() < until_s)
            sched_yield();
}

/* Ranks that wait must not keep the cores from those whose sleep ends. */
static void world_rest(gw_actor *a) {
    if (++a->polls > 1 && a->script.sleeps)
        nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
}

const gw_play_world gw_play_real = {.spend = world_spend, .rest = world_rest};
