#include "cli/bench/bench.h"

#include "cli/cli.h"

#include <string.h>

static const gw_benchmark *const benchmarks[] = {
#define X(name) &gw_bench_##name,
#include "cli/bench/benchmarks.def"
#undef X
};

static const char summary[] = "measure parts: collectives, overlap, a step, its products, "
                              "codecs, pipes, the measuring itself";

enum { BENCHMARKS = sizeof benchmarks / sizeof *benchmarks };

/* The name comes first, for it decides which options there are. */
static gw_err bench_find(int argc, char **argv, const gw_benchmark **out) {
    const char *names[BENCHMARKS];
    if (argc < 2 || argv[1][0] == '-')
        return gw_fail(GW_ERR_USAGE,
                       "bench: which benchmark? try 'gradwire bench %s'; all of "
                       "them: 'gradwire bench --help'",
                       benchmarks[0]->name);
    for (int i = 0; i < BENCHMARKS; i++) {
        names[i] = benchmarks[i]->name;
        if (strcmp(argv[1], names[i]) == 0) {
            *out = benchmarks[i];
            return GW_OK;
        }
    }
    char all[128] = "there are ";
    for (int i = 0; i < BENCHMARKS; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    return gw_unknown("bench", "benchmark", argv[1], names, BENCHMARKS, all);
}

static bool bench_help(int argc, char **argv) {
    const gw_benchmark *b = NULL;
    if (argc >= 2 && bench_find(argc, argv, &b) == GW_OK) {
        printf("gradwire bench %s: %s\n\nusage: gradwire bench %s [options]\n\n", b->name,
               b->summary, b->name);
        gw_args_help(b->opts, "--", stdout);
        printf("\n%s\n", b->notes);
        return true;
    }
    printf(
        "gradwire bench: %s\n\nusage: gradwire bench NAME [options]      (under mpiexec for more "
        "ranks)\n\n",
        summary);
    for (int i = 0; i < BENCHMARKS; i++)
        printf("  %-10s %s\n", benchmarks[i]->name, benchmarks[i]->summary);
    printf("\n'gradwire bench NAME --help' lists a benchmark's options; docs/benchmarks.md defines "
           "every figure.\n");
    return true;
}

static int bench_run(const gw_args *none, int argc, char **argv) {
    (void)none;
    const gw_benchmark *b = NULL;
    gw_err e = bench_find(argc, argv, &b);
    return e == GW_OK ? gw_bench_main(b, "bench", argc - 1, argv + 1) : gw_cli_refuse(e);
}

const gw_command gw_command_bench = {
    .name = "bench",
    .summary = summary,
    .help = bench_help,
    .parses = true,
    .run = bench_run,
};
