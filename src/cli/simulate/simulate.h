/** `gradwire simulate` has this beside its play: training. */
#ifndef GW_CLI_SIMULATE_SIMULATE_H
#define GW_CLI_SIMULATE_SIMULATE_H

/** --train: real arithmetic in virtual time, with the options in argv[1..argc). The exit status. */
int gw_simulate_train(int argc, char **argv);
void gw_simulate_train_help(void);

#endif
