/* The program: finds the command, the tool or the help that its words ask for. */
#include "cli/cli.h"
#include "cli/tools.h"

#include "base/text.h"
#include "base/version.h"
#include "nn/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gw_tool tools[GW_TOOLS_MOST];

static int main_help(void) {
    size_t count;
    gw_err e = gw_tools_find(tools, &count);
    if (e != GW_OK)
        return gw_cli_refuse(e);
    printf("gradwire " GW_VERSION ": data-parallel training over MPI, and where each batch's "
           "time goes\n\nusage: gradwire COMMAND [options]      (under mpiexec for more ranks)"
           "\n\ncommands:\n");
    for (const gw_command *const *c = gw_commands; *c; c++)
        printf("  %-12s %s\n", (*c)->name, (*c)->summary);
    printf("\ntools, which can also be called as gradwire-NAME:\n");
    for (size_t i = 0; i < count; i++)
        printf("  %-12s %s\n", tools[i].name, tools[i].summary);
    printf("\n'gradwire help COMMAND' lists a command's options.\n");
    return 0;
}

static void main_command_help(const gw_command *c) {
    printf("gradwire %s: %s\n\nusage: gradwire %s %s\n\n", c->name, c->summary, c->name, c->usage);
    gw_args_help(c->opts, "--", stdout);
    if (c->notes)
        printf("\n%s\n", c->notes);
}

/* Refuse commands, options and benchmarks that are gone, and say what to use instead. An option is
 * found as a word of its own, a benchmark as the first one. */
static gw_err main_check_gone(int argc, char **argv) {
    static const struct {
        const char *command, *option, *instead;
    } gone[] = {
#define X(command, option, instead) {command, option, instead},
#include "cli/gone.def"
#undef X
    };
    for (size_t k = 0; k < sizeof gone / sizeof *gone; k++) {
        size_t len = strlen(gone[k].option);
        if (strcmp(gone[k].command, argv[1]) != 0)
            continue;
        if (len == 0)
            return gw_fail(GW_ERR_USAGE, "%s is gone: %s", argv[1], gone[k].instead);
        for (int i = 2; i < (*gone[k].option == '-' ? argc : 3) && i < argc; i++)
            if (strncmp(argv[i], gone[k].option, len) == 0 &&
                (!argv[i][len] || argv[i][len] == '='))
                return gw_fail(GW_ERR_USAGE, "%s: %s is gone: %s", argv[1], gone[k].option,
                               gone[k].instead);
    }
    return GW_OK;
}

/* What is no command may be a tool. */
static gw_err main_run_tool(char **argv) {
    const char *names[GW_TOOLS_MOST + 32];
    char all[512] = "must be ";
    size_t commands = 0, count;
    GW_TRY(gw_tools_find(tools, &count));
    for (; gw_commands[commands]; commands++)
        names[commands] = gw_commands[commands]->name;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(tools[i].name, argv[0]) == 0)
            exit(gw_cli_fail(gw_tool_run(argv))); /* not by MPI: other ranks may be gone */
        names[commands + i] = tools[i].name;
    }
    for (size_t i = 0, at = strlen(all); i < commands + count; i++)
        at += gw_text_print(all + at, sizeof all - at, i ? ", %s" : "%s", names[i]);
    return gw_unknown(NULL, "command", argv[0], names, commands + count, all);
}

static bool main_asks_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Status 0 promises that all was printed. */
static int main_end(int status) {
    if (status == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        return gw_cli_fail(gw_fail(GW_ERR_IO, "cannot write the output: is the disk full?"));
    return status;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "help") == 0) { /* help NAME: NAME --help */
        memmove(&argv[1], &argv[2], (size_t)(argc - 2) * sizeof *argv);
        argv[argc - 1] = "--help";
    }
    if (argc < 2 || main_asks_help(argv[1]) || strcmp(argv[1], "help") == 0)
        return main_end(main_help());
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("gradwire " GW_VERSION " (" GW_COMMIT ")\n");
        return main_end(0);
    }
    gw_gemm_mend(argv);
    if (main_check_gone(argc, argv) != GW_OK)
        return gw_cli_refuse(GW_ERR_USAGE);
    const gw_command *const *found = gw_commands, *c;
    while ((c = *found) && strcmp(c->name, argv[1]) != 0)
        found++;
    if (!c)
        return gw_cli_refuse(main_run_tool(argv + 1));
    for (int i = 2; i < argc; i++)
        if (main_asks_help(argv[i])) {
            if (!c->help || !c->help(argc - 1, argv + 1))
                main_command_help(c);
            return main_end(0);
        }
    gw_args *args;
    gw_err e = gw_cli_read(c, argc - 1, argv + 1, &args);
    int status = e == GW_OK ? c->run(args, argc - 1, argv + 1) : gw_cli_refuse(e);
    gw_args_free(args);
    return main_end(status);
}
