#include "cli/bench.h"
#include "cli/cli.h"

#include <string.h>

static const char *const names[] = {"codec"};

static gw_err check_name(int words, char **argv) {
    const size_t n = sizeof names / sizeof *names;
    if (words == 0)
        return gw_fail(GW_ERR_USAGE, "bench: which benchmark? try 'gradwire bench %s'", names[0]);
    if (words > 1)
        return gw_fail(GW_ERR_USAGE, "bench: unexpected word '%s': options start with --", argv[2]);
    for (size_t i = 0; i < n; i++)
        if (strcmp(argv[1], names[i]) == 0)
            return GW_OK;
    const char *near = gw_nearest(argv[1], names, n);
    return gw_fail(GW_ERR_USAGE, "bench: unknown benchmark '%s': %s'%s'%s", argv[1],
                   near ? "did you mean " : "there is ", near ? near : names[0], near ? "?" : "");
}

static int run(int argc, char **argv) {
    gw_args *args = NULL;
    int words = 0;
    gw_err e = gw_args_new(&args, gw_bench_codec_opts);
    if (e == GW_OK)
        e = gw_args_argv(args, "bench", argc, argv, &words);
    if (e == GW_OK)
        e = check_name(words, argv);
    if (e == GW_OK)
        e = gw_bench_codec(args);
    gw_args_free(args);
    return e == GW_OK ? 0 : gw_cli_fail(e);
}

const gw_command gw_command_bench = {
    .name = "bench",
    .summary = "speed of the parts alone: codecs against memcpy",
    .usage = "codec [options]",
    .notes = gw_bench_codec_notes,
    .opts = gw_bench_codec_opts,
    .run = run,
};
