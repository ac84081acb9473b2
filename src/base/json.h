/** JSON as all files of a run have it (jansson). */
#ifndef GW_BASE_JSON_H
#define GW_BASE_JSON_H

#include <jansson.h>
#include <math.h>

/** A new number, the caller's; null where x is not finite: what was not measured is absent, never
 * 0. NULL without memory. */
static inline json_t *gw_json_number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

#endif
