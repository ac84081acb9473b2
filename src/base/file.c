/* Files that appear whole or not at all, and whole texts read. */
#include "base/file.h"

#include "base/hold.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct gw_file {
    FILE *stream;
    int folder;                    /* open: names are in it, whatever its own is meanwhile */
    char *path, *temp;             /* temp: before the commit */
    const char *name, *named_temp; /* the same, without the folder */
    int unnamed;                   /* opened with O_TMPFILE: temp does not exist yet */
    bool keep;                     /* a part that a later run may resume */
    bool direct;                   /* a device or a pipe: it has its name, and no folder or temp */
};

static void file_free(gw_file *f) {
    if (f->folder >= 0)
        close(f->folder);
    free(f->path);
    free(f->temp);
    free(f);
}

gw_err gw_file_token(char token[GW_FILE_TOKEN]) {
    uint64_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return gw_fail(GW_ERR_IO, "no random number for the name of a file: %s", strerror(errno));
    snprintf(token, GW_FILE_TOKEN, "%016" PRIx64, drawn);
    return GW_OK;
}

static gw_err file_new(gw_file **out, const char *dir, const char *name, bool part) {
    gw_file *f = NULL;
    char token[GW_FILE_TOKEN];
    GW_TRY(gw_file_token(token));
    GW_TRY(gw_alloc(&f, 1, sizeof *f));
    f->folder = -1;
    int bad = asprintf(&f->path, "%s/%s", dir, name) < 0 ||
              (part ? asprintf(&f->temp, "%s/%s.part", dir, name)
                    : asprintf(&f->temp, "%s/.%s.%s.tmp", dir, name, token)) < 0;
    gw_err e = bad ? gw_fail(GW_ERR_NOMEM, "out of memory") : gw_hold_open(dir, &f->folder);
    if (e != GW_OK) {
        if (e == GW_ERR_INPUT)
            gw_fail(e, "cannot write %s: %s", f->path, strerror(errno));
        file_free(f);
        return e;
    }
    f->name = f->path + strlen(dir) + 1;
    f->named_temp = f->temp + strlen(dir) + 1;
    *out = f;
    return GW_OK;
}

