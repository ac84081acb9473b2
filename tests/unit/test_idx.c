/* The IDX reader: whole folders come back byte for byte, spoilt ones end in one line that names
 * the file and the value. */
#include "../idx_files.h"
#include "base/text.h"
#include "data/data.h"
#include "data/raw.h"
#include "unit.h"

#include <sys/stat.h>

static char dir[] = "/tmp/gw-test-idx-XXXXXX";

static int set_up(void **state) {
    memcpy(dir + sizeof dir - 7, "XXXXXX", 6);
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state) {
    remove_folder(dir);
    return 0;
}

static void expect_whole(const char *folder) {
    gw_raw raw;
    gw_err e = gw_idx_read(&raw, folder, false);
    assert_ok(e);
    assert_int_equal(raw.train.n, TRAIN_N);
    assert_int_equal(raw.test.n, TEST_N);
    assert_int_equal(raw.rows, SIDE_R);
    assert_int_equal(raw.cols, SIDE_C);
    assert_int_equal(raw.classes, 10);
    for (int set = 0; set < 2; set++) {
        const gw_raw_part *part = set ? &raw.test : &raw.train;
        for (uint32_t i = 0; i < part->n; i++) {
            assert_int_equal(part->labels[i], label_of(set, i));
            for (int p = 0; p < PIXELS; p++)
                assert_int_equal(part->images[i * PIXELS + (uint32_t)p], pixel_of(set, i, p));
        }
    }
    gw_raw_free(&raw);
}

/* The folder is refused in one line with all the words, and nothing is left in raw. */
#define expect_refused(...) refused((const char *const[]){__VA_ARGS__, NULL})
static void refused(const char *const *words) {
    gw_raw raw;
    assert_int_equal(gw_idx_read(&raw, dir, false), GW_ERR_INPUT);
    assert_null(raw.train.images);
    const char *text = gw_err_text();
    assert_null(strchr(text, '\n'));
    for (; *words; words++)
        if (!strstr(text, *words))
            fail_msg("'%s' lacks '%s'", text, *words);
}

static void reads_plain(void **state) {
    assert_false(gw_idx_present(dir));
    write_folder(dir, 0);
    assert_true(gw_idx_present(dir));
    expect_whole(dir);
}

static void reads_packed(void **state) {
    write_folder(dir, 1);
    expect_whole(dir);
}

static void reads_dotted_and_mixed_names(void **state) {
    uint8_t data[FILE_BYTES];
    write_bytes(dir, "train-images.idx3-ubyte", data, idx_content(0, data));
    write_packed(dir, "train-labels.idx1-ubyte.gz", data, idx_content(1, data));
    write_packed(dir, "t10k-images-idx3-ubyte.gz", data, idx_content(2, data));
    write_packed(dir, "t10k-labels-idx1-ubyte", data, idx_content(3, data)); /* gzip by content */
    expect_whole(dir);
}

static void prefers_plain(void **state) {
    write_folder(dir, 0);
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.gz", idx_names[i]);
        write_bytes(dir, name, "junk", 4);
    }
    expect_whole(dir);
}

static void reads_members(void **state) {
    write_folder(dir, 1);
    uint8_t data[FILE_BYTES], out[2 * FILE_BYTES];
    size_t n = idx_content(0, data), half = n / 2 + 3;
    size_t len = pack(data, half, out, sizeof out);
    len += pack(data + half, n - half, out + len, sizeof out - len);
    write_bytes(dir, "train-images-idx3-ubyte.gz", out, len);
    expect_whole(dir);
}

static void reads_fashion_mnist(void **state) {
    const char *folder = gw_data_find_fashion_mnist();
    if (!folder)
        fail_msg("Fashion-MNIST not found: install Debian's dataset-fashion-mnist");
    gw_raw raw;
    assert_ok(gw_idx_read(&raw, folder, false));
    assert_int_equal(raw.train.n, 60000);
    assert_int_equal(raw.test.n, 10000);
    assert_int_equal(raw.rows * raw.cols, 784);
    assert_int_equal(raw.classes, 10);
    int count[10] = {0};
    for (uint32_t i = 0; i < raw.train.n; i++)
        count[raw.train.labels[i]]++;
    for (int c = 0; c < 10; c++)
        assert_int_equal(count[c], 6000);
    gw_raw outline;
    assert_int_equal(gw_idx_read(&outline, folder, true), GW_OK);
    assert_int_equal(outline.classes, 10);
    assert_null(outline.train.images);
    assert_memory_equal(outline.train.labels, raw.train.labels, raw.train.n);
    gw_raw_free(&outline);
    gw_raw_free(&raw);
}

