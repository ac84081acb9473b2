/* What a caller of the library can do wrong: one line that says so, no crash and no hang, and ranks
 * that find nothing wrong with themselves learn of the others. */
#include "client.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

enum { N = 8 };
static float param[N], grad[N];

static gradwire *make(const char *words) {
    gradwire *g;
    ok(gradwire_new(&g, -1, words));
    return g;
}

static gradwire *ready_to_go(const char *words) {
    gradwire *g = make(words);
    ok(gradwire_tensor(g, "w", 0, N, 0, param));
    ok(gradwire_open(g));
    return g;
}

static void step(gradwire *g) {
    float *grads[] = {grad};
    ok(gradwire_begin(g, 1, ranks));
    ok(gradwire_ready(g, 1, (int[]){0}, grads));
    ok(gradwire_finish(g, GRADWIRE_ALL));
    ok(gradwire_updated(g, GRADWIRE_ALL));
    ok(gradwire_end(g, 1));
}

static void try_no_handle(void) {
    int t;
    size_t n;
    void *blob;
    gradwire *const wrong[] = {NULL, (gradwire *)param};
    for (int i = 0; i < 2; i++) {
        gradwire *g = wrong[i];
        refused(gradwire_tensor(g, "w", 0, N, 0, NULL), "no handle");
        refused(gradwire_open(g), "no handle");
        CHECK(!gradwire_memory(g, 0, GRADWIRE_GRAD), "memory of no handle");
        refused(gradwire_begin(g, 1, 1), "no handle");
        refused(gradwire_phase(g, 0), "no handle");
        refused(gradwire_ready(g, 0, NULL, NULL), "no handle");
        refused(gradwire_lend(g, param, N, 0), "no handle");
        refused(gradwire_poll(g), "no handle");
        refused(gradwire_finish(g, 0), "no handle");
        refused(gradwire_owned(g, 0, &t, &n, &n), "no handle");
        refused(gradwire_updated(g, 0), "no handle");
        refused(gradwire_await(g, 0), "no handle");
        refused(gradwire_left_out(g), "no handle");
        refused(gradwire_cancel(g), "no handle");
        refused(gradwire_end(g, 0), "no handle");
        refused(gradwire_settle(g), "no handle");
        refused(gradwire_validated(g, 0, 0), "no handle");
        refused(gradwire_epoch(g, 0, 0), "no handle");
        refused(gradwire_mean(g, 0, NULL, 1), "no handle");
        refused(gradwire_save(g, &blob, &n), "no handle");
        refused(gradwire_load(g, param, N), "no handle");
        CHECK(isnan(gradwire_figure(g, "wall_s")), "a figure of no handle");
        CHECK(!gradwire_text(g, "codec"), "a text of no handle");
    }
    CHECK(gradwire_close(NULL) == 0, "closing nothing");
    refused(gradwire_close((gradwire *)param), "no handle");
}

