/** A command and all processes that come of it, wherever their parents go: those that outlive their
 *  parents become children of this process. A launcher's ranks have sessions of their own, so a
 *  process group alone would miss them. One command at a time. */
#ifndef GW_CLI_OFFSPRING_H
#define GW_CLI_OFFSPRING_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/** Once, before the first start: SIGTERM, SIGINT and SIGCHLD wait for gw_offspring_wait. */
gw_err gw_offspring_open(void);

/** Start argv[0] (sought in PATH) in a process group of its own, with nothing to read. It gets
 *  SIGTERM when this process dies. GW_ERR_INPUT: it cannot be started. */
gw_err gw_offspring_start(char *const argv[], pid_t *pid);

/** What the wait is over for. */
typedef struct gw_offspring_event {
    bool ended; /* the command itself: */
    int status; /*   as waitpid gives it */
    int signal; /* SIGTERM or SIGINT came to this process */
} gw_offspring_event;

/** Wait for the end of `pid` or a signal, at most `seconds` (below 0: without limit); all false and
 *  0: the time is over. */
gw_offspring_event gw_offspring_wait(pid_t pid, double seconds);

/** Send `sig` to those that the command has left behind, and wait for their end, `seconds` at most.
 */
void gw_offspring_hand_on(int sig, double seconds);

/** Kill what is left of the command, and return when nothing is. */
void gw_offspring_end(pid_t pid);

#endif
