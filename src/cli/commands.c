/* The table of commands, out of commands.def, and how their options are read. */
#include "base/text.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

#define X(name) extern const gw_command gw_command_##name;
#include "cli/commands.def"
#undef X

const gw_command *const gw_commands[] = {
#define X(name) &gw_command_##name,
#include "cli/commands.def"
#undef X
    NULL,
};

gw_err gw_cli_utf8(const char *owner, const char *option, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!gw_text_utf8(argv[i]))
            return gw_fail(GW_ERR_USAGE,
                           "%s: '%s' is not UTF-8, as all text in the JSON file of --%s has to be: "
                           "write it so, rename the file, or remove --%s",
                           owner, argv[i], option, option);
    return GW_OK;
}

char *gw_cli_line(int argc, char **argv) {
    size_t len = sizeof "gradwire";
    for (int i = 0; i < argc; i++)
        len += strlen(argv[i]) + 1;
    char *line = malloc(len);
    if (!line)
        return NULL;
    strcpy(line, "gradwire");
    for (int i = 0; i < argc; i++)
        strcat(strcat(line, " "), argv[i]);
    return line;
}

gw_err gw_cli_read(const gw_command *c, int argc, char **argv, gw_args **args) {
    *args = NULL;
    if (c->parses)
        return GW_OK;
    GW_TRY(gw_args_new(args, c->opts));
    GW_TRY(gw_args_argv(*args, c->name, argc, argv, NULL));
    return gw_args_check(*args, c->rules, c->name);
}
