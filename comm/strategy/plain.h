/** The strategy that a run has by itself, and that others are compared with. */
#ifndef GW_COMM_STRATEGY_PLAIN_H
#define GW_COMM_STRATEGY_PLAIN_H

#define GW_STRATEGY_PLAIN "allreduce"

#endif
