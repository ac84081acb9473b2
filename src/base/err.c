#include "base/err.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char err_message[1024];

gw_err gw_fail(gw_err e, const char *fmt, ...) {
    /* Formatted apart: the arguments may include the previous message. */
    char fresh[sizeof err_message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(fresh, sizeof fresh, fmt, ap);
    va_end(ap);
    gw_text_line(fresh); /* it quotes untrusted names and files */
    snprintf(err_message, sizeof err_message, "%s", fresh);
    return e;
}

const char *gw_err_text(void) {
    return err_message;
}

bool gw_err_alone(gw_err e) {
    return e == GW_ERR_MPI || e == GW_ERR_CORRUPT;
}

int gw_err_status(gw_err e) {
    if (e == GW_OK)
        return 0;
    return e == GW_ERR_USAGE || e == GW_ERR_INPUT || e == GW_ERR_UNSUPPORTED ? 2 : 1;
}
