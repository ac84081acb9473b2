/* gradwire list: what the registries hold, out of the tables that parse the options. */
#include "cli/cli.h"
#include "cli/parallel.h"
#include "comm/strategy.h"

#include <string.h>

static void print(const gw_registry *reg, const char *plural, const char *option) {
    printf("%s (%s):\n", plural, option);
    for (const gw_entry *const *e = reg->entries; *e; e++) {
        printf("  %-12s %s\n", (*e)->name, (*e)->summary);
        for (const gw_opt *o = (*e)->opts; o && o->name; o++) {
            const gw_opt one[] = {*o, {0}};
            printf("      ");
            gw_args_help(one, ":", stdout);
        }
    }
    printf("\n");
}

static int run(int argc, char **argv) {
    gw_args *none = NULL;
    gw_err e = gw_args_new(&none, NULL);
    if (e == GW_OK)
        e = gw_args_argv(none, "list", argc, argv, NULL);
    gw_args_free(none);
    if (e != GW_OK)
        return gw_cli_refuse(e);
    print(&gw_strategies, "strategies", "--comm NAME:option=value,..");
    print(&gw_algos, "algorithms", "option algo=NAME of a strategy");
    print(&gw_codecs, "codecs", "--compress NAME:option=value,..");
    return 0;
}

const gw_command gw_command_list = {
    .name = "list",
    .summary = "strategies, algorithms and codecs with their options",
    .usage = "",
    .run = run,
};
