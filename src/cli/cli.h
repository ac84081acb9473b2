/** The command line: one file a subcommand, found through commands.def. Only src/cli prints. */
#ifndef GW_CLI_CLI_H
#define GW_CLI_CLI_H

#include "base/args.h"

typedef struct gw_command {
    const char *name, *summary; /* one line */
    const char *usage;          /* what follows "gradwire NAME" in the help */
    const char *notes;          /* further help text, or NULL */
    const gw_opt *opts;         /* NULL: none */
    const gw_rule *rules;       /* what gw_args_check wants of them; NULL: nothing */
    /** Print the help; argv as in `run`. NULL: it is made from the above. */
    int (*help)(int argc, char **argv);
    bool parses; /* its options itself: `run` gets no args */
    /** With its options, parsed and checked; argv[0] is the command's name. Returns the exit
     *  status. */
    int (*run)(const gw_args *args, int argc, char **argv);
} gw_command;

extern const gw_command *const gw_commands[]; /* NULL-terminated */

/** Parse and check the options, unless the command does, and run it: its exit status. */
int gw_cli_start(const gw_command *c, int argc, char **argv);

/** GW_ERR_USAGE: one of argv[1..) is not UTF-8, as the JSON file of `option` has to be, which holds
 *  them: better said now than when the run is over. */
gw_err gw_cli_utf8(const char *owner, const char *option, int argc, char **argv);

/** Print "gradwire: <message of the last error>" on stderr and return the exit status for `e`. */
int gw_cli_fail(gw_err e);

#endif
