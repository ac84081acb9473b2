/** Networks of hosts: their links, and which of these a message takes. Except in a file's network,
 *  links 0 .. hosts-1 leave the hosts, hosts .. 2 hosts - 1 enter them, and others follow. */
#ifndef GW_COMM_FABRIC_NETWORK_H
#define GW_COMM_FABRIC_NETWORK_H

#include "base/registry.h"

enum { GW_WAY_LINKS = 128 };

/** The way from one host to another. */
typedef struct gw_route {
    int links, link[GW_WAY_LINKS]; /* all different; in any order, since a message fills all */
    double latency_s;              /* of these links, on top of that of every message */
} gw_route;

typedef struct gw_network gw_network;

/** `star`, `fattree`, `torus`, `dragonfly` and `file`. */
extern const gw_registry gw_networks;

/** Open `spec` (NULL: star) for so many hosts, whose links have this rate each way. GW_ERR_USAGE:
 *  it has another number of hosts; GW_ERR_INPUT: its file cannot be used. */
gw_err gw_network_open(gw_network **out, const gw_spec *spec, int hosts, double bytes_per_s);
void gw_network_close(gw_network *n);

int gw_network_links(const gw_network *n);
/** Set all links' rates to `times` those that they were opened with. */
void gw_network_scale(gw_network *n, double times);
double gw_network_bytes_per_s(const gw_network *n, int link);

/** Find the way from host `from` to host `to`, by the same links each time. */
void gw_network_way(const gw_network *n, int from, int to, gw_route *way);

/** Return the period p: hosts h and h + k * p, for any k, are alike, that is, the network looks the
 *  same if moved by so many hosts. The number of hosts: no symmetry is known. */
int gw_network_period(const gw_network *n);
/** Return the link of the first period among those that are alike in this way. */
int gw_network_image(const gw_network *n, int link);

/** Convert `text`, a rate as the testbed takes it ("10gbit"), to bytes per second. GW_ERR_USAGE: it
 *  is no rate; the message names `owner` and its `option`. */
gw_err gw_network_rate(const char *owner, const char *option, const char *text,
                       double *bytes_per_s);

#endif
