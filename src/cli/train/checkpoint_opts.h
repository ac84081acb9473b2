/** The options of `train` about checkpoints and restarts. */
#ifndef GW_CLI_TRAIN_CHECKPOINT_OPTS_H
#define GW_CLI_TRAIN_CHECKPOINT_OPTS_H

#include "run/config.h"

/** Into *c, or GW_ERR_USAGE for what makes no sense. Reads c->out and c->paired, too. */
gw_err gw_checkpoint_opts_read(gw_train_config *c, const gw_args *a);

#endif
