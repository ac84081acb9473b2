/* The table of commands, out of commands.def. */
#include "cli/cli.h"

#define X(name) extern const gw_command gw_command_##name;
#include "cli/commands.def"
#undef X

const gw_command *const gw_commands[] = {
#define X(name) &gw_command_##name,
#include "cli/commands.def"
#undef X
    NULL,
};
