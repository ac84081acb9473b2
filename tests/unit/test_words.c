/* No option of any command takes a control character, which a terminal, a script or a page takes
 * for a command, nor an empty text, which a message or a label could not show. */
#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "unit.h"

static int options; /* that take a value, of all commands */

static void try_word(const char *command, const gw_opt *o, const char *word, const char *says,
                     const char *instead) {
    gw_args *args;
    assert_ok(gw_args_new(&args, o));
    if (gw_args_set(args, command, o->name, word) != GW_ERR_USAGE)
        fail_msg("%s --%s: takes '%s'", command, o->name, word);
    gw_args_free(args);
    if (!strstr(gw_err_text(), says) && !(instead && strstr(gw_err_text(), instead)))
        fail_msg("%s --%s: '%s' lacks '%s'", command, o->name, gw_err_text(), says);
    assert_null(strstr(gw_err_text(), "''"));
    assert_null(strchr(gw_err_text(), '\n'));
}

static void try_table(const char *command, const gw_opt *opts) {
    for (const gw_opt *o = opts; o && o->name; o++) {
        if (o->type == GW_OPT_FLAG)
            continue;
        options++;
        try_word(command, o, "a\nb\x1b[31m\xc2\x9b\x7f\u00e9",
                 "'a\\nb\\x1b[31m\\u009b\\x7f\u00e9' contains a control character", NULL);
        if (o->type != GW_OPT_LIST) /* a list may have no entries */
            try_word(command, o, "", "is empty: give ", "=: must be ");
    }
}

static void every_option(void **state) {
    static const gw_benchmark *const benchmarks[] = {
#define X(name) &gw_bench_##name,
#include "cli/bench/benchmarks.def"
#undef X
    };
    for (const gw_command *const *c = gw_commands; *c; c++)
        try_table((*c)->name, (*c)->opts);
    for (size_t i = 0; i < sizeof benchmarks / sizeof *benchmarks; i++)
        try_table(benchmarks[i]->name, benchmarks[i]->opts);
    assert_true(options > 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_option)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
