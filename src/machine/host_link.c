/* What experiments/testbed says of the links that it emulates. */
#include "machine/host.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RATE INT64_C(1000000000000)

/* The whole number that `text` begins with, and what follows it; -1: none from 1 to `most`. */
static int64_t link_number_at(const char *text, int64_t most, const char **rest) {
    char *end = (char *)text;
    long long value = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : 0;
    *rest = end;
    return value >= 1 && value <= most ? value : -1;
}

static int64_t link_number_in(const char *text, int64_t most) {
    const char *rest;
    int64_t value = link_number_at(text, most, &rest);
    return *rest == '\0' ? value : -1;
}

/* SENDS/RECEIVES,.. of as many hosts. */
static bool link_are_rates(const char *text, int hosts) {
    for (int i = 0; i < 2 * hosts; i++) {
        if (link_number_at(text, MOST_RATE, &text) < 0)
            return false;
        if (*text++ != (i % 2 == 0 ? '/' : i + 1 < 2 * hosts ? ',' : '\0'))
            return false;
    }
    return true;
}

static gw_err link_read_further(gw_host_link *link) {
    const char *slow = getenv("GRADWIRE_SLOW_HOSTS"), *rates = getenv("GRADWIRE_HOST_RATES"),
               *piece = getenv("GRADWIRE_LINK_PIECE"), *racks = getenv("GRADWIRE_RACKS");
    enum { MOST_SEGMENTS = 1 << 16, MOST_MTU = 1 << 16, MOST_RANKS = 4096 };
    if (slow &&
        (!*slow || slow[strspn(slow, "0123456789:.,")] || strlen(slow) >= sizeof link->slow))
        return gw_fail(GW_ERR_USAGE,
                       "GRADWIRE_SLOW_HOSTS='%.300s': must be HOST:FRACTION,.. in at "
                       "most %zu letters, as experiments/testbed sets it",
                       slow, sizeof link->slow - 1);
    if (rates && (!link_are_rates(rates, link->hosts) || strlen(rates) >= sizeof link->rates))
        return gw_fail(GW_ERR_USAGE,
                       "GRADWIRE_HOST_RATES='%.300s': must be SENDS/RECEIVES,.. in bit/s for each "
                       "of %d hosts, as experiments/testbed sets it",
                       rates, link->hosts);
    if (piece) {
        const char *rest;
        link->segments = (int)link_number_at(piece, MOST_SEGMENTS, &rest);
        link->mtu = *rest == 'x' ? (int)link_number_in(rest + 1, MOST_MTU) : -1;
        if (link->segments < 0 || link->mtu < 0)
            return gw_fail(GW_ERR_USAGE,
                           "GRADWIRE_LINK_PIECE='%.300s': must be SEGMENTSxMTU, e.g. 10x1500, as "
                           "experiments/testbed sets it",
                           piece);
    }
    snprintf(link->slow, sizeof link->slow, "%s", slow ? slow : "");
    snprintf(link->rates, sizeof link->rates, "%s", rates ? rates : "");
    if (!racks)
        return GW_OK;
    const char *rest = racks; /* how many, the uplink's rate, and the ranks of a host in turn */
    link->racks = (int)link_number_at(racks, link->hosts, &rest);
    link->uplink_bits_per_s = *rest == 'x' ? link_number_at(rest + 1, MOST_RATE, &rest) : -1;
    link->ranks_per_host = *rest == 'x' ? (int)link_number_in(rest + 1, MOST_RANKS) : -1;
    if (link->racks < 2 || link->hosts % link->racks != 0 || link->uplink_bits_per_s < 0 ||
        link->ranks_per_host < 0)
        return gw_fail(
            GW_ERR_USAGE,
            "GRADWIRE_RACKS='%.300s': must be RACKSxUPLINKxRANKS with 2 racks or more that "
            "share %d hosts evenly, e.g. 2x200000000x1, as experiments/testbed sets it",
            racks, link->hosts);
    return GW_OK;
}

gw_err gw_host_link_read(gw_host_link *out) {
    static const char hosts_name[] = "GRADWIRE_TESTBED", rate_name[] = "GRADWIRE_LINK_RATE";
    enum { MOST_HOSTS = 4096 };
    const char *hosts = getenv(hosts_name), *rate = getenv(rate_name);
    *out = (gw_host_link){0};
    if (!hosts && !rate)
        return GW_OK;
    if (!hosts || !rate)
        return gw_fail(GW_ERR_USAGE, "%s is set without %s: experiments/testbed sets both",
                       hosts ? hosts_name : rate_name, hosts ? rate_name : hosts_name);
    gw_host_link link = {.emulated = true,
                         .hosts = (int)link_number_in(hosts, MOST_HOSTS),
                         .rate_bits_per_s = link_number_in(rate, MOST_RATE)};
    if (link.hosts < 0)
        return gw_fail(GW_ERR_USAGE, "%s='%s': must be a number of hosts from 1 to %d", hosts_name,
                       hosts, MOST_HOSTS);
    if (link.rate_bits_per_s < 0)
        return gw_fail(GW_ERR_USAGE, "%s='%s': must be a whole number of bit/s from 1 to %lld",
                       rate_name, rate, (long long)MOST_RATE);
    GW_TRY(link_read_further(&link));
    *out = link;
    return GW_OK;
}
