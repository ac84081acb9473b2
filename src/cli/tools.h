/** Tools: programs named gradwire-NAME that lie beside this one, as the scripts of analysis/ and
 * experiments/ do in the build folder and where they are installed. `gradwire NAME` runs them. */
#ifndef GW_CLI_TOOLS_H
#define GW_CLI_TOOLS_H

#include "base/err.h"

#include <stddef.h>

typedef struct gw_tool {
    char name[32];
    char summary[128]; /* what follows "gradwire NAME: " in its second line; "": nothing does */
} gw_tool;

enum { GW_TOOLS_MOST = 64 };

/** Fill in the *count tools there are, in the order of their names. GW_ERR_INPUT: the folder of
 *  this program is not known. */
gw_err gw_tools_find(gw_tool tools[GW_TOOLS_MOST], size_t *count);

/** Become the tool argv[0], with the arguments argv[1], .. and under a launcher on its first rank
 *  only: the others exit. Returns where it cannot be started. */
gw_err gw_tool_run(char **argv);

#endif
