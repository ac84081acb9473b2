#include "harness.h"

#include "base/text.h"
#include "cli/cli.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- files in memory ---- */

void gw_fuzz_folder_open(gw_fuzz_folder *f, const char *const *name, int files) {
    *f = (gw_fuzz_folder){.path = "/tmp/gradwire-fuzz-XXXXXX", .name = name, .files = files};
    MUST(mkdtemp(f->path));
    for (int i = 0; i < files; i++) {
        char link[128], target[64];
        f->fd[i] = memfd_create(name[i], MFD_CLOEXEC);
        MUST(f->fd[i] >= 0);
        snprintf(link, sizeof link, "%s/%s", f->path, name[i]);
        snprintf(target, sizeof target, "/proc/self/fd/%d", f->fd[i]);
        MUST(symlink(target, link) == 0);
    }
}

void gw_fuzz_folder_put(gw_fuzz_folder *f, int i, const void *data, size_t size) {
    MUST(ftruncate(f->fd[i], 0) == 0);
    MUST(pwrite(f->fd[i], data, size, 0) == (ssize_t)size);
}

void gw_fuzz_folder_close(gw_fuzz_folder *f) {
    for (int i = 0; i < f->files; i++) {
        char link[128];
        snprintf(link, sizeof link, "%s/%s", f->path, f->name[i]);
        unlink(link);
        close(f->fd[i]);
    }
    rmdir(f->path);
}

/* ---- answers ---- */

void gw_fuzz_forget(void) {
    gw_fail(GW_OK, "%s", "");
}

/* `text` is some UTF-8 without control characters. */
static void check_printable(const char *text) {
    MUST(*text && gw_text_utf8(text));
    for (const char *c = text; *c; c++) {
        bool c1 = (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] < 0xa0;
        MUST((unsigned char)*c >= 0x20 && *c != 0x7f && !c1);
    }
}

void gw_fuzz_answer(gw_err e) {
    const char *text = gw_err_text();
    if (e == GW_OK)
        return;
    MUST(e == GW_ERR_USAGE || e == GW_ERR_INPUT || e == GW_ERR_UNSUPPORTED);
    check_printable(text);
}

/* Stubs for the commands' MPI functions: only the parsing of options matters here, so what could
 * be run is not begun. */
gw_err gw_cli_begin(const gw_cli_told *told, int level, gw_err parsed) {
    (void)told, (void)level;
    gw_fuzz_answer(parsed);
    return parsed == GW_OK ? GW_ERR_UNSUPPORTED : parsed;
}

int gw_cli_end(gw_err e, bool own) {
    (void)own;
    return gw_err_status(e);
}

int gw_cli_parallel(const gw_cli_told *told, int level, gw_err parsed,
                    gw_err (*body)(void *ctx, MPI_Comm comm, bool *own), void *ctx) {
    (void)body, (void)ctx;
    return gw_cli_end(gw_cli_begin(told, level, parsed), false);
}

gw_err gw_cli_alike(const gw_cli_told *told, MPI_Comm comm) {
    (void)told, (void)comm;
    return GW_OK;
}

int gw_cli_refuse(gw_err e) {
    gw_fuzz_answer(e);
    return gw_err_status(e);
}

int gw_cli_fail(gw_err e) {
    return gw_cli_refuse(e);
}

/* ---- plugins ---- */

void *__real_dlopen(const char *path, int flags);
void *__wrap_dlopen(const char *path, int flags);

/* The linker redirects dlopen in src/base to this (--wrap=dlopen). No input may load code, and a
 * name that is no path must not get here, because the loader would search for it. */
void *__wrap_dlopen(const char *path, int flags) {
    MUST(path && strchr(path, '/'));
    return __real_dlopen("/dev/null/no-plugin.so", flags);
}

/* ---- edits ---- */

typedef struct text {
    char *at;
    size_t n, room;
} text;

static void cut(text *t, size_t from, size_t n) {
    n = n < t->n - from ? n : t->n - from;
    memmove(t->at + from, t->at + from + n, t->n - from - n);
    t->n -= n;
}

static void put(text *t, size_t to, const char *bytes, size_t n) {
    if (n > t->room - t->n)
        return;
    char copy[256];
    memcpy(copy, bytes, n); /* it may be of the text itself */
    memmove(t->at + to + n, t->at + to, t->n - to);
    memcpy(t->at + to, copy, n);
    t->n += n;
}

static void edit(text *t, const uint8_t *how, const char *const *words) {
    size_t at = (how[0] + 256u * how[1]) % (t->n + 1), n_words = 0, with = how[3];
    while (words[n_words])
        n_words++;
    switch (how[2] % 6) {
    case 0:
        if (at < t->n)
            t->at[at] ^= (char)(1 << with % 8);
        break;
    case 1:
        if (at < t->n)
            t->at[at] = (char)with;
        break;
    case 2: cut(t, at, with); break;
    case 3: put(t, at, words[with % n_words], strlen(words[with % n_words])); break;
    case 4: put(t, at, t->at + at, with < t->n - at ? with : t->n - at); break;
    default: /* a word instead of what stands there */
        cut(t, at, strcspn(t->at + at, ",:;}]\n \""));
        put(t, at, words[with % n_words], strlen(words[with % n_words]));
    }
    t->at[t->n] = '\0';
}

char *gw_fuzz_edited(const char *from, const uint8_t *edits, size_t n, const char *const *words) {
    text t = {.n = strlen(from)};
    t.room = t.n + 1024;
    t.at = calloc(t.room + 1, 1);
    MUST(t.at);
    memcpy(t.at, from, t.n);
    for (size_t i = 0; i + 4 <= n; i += 4)
        edit(&t, edits + i, words);
    return t.at;
}
