/* Shared objects as strategies, algorithms, codecs, timetables and optimizers: one that cannot be
 * used is refused by one line before any of its functions is called. */
#include "comm/algo.h"
#include "comm/pipeline/timetable.h"
#include "comm/strategy.h"
#include "optim/optimizer.h"

#include "../specs.h"
#include "folder.h"

#include <stdio.h>
#include <string.h>

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static gw_strategy_ops *strategy;
static gw_algo_ops *algo;
static gw_codec_ops *codec;
static gw_timetable_ops *timetable;
static gw_optimizer_ops *optimizer;

static gw_err find(const gw_registry *reg, const char *spec) {
    const gw_entry *entry;
    gw_fail(GW_OK, "%s", "");
    return gw_registry_find(reg, spec, &entry);
}

/* A line that names the file and says all of `says`. */
static void refused(const gw_registry *reg, const char *spec, const char *says) {
    assert_fails(find(reg, spec), GW_ERR_INPUT, spec);
    assert_non_null(strstr(gw_err_text(), reg->kind));
    assert_message(says);
    assert_null(strchr(gw_err_text(), '\n'));
}

static void test_abi(void **state) {
    refused(&gw_strategies, PLUGIN, "abi");
    refused(&gw_algos, PLUGIN, "abi");
    refused(&gw_codecs, PLUGIN, "rebuild it");
    refused(&gw_timetables, PLUGIN, "rebuild it");
    refused(&gw_optimizers, PLUGIN, "rebuild it");
    strategy->head.abi--, algo->head.abi--, codec->head.abi--, timetable->head.abi--;
    optimizer->head.abi--;
    assert_int_equal(find(&gw_strategies, PLUGIN), GW_OK);
    assert_int_equal(find(&gw_algos, PLUGIN), GW_OK);
    assert_int_equal(find(&gw_codecs, PLUGIN), GW_OK);
    assert_int_equal(find(&gw_timetables, PLUGIN), GW_OK);
    assert_int_equal(find(&gw_optimizers, PLUGIN), GW_OK);
}

/* Leave out each required hook and text in turn. */
static void each_hook(const gw_registry *reg, gw_entry *head) {
    const char *name = head->name, *summary = head->summary;
    int hooks = 0;
    for (const gw_hook *h = reg->needs; h->name; h++, hooks++) {
        void *hook, *none = NULL;
        char *at = (char *)head + h->at, quoted[32];
        snprintf(quoted, sizeof quoted, "'%s' is NULL", h->name);
        memcpy(&hook, at, sizeof hook);
        memcpy(at, &none, sizeof none);
        refused(reg, PLUGIN, quoted);
        memcpy(at, &hook, sizeof hook);
    }
    assert_true(hooks >= 2);
    head->name = NULL;
    refused(reg, PLUGIN, "'name'");
    head->name = name, head->summary = NULL;
    refused(reg, PLUGIN, "'summary'");
    head->summary = summary;
    assert_int_equal(find(reg, PLUGIN), GW_OK);
}

static void test_hooks(void **state) {
    each_hook(&gw_strategies, &strategy->head);
    each_hook(&gw_algos, &algo->head);
    each_hook(&gw_codecs, &codec->head);
    each_hook(&gw_timetables, &timetable->head);
    each_hook(&gw_optimizers, &optimizer->head);
}

/* What a plugin leaves out shows when its actions are laid down. */
static void test_empty_timetable(void **state) {
    gw_timetable *t = NULL;
    assert_fails(gw_timetable_open(&t, &GW_SPEC_NAMED(PLUGIN), 2, 4), GW_ERR_INPUT,
                 "timetable lame: stage 0 of 2: 0 of 4 microbatches");
    assert_null(t);
}

/* A name stands in CSV files and in specs. */
static void test_entry_names(void **state) {
    const char *name = algo->head.name;
    char longest[GW_ENTRY_NAME + 2];
    memset(longest, 'x', sizeof longest);
    longest[GW_ENTRY_NAME + 1] = '\0';
    const char *const invalid[] = {"", "a b", "a,b", "a\"b", "\xc3\xa9", "a\n", longest};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        algo->head.name = invalid[i];
        refused(&gw_algos, PLUGIN, "invalid name");
    }
    longest[GW_ENTRY_NAME] = '\0';
    algo->head.name = longest;
    assert_int_equal(find(&gw_algos, PLUGIN), GW_OK);
    algo->head.name = name;
}

