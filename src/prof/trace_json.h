/** Reads a file in Chrome's Trace Event Format (its object form) event by event, so that memory
 *  does not grow with the file. */
#ifndef GW_PROF_TRACE_JSON_H
#define GW_PROF_TRACE_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

typedef struct gw_trace_reader {
    void *ctx;
    /** An element of "traceEvents", an object that begins in `line`; borrowed. */
    gw_err (*event)(void *ctx, const json_t *event, uint64_t line);
    /** "otherData", an object; borrowed. */
    gw_err (*other)(void *ctx, const json_t *data);
} gw_trace_reader;

/** Read all of PATH. GW_ERR_INPUT: it cannot be read, is no JSON (the message says in which line)
 * or no trace. An error of the reader's ends it, too. */
gw_err gw_trace_read(const char *path, const gw_trace_reader *to);

#endif
