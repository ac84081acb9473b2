/** What is said of a replay: in run.json that it is one, and of what; a line with its figures. */
#ifndef GW_CLI_REPLAY_REPLAY_REPORT_H
#define GW_CLI_REPLAY_REPLAY_REPORT_H

#include "cli/replay/player.h"

typedef struct gw_replay_facts {
    const gw_player *player;
    const char *out, *gradients;
    bool data_dependent; /* a codec's bytes or time depend on gradients, and these are drawn */
} gw_replay_facts;

/** Rank 0, when the run's folder is complete: mark its run.json, and print, if `tells`. */
gw_err gw_replay_report(const gw_replay_facts *facts, bool tells);

#endif