static gw_err pack(const void *self, const void *in, size_t len, void *out, size_t cap,
                   size_t *packed) {
    return GW_OK;
}

static gw_err add(void *inout, const void *in, size_t len) {
    return GW_OK;
}

static void measure(const void *self, const float *x, size_t n, void *out) {
}

static void half_made(const char *says) {
    gw_codec c;
    assert_fails(open_codec(&c, PLUGIN), GW_ERR_INPUT, says);
    codec->pack = NULL, codec->add = NULL, codec->measure = NULL;
}

static void unusable(const char *says) {
    gw_strategy s;
    assert_int_equal(gw_strategy_find(&s, &GW_SPEC_NAMED(PLUGIN)), GW_ERR_INPUT);
    assert_non_null(strstr(gw_err_text(), says));
}

static void test_half_made(void **state) {
    codec->pack = pack;
    half_made("unpack");
    codec->add = add;
    half_made("unit_bytes");
    codec->measure = measure;
    half_made("prefix");
    gw_codec c;
    assert_int_equal(open_codec(&c, PLUGIN), GW_OK);
    gw_codec_close(&c);
    strategy->shape = GW_SHAPE_BUCKETS;
    unusable("option bucket");
    strategy->shape = GW_SHAPE_WHOLE, strategy->gives = 0;
    unusable("set `gives`");
    strategy->gives = GW_GIVES_MEAN;
}

static void test_files(void **state) {
    refused(&gw_codecs, in_folder("missing.so"), "No such file");
    refused(&gw_codecs, folder, "not a regular file");
    const char *pipe = in_folder("pipe.so");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    refused(&gw_codecs, pipe, "not a regular file");
    static const char *const contents[] = {
        "",
        "no shared object at all, but a text as long as a header of one has to be: it is refused"};
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++)
        refused(&gw_codecs, put_text("text.so", contents[i]),
                i ? "invalid ELF header" : "file too short");
    /* The loader would map what is not there, and the first look at it would kill the process. */
    static char all[1 << 20];
    FILE *in = fopen(PLUGIN, "rb");
    assert_non_null(in);
    size_t bytes = fread(all, 1, sizeof all, in);
    fclose(in);
    assert_true(bytes > 4096 && bytes < sizeof all);
    const size_t kept[] = {40, 100, 1000, 4096, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        refused(&gw_codecs, put_bytes("text.so", all, kept[i]), "truncated: ");
}

/* zlib is a shared object, too. */
static void test_symbol(void **state) {
    Dl_info info;
    assert_true(dladdr((void *)(uintptr_t)inflateReset, &info) != 0);
    refused(&gw_codecs, info.dli_fname, "exports no 'gw_codec_plugin'");
}

/* A name without a slash is not a path: the loader must not search for it. */
static void test_names(void **state) {
    void *by_name = dlopen("libm.so.6", RTLD_NOW);
    assert_non_null(by_name); /* so the loader would */
    dlclose(by_name);
    assert_fails(find(&gw_codecs, "libm.so.6"), GW_ERR_USAGE, "unknown codec 'libm.so.6'");
    assert_int_equal(find(&gw_codecs, ""), GW_ERR_USAGE);
    assert_fails(find(&gw_algos, "tri.so"), GW_ERR_USAGE, "unknown algorithm 'tri.so'");
    assert_message("slash");
    assert_message("'./tri.so'");
}

int main(void) {
    void *lame = dlopen(PLUGIN, RTLD_NOW); /* kept open, so that corrections below stay */
    if (!lame) {
        fprintf(stderr, "test_plugins: %s\n", dlerror());
        return 1;
    }
    strategy = dlsym(lame, "gw_strategy_plugin");
    algo = dlsym(lame, "gw_algo_plugin");
    codec = dlsym(lame, "gw_codec_plugin");
    timetable = dlsym(lame, "gw_timetable_plugin");
    optimizer = dlsym(lame, "gw_optimizer_plugin");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abi),         cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_half_made),   cmocka_unit_test(test_files),
        cmocka_unit_test(test_symbol),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_entry_names), cmocka_unit_test(test_empty_timetable)};
    int failed = cmocka_run_group_tests(tests, make_folder, remove_folder);
    dlclose(lame);
    return failed;
}
