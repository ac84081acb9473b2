/* The short run of the fuzz targets, with any compiler: every file of a corpus, then so many
 * mutations of them, the same ones each time.
 *
 *   fuzz_replay list [NAME..]                  what is fuzzed, one a line: NAME or NAME:SPEC
 *   fuzz_replay folder NAME[:SPEC]             where its corpus is, below the corpora
 *   fuzz_replay words NAME                     its words, as libFuzzer wants them
 *   fuzz_replay run CORPORA [NAME[:SPEC]..]    files and mutations, of these or of all
 *   fuzz_replay files CORPORA [NAME[:SPEC]..]  only the files */
#include "base/rng.h"
#include "fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/resource.h>

#define X(name) extern const gw_fuzz_target gw_fuzz_##name;
#include "fuzz_targets.def"
#undef X

enum { MOST_FILES = 512, ROOM = 4096, MOST_HEAP = 256 << 20 };

static const gw_fuzz_target *const targets[] = {
#define X(name) &gw_fuzz_##name,
#include "fuzz_targets.def"
#undef X
};
enum { TARGETS = sizeof targets / sizeof *targets };

/* The target of "NAME" or "NAME:SPEC"; *spec: behind the colon, or NULL. */
static const gw_fuzz_target *target_of(const char *text, const char **spec) {
    size_t len = strcspn(text, ":");
    *spec = text[len] ? text + len + 1 : NULL;
    for (int i = 0; i < TARGETS; i++)
        if (strlen(targets[i]->name) == len && strncmp(targets[i]->name, text, len) == 0) {
            if (*spec && !targets[i]->each)
                gw_fuzz_stop("this target has one kind of input", text);
            return targets[i];
        }
    gw_fuzz_stop("no such target: see `fuzz_replay list`", text);
    return NULL;
}

static const gw_fuzz_target *now; /* whose specs are being gone through */

static void print(const char *spec) {
    printf("%s%s%s\n", now->name, *spec ? ":" : "", spec);
}

static void each_spec(const gw_fuzz_target *t, void (*f)(const char *spec)) {
    now = t;
    if (t->each)
        t->each(f);
    else
        f("");
}

static void folder_of(const char *spec, char out[ROOM]) {
    snprintf(out, ROOM, "%s%s%s", now->name, *spec ? "/" : "", spec);
    for (char *p = out + strlen(now->name); *p; p++)
        if (strchr(":=,+", *p))
            *p = '-';
}

/* ---- the corpus ---- */

typedef struct input {
    uint8_t bytes[GW_FUZZ_BYTES];
    size_t n;
} input;

static const char *top;
static bool mutate_too;
static input corpus[MOST_FILES];
static size_t files;

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static void read_file(const char *path) {
    if (files == MOST_FILES)
        gw_fuzz_stop("too many files beside it", path);
    input *in = &corpus[files++];
    FILE *file = fopen(path, "rb");
    if (!file)
        gw_fuzz_stop("cannot be read", path);
    in->n = fread(in->bytes, 1, sizeof in->bytes, file);
    if (fgetc(file) != EOF)
        gw_fuzz_stop("longer than an input may be", path);
    fclose(file);
}

