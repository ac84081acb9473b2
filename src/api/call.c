/* What each call begins and ends with, and the handles of this process. */
#include "api/handle.h"
#include "base/mem.h"
#include "watch/watchdog.h"

#include <omp.h>
#include <stdatomic.h>
#include <unistd.h>

enum { ALONE = 32 /* an error that no other rank learns of is below -ALONE */ };

static gradwire *live;    /* the handles of this process */
static atomic_bool taken; /* one of the public header records, or is being made */
static pid_t owner;       /* the process that started MPI, or made a handle; its children have no
                             part in it */

const char *gradwire_error(void) {
    return gw_err_text();
}

int gradwire_alone(int e) {
    return e < -ALONE || gw_err_alone((gw_err)e);
}

gw_err gw_call_refuse(const char *name, const char *why) {
    return gw_fail(GW_ERR_USAGE, "gradwire_%s: %s", name, why);
}

gradwire *gw_call_open(void) {
    gradwire *g = live;
    while (g && g->inside)
        g = g->next;
    return g;
}

int gw_call_handles(void) {
    int n = 0;
    for (const gradwire *g = live; g; g = g->next)
        n += !g->inside;
    return n;
}

uint64_t gw_call_logical(void) {
    uint64_t bytes = 0;
    for (const gradwire *g = live; g; g = g->next)
        bytes += g->inside ? 0 : g->session->logical_bytes;
    return bytes;
}

bool gw_call_own(void) {
    bool fresh = owner != getpid();
    owner = getpid();
    return fresh;
}

bool gw_call_child(void) {
    return owner != 0 && owner != getpid();
}

static bool call_knows(const gradwire *g) {
    const gradwire *one = live;
    while (one && one != g)
        one = one->next;
    return one;
}

static gw_err call_check(const gradwire *g, const char *name, int in) {
    static const char *const states[] = {"the handle is not open yet: call gradwire_open first",
                                         "no batch is open: call gradwire_begin first",
                                         "a batch is open: call gradwire_end first",
                                         "an earlier error ended this exchange: close the handle"};
    if (!g || !call_knows(g))
        return gw_call_refuse(name,
                              "no handle: gradwire_new makes one, and gradwire_close ends it");
    if (!g->inside && gw_call_child())
        return gw_call_refuse(name, GW_CALL_CHILD);
    if (!pthread_equal(g->thread, pthread_self()))
        return gw_call_refuse(name, "another thread's handle: only the one that made it may call");
    if (1 << g->state & in)
        return GW_OK;
    bool late = in == GW_IN_NEW && g->state != GW_HANDLE_BROKEN;
    return gw_call_refuse(name, late ? "the handle is open already" : states[g->state]);
}

gw_err gw_call_begin(gw_call *c, gradwire *g, const char *name, int in, bool together) {
    *c = (gw_call){.name = name, .together = together};
    GW_TRY(call_check(g, name, in));
    c->g = g;
    c->inside = g->inside;
    if (c->inside) /* the thread's state is as it must be */
        return GW_OK;
    gw_watchdog_inside(name);
    c->floats = gw_float_state();
    c->threads = omp_get_max_threads();
    gw_flush_denormals_here();
    if (c->threads != g->words.run.threads)
        omp_set_num_threads(g->words.run.threads);
    return GW_OK;
}

void gw_call_restore(gw_call *c) {
    bool changed = c->g && !c->inside;
    c->g = NULL;
    if (!changed)
        return;
    gw_watchdog_inside(NULL);
    gw_float_state_set(c->floats);
    if (omp_get_max_threads() != c->threads)
        omp_set_num_threads(c->threads);
}

int gw_call_end(gw_call *c, gw_err e) {
    gradwire *g = c->g;
    gw_call_restore(c);
    if (e >= GW_OK)
        return e;
    bool alone = !gw_call_child() && (!c->together || gw_err_alone(e));
    /* It was refused, and nothing done; or the program goes on to where it learns of errors. */
    bool harmless = e == GW_ERR_USAGE || e == GW_ERR_INPUT || c->inside;
    if (g && !harmless && g->state != GW_HANDLE_BROKEN && g->state != GW_HANDLE_NEW) {
        g->state = GW_HANDLE_BROKEN;
        g->alone = alone;
    }
    return alone && !gw_err_alone(e) && !c->inside ? (int)e - ALONE : (int)e;
}

gw_err gw_call_take(bool *records) {
    *records = !atomic_exchange(&taken, true);
    const gradwire *other = *records ? NULL : gw_call_open();
    if (*records || (other && pthread_equal(other->thread, pthread_self())))
        return GW_OK;
    return gw_call_refuse("new", "another thread of this process has a handle, or makes one: one "
                                 "thread has all of them");
}

void gw_call_remember(gradwire *g) {
    g->thread = pthread_self();
    g->batch.phase = -1;
    g->comm = g->end.comm = MPI_COMM_NULL;
    g->next = live;
    live = g;
}

void gw_call_forget(const gradwire *g) {
    gradwire **at = &live;
    while (*at && *at != g)
        at = &(*at)->next;
    if (*at)
        *at = g->next;
    if (g->records)
        atomic_store(&taken, false);
}
