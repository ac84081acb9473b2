/* Every unit test includes this: cmocka, and the headers that it wants before it. */
#ifndef GW_TESTS_UNIT_H
#define GW_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/err.h"

/* cmocka hands each test a state, which few of them read; so it is with other callbacks. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) != GW_OK)                                                                       \
            fail_msg("%s", gw_err_text());                                                         \
    } while (0)

/* The message of the last error has `words` in it. */
#define assert_message(words)                                                                      \
    do {                                                                                           \
        if (!strstr(gw_err_text(), words))                                                         \
            fail_msg("'%s' lacks '%s'", gw_err_text(), words);                                     \
    } while (0)

#define assert_fails(call, code, words)                                                            \
    do {                                                                                           \
        assert_int_equal(call, code);                                                              \
        assert_message(words);                                                                     \
    } while (0)

#endif
