/** `gradwire bench`: one file src/cli/bench/bench_NAME.c a benchmark, one line in benchmarks.def.
 *  It has its options, its cases and how it measures them; bench_run.c has what all runs have in
 *  common, and bench_place.c where they run, and their table. The figures are defined in
 *  docs/benchmarks.md. */
#ifndef GW_CLI_BENCH_BENCH_H
#define GW_CLI_BENCH_BENCH_H

#include "base/args.h"
#include "base/stats.h"
#include "machine/host.h"
#include "mpi/agree.h"

#include <jansson.h>
#include <stdbool.h>

/** Sizes of spans in bytes, multiples of 4: a list of numbers and of ranges LOW..HIGH, which double
 *  from LOW as long as they stay within HIGH. */
typedef struct gw_bench_sizes {
    size_t bytes[GW_SPEC_ITEMS], most;
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

/** Collective: whether on some node there are more threads than CPUs with so many `helpers` in each
 *  rank beside p->threads. */
gw_err gw_bench_place_crowded(gw_bench_place *p, int helpers, bool *crowded);

/** Collective: fill *out, set OpenMP's number of threads, and whether waits yield. */
gw_err gw_bench_place_open(gw_bench_place *out, MPI_Comm comm, int threads);

/** Rank 0: print "WHAT: ranks, nodes, library" and what makes times say little. */
void gw_bench_place_say(const gw_bench_place *p, const char *what);

/** Collective: wait for all ranks, so that they go on as near together as messages allow; see
 *  docs/benchmarks.md. */
gw_err gw_bench_sync(const gw_bench_place *p);

/* ---- a benchmark ---- */

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

/* ---- its table ---- */

/** Says once how a row is printed and under which keys it is kept. */
typedef struct gw_bench_table {
    /** A printed row, its cells as in printf: s text, d whole number, f and e real; u and m
     *  seconds in microseconds and milliseconds, p a share in percent. */
    const char *form;
    const char *heads; /* "bytes|codec|..": of the printed cells */
    const char *kept;  /* types of further cells, which are not printed; b: true or false */
    const char *keys;  /* of all cells, in JSON; "" between two bars: that cell is not kept */
} gw_bench_table;

/** The cells of a row, in order: its texts, its numbers. What is NULL or not finite is absent:
 *  printed as '-', kept as null. */
#define GW_TEXTS(...)   ((const char *const[]){__VA_ARGS__})
#define GW_NUMBERS(...) ((const double[]){__VA_ARGS__})

/** Print the heads, behind an empty line. */
void gw_bench_head(const gw_bench_table *t);

/** Print a row, and append it to `rows` unless they are NULL; returns what was appended, which
 *  belongs to them. Blanks at a line's end are left out. A printed cell is one word, with '_' for
 *  blanks, but for the last. One wider than its column takes the room that the next ones leave. */
json_t *gw_bench_row(const gw_bench_table *t, json_t *rows, const char *const *texts,
                     const double *numbers);

#define X(name) extern const gw_benchmark gw_bench_##name;
#include "cli/bench/benchmarks.def"
#undef X

#endif
