/** What `gradwire simulate` has beside its play: the folder of a simulated run, and training. */
#ifndef GW_CLI_SIMULATE_SIMULATE_H
#define GW_CLI_SIMULATE_SIMULATE_H

#include "base/args.h"
#include "folder/claim.h"
#include "play/play.h"

#include <jansson.h>

/* The folder: run.json and batches.csv as a real run has them, marked by `simulated` in run.json.
 * docs/run-folder.md says what such a folder lacks. */

/** Before the run: lock `dir`, have the play keep what each step is, and check that its run may lie
 *  there. What lies there stays. */
gw_err gw_sim_folder_take(const char *dir, bool overwrite, gw_sim_play *p, gw_claim **claim);

/** After it: replace what lies there. `simulated` (owned): engine, network and parameters;
 *  `command`: the command line. */
gw_err gw_sim_folder_write(const char *dir, bool overwrite, const gw_sim_play *p,
                           const gw_args *args, const char *command, json_t *simulated);

/** --train: real arithmetic in virtual time, with the options in argv[1..argc). The exit status. */
int gw_simulate_train(int argc, char **argv);
void gw_simulate_train_help(void);

#endif
