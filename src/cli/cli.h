/** The command line: one file a subcommand, found through commands.def. Only src/cli prints.
 *  Running a command on all ranks: MPI started, errors told once, exit statuses agreed. */
#ifndef GW_CLI_CLI_H
#define GW_CLI_CLI_H

#include "base/args.h"

#include <mpi.h>
#include <stdbool.h>

typedef struct gw_command {
    const char *name, *summary; /* one line */
    const char *usage;          /* what follows "gradwire NAME" in the help */
    const char *notes;          /* further help text, or NULL */
    const gw_opt *opts;         /* NULL: none */
    const gw_rule *rules;       /* what gw_args_check wants of them; NULL: nothing */
    /** Print the help, and return true; argv as in `run`. NULL or false: it is made from the
     *  above. */
    bool (*help)(int argc, char **argv);
    bool parses; /* its options itself: `run` gets no args */
    /** With its options, parsed and checked; argv[0] is the command's name. Returns the exit
     *  status. */
    int (*run)(const gw_args *args, int argc, char **argv);
} gw_command;

extern const gw_command *const gw_commands[]; /* NULL-terminated */

/** Parse and check the options that a command is `run` with; *args NULL: it does so itself. Free
 *  them, also after an error. */
gw_err gw_cli_read(const gw_command *c, int argc, char **argv, gw_args **args);

/** GW_ERR_USAGE: one of argv[1..) is not UTF-8, as the JSON file of `option` has to be, which holds
 *  them: better said now than when the run is over. */
gw_err gw_cli_utf8(const char *owner, const char *option, int argc, char **argv);

/** The command line, for run.json; free(). NULL: out of memory. */
char *gw_cli_line(int argc, char **argv);

/** Print "gradwire: <message of the last error>" on stderr and return the exit status for `e`. */
int gw_cli_fail(gw_err e);

/** What all ranks must have been told alike: by the command line, and by a file that it names
 *  beside those of its options. */
typedef struct gw_cli_told {
    const char *command, *part; /* "bench", "step"; part NULL: it has none */
    const gw_args *args;
    const char *file; /* NULL: none */
} gw_cli_told;

/** Collective: GW_ERR_USAGE, in the command's name, if the ranks were told different things, or
 *  differ as mpi/alike.h says. */
gw_err gw_cli_alike(const gw_cli_told *told, MPI_Comm comm);

/** Start MPI at thread level `level`. `parsed` is the result of reading the command line. The error
 *  of any rank there (such as a plugin that its host lacks) is returned by all, as is that the
 *  ranks were `told` different things, or that another MPI's launcher has started them. */
gw_err gw_cli_begin(const gw_cli_told *told, int level, gw_err parsed);

/** End MPI; return the exit status for `e`, which rank 0 prints, unless it is `own`: then the rank
 *  that has it prints it and ends the whole job. */
int gw_cli_end(gw_err e, bool own);

/** gw_cli_begin, `body` on all ranks unless that failed, and gw_cli_end. */
int gw_cli_parallel(const gw_cli_told *told, int level, gw_err parsed,
                    gw_err (*body)(void *ctx, MPI_Comm comm, bool *own), void *ctx);

/** Report a bad command line of a command that runs on one rank: once, on any number of ranks.
 *  Returns the exit status. */
int gw_cli_refuse(gw_err e);

#endif
