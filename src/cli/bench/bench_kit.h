/** Sizes in options, where a benchmark runs, a synchronised start. */
#ifndef GW_CLI_BENCH_BENCH_KIT_H
#define GW_CLI_BENCH_BENCH_KIT_H

#include "base/args.h"
#include "base/stats.h"
#include "machine/host.h"
#include "mpi/agree.h"

#include <stdbool.h>

enum { GW_BENCH_ITEMS = GW_SPEC_ITEMS };

/** Sizes of spans in bytes, multiples of 4: a list of numbers and of ranges LOW..HIGH, which double
 *  from LOW as long as they stay within HIGH. */
typedef struct gw_bench_sizes {
    size_t bytes[GW_BENCH_ITEMS], most;
    int n;
} gw_bench_sizes;

gw_err gw_bench_sizes_read(gw_bench_sizes *out, const char *text);

/** Where a benchmark runs. */
typedef struct gw_bench_place {
    MPI_Comm comm;
    int rank, ranks, nodes;
    int threads;         /* OpenMP threads a rank */
    bool oversubscribed; /* on some node more threads than CPUs: waits must yield */
    bool crowded;        /* the same with a progress thread in each rank */
    gw_host_node node;   /* without progress threads */
    char mpi[64];        /* the MPI library */
} gw_bench_place;

/** Collective. Sets OpenMP's number of threads, and whether waits yield. */
gw_err gw_bench_place_open(gw_bench_place *out, MPI_Comm comm, int threads);

/** Collective: whether on some node there are more threads than CPUs with so many `helpers` in each
 *  rank beside p->threads. */
gw_err gw_bench_place_crowded(gw_bench_place *p, int helpers, bool *crowded);

/** Rank 0: print "WHAT: ranks, nodes, library" and what makes times say little. */
void gw_bench_place_say(const gw_bench_place *p, const char *what);

/** Collective: wait for all ranks, so that they go on as near together as messages allow; see
 *  docs/benchmarks.md. With `yield` between polls the core is given away. */
gw_err gw_bench_sync(const gw_bench_place *p);

#endif
