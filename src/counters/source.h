/** The seam between a source of counts (PAPI, or one of a test) and its readers. */
#ifndef GW_COUNTERS_SOURCE_H
#define GW_COUNTERS_SOURCE_H

#include "base/err.h"

#include <stdbool.h>

/** A list of events counted together on one thread. All calls of a set come from the thread that
 *  opened it; only one set of a source runs on a thread at a time. Errors are GW_ERR_UNSUPPORTED
 * with the reason. */
typedef struct gw_counter_source {
    const char *name;
    /** For the calling thread. */
    gw_err (*open)(void **set, const char *const *events, int n);
    gw_err (*start)(void *set);
    /** Counts since a fixed moment at or before the start, one an event, in the order of `open`. */
    gw_err (*read)(void *set, long long *values);
    gw_err (*stop)(void *set);
    void (*close)(void *set);
    /** False: the event belongs to the process (or machine) and must be counted on one thread
     *  only. */
    bool (*per_thread)(const char *event);
    /** Called when a thread has closed all its sets and ends or stops counting; may be NULL. */
    void (*leave)(void);
} gw_counter_source;

/** PAPI. Starts the library at the first open. */
extern const gw_counter_source gw_counters_papi;

#endif
