/** Texts for files that others read: UTF-8 (RFC 3629), in buffers of fixed size. */
#ifndef GW_BASE_TEXT_H
#define GW_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** True if `s` is valid UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool gw_text_utf8(const char *s);

/** Copy src into dst[0..cap), cap > 0, always terminated; cuts it before the first character that
 *  does not fit whole (a byte that is not UTF-8 counts as a character). */
void gw_text_copy(char *dst, size_t cap, const char *src);

/** The same for a formatted text; returns the bytes in dst. Every text that may reach a file of the
 *  run goes through one of these two: half a character is not UTF-8, and JSON refuses it. */
size_t gw_text_print(char *dst, size_t cap, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** gw_text_copy of an untrusted text: everything but printable ASCII, and quotation marks and
 *  backslashes, become '?'. */
void gw_text_plain(char *dst, size_t cap, const char *src);

/** Make `s` one line of UTF-8 that no terminal takes for a command: invalid bytes and control
 *  characters (gw_text_control, including newlines) become '?'. Its length may shrink. */
void gw_text_line(char *s);

/** Write the words of `s` to `to`, from column `at` on, and a newline. If a word would go beyond
 *  column `width`, a new line begins at column `indent`. */
void gw_text_wrap(FILE *to, const char *s, int at, int indent, int width);

/** Bytes of the control character that begins at s, which is terminated by 0; 0: none does. */
size_t gw_text_control(const unsigned char *s);

#endif
