#include "prof/resident.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const gw_resident_bytes unknown = {NAN, NAN};
const char *const gw_resident_names[GW_RESIDENT_PHASES] = {"setup", "training", "evaluation",
                                                           "total"};

static int resident_open(const gw_resident *r, const char *name, int flags) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", r->proc, name);
    return open(path, flags | O_CLOEXEC);
}

/* The bytes of a line "NAME:   N kB" of the file; NaN: it has none. */
static double resident_line(const char *text, const char *name) {
    const char *at = strstr(text, name);
    char *end;
    if (!at)
        return NAN;
    at += strlen(name);
    double kib = strtod(at, &end);
    return end > at && strncmp(end, " kB", 3) == 0 ? 1024 * kib : NAN;
}

static gw_resident_bytes resident_read(const gw_resident *r) {
    char text[4096];
    int fd = resident_open(r, "status", O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return (gw_resident_bytes){resident_line(text, "\nVmHWM:"),
                               resident_line(text, "\nRssFile:") +
                                   resident_line(text, "\nRssShmem:")};
}

static void resident_refuse(gw_resident *r, const char *name, const char *why) {
    if (!*r->why)
        snprintf(r->why, sizeof r->why, "%s/%s: %s", r->proc, name, why);
}

static void resident_keep(gw_resident_bytes *most, gw_resident_bytes b) {
    if (isnan(most->peak) || b.peak > most->peak)
        *most = b;
}

static void resident_leave(gw_resident *r) {
    gw_resident_bytes b = resident_read(r);
    if (isnan(b.peak))
        resident_refuse(r, "status", "has no VmHWM");
    resident_keep(&r->most[r->now], b);
}

void gw_resident_start(gw_resident *r, const char *proc) {
    *r = (gw_resident){.proc = proc};
    for (int i = 0; i < GW_RESIDENT_PHASES; i++)
        r->most[i] = unknown;
}

void gw_resident_enter(gw_resident *r, gw_resident_phase next) {
    resident_leave(r);
    int fd = resident_open(r, "clear_refs", O_WRONLY);
    if (fd < 0 || write(fd, "5", 1) != 1) /* sets the peak back */
        resident_refuse(r, "clear_refs", strerror(errno));
    if (fd >= 0)
        close(fd);
    r->now = next;
}

void gw_resident_end(gw_resident *r) {
    gw_resident_bytes *total = &r->most[GW_RESIDENT_TOTAL];
    resident_leave(r);
    for (int i = 0; i < GW_RESIDENT_TOTAL; i++) {
        if (*r->why)
            r->most[i] = unknown;
        resident_keep(total, r->most[i]);
    }
    if (!*r->why)
        return;
    struct rusage use = {0};
    getrusage(RUSAGE_SELF, &use);
    *total = (gw_resident_bytes){1024.0 * (double)use.ru_maxrss, resident_read(r).shared};
}