static void refuses_folders(void **state) {
    gw_raw raw;
    expect_refused(dir, "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                   "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", ".gz");
    write_folder(dir, 0);
    remove_file(dir, idx_names[2]);
    expect_refused(dir, "lacks t10k-images-idx3-ubyte (");
    assert_fails(gw_idx_read(&raw, "/nonexistent/folder", false), GW_ERR_INPUT,
                 "'/nonexistent/folder': No such file");
    assert_fails(gw_idx_read(&raw, "/etc/passwd", false), GW_ERR_INPUT,
                 "'/etc/passwd' is not a folder");
}

static void refuses_a_folder_in_place_of_a_file(void **state) {
    char path[512];
    write_folder(dir, 0);
    remove_file(dir, idx_names[3]);
    snprintf(path, sizeof path, "%s/%s", dir, idx_names[3]);
    must(mkdir(path, 0700) == 0, path);
    expect_refused(idx_names[3], "not a regular file");
    rmdir(path);
}

static void refuses_wrong_magic(void **state) {
    uint8_t data[FILE_BYTES];
    write_folder(dir, 0);
    write_bytes(dir, idx_names[1], data, idx_content(0, data)); /* images as labels */
    expect_refused(idx_names[1], "0x00000803", "expected 0x00000801");
    write_folder(dir, 0);
    write_bytes(dir, idx_names[0], "<!DOCTYPE html>\n<html>", 22); /* a failed download */
    expect_refused(idx_names[0], "0x3c21444f", "expected 0x00000803");
}

/* A training image file whose header holds these values. */
static void write_header(uint32_t n, uint32_t rows, uint32_t cols) {
    uint8_t data[FILE_BYTES];
    size_t len = idx_content(0, data);
    put32(data + 4, n);
    put32(data + 8, rows);
    put32(data + 12, cols);
    write_bytes(dir, idx_names[0], data, len);
}

static void refuses_wrong_sizes(void **state) {
    write_folder(dir, 0);
    write_header(0, SIDE_R, SIDE_C);
    expect_refused(idx_names[0], "0 samples");
    write_header((1u << 28) + 1, 1, 1);
    expect_refused(idx_names[0], "268435457", "at most 268435456");
    write_header(0xffffffff, 1, 1);
    expect_refused(idx_names[0], "4294967295");
    write_header(1, 4097, 1);
    expect_refused(idx_names[0], "4097 x 1", "4096");
    write_header(1, 1, 0);
    expect_refused(idx_names[0], "1 x 0");
    write_header(1u << 28, 4096, 4096); /* 2^52 bytes: refused before any memory is asked for */
    expect_refused(idx_names[0], "truncated", "4503599627370496");
    write_header(TRAIN_N + 1, SIDE_R, SIDE_C);
    expect_refused(idx_names[0], "truncated");
    write_header(TRAIN_N, SIDE_R, SIDE_C - 1);
    uint8_t data[FILE_BYTES];
    size_t n = idx_content(2, data);
    put32(data + 12, SIDE_C - 1); /* the test set agrees: only the lengths tell */
    write_bytes(dir, idx_names[2], data, n - (size_t)TEST_N * SIDE_R);
    expect_refused(idx_names[0], "more bytes follow the 103 samples");
}

static void refuses_plain_truncation(void **state) {
    uint8_t data[FILE_BYTES];
    size_t n = idx_content(0, data);
    write_folder(dir, 0);
    size_t cuts[] = {0, 3, 4, 15, 16, n - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_bytes(dir, idx_names[0], data, cuts[i]);
        expect_refused(idx_names[0], "truncated");
    }
}

/* Cut anywhere, the trailer included: no prefix of a gzip file passes for the whole. */
static void refuses_every_packed_prefix(void **state) {
    uint8_t data[FILE_BYTES], out[2 * FILE_BYTES];
    size_t len = pack(data, idx_content(0, data), out, sizeof out);
    write_folder(dir, 1);
    for (size_t cut = 2; cut < len; cut += cut + 16 < len ? 13 : 1) {
        write_bytes(dir, "train-images-idx3-ubyte.gz", out, cut);
        expect_refused("train-images-idx3-ubyte.gz: truncated");
    }
}

static void refuses_damaged_packed(void **state) {
    uint8_t data[FILE_BYTES + 1], out[2 * FILE_BYTES];
    size_t n = idx_content(0, data), len = pack(data, n, out, sizeof out);
    const char *name = "train-images-idx3-ubyte.gz";
    write_folder(dir, 1);
    out[len - 8] ^= 1; /* the CRC */
    write_bytes(dir, name, out, len);
    expect_refused(name, "damaged", "incorrect data check");
    out[len - 8] ^= 1;
    out[len - 4] ^= 1; /* the length */
    write_bytes(dir, name, out, len);
    expect_refused(name, "damaged", "incorrect length check");
    out[len - 4] ^= 1;
    out[len] = 'x';
    write_bytes(dir, name, out, len + 1);
    expect_refused(name, "other bytes follow the compressed data", "0x78");
    write_packed(dir, name, data, n - 1);
    expect_refused(name, "truncated: 3604 bytes of data, expected 3605");
    data[n] = 0;
    write_packed(dir, name, data, n + 1);
    expect_refused(name, "more bytes follow the 103 samples");
}

/* A flipped bit of the count that the file's size allows for, since it inflates well: the labels'
 * header gives it away before a byte is allocated for it. */
static void compares_counts_first(void **state) {
    uint8_t data[16 + TRAIN_N] = {0}; /* images of one byte */
    put32(data, 0x803);
    put32(data + 4, TRAIN_N | 1u << 13);
    put32(data + 8, 1);
    put32(data + 12, 1);
    write_folder(dir, 0);
    remove_file(dir, idx_names[0]);
    write_packed(dir, "train-images-idx3-ubyte.gz", data, sizeof data);
    expect_refused("holds 8295 images", "holds 103 labels", "must match");
}

static void refuses_a_bomb(void **state) {
    uint8_t head[16], out[256];
    put32(head, 0x803);
    put32(head + 4, 1u << 20);
    put32(head + 8, 1u << 10);
    put32(head + 12, 1u << 10);
    write_folder(dir, 1);
    write_bytes(dir, "train-images-idx3-ubyte.gz", out, pack(head, 16, out, sizeof out));
    expect_refused("train-images-idx3-ubyte.gz", "1099511627776");
}

static void refuses_sets_that_disagree(void **state) {
    uint8_t data[FILE_BYTES];
    write_folder(dir, 0);
    write_bytes(dir, idx_names[1], data, idx_content(3, data)); /* the test set's labels */
    expect_refused(idx_names[0], idx_names[1], "103 images", "31 labels");
    write_folder(dir, 0);
    size_t n = idx_content(2, data);
    put32(data + 8, SIDE_C);
    put32(data + 12, SIDE_R);
    write_bytes(dir, idx_names[2], data, n);
    expect_refused(idx_names[2], "7 x 5", "5 x 7");
}

static void refuses_labels_out_of_range(void **state) {
    uint8_t data[FILE_BYTES];
    write_folder(dir, 0);
    size_t n = idx_content(1, data);
    data[8 + 42] = 255;
    write_bytes(dir, idx_names[1], data, n);
    gw_raw raw;
    assert_int_equal(gw_idx_read(&raw, dir, false), GW_OK);
    assert_int_equal(raw.classes, 256);
    gw_raw_free(&raw);
    for (size_t i = 8; i < n; i++)
        data[i] = (uint8_t)(i % 4);
    write_bytes(dir, idx_names[1], data, n); /* four classes; the test set has ten */
    expect_refused(idx_names[3], "label 4 of sample 3", "0 to 3");
    memset(data + 8, 0, n - 8);
    write_bytes(dir, idx_names[1], data, n);
    expect_refused(idx_names[1], "all labels are 0");
}

/* A long name of a folder is cut, but not within a character: run.json holds it. */
static void cuts_the_source_between_characters(void **state) {
    char deep[300];
    int len = snprintf(deep, sizeof deep, "%s/", dir);
    while (len < 260)
        len += snprintf(deep + len, sizeof deep - (size_t)len, "\xc3\xbc");
    must(mkdir(deep, 0700) == 0, deep);
    write_folder(deep, 0);
    gw_raw raw;
    assert_int_equal(gw_idx_read(&raw, deep, false), GW_OK);
    assert_int_equal(strlen(raw.source), sizeof raw.source - 2);
    assert_true(gw_text_utf8(raw.source));
    assert_memory_equal(raw.source, deep, sizeof raw.source - 2);
    gw_raw_free(&raw);
    remove_folder(deep);
}

static void splits_validation_apart(void **state) {
    write_folder(dir, 0);
    uint32_t first_pick = 0;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        gw_raw raw;
        assert_int_equal(gw_idx_read(&raw, dir, false), GW_OK);
        assert_int_equal(gw_raw_split(&raw, 0.25, seed), GW_OK);
        assert_int_equal(raw.validation.n, 25);
        assert_int_equal(raw.train.n, TRAIN_N - 25);
        /* Merging the two parts by content, in order, gives the file back. */
        uint32_t t = 0, v = 0, pick = 0;
        for (uint32_t i = 0; i < TRAIN_N; i++) {
            uint8_t want[PIXELS];
            for (int p = 0; p < PIXELS; p++)
                want[p] = pixel_of(0, i, p);
            bool in_train = t < raw.train.n && raw.train.labels[t] == label_of(0, i) &&
                            memcmp(raw.train.images + t * PIXELS, want, PIXELS) == 0;
            if (in_train) {
                t++;
                continue;
            }
            assert_true(v < raw.validation.n);
            assert_int_equal(raw.validation.labels[v], label_of(0, i));
            assert_memory_equal(raw.validation.images + v * PIXELS, want, PIXELS);
            pick = pick * 31 + i;
            v++;
        }
        assert_int_equal(t + v, TRAIN_N);
        if (seed == 1)
            first_pick = pick;
        else
            assert_int_not_equal(pick, first_pick);
        gw_raw_free(&raw);
    }
}

