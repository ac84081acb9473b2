/* Not one bit of a checkpoint may be wrong: each of the manifest and of the files' heads is flipped
 * in turn, and 10,000 of the rest by chance. Every time the checkpoint is refused, naming the file;
 * and so is the file by itself, whoever loads it.
 *
 *    test_store_flips [FOLDER]    a copy of a checkpoint that a run wrote, instead of a small one
 */
#include "base/rng.h"
#include "base/text.h"
#include "store_kit.h"
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { BODY_BITS = 10000, SEED = 4711, MAGIC = 8, HEAD = 16 };

static char top[KIT_PATH], folder[GW_STORE_PATH];
static gw_store_manifest manifest;

/* A file of the checkpoint. */
typedef struct victim {
    const char *name;
    char path[GW_STORE_PATH + GW_STORE_NAME];
    int fd;
    uint64_t bytes, head; /* head: as far as the first field's data */
    char magic[MAGIC + 1];
    uint32_t version;
} victim;

static victim manifest_file, *files;

static void open_victim(victim *v, const char *name) {
    struct stat st;
    v->name = name;
    snprintf(v->path, sizeof v->path, "%s/%s", folder, name);
    v->fd = open(v->path, O_RDWR | O_CLOEXEC);
    if (v->fd < 0 || fstat(v->fd, &st) != 0)
        fail_msg("cannot open %s", v->path);
    v->bytes = (uint64_t)st.st_size;
}

/* See base/io.h. */
static void read_head(victim *v) {
    uint32_t name_len;
    assert_int_equal(pread(v->fd, v->magic, MAGIC, 0), MAGIC);
    assert_int_equal(pread(v->fd, &v->version, sizeof v->version, MAGIC), sizeof v->version);
    assert_int_equal(pread(v->fd, &name_len, sizeof name_len, HEAD), sizeof name_len);
    v->head = HEAD + sizeof name_len + name_len + sizeof(uint64_t);
    assert_in_range(v->head, HEAD + 12, v->bytes - 5);
}

static int set_up(void **state) {
    if (!folder[0]) {
        char dir[KIT_DIR];
        if (kit_open(top, dir) != 0)
            return -1;
        assert_ok(kit_save(dir, 1200, 1, folder));
    }
    if (gw_store_open(folder, &manifest) != GW_OK)
        fail_msg("%s", gw_err_text());
    files = calloc(manifest.n_files, sizeof *files);
    assert_non_null(files);
    open_victim(&manifest_file, GW_STORE_MANIFEST);
    for (size_t i = 0; i < manifest.n_files; i++) {
        open_victim(&files[i], manifest.files[i].name);
        read_head(&files[i]);
    }
    return 0;
}

static int tear_down(void **state) {
    gw_store_manifest whole;
    if (gw_store_open(folder, &whole) != GW_OK) /* all has been mended */
        fail_msg("%s", gw_err_text());
    gw_store_manifest_free(&whole);
    for (size_t i = 0; i < manifest.n_files; i++)
        close(files[i].fd);
    close(manifest_file.fd);
    free(files);
    gw_store_manifest_free(&manifest);
    if (top[0])
        kit_remove(top, 3);
    return 0;
}

static void flip(const victim *v, uint64_t bit) {
    unsigned char byte;
    off_t at = (off_t)(bit / 8);
    assert_int_equal(pread(v->fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1u << bit % 8);
    assert_int_equal(pwrite(v->fd, &byte, 1, at), 1);
}

static void refused_with(const victim *v, uint64_t bit) {
    gw_store_manifest m;
    gw_io *io = NULL;
    flip(v, bit);
    if (gw_store_open(folder, &m) != GW_ERR_INPUT)
        fail_msg("bit %llu of %s is flipped, and nobody sees it", (unsigned long long)bit, v->name);
    assert_message(v->path);
    if (v->magic[0]) {
        if (gw_io_load(&io, v->path, v->magic, v->version, SIZE_MAX) != GW_ERR_INPUT)
            fail_msg("bit %llu of %s is flipped, and nobody sees it", (unsigned long long)bit,
                     v->name);
        assert_message(v->path);
    }
    flip(v, bit);
}

static void every_bit_of_the_manifest(void **state) {
    for (uint64_t bit = 0; bit < 8 * manifest_file.bytes; bit++)
        refused_with(&manifest_file, bit);
    print_message("%llu bits\n", (unsigned long long)(8 * manifest_file.bytes));
}

static void every_bit_of_the_heads(void **state) {
    uint64_t bits = 0;
    for (size_t i = 0; i < manifest.n_files; i++)
        for (uint64_t bit = 0; bit < 8 * files[i].head; bit++, bits++)
            refused_with(&files[i], bit);
    print_message("%llu bits of %zu files\n", (unsigned long long)bits, manifest.n_files);
}

/* Anywhere after the heads, including the files' own checksums. */
static void bits_of_the_bodies(void **state) {
    uint64_t body = 0;
    for (size_t i = 0; i < manifest.n_files; i++)
        body += files[i].bytes - files[i].head;
    for (uint64_t draw = 0; draw < BODY_BITS; draw++) {
        uint64_t bit = gw_rng_u64(SEED, draw) % (8 * body);
        const victim *v = files;
        for (; bit >= 8 * (v->bytes - v->head); v++)
            bit -= 8 * (v->bytes - v->head);
        refused_with(v, 8 * v->head + bit);
    }
    print_message("%d bits of %llu bytes\n", BODY_BITS, (unsigned long long)body);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_of_the_manifest),
        cmocka_unit_test(every_bit_of_the_heads),
        cmocka_unit_test(bits_of_the_bodies),
    };
    if (argc > 1)
        gw_text_copy(folder, sizeof folder, argv[1]);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
