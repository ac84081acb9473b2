/** gradwire simulate --train: real arithmetic in virtual time. */
#ifndef GW_CLI_SIMULATE_TRAIN_H
#define GW_CLI_SIMULATE_TRAIN_H

void gw_simulate_train_help(void);

/** Run it with the options in argv[1..argc). The exit status. */
int gw_simulate_train(int argc, char **argv);

#endif
