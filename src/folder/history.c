#include "folder/history.h"

#include "base/file.h"
#include "base/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void gw_utc_now(char utc[GW_UTC]) {
    time_t now = time(NULL);
    struct tm broken;
    strftime(utc, GW_UTC, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &broken));
}

gw_err gw_history_add(const char *dir, json_t *entry) {
    char *line = entry ? json_dumps(entry, JSON_COMPACT) : NULL, *text = NULL, last = '\n';
    int folder = -1, fd = -1;
    gw_err e = line ? gw_hold_open(dir, &folder) : gw_fail(GW_ERR_NOMEM, "out of memory");
    if (e == GW_OK) {
        fd = openat(folder, GW_HISTORY, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
        /* A line that was cut off by a crash must not swallow ours. */
        off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
        bool cut = end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n';
        int len = fd < 0 ? -1 : asprintf(&text, "%s%s\n", cut ? "\n" : "", line);
        if (len < 0 || write(fd, text, (size_t)len) != len || fsync(fd) != 0)
            e = gw_fail(GW_ERR_IO, "cannot write %s/" GW_HISTORY ": %s", dir, strerror(errno));
        close(folder);
        if (fd >= 0)
            close(fd);
    }
    json_decref(entry);
    free(line);
    free(text);
    return e;
}

gw_err gw_history_read(const char *dir, json_t **all) {
    enum { LIMIT = 1 << 24 };
    char *path = NULL, *text = NULL;
    size_t len;
    if (asprintf(&path, "%s/" GW_HISTORY, dir) < 0)
        return gw_fail(GW_ERR_NOMEM, "out of memory");
    *all = json_array();
    gw_err e = access(path, F_OK) == 0 ? gw_file_read(path, LIMIT, &text, &len) : GW_OK;
    for (char *rest = text, *line; rest && (line = strsep(&rest, "\n")) != NULL;) {
        json_t *entry = *line ? json_loads(line, 0, NULL) : NULL;
        if (json_is_object(entry))
            json_array_append(*all, entry);
        else if (*line)
            json_array_append_new(*all, json_pack("{s:s}", "event", "unreadable"));
        json_decref(entry);
    }
    free(text);
    free(path);
    if (e != GW_OK) {
        json_decref(*all);
        *all = NULL;
    }
    return e;
}
