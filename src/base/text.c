#include "base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the character at s, 0 if it is not UTF-8. Stops at a terminating 0. */
static size_t text_character(const unsigned char *s) {
    static const struct {
        unsigned char mask, lead;
        uint32_t least; /* anything smaller has a shorter form */
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t n = 1; n <= 4; n++) {
        if ((s[0] & forms[n - 1].mask) != forms[n - 1].lead)
            continue;
        uint32_t code = s[0] & (unsigned char)~forms[n - 1].mask;
        for (size_t i = 1; i < n; i++) {
            if ((s[i] & 0xc0) != 0x80)
                return 0;
            code = code << 6 | (s[i] & 0x3fu);
        }
        bool surrogate = code >= 0xd800 && code <= 0xdfff;
        return code < forms[n - 1].least || surrogate || code > 0x10ffff ? 0 : n;
    }
    return 0;
}

bool gw_text_utf8(const char *s) {
    const unsigned char *at = (const unsigned char *)s;
    while (*at) {
        size_t n = text_character(at);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

/* C0, DEL and C1 of ISO 6429; Unicode's ends of lines and changes of direction (U+2028 to U+202E,
 * U+2066 to U+2069), by which a terminal shows another text than there is. The analysis has the
 * same (analysis/reporting/base.py). */
size_t gw_text_control(const unsigned char *s) {
    if (s[0] < 0x20 || s[0] == 0x7f)
        return 1;
    if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0)
        return 2;
    bool turns = s[0] == 0xe2 && ((s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) ||
                                  (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9));
    return turns ? 3 : 0;
}

void gw_text_copy(char *dst, size_t cap, const char *src) {
    size_t len = 0;
    while (src[len]) {
        size_t n = text_character((const unsigned char *)src + len);
        n = n ? n : 1;
        if (len + n >= cap)
            break;
        len += n;
    }
    memcpy(dst, src, len);
    dst[len] = '\0';
}

size_t gw_text_print(char *dst, size_t cap, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int want = vsnprintf(dst, cap, format, args);
    va_end(args);
    if (want < 0)
        dst[0] = '\0';
    size_t len = strlen(dst), back = 0;
    if (want < 0 || (size_t)want < cap)
        return len;
    while (back < 3 && back < len && ((unsigned char)dst[len - 1 - back] & 0xc0) == 0x80)
        back++; /* continuation bytes of the last, maybe incomplete, character */
    if (back < len && (unsigned char)dst[len - 1 - back] >= 0xc0 &&
        text_character((unsigned char *)dst + len - 1 - back) == 0)
        dst[len -= back + 1] = '\0';
    return len;
}

void gw_text_wrap(FILE *to, const char *s, int at, int indent, int width) {
    const char *between = "";
    for (size_t len; *s; s += len + strspn(s + len, " ")) {
        len = strcspn(s, " ");
        if (*between && at + 1 + (int)len > width) {
            fprintf(to, "\n%*s", indent, "");
            at = indent;
            between = "";
        }
        at += fprintf(to, "%s%.*s", between, (int)len, s);
        between = " ";
    }
    fputc('\n', to);
}

void gw_text_plain(char *dst, size_t cap, const char *src) {
    size_t len = 0;
    for (; src[len] && len + 1 < cap; len++) {
        unsigned char c = (unsigned char)src[len];
        dst[len] = (char)(c < 0x20 || c > 0x7e || c == '"' || c == '\\' ? '?' : c);
    }
    dst[len] = '\0';
}

void gw_text_line(char *s) {
    char *to = s;
    for (size_t n; *s; s += n) {
        const unsigned char *c = (const unsigned char *)s;
        n = text_character(c);
        if (n == 0 || gw_text_control(c) > 0) {
            n = n ? n : 1;
            *to++ = '?';
        } else {
            memmove(to, s, n);
            to += n;
        }
    }
    *to = '\0';
}
