#include "cli/bench.h"
#include "base/agree.h"
#include "cli/cli.h"
#include "cli/parallel.h"

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

static gw_err body(void *args, MPI_Comm comm, bool *own) {
    int ranks;
    *own = false;
    GW_MPI(MPI_Comm_size(comm, &ranks));
    if (ranks > 1)
        return gw_fail(GW_ERR_USAGE,
                       "bench codec: measures one process: start it on 1 rank, not %d", ranks);
    return gw_bench_codec(args);
}

static int run(int argc, char **argv) {
    gw_args *args = NULL;
    int words = 0;
    gw_err e = gw_args_new(&args, gw_bench_codec_opts);
    if (e == GW_OK)
        e = gw_args_argv(args, "bench", argc, argv, &words);
    if (e == GW_OK)
        e = check_name(words, argv);
    int status = gw_cli_parallel(MPI_THREAD_FUNNELED, e, body, args);
    gw_args_free(args);
    return status;
}

const gw_command gw_command_bench = {
    .name = "bench",
    .summary = "speed of the parts alone: codecs against memcpy",
    .usage = "codec [options]",
    .notes = gw_bench_codec_notes,
    .opts = gw_bench_codec_opts,
    .run = run,
};
