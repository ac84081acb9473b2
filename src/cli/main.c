#include "cli/cli.h"
#include "cli/parallel.h"

#include "base/version.h"
#include "nn/gemm.h"

#include <stdio.h>
#include <string.h>

int gw_cli_fail(gw_err e) {
    fprintf(stderr, "gradwire: %s\n", gw_err_text());
    return gw_err_status(e);
}

static int help(void) {
    printf("gradwire " GW_VERSION ": data-parallel training over MPI, and where each batch's "
           "time goes\n\nusage: gradwire COMMAND [options]      (under mpiexec for more ranks)"
           "\n\ncommands:\n");
    for (const gw_command *const *c = gw_commands; *c; c++)
        printf("  %-12s %s\n", (*c)->name, (*c)->summary);
    printf("\n'gradwire COMMAND --help' lists a command's options.\n");
    return 0;
}

static int command_help(const gw_command *c) {
    printf("gradwire %s: %s\n\nusage: gradwire %s %s\n\n", c->name, c->summary, c->name, c->usage);
    gw_args_help(c->opts, "--", stdout);
    if (c->notes)
        printf("\n%s\n", c->notes);
    return 0;
}

static const gw_command *find(const char *name) {
    const char *names[32] = {NULL};
    size_t n = 0;
    for (; gw_commands[n]; n++) {
        names[n] = gw_commands[n]->name;
        if (strcmp(names[n], name) == 0)
            return gw_commands[n];
    }
    const char *near = gw_nearest(name, names, n);
    gw_fail(GW_ERR_USAGE, "unknown command '%s'%s%s%s: see 'gradwire --help'", name,
            near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        gw_fail(GW_ERR_USAGE, "no command: see 'gradwire --help'");
        return gw_cli_refuse(GW_ERR_USAGE);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return help();
    if (strcmp(argv[1], "--version") == 0) {
        printf("gradwire " GW_VERSION " (" GW_COMMIT ")\n");
        return 0;
    }
    gw_gemm_mend(argv);
    const gw_command *c = find(argv[1]);
    if (!c)
        return gw_cli_refuse(GW_ERR_USAGE);
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return c->help ? c->help(argc - 1, argv + 1) : command_help(c);
    return c->run(argc - 1, argv + 1);
}
