/* The rows of batches.csv, as a resumed run reads them.
 *
 * An input's first byte, modulo 2: 0, the rest is the whole file; 1, the rest are edits of the
 * right one (see gw_fuzz_edited). */
#include "harness.h"

#include "prof/batch_row.h"

#include <string.h>

static gw_batch_table batches;
static char *right; /* rows of two steps */
static const char *const file_name = "rows.csv";
static const char *const words[] = {"-1",         "0",
                                    "1e308",      "9223372036854775807",
                                    "4294967297", "-9223372036854775808",
                                    "1e-320",     "nan",
                                    "inf",        ",",
                                    "\n",         "0,0,",
                                    "\"a\\nb\"",  "\xff",
                                    "rank,",      "interrupted",
                                    "wall_s",     "1048576",
                                    "1048577",    "2147483648",
                                    NULL};

static gw_fuzz_folder folder;

static void make_rows(void) {
    size_t len;
    FILE *to = open_memstream(&right, &len);
    MUST(to != NULL);
    gw_batch_table_make(&batches, false, (const char *[]){"cycles"}, 1);
    gw_table_header(&batches.table, to);
    for (int step = 1; step <= 2; step++) {
        gw_batch_parts parts = {.step = step, .samples = 2, .loss_sum = 1, .counts.counter = {1e6}};
        gw_batch_row row = gw_batch_row_of(&parts);
        MUST(gw_table_write(&batches.table, to, &row, 1) == GW_OK);
    }
    MUST(fclose(to) == 0);
}

static void open_all(const char *spec) {
    (void)spec;
    make_rows();
    gw_fuzz_folder_open(&folder, &file_name, 1);
}

static void close_all(void) {
    free(right);
    gw_fuzz_folder_close(&folder);
}

static void read_rows(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder.path, file_name);
    gw_table_reader in = {.table = &batches.table, .in = fopen(path, "r"), .path = path};
    gw_batch_row row;
    bool more = true;
    gw_err e = GW_OK;
    MUST(in.in != NULL);
    while (e == GW_OK && more)
        e = gw_table_read(&in, &row, &more);
    gw_fuzz_answer(e);
    fclose(in.in);
}

static void one(const uint8_t *data, size_t size) {
    if (size < 1)
        return;
    char *edited = data[0] % 2 ? gw_fuzz_edited(right, data + 1, size - 1, words) : NULL;
    gw_fuzz_folder_put(&folder, 0, edited ? edited : (const char *)data + 1,
                       edited ? strlen(edited) : size - 1);
    free(edited);
    gw_fuzz_forget();
    read_rows();
}

const gw_fuzz_target gw_fuzz_rows = {.name = "rows",
                                     .mutations = 20000,
                                     .words = words,
                                     .open = open_all,
                                     .close = close_all,
                                     .one = one};
