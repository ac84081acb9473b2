/* Manifests with a right checksum and wrong text: each is refused by name, with what is wrong. */
#include "base/text.h"
#include "folder/store.h"

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { ROOM = 4096 };

static const char right[] =
    "{\"schema\": 1, \"serial\": 7, \"utc\": \"2026-01-01T00:00:00Z\", \"gradwire\": \"0.1.0\", "
    "\"step\": 1200, \"epoch\": 3, \"batch\": 10, \"ranks\": 2, \"facts\": {\"lr\": 0.1}, "
    "\"files\": ["
    "{\"name\": \"model.gw\", \"bytes\": 1000, \"crc32\": \"89abcdef\"}, "
    "{\"name\": \"rank-00000.gw\", \"bytes\": 9000000000, \"crc32\": \"00000000\"}, "
    "{\"name\": \"rank-00001.gw\", \"bytes\": 0, \"crc32\": \"ffffffff\"}]}\n";

/* Parse text[0..n) with the last line that is right for it. */
static gw_err parse(const char *text, size_t n, gw_store_manifest *m) {
    char *whole = malloc(n + 16);
    assert_non_null(whole);
    memcpy(whole, text, n);
    snprintf(whole + n, 16, "crc32 %08lx\n", crc32_z(crc32_z(0, NULL, 0), (const Bytef *)text, n));
    gw_err e = gw_store_parse(whole, n + 15, "it", m);
    free(whole);
    return e;
}

static void refused(const char *text, size_t n, const char *why) {
    gw_store_manifest m;
    gw_err e = parse(text, n, &m);
    if (e != GW_ERR_INPUT || strncmp(gw_err_text(), "it: ", 4) != 0 ||
        !strstr(gw_err_text(), why) || strchr(gw_err_text(), '\n'))
        fail_msg("%d: '%s' is not 'it: ..%s..': %.*s", e, gw_err_text(), why, (int)n, text);
    assert_null(m.files);
    assert_null(m.facts);
}

static void is_understood(void **state) {
    gw_store_manifest m, again;
    char *text = NULL;
    size_t len;
    assert_int_equal(parse(right, strlen(right), &m), GW_OK);
    assert_int_equal(m.serial, 7);
    assert_int_equal(m.step, 1200);
    assert_int_equal(m.epoch, 3);
    assert_int_equal(m.batch, 10);
    assert_int_equal(m.ranks, 2);
    assert_int_equal(m.n_files, 3);
    assert_string_equal(m.files[1].name, "rank-00000.gw");
    assert_int_equal(m.files[1].bytes, 9000000000);
    assert_int_equal(m.files[0].crc32, 0x89abcdef);
    gw_store_file first = m.files[0]; /* written in order, however they come */
    m.files[0] = m.files[2];
    m.files[2] = first;
    assert_int_equal(gw_store_print(&m, &text, &len), GW_OK);
    assert_int_equal(strlen(text), len);
    assert_int_equal(gw_store_parse(text, len, "again", &again), GW_OK);
    assert_string_equal(again.files[0].name, "model.gw");
    assert_string_equal(again.utc, "2026-01-01T00:00:00Z");
    assert_true(json_equal(again.facts, m.facts));
    free(text);
    gw_store_manifest_free(&again);
    gw_store_manifest_free(&m);
}

