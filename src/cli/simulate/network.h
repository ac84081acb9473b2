/** The options that describe a simulated network, for the commands that have them. */
#ifndef GW_CLI_SIMULATE_NETWORK_H
#define GW_CLI_SIMULATE_NETWORK_H

#include "comm/fabric/sim.h"

enum { GW_SIM_MOST_RANKS = 1 << 20 };

/** Rows of a table of options, beside `ranks`, a whole number in [1, GW_SIM_MOST_RANKS]. */
#define GW_SIM_NETWORK_OPTS                                                                        \
    {"link",                                                                                       \
     GW_OPT_TEXT,                                                                                  \
     NULL,                                                                                         \
     0,                                                                                            \
     0,                                                                                            \
     NULL,                                                                                         \
     "RATE[,LATENCY[,OVERHEAD]]",                                                                  \
     "of each host, each way: 1gbit,50us,2us; overhead: of a message, at each end"},               \
        {"network",                                                                                \
         GW_OPT_SPEC,                                                                              \
         "star",                                                                                   \
         0,                                                                                        \
         0,                                                                                        \
         NULL,                                                                                     \
         "NETWORK",                                                                                \
         "how the hosts' links meet: star, fattree:racks=R,uplink=RATE, torus:dims=AxBxC, "        \
         "dragonfly:groups=G,routers=R, file:path=FILE (docs/simulate.md)"},                       \
        {"per-host", GW_OPT_INT, "1", 1, GW_SIM_MOST_RANKS, NULL, "K", "ranks of each host"}, {    \
        "memory-link", GW_OPT_TEXT, "80gbit,1us", 0, 0, NULL, "RATE[,LATENCY[,OVERHEAD]]",         \
            "that the ranks of one host share"                                                     \
    }

/** Put their values into *w: all that it says of ranks, links and the network, which
 *  gw_network_close frees. Messages name `owner`. GW_ERR_USAGE, GW_ERR_INPUT. */
gw_err gw_sim_network_read(gw_sim_setup *w, gw_network **network, const gw_args *args,
                           const char *owner);

#endif
