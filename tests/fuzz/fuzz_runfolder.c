/* Run folders, as `gradwire show` reads them: shown or refused, and what is shown is text that no
 * terminal takes for a command. And rows, as a run that goes on reads them.
 *
 * An input's first byte, modulo 6: 0 to 2, the rest is the whole run.json, batches.csv or file of
 * rows; 3 to 5, the rest are edits of the right one (see gw_fuzz_edited). */
#include "harness.h"

#include "cli/show/show.h"
#include "prof/batch_row.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILES = 3, MOST_SHOWN = 1 << 20 };

static const char run_json[] =
    "{\"schema\":2,\"version\":\"1\",\"command\":\"gradwire train\",\n"
    "\"options\":{\"layers\":\"4,3\",\"batch\":20,\"local-batch\":null,\"update\":\"eager\","
    "\"compress\":\"auto\"},\n"
    "\"data\":{\"name\":\"synthetic\",\"features\":4,\"classes\":2},\n"
    "\"comm\":{\"strategy\":\"iallreduce\",\"algorithm\":\"ring\",\"codec\":\"none\",\"error_"
    "feedback\":true},\n"
    "\"machine\":{\"ranks\":2,\"workers\":2,\"nodes\":1,\"threads_per_rank\":1,\"oversubscribed\":"
    "true},\n"
    "\"link\":{\"emulated\":true,\"hosts\":2,\"rate_bits_per_s\":1000000000.0},\n"
    "\"ceilings\":{\"source\":\"measured\",\"fma_flops_per_s\":{\"one\":100000000000.0},\"links\":["
    "{\"beta_s_per_byte\":1e-09}]},\n"
    "\"sources\":{\"time\":\"measured\"},\n"
    "\"overhead\":{\"ratio\":1.01,\"ci_low\":1,\"ci_high\":1.02,\"pairs\":9,\"why\":null},\n"
    "\"results\":{\"steps\":2,\"summary\":{\"batches\":1},\n"
    "\"straggler\":{\"rank\":1,\"last_share\":0.5,\"waited_s\":0.001,\"of_step\":0.1},\n"
    "\"paired\":{\"saved_s\":0.001,\"saved_ci_low_s\":0,\"saved_ci_high_s\":1,\"pairs\":4,"
    "\"interference_s\":0}}}\n";

static const char batches_csv[] =
    "rank,step,t_start_s,wall_s,data_s,forward_s,backward_s,update_s,encode_s,decode_s,mpi_post_s,"
    "mpi_poll_s,mpi_wait_s,checkpoint_s,other_s,core_twin_s,memory_twin_s,wait_skew_s,transfer_s,"
    "inflight_s,wire_bytes,clock_err_s,clean\n"
    "0,1,0.001,4e-05,1e-05,1e-05,0,0,0,0,0,0,1e-05,0,1e-05,4e-06,5e-06,0,0,5e-06,200,1e-8,1\n"
    "1,1,0.001,4e-05,1e-05,1e-05,0,0,0,0,0,0,1e-05,0,1e-05,4e-06,5e-06,0,0,5e-06,200,1e-8,1\n"
    "0,2,0.002,4e-05,1e-05,1e-05,0,0,0,0,0,0,1e-05,0,1e-05,4e-06,5e-06,0,0,5e-06,200,1e-8,1\n"
    "1,2,0.002,4e-05,1e-05,1e-05,0,0,0,0,0,0,1e-05,0,1e-05,4e-06,5e-06,0,0,5e-06,200,1e-8,1\n";

static gw_batch_table batches;
static char *rows; /* of two steps */
static const char *right[FILES] = {run_json, batches_csv};
static const char *const names[FILES] = {"run.json", "batches.csv", "rows.csv"};
static const char *const words[] = {"null",
                                    "true",
                                    "{}",
                                    "[]",
                                    "\"\"",
                                    "-1",
                                    "0",
                                    "1e308",
                                    "9223372036854775807",
                                    "4294967297",
                                    "-9223372036854775808",
                                    "1e-320",
                                    "nan",
                                    "inf",
                                    ",",
                                    "\n",
                                    "0,0,",
                                    "\"\\u001b[31m\"",
                                    "\"\\u009b\"",
                                    "\"\\n\"",
                                    "\"a\\nb\"",
                                    "\xff",
                                    "[[[[",
                                    "\"rank\"",
                                    "\"ranks\":",
                                    "\"steps\":",
                                    "\"layers\":",
                                    "\"1,2,,3\"",
                                    "rank,",
                                    "clean",
                                    "wall_s",
                                    "1048576",
                                    "1048577",
                                    "2147483648",
                                    NULL};