/* `from` in the right text, `to` instead, and what the message must say. */
static const struct {
    const char *from, *to, *why;
} edits[] = {
    {"\"step\": 1200", "\"step\": -1", "step -1, epoch 3, "},
    {"\"step\": 1200", "\"step\": 1200.0", "Expected integer, got real"},
    {"\"step\": 1200", "\"step\": \"1200\"", "Expected integer, got string"},
    {"\"step\": 1200", "\"step\": 99999999999999999999", "it: line "},
    {"\"step\": 1200", "\"step\": 1e999", "it: line "},
    {"\"step\": 1200", "\"step\": 1200, \"step\": 1200", "it: line "},
    {"\"step\": 1200, ", "", "not found: step"},
    {"\"step\": 1200", "\"step\": 1200, \"st\\u001bep\": 1", "left unpacked: st?ep"},
    {"\"schema\": 1", "\"schema\": 2", "schema 2, this gradwire reads 1"},
    {"\"schema\": 1", "\"schema\": null", "Expected integer, got null"},
    {"\"serial\": 7", "\"serial\": 0", "serial 0, "},
    {"\"epoch\": 3", "\"epoch\": 0", "epoch 0, "},
    {"\"epoch\": 3", "\"epoch\": 2147483648", "epoch 2147483648, "},
    {"\"batch\": 10", "\"batch\": true", "Expected integer, got true"},
    {"\"ranks\": 2", "\"ranks\": 0", "0 ranks: one is out of range"},
    {"\"ranks\": 2", "\"ranks\": 65537", "65537 ranks"},
    {"\"ranks\": 2", "\"ranks\": 3", "3 ranks, but no file rank-00002.gw"},
    {"\"0.1.0\"", "1", "Expected string, got integer"},
    {"{\"lr\": 0.1}", "[]", "'facts' must be an object"},
    {"{\"lr\": 0.1}", "{\"lr\": 0.1, \"lr\": 0.1}", "it: line "},
    {"{\"lr\": 0.1}", "{\"lr\": \"\\u0000\"}", "it: line "},
    {"\"files\": [", "\"files\": {}, \"more\": [", "left unpacked: more"},
    {"\"model.gw\"", "\"../model.gw\"", "'../model.gw' cannot be a checkpoint's file"},
    {"\"model.gw\"", "\"/model.gw\"", "cannot be a checkpoint's file"},
    {"\"model.gw\"", "\".model.gw\"", "cannot be a checkpoint's file"},
    {"\"model.gw\"", "\"\"", "cannot be a checkpoint's file"},
    {"\"model.gw\"", "\"manifest\"", "cannot be a checkpoint's file"},
    {"\"model.gw\"", "\"mo\\u001bdel.gw\"", "'mo?del.gw' cannot be"},
    {"\"model.gw\"", "7", "Expected string, got integer"},
    {"\"model.gw\"", "\"a-name-that-is-longer-than-any-of-which-a-checkpoint-has-a-use.gw\"",
     "cannot be a checkpoint's file"},
    {"\"model.gw\"", "\"zmodel.gw\"", "rank-00000.gw after zmodel.gw, must be in order"},
    {"\"model.gw\"", "\"rank-00000.gw\"", "rank-00000.gw after rank-00000.gw"},
    {"\"rank-00000.gw\"", "\"rank-00000.g\"", "no file rank-00000.gw"},
    {"\"bytes\": 1000", "\"bytes\": -1", "must have 0 bytes or more"},
    {"\"bytes\": 1000", "\"bytes\": 1e3", "Expected integer, got real"},
    {"89abcdef", "89ABCDEF", "crc32 of 8 digits"},
    {"89abcdef", "89abcde", "crc32 of 8 digits"},
    {"\"89abcdef\"", "\"89abcdef\", \"mode\": 1", "left unpacked: mode"},
    {"]}\n", "]}\n{}", "it: line "},
    {"]}\n", "]", "it: line "},
    {"{\"schema\"", "[{\"schema\"", "it: line "},
    {"{\"lr\": 0.1}", "{\"lr\": 0.1\xff}", "it: line "},
};

static void edit(char out[ROOM], const char *from, const char *to) {
    const char *at = strstr(right, from);
    assert_non_null(at);
    snprintf(out, ROOM, "%.*s%s%s", (int)(at - right), right, to, at + strlen(from));
}

