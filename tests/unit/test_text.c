#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_utf8(void **state) {
    (void)state;
    static const char *const good[] = {
        "",
        "runs/a",
        "\x7f",
        "\xc2\x80",
        "f\xc3\xbcr",
        "\xe0\xa0\x80",
        "\xed\x9f\xbf",
        "\xee\x80\x80",
        "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf",
    };
    static const char *const bad[] = {
        "\x80",             /* a continuation alone */
        "f\xfcr",           /* Latin-1 */
        "\xc3",             /* ends within a character */
        "\xe2\x82",         /* the same */
        "\xf0\x9f\x98",     /* the same */
        "\xc3(",            /* another character within one */
        "\xc1\xbf",         /* overlong */
        "\xe0\x9f\xbf",     /* overlong */
        "\xf0\x8f\xbf\xbf", /* overlong */
        "\xed\xa0\x80",     /* a surrogate */
        "\xf4\x90\x80\x80", /* above U+10FFFF */
        "\xf8\x88\x80\x80\x80",
        "\xff",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(gw_text_utf8(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(gw_text_utf8(bad[i]));
}

static void copied(size_t cap, const char *src, const char *want) {
    char dst[16];
    memset(dst, '#', sizeof dst);
    gw_text_copy(dst, cap, src);
    assert_string_equal(dst, want);
    assert_int_equal(dst[cap], '#');
}

static void test_copy(void **state) {
    (void)state;
    copied(1, "abc", "");
    copied(3, "abc", "ab");
    copied(4, "abc", "abc");
    copied(9, "abc", "abc");
    copied(4, "ab\xc3\xbc", "ab"); /* a u with dots needs two bytes */
    copied(5, "ab\xc3\xbc", "ab\xc3\xbc");
    for (size_t cap = 3; cap <= 5; cap++)
        copied(cap, "a\xf0\x9f\x98\x80", "a");
    copied(6, "a\xf0\x9f\x98\x80", "a\xf0\x9f\x98\x80");
    copied(3, "\xff\xfe\xfd", "\xff\xfe"); /* what is no text is cut between bytes */
    copied(8, "a\xe2\x82", "a\xe2\x82");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_utf8), cmocka_unit_test(test_copy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
