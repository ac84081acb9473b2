/** How a run that hangs is heard, and how it ends: for the watchdog (run/watchdog.h). */
#ifndef GW_CLI_LAST_WORDS_H
#define GW_CLI_LAST_WORDS_H

#include "run/watchdog.h"

extern const gw_watchdog_voice gw_cli_voice;

#endif
