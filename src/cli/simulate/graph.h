/** What simulated ranks do, as other engines read it: a graph of messages and computations.
 *
 *  It is this run's own order: each message and computation of a rank waits for the last
 *  computation before it, and for all that the rank had seen complete until then (a computation of
 *  0 ns joins these). Each message of the run has a tag of its own. */
#ifndef GW_CLI_SIMULATE_GRAPH_H
#define GW_CLI_SIMULATE_GRAPH_H

#include "comm/fabric/sim.h"

#include <stdio.h>

/** JOINS: one more that the next CALC waits for; they stand right before it. */
enum { GW_GRAPH_SEND, GW_GRAPH_RECV, GW_GRAPH_CALC, GW_GRAPH_JOINS };

typedef struct gw_graph_op {
    int kind, peer;
    int64_t amount, after; /* bytes, or ns; the number of what it waits for, -1: nothing */
    uint32_t tag;
} gw_graph_op;

typedef struct gw_graph_rank {
    gw_graph_op *op;       /* numbered by their place */
    int64_t n, room, last; /* last: the CALC that all later ones wait for; -1: none */
} gw_graph_rank;

typedef struct gw_graph {
    int ranks;
    uint32_t tags;
    bool full; /* memory ran out */
    gw_graph_rank of[];
} gw_graph;

gw_err gw_graph_open(gw_graph **out, int ranks);
void gw_graph_close(gw_graph *g);

/** What is to watch the world. */
gw_sim_watch gw_graph_watch(gw_graph *g);

/** All ranks as GOAL text, which LogGOPSim reads (T. Hoefler, T. Schneider, A. Lumsdaine,
 *  "LogGOPSim: simulating large-scale applications in the LogGOPS model", LSAP 2010). */
void gw_graph_goal(const gw_graph *g, FILE *to);

/** One rank as a Chakra execution trace, schema 0.0.4, which ASTRA-sim reads (S. Sridharan et al.,
 *  arXiv:2305.14516). It knows microseconds: all computation up to a node, not the node's own, is
 *  rounded to one. All dependencies are data_deps, for not every reader minds ctrl_deps. */
void gw_graph_chakra(const gw_graph *g, int rank, FILE *to);

#endif
