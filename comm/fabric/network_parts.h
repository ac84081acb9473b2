/** What the files of networks share. Nobody else includes this. */
#ifndef GW_COMM_FABRIC_NETWORK_PARTS_H
#define GW_COMM_FABRIC_NETWORK_PARTS_H

#include "comm/fabric/network.h"

typedef struct gw_network_ops {
    gw_entry head;
    gw_err (*open)(gw_network *n);
    void (*way)(const gw_network *n, int from, int to, gw_route *way);
} gw_network_ops;

/* Of a file: nodes, the first of which are hosts. */
typedef struct gw_network_graph {
    int nodes;
    int *first;        /* [nodes + 1]: where the links of a node begin, */
    int *to;           /* [links]: and where each leads to */
    double *latency_s; /* [links] */
    int *far;          /* [hosts][nodes]: links between them */
} gw_network_graph;

struct gw_network {
    const gw_network_ops *ops;
    gw_args *args;
    int hosts, links, period;
    double host_bytes_per_s, *bytes_per_s; /* of a host's link; of each link */
    double times;                          /* of all these: see gw_network_scale */
    int size[3], sizes; /* racks; dimensions of a torus; groups, routers and hosts of a router */
    gw_network_graph graph;
};

/** Room for so many links, of this rate unless another is put. */
gw_err gw_network_make_links(gw_network *n, int links, double bytes_per_s);

extern const gw_network_ops gw_network_file;
void gw_network_close_file(gw_network *n);

#endif
