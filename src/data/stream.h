/** Reads a file's bytes and inflates them if the file is gzip's (judged by its first two bytes, not
 *  by its name). Unlike gzread it accepts a stream only after checking its CRC-32 and length, and
 *  it refuses bytes after the compressed data (RFC 1952). */
#ifndef GW_DATA_STREAM_H
#define GW_DATA_STREAM_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct gw_stream gw_stream;

/** Open a regular file; `path` must outlive the stream, which one thread at a time may use.
 *  GW_ERR_INPUT: it cannot be opened or is not a regular file. */
gw_err gw_stream_open(gw_stream **out, const char *path);
void gw_stream_close(gw_stream *s); /* s may be NULL */

/** Upper bound on what a file of this size can inflate to, and so on what a header may promise. */
uint64_t gw_stream_most(const gw_stream *s);

/** Return a plain file's bytes, known before it is read; 0: it is compressed. */
uint64_t gw_stream_known(const gw_stream *s);

/** Read up to `want` bytes; *got < want only at a whole file's end. GW_ERR_INPUT: compressed data
 *  that is damaged or ends early, or a file that cannot be read. */
gw_err gw_stream_read(gw_stream *s, void *dst, size_t want, size_t *got);

#endif
