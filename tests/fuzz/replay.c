/* The short run of the fuzz target, with any compiler: every file of the corpus, then so many
 * mutations of them, the same ones each time.
 *
 *   fuzz_replay list                          the codecs that are fuzzed, one a line
 *   fuzz_replay folder SPEC                   the name of a codec's folder in the corpus
 *   fuzz_replay run CORPUS MUTATIONS [SPEC..] a codec each, or all */
#include "base/rng.h"
#include "compress/codec.h"
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1024, MOST_FILES = 512, ROOM = 4096 };

/* Every registered codec with default options, and these. */
static const char *const more_specs[] = {"qsgd:bits=2",         "qsgd:bits=4",      "qsgd:bits=5",
                                         "qsgd:bits=4+zlib",    "topk:ratio=0.3",   "topk:warmup=5",
                                         "randomk:warmup=5",    "zlib:shuffle=off", "fp16+zlib",
                                         "topk+zlib:shuffle=on"};

static void each_spec(void (*f)(const char *spec)) {
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        f((*c)->name);
    for (size_t i = 0; i < sizeof more_specs / sizeof *more_specs; i++)
        f(more_specs[i]);
}

static void print(const char *spec) {
    puts(spec);
}

static void folder_of(const char *spec, char out[ROOM]) {
    snprintf(out, ROOM, "%s", spec);
    for (char *p = out; *p; p++)
        if (strchr(":=,+", *p))
            *p = '-';
}

/* ---- the corpus ---- */

typedef struct input {
    uint8_t bytes[MOST_BYTES];
    size_t n;
} input;

static input corpus[MOST_FILES];
static size_t files;

static void fail(const char *what, const char *name) {
    fprintf(stderr, "fuzz_replay: %s: %s\n", name, what);
    exit(1);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void read_file(const char *path) {
    if (files == MOST_FILES)
        fail("too many files beside it", path);
    input *in = &corpus[files++];
    FILE *file = fopen(path, "rb");
    if (!file)
        fail("cannot be read", path);
    in->n = fread(in->bytes, 1, sizeof in->bytes, file);
    if (fgetc(file) != EOF)
        fail("more than 1024 bytes", path);
    fclose(file);
}

static void read_corpus(const char *top, const char *spec) {
    char folder[ROOM], path[3 * ROOM];
    struct dirent **entries;
    folder_of(spec, folder);
    snprintf(path, sizeof path, "%s/%s", top, folder);
    int n = scandir(path, &entries, NULL, by_name);
    files = 0;
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s/%s", top, folder, entries[i]->d_name);
            read_file(path);
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static const char *wanted;
static int known;

static void is_it(const char *spec) {
    char folder[ROOM];
    folder_of(spec, folder);
    known = known || strcmp(folder, wanted) == 0;
}

/* A folder that no codec reads would rest there for good. */
static void check_folders(const char *top) {
    struct dirent **entries;
    int n = scandir(top, &entries, NULL, by_name);
    for (int i = 0; i < n; i++) {
        wanted = entries[i]->d_name;
        known = wanted[0] == '.';
        each_spec(is_it);
        if (!known)
            fail("no codec has this folder of the corpus", wanted);
        free(entries[i]);
    }
    if (n < 0)
        fail("no corpus", top);
    free(entries);
}

/* ---- mutations ---- */

static uint64_t key, drawn;

static size_t draw(size_t below) {
    return below ? (size_t)(gw_rng_u64(key, drawn++) % below) : 0;
}

static void mutate(input *in) {
    static const uint8_t odd[] = {0, 1, 2, 3, 4, 127, 128, 129, 254, 255};
    size_t at = draw(in->n), other = draw(in->n), run = draw(8) + 1;
    switch (draw(7)) {
    case 0: in->bytes[at] ^= (uint8_t)(1 << draw(8)); break;
    case 1: in->bytes[at] = odd[draw(sizeof odd)]; break;
    case 2: in->bytes[at] = (uint8_t)draw(256); break;
    case 3: in->n = in->n > 2 ? 2 + draw(in->n - 2) : in->n; break;
    case 4:
        for (; run && in->n < MOST_BYTES; run--)
            in->bytes[in->n++] = (uint8_t)draw(256);
        break;
    case 5:
        if (at + run <= in->n && other + run <= in->n)
            memmove(in->bytes + at, in->bytes + other, run);
        break;
    default:
        if (at + run < in->n) {
            memmove(in->bytes + at, in->bytes + at + run, in->n - at - run);
            in->n -= run;
        }
    }
}

/* A file of the corpus, or bytes by chance where there is none. */
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
        fail("out of memory", "input");
    memcpy(exact, in->bytes, in->n);
    LLVMFuzzerTestOneInput(exact, in->n);
    free(exact);
}

static const char *top;
static long mutations;

static void run(const char *spec) {
    read_corpus(top, spec);
    gw_fuzz_open(spec);
    for (size_t i = 0; i < files; i++)
        one(&corpus[i]);
    key = gw_rng_key(1, strlen(spec)), drawn = 0;
    for (long i = 0; i < mutations; i++) {
        input in = start();
        for (size_t m = draw(6); m > 0; m--)
            mutate(&in);
        if (in.n >= 2)
            one(&in);
    }
    gw_fuzz_close();
    printf("%s: %zu files, %ld mutations\n", spec, files, mutations);
}

int main(int argc, char **argv) {
    char folder[ROOM];
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        each_spec(print);
    } else if (argc == 3 && strcmp(argv[1], "folder") == 0) {
        folder_of(argv[2], folder);
        print(folder);
    } else if (argc >= 4 && strcmp(argv[1], "run") == 0) {
        top = argv[2];
        mutations = atol(argv[3]);
        check_folders(top);
        if (argc == 4)
            each_spec(run);
        for (int i = 4; i < argc; i++)
            run(argv[i]);
    } else {
        fprintf(stderr, "usage: fuzz_replay list | folder SPEC | run CORPUS MUTATIONS [SPEC..]\n");
        return 2;
    }
    return 0;
}
