/** `gradwire bench`: one file src/cli/bench_NAME.c a benchmark. */
#ifndef GW_CLI_BENCH_H
#define GW_CLI_BENCH_H

#include "base/args.h"

/** Options of `bench codec`, and its run over parsed values. */
extern const gw_opt gw_bench_codec_opts[];
extern const char gw_bench_codec_notes[];
gw_err gw_bench_codec(const gw_args *args);

#endif