static gw_fuzz_folder folder;
static int shown, terminal; /* where stdout goes meanwhile; what it was */

static void make_rows(void) {
    size_t len;
    FILE *to = open_memstream(&rows, &len);
    MUST(to != NULL);
    gw_batch_table_make(&batches, (const char *[]){"cycles"}, 1);
    gw_table_header(&batches.table, to);
    for (int step = 1; step <= 2; step++) {
        gw_batch_parts parts = {.step = step, .samples = 2, .loss_sum = 1, .counts.counter = {1e6}};
        gw_batch_row row = gw_batch_row_of(&parts);
        MUST(gw_table_write(&batches.table, to, &row, 1) == GW_OK);
    }
    MUST(fclose(to) == 0);
    right[FILES - 1] = rows;
}

static void open_all(const char *spec) {
    (void)spec;
    make_rows();
    gw_fuzz_folder_open(&folder, names, FILES);
    shown = memfd_create("shown", MFD_CLOEXEC);
    fflush(stdout);
    terminal = dup(STDOUT_FILENO);
    MUST(shown >= 0 && terminal >= 0 && dup2(shown, STDOUT_FILENO) >= 0);
}

static void close_all(void) {
    dup2(terminal, STDOUT_FILENO);
    close(terminal);
    close(shown);
    free(rows);
    gw_fuzz_folder_close(&folder);
}

/* What was printed since the last call. */
static void check_shown(void) {
    static char text[MOST_SHOWN + 1];
    fflush(stdout);
    ssize_t n = pread(shown, text, MOST_SHOWN, 0);
    MUST(n >= 0 && n < MOST_SHOWN);
    MUST(ftruncate(shown, 0) == 0 && lseek(shown, 0, SEEK_SET) == 0);
    text[n] = '\0';
    MUST(strlen(text) == (size_t)n);
    gw_fuzz_printable(text, true);
}

static void show(void) {
    static const gw_show_style style = {.utf8 = true, .width = 80};
    gw_show_run run[2];
    gw_err e = gw_show_run_open(&run[0], folder.path);
    gw_fuzz_answer(e);
    if (e == GW_OK) {
        gw_fuzz_forget();
        MUST(gw_show_run_open(&run[1], folder.path) == GW_OK);
        json_t *doc = gw_show_document(run, 2);
        MUST(json_array_size(json_object_get(doc, "runs")) == 2);
        json_decref(doc);
        for (int i = 0; i < 2; i++)
            gw_show_run_plain(&run[i]);
        gw_show_print(run, 2, &style);
        check_shown();
        gw_show_run_close(&run[1]);
    }
    gw_show_run_close(&run[0]);
}

static void read_rows(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder.path, names[FILES - 1]);
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
    int which = data[0] % FILES;
    char *edited = data[0] % (2 * FILES) < FILES
                       ? NULL
                       : gw_fuzz_edited(right[which], data + 1, size - 1, words);
    for (int i = 0; i < FILES; i++)
        gw_fuzz_folder_put(&folder, i, right[i], strlen(right[i]));
    gw_fuzz_folder_put(&folder, which, edited ? edited : (const char *)data + 1,
                       edited ? strlen(edited) : size - 1);
    free(edited);
    gw_fuzz_forget();
    if (which < 2)
        show();
    else
        read_rows();
}

const gw_fuzz_target gw_fuzz_runfolder = {.name = "runfolder",
                                          .mutations = 20000,
                                          .words = words,
                                          .open = open_all,
                                          .close = close_all,
                                          .one = one};
