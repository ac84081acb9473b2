/* How long the wire is busy with what its buffer holds: the bound of the pieces that long products
 * are cut into. */
#include "base/file.h"
#include "comm/strategy.h"
#include "machine/host.h"
#include "machine/products.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ASSUMED_RATE   10e9   /* bit/s, of a link that nobody has told of */
#define DEFAULT_BUFFER 212992 /* where the kernel does not tell */
/* A poll finds the buffer half full, and messages of several rounds wait for no longer than this.
 */
#define SHARE   0.5
#define LEAST_S 0.2e-3
#define MOST_S  20e-3

/* Bytes of UCX_TCP_SNDBUF (4194304, 4m, 512KB); NAN: not set, or "auto". */
static double wire_asked_buffer(void) {
    const char *text = getenv("UCX_TCP_SNDBUF");
    if (!text || !isdigit((unsigned char)*text))
        return NAN;
    char *end;
    double bytes = strtod(text, &end);
    static const char units[] = "kmg";
    for (int i = 0; units[i]; i++)
        if (tolower((unsigned char)*end) == units[i])
            bytes *= pow(1024, i + 1);
    return bytes > 0 ? bytes : NAN;
}

/* The kernel lets it grow up to the third number, which counts its own bookkeeping, too: about as
 * much as the payload. */
static double wire_grown_buffer(void) {
    double least, begin, most;
    char line[256];
    bool told = gw_file_first_line("/proc/sys/net/ipv4/tcp_wmem", line, sizeof line) &&
                sscanf(line, "%lf %lf %lf", &least, &begin, &most) == 3;
    return told && most > 0 ? most / 2 : DEFAULT_BUFFER;
}

gw_err gw_wire_read(gw_wire *out) {
    gw_host_link link;
    GW_TRY(gw_host_link_read(&link));
    double asked = wire_asked_buffer();
    out->buffer_bytes = isnan(asked) ? wire_grown_buffer() : asked;
    out->rate_known = link.emulated;
    out->rate_bits_per_s = link.emulated ? (double)link.rate_bits_per_s : ASSUMED_RATE;
    return GW_OK;
}

double gw_wire_drain_s(const gw_wire *w) {
    return w->buffer_bytes * 8 / w->rate_bits_per_s;
}

double gw_wire_piece_s(const gw_wire *w) {
    return fmin(fmax(SHARE * gw_wire_drain_s(w), LEAST_S), MOST_S);
}

gw_pace gw_wire_pace(const gw_wire *w, double gap_s) {
    if (!w->rate_known)
        return (gw_pace){0};
    return (gw_pace){.bytes_per_s = w->rate_bits_per_s / 8, .gap_s = gap_s};
}
