#include "cli/simulate/network.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 3 };

static gw_err network_link(const gw_args *args, const char *owner, const char *option,
                           gw_sim_link *link) {
    static const gw_opt parts[] = {{"rate", GW_OPT_TEXT, ""},
                                   {"latency", GW_OPT_TIME, "0", 0, 10},
                                   {"overhead", GW_OPT_TIME, "0", 0, 10},
                                   {0}};
    char text[128], who[64], *rest = text;
    gw_args *of;
    snprintf(text, sizeof text, "%s", gw_args_text(args, option));
    snprintf(who, sizeof who, "%s: --%s", owner, option);
    GW_TRY(gw_args_new(&of, parts));
    gw_err e = GW_OK;
    for (int i = 0; rest && e == GW_OK; i++) {
        const char *word = strsep(&rest, ",");
        e = i < WORDS ? gw_args_set(of, who, parts[i].name, word)
                      : gw_fail(GW_ERR_USAGE, "%s: %s: more than RATE,LATENCY,OVERHEAD", who,
                                gw_args_text(args, option));
    }
    GW_THEN(e, gw_network_rate(who, "rate", gw_args_text(of, "rate"), &link->bytes_per_s));
    link->latency_s = gw_args_real(of, "latency");
    link->overhead_s = gw_args_real(of, "overhead");
    gw_args_free(of);
    return e;
}

gw_err gw_sim_network_read(gw_sim_setup *w, gw_network **network, const gw_args *args,
                           const char *owner) {
    if (!gw_args_given(args, "ranks") || !gw_args_given(args, "link"))
        return gw_fail(GW_ERR_USAGE, "%s: --ranks N and --link RATE are needed", owner);
    w->ranks = (int)gw_args_int(args, "ranks");
    w->per_host = (int)gw_args_int(args, "per-host");
    GW_TRY(network_link(args, owner, "link", &w->link));
    GW_TRY(network_link(args, owner, "memory-link", &w->memory));
    int hosts = (w->ranks + w->per_host - 1) / w->per_host;
    GW_TRY(gw_network_open(network, gw_args_spec(args, "network"), hosts, w->link.bytes_per_s));
    w->network = *network;
    return GW_OK;
}
