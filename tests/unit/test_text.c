#include "base/err.h"
#include "base/text.h"

#include "unit.h"

#include <stdio.h>
#include <string.h>

static void test_utf8(void **state) {
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

static void printed(size_t cap, const char *src, const char *want) {
    char dst[16], all[16];
    snprintf(all, sizeof all, "%s!", src);
    assert_int_equal(gw_text_print(dst, cap, "%s%c", src, '!'), strlen(want));
    assert_string_equal(dst, want);
    copied(cap, all, want); /* so likewise, and no byte beyond */
}

static void test_print(void **state) {
    printed(1, "abc", "");
    printed(3, "abc", "ab");
    printed(5, "abc", "abc!");
    for (size_t cap = 3; cap <= 4; cap++) /* a u with dots needs two bytes */
        printed(cap, "ab\xc3\xbc", "ab");
    printed(5, "ab\xc3\xbc", "ab\xc3\xbc");
    for (size_t cap = 2; cap <= 5; cap++)
        printed(cap, "a\xf0\x9f\x98\x80", "a");
    printed(6, "a\xf0\x9f\x98\x80", "a\xf0\x9f\x98\x80");
    printed(7, "a\xf0\x9f\x98\x80", "a\xf0\x9f\x98\x80!");
    printed(3, "\x80\x81\x82", "\x80\x81"); /* what is no text is cut between bytes */
}

static void made_line(const char *src, const char *want) {
    char text[32];
    snprintf(text, sizeof text, "%s", src);
    gw_text_line(text);
    assert_string_equal(text, want);
}

static void test_line(void **state) {
    made_line("", "");
    made_line("a b~", "a b~");
    made_line("one\ntwo\r\n\tthree", "one?two???three");
    made_line("\033[2J\x7f", "?[2J?");
    made_line("\xc2\x9b"
              "31m\xc2\xa0",
              "?31m\xc2\xa0"); /* CSI in one character; a space that does not break */
    made_line("\xc3\xbc\xe2\x82\xac", "\xc3\xbc\xe2\x82\xac");
    made_line("\xff\xe2\x82", "???");
}

/* Whatever a message quotes, it stays one line and no character is cut. */
static void test_message(void **state) {
    char name[1100];
    gw_fail(GW_ERR_INPUT, "%s: no such file", "a\nb\033");
    assert_string_equal(gw_err_text(), "a?b?: no such file");
    for (size_t odd = 0; odd < 2; odd++) { /* a buffer of even length ends in one or the other */
        memset(name, 'a', odd);
        for (size_t i = odd; i + 2 < sizeof name; i += 2)
            memcpy(name + i, "\xc3\xbc", 3);
        gw_fail(GW_ERR_INPUT, "%s", name);
        assert_true(strlen(gw_err_text()) > 1000 && gw_text_utf8(gw_err_text()));
    }
}

static void test_name(void **state) {
    char name[8] = "a?b";
    for (int c = 1; c < 256; c++) {
        name[1] = (char)c;
        bool control = c < 0x20 || c == 0x7f;
        assert_int_equal(gw_text_name("o", "w", name), control ? GW_ERR_USAGE : GW_OK);
    }
    for (int c = 0x80; c < 0xc0; c++) { /* U+0080 to U+00BF */
        snprintf(name, sizeof name, "\xc2%c", c);
        assert_int_equal(gw_text_name("o", "w", name), c < 0xa0 ? GW_ERR_USAGE : GW_OK);
    }
    for (int c = 0x2020; c < 0x2080; c++) { /* as analysis/reporting/base.py has them */
        bool turns = (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
        snprintf(name, sizeof name, "\xe2%c%c", 0x80 | (c >> 6 & 0x3f), 0x80 | (c & 0x3f));
        assert_int_equal(gw_text_name("o", "w", name), turns ? GW_ERR_USAGE : GW_OK);
    }
    assert_fails(gw_text_name("o", "w", "a\xe2\x80\xae"), GW_ERR_USAGE, "'a\\u202e'");
    gw_text_name("train", "out", "\xc2\x9b\x1b[1m\xc3\xbc\n");
    assert_string_equal(gw_err_text(),
                        "train: out: '\\u009b\\x1b[1m\xc3\xbc\\n' contains a control "
                        "character: choose a name without");
    char endless[2000];
    memset(endless, '\n', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_int_equal(gw_text_name("o", "", endless), GW_ERR_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_utf8),    cmocka_unit_test(test_copy),
                                       cmocka_unit_test(test_print),   cmocka_unit_test(test_line),
                                       cmocka_unit_test(test_message), cmocka_unit_test(test_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
