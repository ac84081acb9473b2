/* Ranks that differ are refused: in each option of each command that runs on several ranks, in the
 * command, in the environment and in the files that options name. */
#include "check.h"

#include "cli/bench/bench.h"
#include "cli/cli.h"

#include <string.h>

static int refusals;

/* All ranks are refused by one line, which names this fact, and the last rank and the first one
 * with what they have; or, alone, none is. */
static void refused(gw_err e, const char *name, const char *odd, const char *even) {
    char here[256], there[256];
    if (ranks == 1) {
        CHECK_OK(e);
        return;
    }
    snprintf(here, sizeof here, "rank %d has %s%s%s%s%s,", ranks - 1, odd ? "" : "no ", name,
             odd ? " '" : "", odd ? odd : "", odd ? "'" : "");
    snprintf(there, sizeof there, "rank 0 %s%s%s%s%s:", even ? "" : "no ", name, even ? " '" : "",
             even ? even : "", even ? "'" : "");
    const char *text = gw_err_text();
    CHECK(e == GW_ERR_USAGE, "%s: %d: %s", name, e, text);
    CHECK(strstr(text, here) && strstr(text, there), "'%s' and '%s' are missed in: %s", here, there,
          text);
    CHECK(!strchr(text, '\n'), "%s", text);
    refusals++;
}

/* Two values that option `o` takes; NULL: it is not given. False: it takes one alone. */
static bool two_values(const gw_opt *o, char a[128], char b[128]) {
    static const char *const texts[][2] = {
        [GW_OPT_TEXT] = {"a", "b"},       [GW_OPT_PATH] = {"a", "b"},
        [GW_OPT_FILE] = {"a", "b"},       [GW_OPT_LIST] = {"3", "3,4"},
        [GW_OPT_EVERY] = {"500", "500s"}, [GW_OPT_SPEC] = {"a:b=1", "a:b=2"},
        [GW_OPT_SPECS] = {"a", "a;c"},    [GW_OPT_COMMAS] = {"a,b", "a,c"},
        [GW_OPT_CHAIN] = {"a", "a+b"}};
    bool bounded = o->min != 0 || o->max != 0;
    if (o->type == GW_OPT_CHOICE) {
        size_t first = strcspn(o->choices, "|");
        snprintf(a, 128, "%.*s", (int)first, o->choices);
        const char *second = o->choices + first + (o->choices[first] == '|');
        snprintf(b, 128, "%.*s", (int)strcspn(second, "|"), second);
        return *second;
    }
    if (o->type == GW_OPT_INT || o->type == GW_OPT_BYTES) {
        snprintf(a, 128, "%.0f", bounded ? o->min : 1);
        snprintf(b, 128, "%.0f", bounded ? o->min + 1 : 2);
    } else if (o->type == GW_OPT_REAL || o->type == GW_OPT_TIME) {
        snprintf(a, 128, "%.17g", bounded ? o->min : 1);
        snprintf(b, 128, "%.17g", bounded ? o->max : 2);
    } else if (o->type != GW_OPT_FLAG) {
        CHECK(o->type < sizeof texts / sizeof *texts && texts[o->type][0], "--%s has type %d",
              o->name, o->type);
        strcpy(a, texts[o->type][0]);
        strcpy(b, texts[o->type][1]);
    }
    return true;
}

static gw_err compare(const char *command, const gw_opt *opts, const char *name,
                      const char *value) {
    gw_args *args = NULL;
    CHECK_OK(gw_args_new(&args, opts));
    if (value)
        CHECK_OK(gw_args_set(args, command, name, value));
    gw_cli_told told = {.command = command, .args = args};
    gw_err e = gw_cli_alike(&told, MPI_COMM_WORLD);
    gw_args_free(args);
    return e;
}

static void try_option(const char *command, const gw_opt *opts, const gw_opt *o) {
    bool odd = me == ranks - 1 && ranks > 1;
    char a[128], b[128], name[128];
    snprintf(name, sizeof name, "--%s", o->name);
    if (o->type == GW_OPT_FLAG) {
        refused(compare(command, opts, o->name, odd ? "1" : "0"), name, "on", NULL);
        refused(compare(command, opts, o->name, odd ? NULL : "1"), name, NULL, "on");
        CHECK_OK(compare(command, opts, o->name, "1"));
    } else {
        CHECK(two_values(o, a, b), "--%s takes one value alone", o->name);
        refused(compare(command, opts, o->name, odd ? b : a), name, b, a);
        const char *def = o->def;
        if (!def || strcmp(def, a) != 0) /* given on one rank, the default on others */
            refused(compare(command, opts, o->name, odd ? a : NULL), name, a, def);
        CHECK_OK(compare(command, opts, o->name, b));
    }
}

