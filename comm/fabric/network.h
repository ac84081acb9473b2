/** Networks of hosts: their links, and which of these a message takes. But for a file's, links 0 ..
 *  hosts-1 leave the hosts, hosts .. 2 hosts - 1 enter them, and others follow. */
#ifndef GW_COMM_FABRIC_NETWORK_H
#define GW_COMM_FABRIC_NETWORK_H

#include "base/registry.h"

enum { GW_WAY_LINKS = 128 };

/** From one host to another. */
typedef struct gw_route {
    int links, link[GW_WAY_LINKS]; /* all different; in any order, since a message fills all */
    double latency_s;              /* of these links, beyond what any message needs */
} gw_route;

typedef struct gw_network gw_network;

/** `star`, `fattree`, `torus`, `dragonfly` and `file`. */
extern const gw_registry gw_networks;

/** Open `spec` (NULL: star) for so many hosts, whose links have this rate each way. GW_ERR_USAGE:
 *  it has another number of hosts; GW_ERR_INPUT: its file is of no use. */
gw_err gw_network_open(gw_network **out, const gw_spec *spec, int hosts, double bytes_per_s);
void gw_network_close(gw_network *n);

int gw_network_links(const gw_network *n);
/** Have all links so many times the rates that they were opened with. */
void gw_network_scale(gw_network *n, double times);
double gw_network_bytes_per_s(const gw_network *n, int link);

/** From host `from` to another one, by the same links each time. */
void gw_network_way(const gw_network *n, int from, int to, gw_route *way);

/** Hosts h and h + k * this, for any k, look alike: what one sees of the network, the other sees of
 *  the network moved by so many hosts. All hosts: nothing of the kind is known. */
int gw_network_period(const gw_network *n);
/** Of links that are alike so, the one of the first period. */
int gw_network_image(const gw_network *n, int link);

/** `text`, a rate in the words of the testbed ("10gbit"), in bytes a second. GW_ERR_USAGE: it is
 *  none; the message names `owner` and its `option`. */
gw_err gw_network_rate(const char *owner, const char *option, const char *text,
                       double *bytes_per_s);

#endif
