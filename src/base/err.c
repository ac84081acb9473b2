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

gw_err gw_text_name(const char *owner, const char *what, const char *s) {
    const unsigned char *at = (const unsigned char *)s;
    char shown[200];
    size_t len = 0, n;
    while (*at && gw_text_control(at) == 0)
        at++;
    if (!*at)
        return GW_OK;
    for (at = (const unsigned char *)s; *at && len + 8 < sizeof shown; at += n ? n : 1) {
        n = gw_text_control(at);
        const char *format = *at == '\n' ? "\\n" : n == 0 ? "%c" : n == 1 ? "\\x%02x" : "\\u%04x";
        unsigned code = n < 2    ? at[0]
                        : n == 2 ? at[1] /* U+0080 to U+00BF are C2 and themselves */
                                 : (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
        len += (size_t)snprintf(shown + len, sizeof shown - len, format, code);
    }
    shown[len] = '\0';
    return gw_fail(GW_ERR_USAGE, "%s%s%s: '%s' contains a control character: choose a name without",
                   owner, *what ? ": " : "", what, shown);
}