static void try_table(const char *command, const gw_opt *opts) {
    int n = 0;
    for (const gw_opt *o = opts; o && o->name; o++, n++)
        try_option(command, opts, o);
    CHECK(n > 0 || strcmp(command, "bench") == 0, "%s has no options", command);
}

static void try_tables(void) {
    static const gw_benchmark *const benchmarks[] = {
#define X(name) &gw_bench_##name,
#include "cli/bench/benchmarks.def"
#undef X
    };
    for (const gw_command *const *c = gw_commands; *c; c++)
        try_table((*c)->name, (*c)->opts);
    for (size_t i = 0; i < sizeof benchmarks / sizeof *benchmarks; i++)
        try_table(benchmarks[i]->name, benchmarks[i]->opts);
}

static void try_command(void) {
    bool odd = me == ranks - 1 && ranks > 1;
    refused(compare(odd ? "eval" : "train", NULL, NULL, NULL), "command", "eval", "train");
}

static void try_environment(void) {
    static const char *const watched[] = {"GW_SIMD", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM",
                                          "OMP_DYNAMIC", "DNNL_MAX_CPU_ISA",
                                          "OPENBLAS_NUM_THREADS"};
    static const char *const others[] = {"OMP_NUM_THREADS", "UCX_NET_DEVICES", "GW_DATA_DIR",
                                         "OMP_PLACES"};
    bool odd = me == ranks - 1 && ranks > 1;
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
        char name[128];
        snprintf(name, sizeof name, "$%s", watched[i]);
        setenv(watched[i], odd ? "a" : "b", 1);
        refused(compare("train", NULL, NULL, NULL), name, "a", "b");
        odd ? setenv(watched[i], "b", 1) : unsetenv(watched[i]);
        refused(compare("train", NULL, NULL, NULL), name, "b", NULL);
        odd ? unsetenv(watched[i]) : setenv(watched[i], "b", 1);
        refused(compare("train", NULL, NULL, NULL), name, NULL, "b");
        unsetenv(watched[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        setenv(others[i], odd ? "1" : "2", 1);
    CHECK_OK(compare("train", NULL, NULL, NULL));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
}

/* A file of this name, in a folder of this rank's; text NULL: there is none. */
static void put(const char *name, const char *text) {
    unlink(name);
    FILE *to = text ? fopen(name, "w") : NULL;
    CHECK(!text || (to && fputs(text, to) >= 0 && fclose(to) == 0), "cannot write %s", name);
}

static void try_files(void) {
    static const gw_opt opts[] = {{"table", GW_OPT_FILE, NULL, 0, 0, NULL, NULL, ""},
                                  {"comm", GW_OPT_SPEC, "", 0, 0, NULL, NULL, ""},
                                  {"json", GW_OPT_TEXT, NULL, 0, 0, NULL, NULL, ""},
                                  {0}};
    static const char one[] =
        "x.csv: 3 bytes, crc32 352441c2, adler32 024d0127", /* zlib's of "abc", and of "abd" */
        other[] = "x.csv: 3 bytes, crc32 ab40d461, adler32 024e0128";
    bool odd = me == ranks - 1 && ranks > 1;
    char dir[] = "/tmp/test_alike.XXXXXX";
    CHECK(mkdtemp(dir) && chdir(dir) == 0, "no folder");
    put("x.csv", odd ? "abd" : "abc");
    CHECK_OK(compare("train", opts, "json", "x.csv")); /* it is written, not read */
    refused(compare("train", opts, "table", "x.csv"), "file of --table", other, one);
    refused(compare("train", opts, "comm", "allreduce:algo=(auto:table=x.csv)"), "file of --comm",
            other, one);
    put("x.csv", odd ? NULL : "abc");
    refused(compare("train", opts, "table", "x.csv"), "file of --table", NULL, one);
    put("x.csv", odd ? "abc" : NULL);
    refused(compare("train", opts, "comm", "x.csv:a=b"), "file of --comm", one, NULL);
    put("x.csv", "abc");
    CHECK_OK(compare("train", opts, "table", "x.csv"));
    put("x.csv", NULL);
    CHECK(chdir("/") == 0 && rmdir(dir) == 0, "the folder stays");
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    try_tables();
    try_command();
    try_environment();
    try_files();
    CHECK(ranks == 1 || refusals > 300, "%d", refusals);
    MPI_Finalize();
    return 0;
}
