#include "folder/claim.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = 4096, TRIES = 100 /* each lost to another run that ended just then */ };

struct gw_claim {
    char dir[LONGEST], path[LONGEST + 8];
    int fd;
    bool made; /* the folder */
};

static gw_err claim_check_folder(const char *dir) {
    struct stat st;
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return gw_fail(GW_ERR_INPUT, "--out %s: not a folder", dir);
    if (access(dir, W_OK | X_OK) != 0)
        return gw_fail(GW_ERR_INPUT, "--out %s: cannot write there: %s", dir, strerror(errno));
    return GW_OK;
}

/* Who holds it has written that into the file, for this line alone. */
static gw_err claim_refuse(const gw_claim *c) {
    char holder[128] = {0};
    ssize_t n = pread(c->fd, holder, sizeof holder - 1, 0);
    holder[n > 0 ? strcspn(holder, "\n") : 0] = '\0';
    bool told = *holder && gw_text_utf8(holder);
    return gw_fail(GW_ERR_INPUT,
                   "--out %s: another run is writing there%s%s%s: wait for it or end it, or name "
                   "another folder",
                   c->dir, told ? " (" : "", told ? holder : "", told ? ")" : "");
}

static gw_err claim_refuse_lock(const gw_claim *c) {
    return gw_fail(GW_ERR_INPUT,
                   "--out %s: cannot lock %s: %s: name a folder on a file system with locks",
                   c->dir, c->path, strerror(errno));
}

/* Whether what is open is what the name stands for: who held it may have removed it meanwhile. */
static bool claim_is_current(const gw_claim *c) {
    struct stat own, named;
    return fstat(c->fd, &own) == 0 && lstat(c->path, &named) == 0 && own.st_ino == named.st_ino &&
           own.st_dev == named.st_dev;
}

/* Closed, unless it holds the lock. */
static gw_err claim_try_lock(gw_claim *c, bool *held) {
    bool made;
    *held = false;
    if (gw_file_make_folder(c->dir, &made) != GW_OK)
        return gw_fail(GW_ERR_INPUT, "--out %.200s: %s", c->dir, gw_err_text());
    c->made |= made;
    c->fd = open(c->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (c->fd < 0 && errno == ENOENT) { /* who had made the folder has removed it, or it is none */
        struct stat st;
        return lstat(c->dir, &st) == 0 ? claim_check_folder(c->dir) : GW_OK;
    }
    if (c->fd < 0) {
        int why = errno;
        GW_TRY(claim_check_folder(c->dir));
        errno = why;
        return claim_refuse_lock(c);
    }
    gw_err e = flock(c->fd, LOCK_EX | LOCK_NB) == 0 ? GW_OK
               : errno == EWOULDBLOCK               ? claim_refuse(c)
                                                    : claim_refuse_lock(c);
    *held = e == GW_OK && claim_is_current(c);
    if (!*held)
        close(c->fd);
    return e;
}

gw_err gw_claim_take(gw_claim **out, const char *dir) {
    gw_claim *c = NULL;
    bool held = false;
    gw_err e = gw_alloc(&c, 1, sizeof *c);
    GW_TRY(e);
    gw_text_copy(c->dir, sizeof c->dir, dir);
    snprintf(c->path, sizeof c->path, "%s/.lock", c->dir);
    if (strlen(dir) >= sizeof c->dir)
        e = gw_fail(GW_ERR_INPUT, "--out: the path is too long");
    for (int i = 0; e == GW_OK && !held && i < TRIES; i++)
        e = claim_try_lock(c, &held);
    if (e == GW_OK && !held)
        e = gw_fail(GW_ERR_INPUT, "--out %s: it is made and removed again and again", dir);
    if (e != GW_OK) {
        free(c);
        return e;
    }
    char host[64] = {0};
    gethostname(host, sizeof host - 1);
    if (ftruncate(c->fd, 0) == 0) /* a full disk costs the other run this hint */
        dprintf(c->fd, "process %ld on %s\n", (long)getpid(), host);
    *out = c;
    return GW_OK;
}

void gw_claim_release(gw_claim *c) {
    if (!c)
        return;
    if (claim_is_current(c)) /* while it is held: nobody else can have it by that name */
        unlink(c->path);
    close(c->fd);
    if (c->made)
        rmdir(c->dir); /* fails where there is anything in it */
    free(c);
}
