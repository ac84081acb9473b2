/** Texts that go to files others read: UTF-8 (RFC 3629), and buffers of a fixed size. */
#ifndef GW_BASE_TEXT_H
#define GW_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/** Whether `s` is UTF-8 throughout: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool gw_text_utf8(const char *s);

/** Copy src into dst[0..cap), cap > 0, always terminated; what is too long is cut before the first
 *  character that does not fit whole (a byte that is no part of UTF-8 counts as a character). */
void gw_text_copy(char *dst, size_t cap, const char *src);

/** The same of a formatted text; returns how many bytes dst has. Every text that may reach a file
 * of the run goes through one of these two: half a character is no UTF-8, and JSON refuses it. */
size_t gw_text_print(char *dst, size_t cap, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** gw_text_copy of a text whose origin is not trusted: what is no printable ASCII, and quotation
 * marks and backslashes, become '?'. */
void gw_text_plain(char *dst, size_t cap, const char *src);

/** Make `s` one line of UTF-8 that no terminal takes for a command: bytes that are no part of UTF-8
 *  and control characters (C0, DEL and C1 of ISO 6429, so newlines, too) become '?'. Its length may
 *  shrink. */
void gw_text_line(char *s);

#endif
