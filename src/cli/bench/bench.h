/** `gradwire bench`: one file src/cli/bench/bench_NAME.c a benchmark, one line in benchmarks.def.
 *  It has its options, its cases and how it measures them; bench_run.c has what all have in common.
 *  The figures are defined in docs/benchmarks.md. */
#ifndef GW_CLI_BENCH_BENCH_H
#define GW_CLI_BENCH_BENCH_H

#include "cli/bench/bench_kit.h"
#include "cli/bench/bench_table.h"

/** What a run of a benchmark has. */
typedef struct gw_bench_run {
    const gw_args *args;
    int level;   /* of MPI threads that is needed; FUNNELED unless `prepare` says else */
    int threads; /* OpenMP's: the option threads; 1 without one */
    gw_bench_place place;
    json_t *results; /* the rows, an array */
    json_t *facts;   /* of the run, beside those that every document has */
} gw_bench_run;

/** Functions that are NULL have nothing to do. Errors and *own as gw_cli_parallel wants them. */
typedef struct gw_benchmark {
    const char *name, *summary; /* one line */
    const gw_opt *opts;         /* with json */
    const gw_rule *rules;       /* what gw_args_check wants of them; NULL: nothing */
    void *config;               /* what gw_args_fill fills; NULL: nothing */
    const char *notes;          /* further help text */
    bool alone;                 /* runs on one rank */
    struct gw_grid *grid;       /* to close and free; NULL: none */
    bool denormals;             /* flushing them is its own affair */
    /** Before MPI starts: check and keep what the command line says (args outlive the run). */
    gw_err (*prepare)(gw_bench_run *run);
    /** Collective: open and measure; rank 0 may print as it goes. */
    gw_err (*measure)(gw_bench_run *run, bool *own);
    /** Rank 0, after it: print, and complete results and facts. */
    void (*report)(gw_bench_run *run);
    /** On all ranks, after the file was written: what the figures are worth. */
    gw_err (*verdict)(gw_bench_run *run);
    /** Collective, unless a rank failed on its own; `measure` may have failed. */
    void (*close)(void);
    /** Free what prepare and measure kept; called in any case, after MPI has ended. */
    void (*release)(void);
} gw_benchmark;

/** Run one with the options in argv[1..argc); messages name `owner`. The exit status. */
int gw_bench_main(const gw_benchmark *b, const char *owner, int argc, char **argv);

/** The last columns of an option that fills a member of the benchmark's `state`. */
#define INTO(member) GW_OPT_INTO(state, member)

/** The option --json, which every benchmark has. */
#define GW_BENCH_JSON                                                                              \
    { "json", GW_OPT_TEXT, NULL, 0, 0, NULL, "FILE", "write all figures to FILE" }

#define X(name) extern const gw_benchmark gw_bench_##name;
#include "cli/bench/benchmarks.def"
#undef X

#endif