static void read_corpus(const char *spec) {
    char folder[ROOM], path[3 * ROOM];
    struct dirent **entries;
    folder_of(spec, folder);
    snprintf(path, sizeof path, "%s/%s", top, folder);
    int n = scandir(path, &entries, visible, by_name);
    files = 0;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", top, folder, entries[i]->d_name);
        read_file(path);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static const char *wanted;
static bool known;

static void is_it(const char *spec) {
    char folder[ROOM];
    folder_of(spec, folder);
    known = known || strcmp(folder, wanted) == 0;
}

/* Refuse a folder that no target reads: it would stay unnoticed for ever. */
static void check_folders(const char *within) {
    char path[2 * ROOM], below[2 * ROOM];
    struct dirent **entries;
    snprintf(path, sizeof path, "%s/%s", top, within);
    int n = scandir(path, &entries, visible, by_name);
    if (n < 0)
        gw_fuzz_stop("no corpus", path);
    for (int i = 0; i < n; i++) {
        snprintf(below, sizeof below, "%s%s%s", within, *within ? "/" : "", entries[i]->d_name);
        wanted = below;
        known = false;
        for (int t = 0; t < TARGETS; t++) {
            bool holds_folders = !*within && targets[t]->each;
            if (holds_folders && strcmp(below, targets[t]->name) == 0) {
                check_folders(below);
                wanted = below; /* it was another one meanwhile */
                known = true;
            } else if (!holds_folders) {
                each_spec(targets[t], is_it);
            }
        }
        if (!known)
            gw_fuzz_stop("no target has this folder of the corpora", below);
        free(entries[i]);
    }
    free(entries);
}

/* ---- mutations ---- */

static uint64_t key, drawn;

static size_t draw(size_t below) {
    return below ? (size_t)(gw_rng_u64(key, drawn++) % below) : 0;
}

/* Put n bytes in at `at`, as far as there is room. */
static void insert(input *in, size_t at, const void *bytes, size_t n) {
    if (in->n + n > sizeof in->bytes)
        return;
    memmove(in->bytes + at + n, in->bytes + at, in->n - at);
    memcpy(in->bytes + at, bytes, n);
    in->n += n;
}

static void mutate(input *in) {
    static const uint8_t odd[] = {0, 1, 2, 3, 4, 127, 128, 129, 254, 255};
    size_t at = draw(in->n), other = draw(in->n), run = draw(8) + 1, words = 0;
    while (now->words && now->words[words])
        words++;
    switch (draw(words ? 9 : 7)) {
    case 0: in->bytes[at] ^= (uint8_t)(1 << draw(8)); break;
    case 1: in->bytes[at] = odd[draw(sizeof odd)]; break;
    case 2: in->bytes[at] = (uint8_t)draw(256); break;
    case 3: in->n = in->n > 2 ? 2 + draw(in->n - 2) : in->n; break;
    case 4:
        for (; run && in->n < sizeof in->bytes; run--)
            in->bytes[in->n++] = (uint8_t)draw(256);
        break;
    case 5:
        if (at + run <= in->n && other + run <= in->n)
            memmove(in->bytes + at, in->bytes + other, run);
        break;
    case 6:
        if (at + run < in->n) {
            memmove(in->bytes + at, in->bytes + at + run, in->n - at - run);
            in->n -= run;
        }
        break;
    default: words = draw(words); insert(in, at, now->words[words], strlen(now->words[words]));
    }
}

/* A file of the corpus; random bytes if there is none. */
static input start(void) {
    input in = {.n = 2 + draw(200)};
    if (files && draw(8))
        return corpus[draw(files)];
    for (size_t i = 0; i < in.n; i++)
        in.bytes[i] = (uint8_t)draw(256);
    return in;
}

static void one(const input *in) {
    uint8_t *exact = malloc(in->n ? in->n : 1); /* so that a sanitizer sees its end */
    if (!exact)
        gw_fuzz_stop("out of memory", "input");
    memcpy(exact, in->bytes, in->n);
    now->one(exact, in->n);
    free(exact);
}

static void run(const char *spec) {
    unsigned mutations = mutate_too ? now->mutations : 0;
    read_corpus(spec);
    if (now->open)
        now->open(spec);
    for (size_t i = 0; i < files; i++)
        one(&corpus[i]);
    key = gw_rng_key(1, strlen(spec)), drawn = 0;
    for (unsigned i = 0; i < mutations; i++) {
        input in = start();
        for (size_t m = in.n ? draw(6) : 0; m > 0; m--)
            mutate(&in);
        one(&in);
    }
    if (now->close)
        now->close();
    printf("%s%s%s: %zu files, %u mutations\n", now->name, *spec ? ":" : "", spec, files,
           mutations);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* gcc */
#define SANITIZED
#elif defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

/* A header's claim must not be allocated: larger requests are refused here (or by ASan's own limit,
 * since ASan reserves far more for itself), and no target accepts that as an answer. */
static void limit_memory(void) {
#ifndef SANITIZED
    struct rlimit most = {MOST_HEAP, MOST_HEAP};
    setrlimit(RLIMIT_DATA, &most);
#endif
}

static void each_named(int n, char **names, void (*f)(const char *spec)) {
    for (int i = 0; i < (n ? n : TARGETS); i++) {
        const char *spec = NULL;
        const gw_fuzz_target *t = n ? target_of(names[i], &spec) : targets[i];
        now = t;
        if (spec)
            f(spec);
        else
            each_spec(t, f);
    }
}

static void print_folder(const char *spec) {
    char folder[ROOM];
    folder_of(spec, folder);
    puts(folder);
}

static void print_words(const char *name) {
    const char *spec;
    const gw_fuzz_target *t = target_of(name, &spec);
    for (size_t i = 0; t->words && t->words[i]; i++) {
        putchar('"');
        for (const char *p = t->words[i]; *p; p++)
            printf("\\x%02x", (unsigned char)*p);
        puts("\"");
    }
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    mutate_too = strcmp(verb, "run") == 0;
    if (strcmp(verb, "list") == 0) {
        each_named(argc - 2, argv + 2, print);
    } else if (argc == 3 && strcmp(verb, "folder") == 0) {
        each_named(1, argv + 2, print_folder);
    } else if (argc == 3 && strcmp(verb, "words") == 0) {
        print_words(argv[2]);
    } else if (argc >= 3 && (mutate_too || strcmp(verb, "files") == 0)) {
        top = argv[2];
        check_folders("");
        limit_memory();
        each_named(argc - 3, argv + 3, run);
    } else {
        fprintf(stderr, "usage: fuzz_replay list [NAME..] | folder NAME[:SPEC] | words NAME | "
                        "run CORPORA [NAME[:SPEC]..] | files CORPORA [NAME[:SPEC]..]\n");
        return 2;
    }
    return 0;
}
