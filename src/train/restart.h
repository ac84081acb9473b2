/** What run.json tells of checkpoints, and of what a run was interrupted by. */
#ifndef GW_TRAIN_RESTART_H
#define GW_TRAIN_RESTART_H

#include "checkpoint/resume.h"
#include "train/result.h"

/** "checkpoints": those of this start; null: none were asked for. */
json_t *gw_checkpoints_json(const gw_train_config *c, const gw_train_result *r);

/** "resumed": null, if this start began at step 0. `utc`: when it began. `counted`: how many of the
 *  earlier steps the summary includes; it leaves out steps on another number of ranks, and steps
 *  whose rows are lost. */
json_t *gw_resumed_json(const gw_resume *r, const char *utc, int64_t counted);

/** For a start that took no step: copy the figures that "since_resume" names and no other file has
 *  into `run` from `told`, the run.json of the start that took the last step, if it had as many
 *  ranks. */
void gw_restart_keep(json_t *run, const json_t *told);

/** Rank 0: note in DIR's history that the run went on, or that it began again after an interruption
 *  that is noted there. */
gw_err gw_restart_note(const char *dir, const gw_resume *r, int ranks);

#endif
