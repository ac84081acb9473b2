#include "base/hold.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct gw_hold {
    gw_hold *next;
    char *dir, *real; /* as it was given; without links, for a process that changes its folder */
    int fd, lock;
};

static pthread_mutex_t hold_mutex = PTHREAD_MUTEX_INITIALIZER;
static gw_hold *hold_all;

gw_err gw_hold_begin(gw_hold **out, const char *dir, int fd, int lock) {
    gw_hold *h = NULL;
    GW_TRY(gw_alloc(&h, 1, sizeof *h));
    h->dir = strdup(dir);
    h->real = realpath(dir, NULL);
    h->fd = h->lock = -1;
    if (!h->dir || !h->real) {
        gw_hold_end(h);
        return gw_fail(GW_ERR_INPUT, "--out %s: %s", dir, strerror(errno));
    }
    h->fd = fd;
    h->lock = lock;
    pthread_mutex_lock(&hold_mutex);
    h->next = hold_all;
    hold_all = h;
    pthread_mutex_unlock(&hold_mutex);
    *out = h;
    return GW_OK;
}

void gw_hold_end(gw_hold *h) {
    if (!h)
        return;
    pthread_mutex_lock(&hold_mutex);
    for (gw_hold **at = &hold_all; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            break;
        }
    pthread_mutex_unlock(&hold_mutex);
    if (h->fd >= 0)
        close(h->fd);
    if (h->lock >= 0)
        close(h->lock);
    free(h->dir);
    free(h->real);
    free(h);
}

/* What of `path` lies below the folder, "": it is the folder; NULL: it does not lie there. */
static const char *hold_rest(const gw_hold *h, const char *path) {
    size_t len = strlen(h->dir);
    if (strncmp(path, h->dir, len) != 0 || (path[len] && path[len] != '/'))
        return NULL;
    return path + len + strspn(path + len, "/");
}

/* The innermost held folder that has `path`; NULL: none. It is its owner who ends it, after all
 * that writes by such a path. */
static const gw_hold *hold_of(const char *path, const char **rest) {
    const gw_hold *best = NULL;
    pthread_mutex_lock(&hold_mutex);
    for (const gw_hold *h = hold_all; h; h = h->next)
        if (hold_rest(h, path) && (!best || strlen(h->dir) > strlen(best->dir)))
            best = h;
    pthread_mutex_unlock(&hold_mutex);
    *rest = best ? hold_rest(best, path) : NULL;
    return best;
}