/* A rename would destroy a device or a pipe. A link is replaced: it may lead out of the folder. */
static gw_err file_check_old(const gw_file *f, gw_err otherwise) {
    struct stat st;
    if (fstatat(f->folder, f->name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISREG(st.st_mode) ||
        S_ISLNK(st.st_mode))
        return GW_OK;
    return gw_fail(otherwise, "cannot write %s: %s has its name: remove that", f->path,
                   S_ISDIR(st.st_mode) ? "a folder" : "a device or a pipe");
}

gw_err gw_file_create(gw_file **out, const char *dir, const char *name) {
    gw_file *f = NULL;
    GW_TRY(file_new(&f, dir, name, false));
    gw_err e = file_check_old(f, GW_ERR_INPUT);
    if (e != GW_OK) {
        file_free(f);
        return e;
    }
    int fd = -1;
#ifdef O_TMPFILE
    fd = openat(f->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    f->unnamed = fd >= 0;
#endif
    if (fd < 0)
        fd = openat(f->folder, f->named_temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    f->stream = fd < 0 ? NULL : fdopen(fd, "w+");
    if (!f->stream) {
        e = gw_fail(GW_ERR_INPUT, "cannot write %s: %s", f->path, strerror(errno));
        if (fd >= 0)
            close(fd);
        file_free(f);
        return e;
    }
    *out = f;
    return GW_OK;
}

/* Returns the path that symbolic links lead to, whether or not it exists. NULL: no memory. */
static char *file_follow(const char *path) {
    enum { MOST_LINKS = 40 }; /* as many as Linux follows */
    char *at = strdup(path), to[PATH_MAX];
    for (int i = 0; at && i < MOST_LINKS; i++) {
        ssize_t len = readlink(at, to, sizeof to);
        if (len < 0 || len == (ssize_t)sizeof to)
            break;
        char *slash = strrchr(at, '/'), *next = NULL;
        int folder = *to == '/' || !slash ? 0 : (int)(slash + 1 - at);
        bool bad = asprintf(&next, "%.*s%.*s", folder, at, (int)len, to) < 0;
        free(at);
        at = bad ? NULL : next;
    }
    return at;
}

/* Open a device or a pipe for what is written to come there at once. What this program's own
 * output is, say by /dev/stdout, is not opened anew: that would overwrite a file from its start. */
static gw_err file_open_direct(gw_file **out, const char *path, int own) {
    /* O_NONBLOCK: a pipe that nobody reads would never open. */
    int fd = own >= 0 ? fcntl(own, F_DUPFD_CLOEXEC, 0)
                      : open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return gw_fail(GW_ERR_INPUT, "cannot write %s: %s", path,
                       errno == ENXIO ? "nothing reads this pipe: start what does"
                                      : strerror(errno));
    gw_file *f = NULL;
    gw_err e = gw_alloc(&f, 1, sizeof *f);
    if (e == GW_OK) {
        *f = (gw_file){.folder = -1, .direct = true, .path = strdup(path)};
        bool ready = own >= 0 || fcntl(fd, F_SETFL, O_WRONLY) == 0;
        f->stream = ready && f->path ? fdopen(fd, "w") : NULL;
        e = f->stream ? GW_OK : gw_fail(GW_ERR_INPUT, "cannot write %s: %s", path, strerror(errno));
    }
    if (e == GW_OK) {
        *out = f;
        return GW_OK;
    }
    close(fd);
    if (f)
        file_free(f);
    return e;
}

gw_err gw_file_create_at(gw_file **out, const char *path) {
    struct stat st;
    size_t len = strlen(path);
    if (len == 0 || path[len - 1] == '/')
        return gw_fail(GW_ERR_USAGE, "%s: names no file", path);
    bool there = stat(path, &st) == 0;
    if (!there && errno != ENOENT)
        return gw_fail(GW_ERR_INPUT, "cannot write %s: %s", path, strerror(errno));
    int own = -1; /* the descriptor of this program's output that writes to the same */
    for (int fd = STDERR_FILENO; there && fd >= STDOUT_FILENO; fd--) {
        struct stat of;
        if (fstat(fd, &of) == 0 && of.st_dev == st.st_dev && of.st_ino == st.st_ino)
            own = fd;
    }
    if (there && (own >= 0 || S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode)))
        return file_open_direct(out, path, own);
    if (there && !S_ISREG(st.st_mode))
        return gw_fail(GW_ERR_INPUT, "cannot write %s: %s: name a file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "neither a file nor a pipe");
    if (there && access(path, W_OK) != 0)
        return gw_fail(GW_ERR_INPUT, "cannot write %s: %s", path, strerror(errno));
    char *target = file_follow(path), *slash = target ? strrchr(target, '/') : NULL, *dir = NULL;
    if (slash)
        dir = strndup(target, slash == target ? 1 : (size_t)(slash - target));
    else if (target)
        dir = strdup(".");
    gw_err e = dir ? gw_file_create(out, dir, slash ? slash + 1 : target)
                   : gw_fail(GW_ERR_NOMEM, "%s: out of memory", path);
    free(dir);
    free(target);
    return e;
}

FILE *gw_file_stream(gw_file *f) {
    return f->stream;
}

gw_err gw_file_make_folder(const char *dir, bool *made) {
    char path[4096];
    size_t len = strlen(dir);
    if (len >= sizeof path)
        return gw_fail(GW_ERR_INPUT, "the path is too long");
    *made = false;
    for (size_t at = 1; at <= len; at++) {
        if (at < len && dir[at] != '/')
            continue;
        snprintf(path, sizeof path, "%.*s", (int)at, dir);
        *made = mkdir(path, 0777) == 0;
        if (!*made && errno != EEXIST)
            return gw_fail(GW_ERR_INPUT, "cannot make %s: %s", path, strerror(errno));
    }
    return GW_OK;
}

static gw_err file_cannot(const gw_file *f) {
    return gw_fail(GW_ERR_IO, "cannot write %s: %s", f->path, strerror(errno));
}

/* Returns true if the temporary name is still that of the file that was written: whoever took it
 * away took the rows with it, and a rename would name something else. */
static bool file_is_named(const gw_file *f) {
    struct stat own, named;
    return fstat(fileno(f->stream), &own) == 0 &&
           fstatat(f->folder, f->named_temp, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

static gw_err file_name(gw_file *f) {
    if (f->unnamed) {
        char self[64];
        snprintf(self, sizeof self, "/proc/self/fd/%d", fileno(f->stream));
        if (linkat(AT_FDCWD, self, f->folder, f->named_temp, AT_SYMLINK_FOLLOW) != 0)
            return file_cannot(f);
        f->unnamed = 0;
    }
    if (!file_is_named(f))
        return gw_fail(GW_ERR_IO,
                       "cannot write %s: %s was removed or replaced meanwhile: what was in it is "
                       "lost",
                       f->path, f->named_temp);
    /* The entry in the folder must reach the disk too, or a crash can lose the name. */
    bool named = renameat(f->folder, f->named_temp, f->folder, f->name) == 0;
    return named && fsync(f->folder) == 0 ? GW_OK : file_cannot(f);
}

gw_err gw_file_commit(gw_file **file) {
    gw_file *f = *file;
    *file = NULL;
    if (!f)
        return GW_OK;
    bool written = fflush(f->stream) == 0 && !ferror(f->stream) &&
                   (f->direct || fsync(fileno(f->stream)) == 0);
    int why = errno;
    gw_err e = f->direct ? GW_OK : gw_hold_check(f->path); /* now: to write has taken its time */
    errno = why;
    GW_THEN(e, written ? GW_OK : file_cannot(f));
    if (!f->direct) {
        GW_THEN(e, file_check_old(f, GW_ERR_IO));
        GW_THEN(e, file_name(f));
    }
    if (e != GW_OK) {
        gw_file_abandon(f);
        return e;
    }
    fclose(f->stream);
    file_free(f);
    return GW_OK;
}

void gw_file_abandon(gw_file *f) {
    if (!f)
        return;
    bool remove =
        !f->direct && !f->unnamed && !f->keep && file_is_named(f); /* not what others made */
    fclose(f->stream);
    if (remove)
        unlinkat(f->folder, f->named_temp, 0);
    file_free(f);
}

/* ---- parts ---- */

/* Truncate it to `bytes` and move the stream to its end. Always takes ownership of fd. */
static gw_err file_part_begin(gw_file *f, int fd, int64_t bytes) {
    gw_err e = GW_OK;
    if (ftruncate(fd, (off_t)bytes) != 0 || !(f->stream = fdopen(fd, "r+")))
        e = gw_fail(GW_ERR_INPUT, "cannot write %s: %s", f->temp, strerror(errno));
    if (!f->stream)
        close(fd);
    else if (fseeko(f->stream, 0, SEEK_END) != 0 || fsync(f->folder) != 0)
        e = gw_fail(GW_ERR_INPUT, "cannot write %s: %s", f->temp, strerror(errno));
    return e;
}

static gw_err file_part_free(gw_file *f, gw_err e) {
    if (f->stream)
        fclose(f->stream);
    file_free(f);
    return e;
}

gw_err gw_file_create_part(gw_file **out, const char *dir, const char *name) {
    gw_file *f = NULL;
    GW_TRY(file_new(&f, dir, name, true));
    int fd = openat(f->folder, f->named_temp, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return file_part_free(
            f, gw_fail(GW_ERR_INPUT, "cannot write %s: %s", f->temp, strerror(errno)));
    gw_err e = file_part_begin(f, fd, 0);
    if (e != GW_OK)
        return file_part_free(f, e);
    *out = f;
    return GW_OK;
}

gw_err gw_file_mark(gw_file *f, int64_t *bytes) {
    off_t at = -1;
    if (fflush(f->stream) != 0 || ferror(f->stream) || (at = ftello(f->stream)) < 0)
        return gw_fail(GW_ERR_IO, "cannot write %s: %s", f->temp, strerror(errno));
    f->keep = true;
    *bytes = at;
    return GW_OK;
}

gw_err gw_file_sync(gw_file *f) {
    return fsync(fileno(f->stream)) == 0
               ? GW_OK
               : gw_fail(GW_ERR_IO, "cannot write %s: %s", f->temp, strerror(errno));
}

/* Open a regular file of at least `bytes`; -1: it is not one. */
static int file_open_from(const gw_file *f, const char *name, int64_t bytes, int mode) {
    struct stat st;
    int fd = openat(f->folder, name, mode | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < bytes)) {
        close(fd);
        fd = -1;
        errno = 0; /* it exists */
    }
    return fd;
}

/* The file to resume: the part, or else the whole file. */
static gw_err file_open_kept(const gw_file *f, int64_t bytes, int mode, int *fd, bool *whole) {
    *fd = file_open_from(f, f->named_temp, bytes, mode);
    int why = errno;
    *whole = *fd < 0;
    if (*whole)
        *fd = file_open_from(f, f->name, bytes, mode);
    if (*fd >= 0)
        return GW_OK;
    why = why == ENOENT ? errno : why;
    return gw_fail(GW_ERR_INPUT, "cannot resume %s: %s: it is marked at byte %lld", f->temp,
                   why ? strerror(why) : "too short, or not a regular file", (long long)bytes);
}

gw_err gw_file_part_check(const char *dir, const char *name, int64_t bytes) {
    gw_file *f = NULL;
    int fd = -1;
    bool whole;
    GW_TRY(file_new(&f, dir, name, true));
    gw_err e = file_open_kept(f, bytes, O_RDONLY, &fd, &whole);
    if (fd >= 0)
        close(fd);
    file_free(f);
    return e;
}

gw_err gw_file_resume_part(gw_file **out, const char *dir, const char *name, int64_t bytes) {
    gw_file *f = NULL;
    int fd = -1;
    bool whole = false;
    GW_TRY(file_new(&f, dir, name, true));
    gw_err e = file_open_kept(f, bytes, O_RDWR | O_NOFOLLOW, &fd, &whole);
    if (e == GW_OK && whole && renameat(f->folder, f->name, f->folder, f->named_temp) != 0) {
        e = gw_fail(GW_ERR_INPUT, "cannot rename %s: %s", f->path, strerror(errno));
        close(fd);
    }
    GW_THEN(e, file_part_begin(f, fd, bytes));
    if (e != GW_OK)
        return file_part_free(f, e);
    f->keep = true;
    *out = f;
    return GW_OK;
}

gw_err gw_file_copy_part(gw_file **out, const char *dir, const char *from, const char *name,
                         int64_t bytes) {
    gw_file *source = NULL, *f = NULL;
    int in = -1;
    bool whole;
    GW_TRY(file_new(&source, from, name, true));
    gw_err e = file_open_kept(source, bytes, O_RDONLY, &in, &whole);
    GW_THEN(e, gw_file_create_part(&f, dir, name));
    while (e == GW_OK && bytes > 0) {
        char buf[65536];
        ssize_t got = read(in, buf, bytes < (int64_t)sizeof buf ? (size_t)bytes : sizeof buf);
        if (got <= 0 || fwrite(buf, 1, (size_t)got, f->stream) != (size_t)got) {
            e = gw_fail(GW_ERR_IO, "cannot copy %s to %s: %s", source->temp, f->temp,
                        strerror(errno));
            gw_file_abandon(f);
        }
        bytes -= got;
    }
    if (in >= 0)
        close(in);
    file_free(source);
    if (e == GW_OK)
        *out = f;
    return e;
}

bool gw_file_left_over(const char *entry, const char *name) {
    size_t len = strlen(name);
    if (entry[0] != '.' || strncmp(entry + 1, name, len) != 0 || entry[1 + len] != '.')
        return false;
    const char *token = entry + len + 2;
    size_t digits = strspn(token, "0123456789abcdef");
    return digits == GW_FILE_TOKEN - 1 && strcmp(token + digits, ".tmp") == 0;
}

gw_err gw_file_list(const char *dir, DIR **folder) {
    int fd = -1;
    GW_TRY(gw_hold_open(dir, &fd));
    *folder = fdopendir(fd);
    if (*folder)
        return GW_OK;
    close(fd);
    return gw_fail(GW_ERR_NOMEM, "out of memory for the names in %s", dir);
}

gw_err gw_file_sweep(const char *dir, const char *const names[], size_t n) {
    DIR *folder = NULL;
    gw_err e = gw_file_list(dir, &folder);
    for (struct dirent *entry; e == GW_OK && (entry = readdir(folder)) != NULL;)
        for (size_t i = 0; i < n; i++)
            if (gw_file_left_over(entry->d_name, names[i]) &&
                unlinkat(dirfd(folder), entry->d_name, 0) != 0 && errno != ENOENT)
                e = gw_fail(GW_ERR_INPUT, "cannot remove %s/%s: %s", dir, entry->d_name,
                            strerror(errno));
    if (folder)
        closedir(folder);
    return e;
}

/* ---- reading ---- */

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
