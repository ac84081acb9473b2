/* Whole files, their first lines, and what the kernel's files say of memory. */
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

gw_err gw_file_open(const char *path, FILE **in, size_t *len) {
    struct stat st;
    /* Opening a pipe that nobody writes to would block without O_NONBLOCK. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return gw_fail(GW_ERR_INPUT, "cannot read %s: %s", path, strerror(errno));
    gw_err e = GW_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        e = gw_fail(GW_ERR_INPUT, "cannot read %s: not a regular file", path);
    else if (!(*in = fdopen(fd, "rb")))
        e = gw_fail(GW_ERR_INPUT, "cannot read %s: %s", path, strerror(errno));
    if (e != GW_OK)
        close(fd);
    else
        *len = (size_t)st.st_size;
    return e;
}

gw_err gw_file_read(const char *path, size_t limit, char **data, size_t *len) {
    FILE *in = NULL;
    size_t n = 0;
    char *buf = NULL;
    GW_TRY(gw_file_open(path, &in, &n));
    gw_err e = n > limit ? gw_fail(GW_ERR_INPUT, "%s: %zu bytes, more than the limit of %zu", path,
                                   n, limit)
                         : gw_alloc(&buf, n + 1, 1);
    if (e == GW_OK && fread(buf, 1, n, in) != n)
        e = gw_fail(GW_ERR_INPUT, "cannot read %s: file changed while it was read", path);
    const char *zero = e == GW_OK ? memchr(buf, '\0', n) : NULL;
    if (zero) /* what follows it would be ignored */
        e = gw_fail(GW_ERR_INPUT, "%s: byte %zu is a zero byte: it is no text", path,
                    (size_t)(zero - buf));
    fclose(in);
    if (e != GW_OK) {
        free(buf);
        return e;
    }
    *data = buf;
    *len = n;
    return GW_OK;
}

bool gw_file_first_line(const char *path, char *out, size_t room) {
    FILE *in = fopen(path, "r");
    bool got = in && fgets(out, (int)room, in);
    if (in)
        fclose(in);
    if (got)
        out[strcspn(out, "\n")] = '\0';
    return got;
}

double gw_file_memory(void) {
    char line[64];
    double most = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), part;
    if (gw_file_first_line("/sys/fs/cgroup/memory.max", line, sizeof line) &&
        sscanf(line, "%lf", &part) == 1 && part < most)
        most = part;
    return most;
}