static void refuses_what_is_wrong(void **state) {
    char text[ROOM];
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        edit(text, edits[i].from, edits[i].to);
        refused(text, strlen(text), edits[i].why);
    }
    refused("", 0, "it: line ");
    refused("[]\n", 3, "Expected object, got array");
    refused("7\n", 2, "it: line ");
    refused(right, sizeof right, "it: line "); /* with its 0 */
}

/* The last line is compared as text, to its last byte, and nothing may follow it. */
static void wants_the_last_line(void **state) {
    static const char *const lines[] = {"",
                                        "\n",
                                        "crc32 %08lX\n",
                                        "CRC32 %08lx\n",
                                        "crc32 %08lx",
                                        "crc32 %08lx\r\n",
                                        "crc32 %08lx\n\n",
                                        "crc32 %1$08lx\ncrc32 %1$08lx\n",
                                        "crc32  %08lx\n"};
    unsigned long crc = crc32_z(crc32_z(0, NULL, 0), (const Bytef *)right, strlen(right));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[ROOM];
        gw_store_manifest m;
        size_t n = strlen(right);
        memcpy(text, right, n);
        n += (size_t)snprintf(text + n, sizeof text - n, lines[i], crc);
        assert_fails(gw_store_parse(text, n, "it", &m), GW_ERR_INPUT, "it: damaged: ");
    }
}

/* A long one within the limit is parsed; one above the limit is not even read. */
static void has_limits(void **state) {
    gw_store_manifest m;
    char *text = malloc(GW_STORE_MOST_BYTES + 1);
    assert_non_null(text);
    memset(text, ' ', GW_STORE_MOST_BYTES + 1);
    memcpy(text, right, strlen(right));
    assert_int_equal(parse(text, GW_STORE_MOST_BYTES - 15, &m), GW_OK);
    gw_store_manifest_free(&m);
    refused(text, GW_STORE_MOST_BYTES - 14, "8388609 bytes, a manifest has at most 8388608");
    free(text);
}

static void most_files(void **state) {
    gw_store_manifest m = {.serial = 1, .epoch = 1, .ranks = GW_STORE_MOST_FILES}, back;
    char *text = NULL;
    size_t len;
    m.facts = json_object();
    m.n_files = (size_t)m.ranks + 1;
    m.files = calloc(m.n_files, sizeof *m.files);
    assert_non_null(m.files);
    for (int i = 0; i <= m.ranks; i++)
        gw_store_rank_name(i, m.files[i].name);
    gw_err e = gw_store_print(&m, &text, &len);
    assert_fails(e, GW_ERR_INTERNAL, "'files' must be a list of at most 65536");
    m.n_files--;
    assert_int_equal(gw_store_print(&m, &text, &len), GW_OK);
    assert_int_equal(gw_store_parse(text, len, "it", &back), GW_OK);
    assert_int_equal(back.n_files, GW_STORE_MOST_FILES);
    gw_store_manifest_free(&back);
    gw_store_manifest_free(&m);
    free(text);
}

/* A manifest that could not be read back is not written. */
static void refuses_to_write_it(void **state) {
    gw_store_manifest m;
    char *text = NULL;
    size_t len;
    assert_int_equal(parse(right, strlen(right), &m), GW_OK);
    m.epoch = 0;
    assert_int_equal(gw_store_print(&m, &text, &len), GW_ERR_INTERNAL);
    m.epoch = 1;
    gw_text_copy(m.files[1].name, sizeof m.files[1].name, "a/b");
    assert_int_equal(gw_store_print(&m, &text, &len), GW_ERR_INTERNAL);
    gw_store_rank_name(0, m.files[1].name);
    json_decref(m.facts);
    m.facts = NULL;
    assert_int_equal(gw_store_print(&m, &text, &len), GW_ERR_INTERNAL);
    assert_null(text);
    gw_store_manifest_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_understood),       cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(wants_the_last_line), cmocka_unit_test(has_limits),
        cmocka_unit_test(most_files),          cmocka_unit_test(refuses_to_write_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
