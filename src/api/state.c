/* The public functions: what the exchange carries from batch to batch, out and in again. */
#include "api/handle.h"

int gradwire_save(gradwire *g, void **bytes, size_t *n) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "save", GW_IN_BETWEEN, true);
    (void)bytes;
    (void)n;
    GW_THEN(e, gw_fail(GW_ERR_UNSUPPORTED, "gradwire_save: not built yet"));
    return gw_call_end(&c, e);
}

int gradwire_load(gradwire *g, const void *bytes, size_t n) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "load", GW_IN_BETWEEN, true);
    (void)bytes;
    (void)n;
    GW_THEN(e, gw_fail(GW_ERR_UNSUPPORTED, "gradwire_load: not built yet"));
    return gw_call_end(&c, e);
}
