/** Errors: a small enum of negative values and one message per thread.
 *  The library never exits and never prints; src/cli turns an error into one line and a status. */
#ifndef GW_BASE_ERR_H
#define GW_BASE_ERR_H

#include <stdbool.h>

typedef enum gw_err {
    GW_OK = 0,
    GW_ERR_USAGE = -1,       /* an option or its value cannot be used (exit status 2) */
    GW_ERR_INPUT = -2,       /* a file or folder that the user named cannot be used (2) */
    GW_ERR_UNSUPPORTED = -3, /* a combination that cannot work (2) */
    GW_ERR_NOMEM = -4,       /* memory ran out */
    GW_ERR_IO = -5,          /* the file system failed during the run */
    GW_ERR_CORRUPT = -6,     /* wire bytes do not decode */
    GW_ERR_MPI = -7,         /* an MPI call failed */
    GW_ERR_DIVERGED = -8,    /* replicas differ, or the loss is no longer finite */
    GW_ERR_INTERNAL = -9,    /* a broken promise inside gradwire or a plugin */
    GW_ERR_LOST = -10        /* the run's folder was removed, moved or taken (base/hold.h) */
} gw_err;

/** Set this thread's message (what, where, which value, what to do) and return `e`. It is one line
 *  of UTF-8 whatever it quotes: see gw_text_line. */
gw_err gw_fail(gw_err e, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/** Return the message of this thread's last gw_fail; never NULL. Owned by the thread. */
const char *gw_err_text(void);

/** True if a rank meets this error alone, in the middle of an exchange, where the ranks cannot
 *  agree on it: a failed MPI call, or corrupt data. The job must end. */
bool gw_err_alone(gw_err e);

/** Return the exit status of a process that ends by `e`: 0, 2 (the user can fix it) or 1. */
int gw_err_status(gw_err e);

#define GW_TRY(expr)                                                                               \
    do {                                                                                           \
        gw_err gw_try_ = (expr);                                                                   \
        if (__builtin_expect(gw_try_ != GW_OK, 0))                                                 \
            return gw_try_;                                                                        \
    } while (0)

/** Unless something failed already, e = call: for errors that are returned only after something
 *  was freed or agreed on. */
#define GW_THEN(e, call)                                                                           \
    do {                                                                                           \
        if ((e) == GW_OK)                                                                          \
            (e) = (call);                                                                          \
    } while (0)

/** The end of a function that opens: *out = x, or, after the error e, close(x). Returns e. */
#define GW_OPENED(e, out, x, close)                                                                \
    do {                                                                                           \
        if ((e) == GW_OK)                                                                          \
            *(out) = (x);                                                                          \
        else                                                                                       \
            close(x);                                                                              \
        return (e);                                                                                \
    } while (0)

/** Refuse a name `s` with control characters (those of gw_text_line), which a terminal or a script
 *  could take for a command. GW_ERR_USAGE, with `s` as written in C. `owner` and `what` begin the
 *  message; what "": it has no name. */
gw_err gw_text_name(const char *owner, const char *what, const char *s);

#endif