static bool hold_same(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

static gw_err hold_check(const gw_hold *h) {
    struct stat own, named, lock;
    bool is = fstat(h->fd, &own) == 0;
    if (!is || !((stat(h->dir, &named) == 0 && hold_same(&own, &named)) ||
                 (stat(h->real, &named) == 0 && hold_same(&own, &named)))) {
        char self[64], where[PATH_MAX];
        snprintf(self, sizeof self, "/proc/self/fd/%d", h->fd);
        ssize_t len = is && own.st_nlink > 0 ? readlink(self, where, sizeof where - 1) : -1;
        if (len < 0)
            return gw_fail(GW_ERR_LOST,
                           "--out %s: the folder was removed while this run was writing there: its "
                           "results are lost",
                           h->dir);
        where[len] = '\0';
        return gw_fail(GW_ERR_LOST,
                       "--out %s: the folder was moved while this run was writing there: what it "
                       "had written is in %s",
                       h->dir, where);
    }
    if (fstat(h->lock, &lock) != 0 ||
        fstatat(h->fd, GW_HOLD_LOCK, &named, AT_SYMLINK_NOFOLLOW) != 0 || !hold_same(&lock, &named))
        return gw_fail(GW_ERR_LOST,
                       "--out %s: " GW_HOLD_LOCK " was removed while this run was writing there, "
                       "and another may have begun: this one ends, its results are lost",
                       h->dir);
    return GW_OK;
}

gw_err gw_hold_check(const char *path) {
    const char *rest;
    const gw_hold *h = hold_of(path, &rest);
    return h ? hold_check(h) : GW_OK;
}

gw_err gw_hold_open(const char *dir, int *fd) {
    enum { FLAGS = O_RDONLY | O_DIRECTORY | O_CLOEXEC };
    const char *rest;
    const gw_hold *h = hold_of(dir, &rest);
    if (h)
        GW_TRY(hold_check(h));
    *fd = h ? openat(h->fd, ".", FLAGS) : open(dir, FLAGS);
    while (h && *rest && *fd >= 0) {
        char name[NAME_MAX + 1];
        size_t len = strcspn(rest, "/");
        snprintf(name, sizeof name, "%.*s", (int)len, rest);
        int in = *fd;
        *fd = openat(in, name, FLAGS | O_NOFOLLOW);
        int why = errno;
        close(in);
        errno = why;
        rest += len + strspn(rest + len, "/");
    }
    if (*fd >= 0)
        return GW_OK;
    int why = errno;
    gw_fail(GW_ERR_INPUT, "cannot open folder %s: %s", dir,
            why == ENOTDIR && h ? "a symbolic link, or no folder" : strerror(why));
    errno = why;
    return GW_ERR_INPUT;
}

/* For those who change something in it. */
static gw_err hold_open_for(const char *dir, const char *name, int *fd) {
    gw_err e = gw_hold_open(dir, fd);
    return e == GW_ERR_INPUT ? gw_fail(GW_ERR_IO, "%s/%s: %s", dir, name, gw_err_text()) : e;
}

gw_err gw_hold_make(const char *dir, const char *name) {
    int in;
    GW_TRY(hold_open_for(dir, name, &in));
    bool made = mkdirat(in, name, 0777) == 0, lasts = made ? fsync(in) == 0 : errno == EEXIST;
    gw_err e = lasts
                   ? GW_OK
                   : gw_fail(GW_ERR_IO, "cannot make folder %s/%s: %s", dir, name, strerror(errno));
    if (made && !lasts)
        unlinkat(in, name, AT_REMOVEDIR);
    close(in);
    return e;
}

gw_err gw_hold_rename(const char *dir, const char *from, const char *to, int *why) {
    int in;
    *why = EIO;
    GW_TRY(hold_open_for(dir, from, &in));
    *why = renameat(in, from, in, to) == 0 ? 0 : errno;
    gw_err e = GW_OK;
    if (*why != 0 || fsync(in) != 0)
        e = gw_fail(GW_ERR_IO, "cannot rename %s/%s to %s: %s", dir, from, to, strerror(errno));
    close(in);
    return e;
}

/* Removes what is in the folder `name`, `first` before the rest. */
static bool hold_empty(int in, const char *name, const char *first) {
    int fd = openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    bool bad = !folder || (unlinkat(fd, first, 0) != 0 && errno != ENOENT), more = !bad;
    while (more) { /* readdir may pass over some while others are removed */
        struct dirent *entry;
        more = false;
        rewinddir(folder);
        while (!bad && (entry = readdir(folder)) != NULL) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            bool removed = unlinkat(fd, entry->d_name, 0) == 0;
            more |= removed;
            bad = !removed && errno != ENOENT;
        }
        more &= !bad;
    }
    int why = errno;
    if (folder)
        closedir(folder);
    errno = why;
    return bad;
}

gw_err gw_hold_remove(const char *dir, const char *name, const char *first) {
    struct stat st;
    int in;
    GW_TRY(hold_open_for(dir, name, &in));
    bool there = fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) == 0, bad = !there && errno != ENOENT;
    if (there && S_ISLNK(st.st_mode))
        bad = unlinkat(in, name, 0) != 0;
    else if (there)
        bad = (first && hold_empty(in, name, first)) ||
              (unlinkat(in, name, AT_REMOVEDIR) != 0 && (first || errno != ENOTEMPTY));
    gw_err e =
        bad ? gw_fail(GW_ERR_IO, "cannot remove %s/%s: %s", dir, name, strerror(errno)) : GW_OK;
    close(in);
    return e;
}
