/** `gradwire bench`: one file src/cli/bench_NAME.c a benchmark, one line in bench.c. The figures
 * are defined in docs/benchmarks.md. */
#ifndef GW_CLI_BENCH_BENCH_H
#define GW_CLI_BENCH_BENCH_H

#include "base/args.h"
#include "mpi/agree.h"

typedef struct gw_benchmark {
    const char *name, *summary; /* one line */
    const gw_opt *opts;
    const char *notes; /* further help text */
    /** Before MPI starts: check and keep what the command line says (args outlive the run). *level:
     *  the MPI thread level that is needed, MPI_THREAD_FUNNELED unless it says else. */
    gw_err (*prepare)(const gw_args *args, int *level);
    /** On all ranks; errors and *own as gw_cli_parallel wants them. */
    gw_err (*run)(MPI_Comm comm, bool *own);
    /** Free what prepare and run kept; called in any case, after MPI has ended. */
    void (*release)(void);
} gw_benchmark;

extern const gw_benchmark gw_bench_allreduce, gw_bench_overlap, gw_bench_step, gw_bench_codec,
    gw_bench_ledger, gw_bench_overhead, gw_bench_gemm;

#endif