static void refuses_empty_splits(void **state) {
    write_folder(dir, 0);
    gw_raw raw;
    assert_int_equal(gw_idx_read(&raw, dir, false), GW_OK);
    assert_fails(gw_raw_split(&raw, 0.001, 1), GW_ERR_USAGE, "103");
    assert_int_equal(gw_raw_split(&raw, 1.0, 1), GW_ERR_USAGE);
    assert_int_equal(gw_raw_split(&raw, -0.1, 1), GW_ERR_USAGE);
    assert_int_equal(gw_raw_split(&raw, 0, 1), GW_OK);
    assert_int_equal(raw.train.n, TRAIN_N);
    gw_raw_free(&raw);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(reads_plain),
        CASE(reads_packed),
        CASE(reads_dotted_and_mixed_names),
        CASE(prefers_plain),
        CASE(reads_members),
        CASE(reads_fashion_mnist),
        CASE(refuses_folders),
        CASE(refuses_a_folder_in_place_of_a_file),
        CASE(refuses_wrong_magic),
        CASE(refuses_wrong_sizes),
        CASE(refuses_plain_truncation),
        CASE(refuses_every_packed_prefix),
        CASE(refuses_damaged_packed),
        CASE(compares_counts_first),
        CASE(refuses_a_bomb),
        CASE(refuses_sets_that_disagree),
        CASE(refuses_labels_out_of_range),
        CASE(cuts_the_source_between_characters),
        CASE(splits_validation_apart),
        CASE(refuses_empty_splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