static void try_words(void) {
    static const char *const wrong[][2] = {
        {"--nonsense", "nonsense"},
        {"--comm nobody", "nobody"},
        {"--compress auto", "auto"},
        {"--compress 'qsgd", "quotation"},
        {"--lr 0.1", "--lr: an option of gradwire train: your loop has it"},
        {"--mesh=pipe=2", "--mesh: an option of gradwire train, which the library cannot do"},
        {"--comm sparse", "name a sparse one, as --compress topk"},
        {"stray", "stray"},
        {"--trace", "out"},
        {"--error-feedback momentum --compress topk", "momentum"},
        {"--momentum 0.9", "needs --optimizer"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gradwire *g = (gradwire *)param;
        refused(gradwire_new(&g, -1, wrong[i][0]), wrong[i][1]);
        CHECK(!g, "a handle in spite of '%s'", wrong[i][0]);
        CHECK(!gradwire_words(wrong[i][0], "mean") && strstr(gradwire_error(), wrong[i][1]),
              "'%s' passes: %s", wrong[i][0], gradwire_error());
    }
    refused(gradwire_new(NULL, -1, NULL), "NULL");
    setenv("GRADWIRE", "--comm nobody", 1);
    gradwire *g;
    refused(gradwire_new(&g, -1, "--comm ps"), "nobody");
    unsetenv("GRADWIRE");
    if (ranks > 1) { /* one rank's alone */
        refused(gradwire_new(&g, -1, me == 1 ? "--comm nobody" : NULL), "nobody");
        refused(gradwire_new(&g, -1, me == 1 ? "--seed 2" : NULL),
                "rank 1 has --seed '2', and rank 0 --seed '1'");
    }
}

static void try_tensors(void) {
    gradwire *g = make(NULL);
    refused(gradwire_open(g), "no tensor");
    ok(gradwire_close(g));
    g = make(NULL);
    refused(gradwire_tensor(g, NULL, 0, N, 0, param), "name");
    refused(gradwire_tensor(g, "w", 1, N, 0, param), "groups");
    refused(gradwire_open(g), "name"); /* the first of them */
    ok(gradwire_close(g));
    static const struct {
        const char *name;
        int group;
        size_t n, rows;
        const char *part;
    } wrong[] = {{"a", 0, N, 0, "twice"},         {"b", 2, N, 0, "groups"},
                 {"b", -1, N, 0, "groups"},       {"b", 0, 0, 0, "no elements"},
                 {"b", 0, (size_t)-1, 0, "size"}, {"b", 0, N, 3, "rows"},
                 {"\xff", 0, N, 0, "UTF-8"}};
    g = make(NULL);
    ok(gradwire_tensor(g, "a", 0, N, 0, param));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(gradwire_tensor(g, wrong[i].name, wrong[i].group, wrong[i].n, wrong[i].rows, param),
                wrong[i].part);
    ok(gradwire_close(g));
    for (int way = 0; way < 3 && ranks > 1; way++) { /* one rank's differ */
        bool odd = me == ranks - 1;
        g = make(NULL);
        ok(gradwire_tensor(g, odd && way == 0 ? "v" : "w", 0, odd && way == 1 ? N - 1 : N, 0,
                           param));
        if (odd && way == 2)
            ok(gradwire_tensor(g, "more", 0, N, 0, NULL));
        refused(gradwire_open(g),
                way == 0   ? " has tensor 0 'v: group 0, 8 floats, 0 rows', and rank 0 "
                : way == 1 ? " has tensor 0 'w: group 0, 7 floats, 0 rows', and rank 0 "
                           : " has tensor 1 'more: group 0, 8 floats, 0 rows', and "
                             "rank 0 no tensor 1");
        ok(gradwire_close(g));
    }
}

static void try_order(void) {
    gradwire *g = make(NULL);
    float *grads[] = {grad};
    int zero[] = {0, 0};
    refused(gradwire_begin(g, 1, 1), "not open yet");
    ok(gradwire_tensor(g, "w", 0, N, 0, param));
    ok(gradwire_open(g));
    refused(gradwire_open(g), "open already");
    refused(gradwire_tensor(g, "v", 0, N, 0, NULL), "open already");
    refused(gradwire_ready(g, 1, zero, grads), "no batch");
    CHECK(gradwire_lend(g, grad, sizeof grad, 0) == 0, "there is no shared memory");
    says("in place");
    refused(gradwire_end(g, 0), "no batch");
    refused(gradwire_begin(g, 2, 1), "samples");
    refused(gradwire_begin(g, -1, 1), "samples");
    refused(gradwire_finish(g, GRADWIRE_ALL), "ready");
    refused(gradwire_finish(g, 7), "ready");
    CHECK(!gradwire_memory(g, 0, GRADWIRE_PARAM), "the caller's parameters");
    CHECK(!gradwire_memory(g, 1, GRADWIRE_GRAD), "a tensor that is none");
    CHECK(!gradwire_memory(g, 0, 5), "a memory that is none");
    ok(gradwire_begin(g, 1, ranks));
    ok(gradwire_begin(g, 0, ranks)); /* nothing has been exchanged: the numbers were others */
    ok(gradwire_begin(g, 1, ranks));
    refused(gradwire_mean(g, -1, NULL, 1), "negative");
    refused(gradwire_mean(g, 0, NULL, -1), "weight -1");
    refused(gradwire_settle(g), "a batch is open");
    refused(gradwire_save(g, NULL, NULL), "a batch is open");
    refused(gradwire_phase(g, 99), "phase");
    refused(gradwire_ready(g, 1, (int[]){4}, grads), "tensor 4");
    refused(gradwire_ready(g, -1, zero, grads), "negative");
    refused(gradwire_end(g, 0), "0 of 1 tensors");
    refused(gradwire_ready(g, 2, zero, NULL), "twice");
    refused(gradwire_begin(g, 1, ranks), "a batch is open");
    refused(gradwire_end(g, 0), "not over");
    refused(gradwire_updated(g, GRADWIRE_ALL), "not finished");
    refused(gradwire_finish(g, 3), "group 3");
    ok(gradwire_finish(g, GRADWIRE_ALL));
    refused(gradwire_finish(g, GRADWIRE_ALL), "finished already");
    refused(gradwire_ready(g, 1, zero, NULL), "finished");
    ok(gradwire_updated(g, GRADWIRE_ALL));
    ok(gradwire_await(g, GRADWIRE_ALL));
    ok(gradwire_end(g, 0));
    refused(gradwire_load(g, param, sizeof param), "before the first");
    step(g);
    ok(gradwire_begin(g, 1, ranks)); /* dropped, for nothing of it was exchanged */
    ok(gradwire_close(g));
    refused(gradwire_begin(g, 1, 1), "no handle");
    refused(gradwire_close(g), "no handle");
}

/* What is no lent memory is copied, and summed all the same. */
static void try_lending(void) {
    gradwire *g = ready_to_go("--comm allreduce:algo=shm");
    if (ranks > 1)
        for (int file = -1; file < 3; file++) {
            CHECK(gradwire_lend(g, grad, sizeof grad, file) == 0, "it is no shared mapping");
            says(file < 0 ? "none to lend" : "lent memory: it");
        }
    step(g);
    ok(gradwire_close(g));
}

static void *from_aside(void *g) {
    gradwire *other;
    refused(gradwire_new(&other, -1, NULL), "another thread of this process has a handle");
    refused(gradwire_begin(g, 1, 1), "another thread");
    refused(gradwire_close(g), "another thread");
    return NULL;
}

static void try_threads(void) {
    gradwire *g = ready_to_go(NULL);
    pthread_t aside;
    CHECK(pthread_create(&aside, NULL, from_aside, g) == 0, "no thread");
    pthread_join(aside, NULL);
    step(g);
    ok(gradwire_close(g));
}

static void try_damage(void) {
    gradwire *g = ready_to_go("--compress topk --comm sparse");
    unsigned char *blob;
    size_t n;
    step(g);
    ok(gradwire_save(g, (void **)&blob, &n));
    ok(gradwire_close(g));
    g = ready_to_go("--compress topk --comm sparse");
    refused(gradwire_load(g, NULL, 0), "NULL");
    for (size_t at = 0; at < n; at++) { /* every byte, on one rank alone */
        blob[at] ^= me == ranks - 1 ? 4 : 0;
        refused(gradwire_load(g, blob, n), "gradwire_load");
        blob[at] ^= me == ranks - 1 ? 4 : 0;
    }
    for (size_t less = 1; less <= n; less += 7)
        refused(gradwire_load(g, blob, n - less), "gradwire_load");
    ok(gradwire_load(g, blob, n));
    step(g);
    ok(gradwire_close(g));
    g = ready_to_go("--compress topk:ratio=0.5 --comm sparse");
    refused(gradwire_load(g, blob, n), "other words");
    ok(gradwire_close(g));
    free(blob);
}

/* Whether LeakSanitizer reports what is allocated from here on and never freed. */
static void leaks_from_here(bool reported) {
#ifdef __SANITIZE_ADDRESS__
    if (reported)
        __lsan_enable();
    else
        __lsan_disable();
#else
    (void)reported;
#endif
}

/* Closed where it should not be: a line, and what was under way is given up. */
static void try_close_within(void) {
    leaks_from_here(false);
    gradwire *g = ready_to_go(NULL);
    ok(gradwire_begin(g, 1, ranks));
    ok(gradwire_phase(g, GRADWIRE_FORWARD));
    ok(gradwire_ready(g, 1, (int[]){0}, (float *[]){grad}));
    int e = gradwire_close(g);
    refused(e, "under way");
    CHECK(gradwire_alone(e), "nobody else learns of it");
    leaks_from_here(true);
    g = ready_to_go(NULL);
    step(g);
    ok(gradwire_close(g));
}

int main(int argc, char **argv) {
    ok(gradwire_start("--comm iallreduce", &me, &ranks));
    CHECK(check_ranks(argc, argv) == ranks, "ranks");
    refused(gradwire_start("--comm nobody", NULL, NULL), "nobody");
    try_no_handle();
    try_words();
    try_tensors();
    try_order();
    try_lending();
    try_threads();
    try_damage();
    try_close_within();
    return 0;
}
