/* What every unit test includes: cmocka, and the headers that it wants before it. */
#ifndef GW_TESTS_UNIT_H
#define GW_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka hands each test a state, which few of them read. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
