#include "folder/claim.h"

#include "base/file.h"
#include "base/hold.h"
#include "base/mem.h"
#include "base/text.h"
#include "folder/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 100 /* each lost to another run that ended just then */ };

struct gw_claim {
    gw_hold *hold;
    char *dir;
    int folder, lock; /* descriptors, the hold's once it is there */
    bool made;        /* the folder */
};

static gw_err claim_check_folder(const char *dir) {
    struct stat st;
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return gw_fail(GW_ERR_INPUT, "--out %s: not a folder", dir);
    if (access(dir, W_OK | X_OK) != 0)
        return gw_fail(GW_ERR_INPUT, "--out %s: cannot write there: %s", dir, strerror(errno));
    return GW_OK;
}

static gw_err claim_refuse_lock(const gw_claim *c) {
    return gw_fail(GW_ERR_INPUT,
                   "--out %s: cannot lock %s/" GW_HOLD_LOCK
                   ": %s: name a folder on a file system with locks",
                   c->dir, c->dir, strerror(errno));
}

static gw_err claim_lock(gw_claim *c) {
    c->lock = openat(c->folder, GW_HOLD_LOCK,
                     O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (c->lock < 0) {
        int why = errno;
        GW_TRY(claim_check_folder(c->dir));
        errno = why;
        return why == ENOENT ? GW_OK : claim_refuse_lock(c); /* the folder was just removed */
    }
    if (flock(c->lock, LOCK_EX | LOCK_NB) == 0)
        return gw_hold_begin(&c->hold, c->dir, c->folder, c->lock);
    if (errno != EWOULDBLOCK)
        return claim_refuse_lock(c);
    /* The run that holds the folder has named itself in the file, only for this line. */
    char holder[128] = {0};
    ssize_t n = pread(c->lock, holder, sizeof holder - 1, 0);
    holder[n > 0 ? strcspn(holder, "\n") : 0] = '\0';
    bool told = *holder && gw_text_utf8(holder);
    return gw_fail(GW_ERR_INPUT,
                   "--out %s: another run is writing there%s%s%s: wait for it or end it, or name "
                   "another folder",
                   c->dir, told ? " (" : "", told ? holder : "", told ? ")" : "");
}

/* Without a hold afterwards, and GW_OK: to be tried again. */
static gw_err claim_try(gw_claim *c) {
    bool made;
    if (gw_file_make_folder(c->dir, &made) != GW_OK)
        return gw_fail(GW_ERR_INPUT, "--out %.200s: %s", c->dir, gw_err_text());
    c->made |= made;
    c->lock = -1;
    c->folder = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->folder < 0) { /* who had made the folder has removed it, or it is none */
        struct stat st;
        return lstat(c->dir, &st) == 0 ? claim_check_folder(c->dir) : GW_OK;
    }
    gw_err e = claim_lock(c);
    if (c->hold && gw_hold_check(c->dir) != GW_OK) { /* who held it has removed it meanwhile */
        gw_hold_end(c->hold);
        c->hold = NULL;
    } else if (!c->hold) {
        close(c->folder);
        if (c->lock >= 0)
            close(c->lock);
    }
    return e;
}

gw_err gw_claim_take(gw_claim **out, const char *dir) {
    gw_claim *c = NULL;
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    c->dir = strdup(dir);
    gw_err e = c->dir ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
    for (int i = 0; e == GW_OK && !c->hold && i < TRIES; i++)
        e = claim_try(c);
    if (e == GW_OK && !c->hold)
        e = gw_fail(GW_ERR_INPUT, "--out %s: it is made and removed again and again", dir);
    struct stat st; /* old checkpoints are removed: from no folder that only a link leads to */
    if (c->hold && fstatat(c->folder, GW_STORE_FOLDER, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(st.st_mode))
        e = gw_fail(GW_ERR_INPUT,
                    "--out %s: " GW_STORE_FOLDER " is a symbolic link, and what it leads to is not "
                    "this run's to replace: put a folder there, or let the link be --out itself",
                    dir);
    if (e != GW_OK) {
        gw_claim_release(c);
        return e;
    }
    char host[64] = {0};
    gethostname(host, sizeof host - 1);
    if (ftruncate(c->lock, 0) == 0) /* a full disk costs the other run this hint */
        dprintf(c->lock, "process %ld on %s\n", (long)getpid(), host);
    *out = c;
    return GW_OK;
}

void gw_claim_release(gw_claim *c) {
    if (!c)
        return;
    bool current = c->hold && gw_hold_check(c->dir) == GW_OK;
    if (current) /* while it is held: nobody else can have it by that name */
        unlinkat(c->folder, GW_HOLD_LOCK, 0);
    gw_hold_end(c->hold);
    if (current && c->made)
        rmdir(c->dir); /* fails where there is anything in it */
    free(c->dir);
    free(c);
}
