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

/* A line that was cut off by a crash must not swallow ours. */
static bool history_cut_off(int fd) {
    char last = '\n';
    off_t end = lseek(fd, 0, SEEK_END);
    return end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n';
}

static gw_err history_append(const char *dir, const char *line) {
    int folder;
    GW_TRY(gw_hold_open(dir, &folder));
    int fd = openat(folder, GW_HISTORY, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    char *text = NULL;
    int len = fd < 0 ? -1 : asprintf(&text, "%s%s\n", history_cut_off(fd) ? "\n" : "", line);
    gw_err e = GW_OK;
    if (len < 0 || write(fd, text, (size_t)len) != len || fsync(fd) != 0)
        e = gw_fail(GW_ERR_IO, "cannot write %s/" GW_HISTORY ": %s", dir, strerror(errno));
    close(folder);
    if (fd >= 0)
        close(fd);
    free(text);
    return e;
}

gw_err gw_history_add(const char *dir, json_t *entry) {
    char *line = entry ? json_dumps(entry, JSON_COMPACT) : NULL;
    gw_err e = line ? history_append(dir, line) : gw_fail(GW_ERR_NOMEM, "out of memory");
    json_decref(entry);
    free(line);
    return e;
}

static json_t *history_parse(const char *line) {
    json_t *entry = json_loads(line, 0, NULL);
    if (json_is_object(entry))
        return entry;
    json_decref(entry);
    return json_pack("{s:s}", "event", "unreadable");
}

gw_err gw_history_read(const char *dir, json_t **all) {
    enum { LIMIT = 1 << 24 };
    char *path = NULL, *text = NULL;
    size_t len;
    if (asprintf(&path, "%s/" GW_HISTORY, dir) < 0)
        return gw_fail(GW_ERR_NOMEM, "out of memory");
    *all = json_array();
    gw_err e = access(path, F_OK) == 0 ? gw_file_read(path, LIMIT, &text, &len) : GW_OK;
    for (char *rest = text, *line; rest && (line = strsep(&rest, "\n")) != NULL;)
        if (*line)
            json_array_append_new(*all, history_parse(line));
    free(text);
    free(path);
    if (e != GW_OK) {
        json_decref(*all);
        *all = NULL;
    }
    return e;
}
