/* Networks of hosts: what each shape has for links, and which of them a message takes. */
#include "comm/fabric/network.h"

#include "base/file.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ABI = 1, SIZES = 3, MOST_NODES = 1 << 20, MOST_BYTES = 1 << 26 };

typedef struct network_ops {
    gw_entry head;
    gw_err (*open)(gw_network *n);
    void (*way)(const gw_network *n, int from, int to, gw_route *way);
} network_ops;

/* The nodes of a file, the first of which are hosts. */
typedef struct network_graph {
    int nodes;
    int *first;        /* [nodes + 1]: where the links of a node begin, */
    int *to;           /* [links]: and where each leads to */
    double *latency_s; /* [links] */
    int *far;          /* [hosts][nodes]: links between them */
} network_graph;

struct gw_network {
    const network_ops *ops;
    gw_args *args;
    int hosts, links, period;
    double host_bytes_per_s, *bytes_per_s; /* of a host's link; of each link */
    double times;                          /* of all these: see gw_network_scale */
    int size[3], sizes; /* racks; dimensions of a torus; groups, routers and hosts of a router */
    network_graph graph;
};

#define RATE_OPT(name, help)                                                                       \
    { (name), GW_OPT_TEXT, NULL, 0, 0, NULL, "RATE", (help) }
#define HOP_OPT                                                                                    \
    { "hop", GW_OPT_TIME, "0", 0, 10, NULL, NULL, "latency of each link between hosts or routers" }

gw_err gw_network_rate(const char *owner, const char *option, const char *text,
                       double *bytes_per_s) {
    static const char *const units[] = {"bit", "kbit", "mbit", "gbit"};
    char *end;
    double x = strtod(text, &end);
    for (int i = 0; i < 4; i++)
        if (strcmp(end, units[i]) == 0 && x > 0 && x * pow(1000, i) <= 1e15) {
            *bytes_per_s = x * pow(1000, i) / 8;
            return GW_OK;
        }
    return gw_fail(GW_ERR_USAGE,
                   "%s: %s: %s: a rate must be a number above 0 with its unit (bit, kbit, mbit, "
                   "gbit), as 1gbit",
                   owner, option, text);
}

static gw_err network_make_links(gw_network *n, int links, double bytes_per_s) {
    n->links = links;
    GW_TRY(gw_alloc(&n->bytes_per_s, (size_t)links, sizeof *n->bytes_per_s));
    for (int l = 0; l < links; l++)
        n->bytes_per_s[l] = l < 2 * n->hosts ? n->host_bytes_per_s : bytes_per_s;
    return GW_OK;
}

/* The rate of an option, or that of a host's link. */
static gw_err network_rate(const gw_network *n, const char *option, double *bytes_per_s) {
    const char *text = gw_args_text(n->args, option);
    *bytes_per_s = n->host_bytes_per_s;
    return text ? gw_network_rate(n->ops->head.name, option, text, bytes_per_s) : GW_OK;
}

static void network_take(gw_route *way, int link, double latency_s) {
    way->link[way->links++] = link;
    way->latency_s += latency_s;
}

/* ---- star: every host has a link to one switch ---- */

static gw_err star_open(gw_network *n) {
    n->period = 1;
    return network_make_links(n, 2 * n->hosts, 0);
}

/* The two ends of all ways but a file's. */
static void star_way(const gw_network *n, int from, int to, gw_route *way) {
    network_take(way, from, 0);
    network_take(way, n->hosts + to, 0);
}

static const network_ops star = {
    {ABI, "star", "every host has a link to one switch", NULL}, star_open, star_way};

/* ---- fattree: racks, each with a link to a switch above them (C. Leiserson, "Fat-trees", IEEE
 * Transactions on Computers 1985: the links of several switches above count as one) ---- */

static const gw_opt fattree_opts[] = {
    {"racks", GW_OPT_INT, "2", 2, 1 << 20, NULL, NULL, "of equally many hosts"},
    RATE_OPT("uplink", "of each rack's link, each way (default: all of its hosts' links)"),
    HOP_OPT,
    {0}};

static gw_err fattree_open(gw_network *n) {
    int racks = (int)gw_args_int(n->args, "racks");
    double rate;
    if (n->hosts % racks != 0)
        return gw_fail(GW_ERR_USAGE, "fattree: racks=%d: %d hosts cannot be cut into equal racks",
                       racks, n->hosts);
    n->size[0] = racks;
    n->period = n->hosts / racks;
    GW_TRY(network_rate(n, "uplink", &rate));
    if (!gw_args_given(n->args, "uplink"))
        rate *= n->period;
    return network_make_links(n, 2 * n->hosts + 2 * racks, rate);
}

static void fattree_way(const gw_network *n, int from, int to, gw_route *way) {
    int rack = from / n->period, other = to / n->period, up = 2 * n->hosts;
    double hop_s = gw_args_real(n->args, "hop");
    star_way(n, from, to, way);
    if (rack == other)
        return;
    network_take(way, up + rack, hop_s);
    network_take(way, up + n->size[0] + other, hop_s);
}

static const network_ops fattree = {
    {ABI, "fattree", "racks of hosts, whose links to each other may be narrower", fattree_opts},
    fattree_open,
    fattree_way};

/* ---- torus: each host has a link to both of its neighbours in each dimension. Messages go one
 * dimension after another, the shorter way round (W. Dally, C. Seitz, "Deadlock-free message
 * routing in multiprocessor interconnection networks", IEEE Transactions on Computers 1987) ---- */

static const gw_opt torus_opts[] = {
    {"dims", GW_OPT_TEXT, "", 0, 0, NULL, "AxB[xC]", "hosts of each dimension, the first nearest"},
    RATE_OPT("rate", "of each link between two hosts, each way (default: that of a host's link)"),
    HOP_OPT,
    {0}};

static gw_err torus_open(gw_network *n) {
    const char *text = gw_args_text(n->args, "dims");
    double rate, hosts = 1, hops = 0;
    char *at = (char *)text;
    for (; n->sizes < SIZES && *at >= '0' && *at <= '9'; at += *at == 'x') {
        long size = strtol(at, &at, 10);
        hosts *= (double)size;
        hops += floor((double)size / 2);
        n->size[n->sizes++] = (int)size;
    }
    if (*at || n->sizes == 0 || hosts != n->hosts)
        return gw_fail(
            GW_ERR_USAGE,
            "torus: dims=%s: it must be up to three numbers with x between, whose product "
            "is the number of hosts (%d)",
            text, n->hosts);
    if (hops + 2 > GW_WAY_LINKS)
        return gw_fail(GW_ERR_USAGE, "torus: dims=%s: a way would have more than %d links", text,
                       GW_WAY_LINKS);
    GW_TRY(network_rate(n, "rate", &rate));
    return network_make_links(n, 2 * n->hosts * (1 + n->sizes), rate);
}

static void torus_way(const gw_network *n, int from, int to, gw_route *way) {
    double hop_s = gw_args_real(n->args, "hop");
    star_way(n, from, to, way);
    for (int d = 0, stride = 1; d < n->sizes; stride *= n->size[d++]) {
        int size = n->size[d], ahead = (to / stride - from / stride) % size;
        ahead += ahead < 0 ? size : 0;
        bool back = 2 * ahead > size;
        for (int left = back ? size - ahead : ahead; left > 0; left--) {
            int here = from / stride % size, next = (here + (back ? size - 1 : 1)) % size;
            network_take(way, 2 * (n->hosts + from * n->sizes + d) + back, hop_s);
            from += (next - here) * stride;
        }
    }
}

static const network_ops torus = {
    {ABI, "torus", "rings of hosts in one to three dimensions", torus_opts}, torus_open, torus_way};

/* ---- dragonfly: groups of routers, each router with a link to every other of its group, each
 * group with one to every other group; the shortest way (J. Kim, W. Dally, S. Scott, D. Abts,
 * "Technology-driven, highly-scalable dragonfly topology", ISCA 2008) ---- */

static const gw_opt dragonfly_opts[] = {
    {"groups", GW_OPT_INT, "2", 1, 32768, NULL, NULL, "of routers"},
    {"routers", GW_OPT_INT, "1", 1, 32768, NULL, NULL, "of a group, each of equally many hosts"},
    RATE_OPT("within", "of a link within a group, each way (default: that of a host's link)"),
    RATE_OPT("between", "of a link between groups, each way (default: likewise)"),
    HOP_OPT,
    {0}};

enum { GROUPS, ROUTERS, PER_ROUTER };

static gw_err dragonfly_open(gw_network *n) {
    long long groups = gw_args_int(n->args, "groups"), routers = gw_args_int(n->args, "routers"),
              local = groups * routers * routers, links = 2LL * n->hosts + local + groups * groups;
    double within_rate, between_rate;
    if (n->hosts % (groups * routers) != 0 || links > 1 << 28)
        return gw_fail(GW_ERR_USAGE,
                       "dragonfly: groups=%lld,routers=%lld: %d hosts cannot be divided equally "
                       "among these routers",
                       groups, routers, n->hosts);
    n->size[GROUPS] = (int)groups;
    n->size[ROUTERS] = (int)routers;
    n->size[PER_ROUTER] = n->hosts / (int)(groups * routers);
    GW_TRY(network_rate(n, "within", &within_rate));
    GW_TRY(network_rate(n, "between", &between_rate));
    GW_TRY(network_make_links(n, (int)links, between_rate));
    for (int l = 2 * n->hosts; l < 2 * n->hosts + local; l++)
        n->bytes_per_s[l] = within_rate;
    return GW_OK;
}

/* The router of `group` that has its link to the other one. */
static int dragonfly_gate(const gw_network *n, int group, int other) {
    return (other - (other > group)) % n->size[ROUTERS];
}

static void dragonfly_way(const gw_network *n, int from, int to, gw_route *way) {
    int groups = n->size[GROUPS], routers = n->size[ROUTERS];
    int at = from / n->size[PER_ROUTER], end = to / n->size[PER_ROUTER];
    int group = at / routers, other = end / routers, local = 2 * n->hosts;
    double hop_s = gw_args_real(n->args, "hop");
    star_way(n, from, to, way);
    at %= routers;
    end %= routers;
    if (group != other) {
        int gate = dragonfly_gate(n, group, other);
        if (at != gate)
            network_take(way, local + (group * routers + at) * routers + gate, hop_s);
        network_take(way, local + groups * routers * routers + group * groups + other, hop_s);
        at = dragonfly_gate(n, other, group);
    }
    if (at != end)
        network_take(way, local + (other * routers + at) * routers + end, hop_s);
}

static const network_ops dragonfly = {
    {ABI, "dragonfly", "groups of routers, with one link between any two groups", dragonfly_opts},
    dragonfly_open,
    dragonfly_way};

/* ---- file: links as lines of a text, "A B RATE [LATENCY]", each a link of that rate from A to B
 * and one back. A node is a number; those below the number of hosts are the hosts. A message takes
 * a shortest way; where several neighbours lie on one, the destination's number chooses (E. Zahavi,
 * "Fat-tree routing and node ordering providing contention free traffic for MPI global
 * collectives", JPDC 2012) ---- */

typedef struct file_link {
    int from, to;
    double bytes_per_s, latency_s;
} file_link;

typedef struct file_links {
    file_link *x;
    int n, nodes;
} file_links;

static const gw_opt latency_opts[] = {{"latency", GW_OPT_TIME, "0", 0, 10}, {0}};

static gw_err file_line(const char *where, char *line, file_links *all) {
    char rate[32], latency[32] = "0", more[2];
    file_link l;
    gw_args *of = NULL;
    int words = sscanf(line, "%d %d %31s %31s %1s", &l.from, &l.to, rate, latency, more);
    if (words < 1 && strspn(line, " \t\r") == strlen(line))
        return GW_OK;
    if (words < 3 || words > 4 || l.from < 0 || l.to < 0 || l.from == l.to ||
        l.from >= MOST_NODES || l.to >= MOST_NODES)
        return gw_fail(GW_ERR_INPUT,
                       "%s: '%.40s': a link is two different nodes (0 .. %d), a rate and perhaps a "
                       "latency, as 0 64 10gbit 1us",
                       where, line, MOST_NODES - 1);
    GW_TRY(gw_network_rate(where, "link", rate, &l.bytes_per_s));
    GW_TRY(gw_args_new(&of, latency_opts));
    gw_err e = gw_args_set(of, where, "latency", latency);
    l.latency_s = gw_args_real(of, "latency");
    gw_args_free(of);
    all->x[all->n++] = l;
    all->x[all->n++] = (file_link){l.to, l.from, l.bytes_per_s, l.latency_s};
    all->nodes = l.from >= all->nodes ? l.from + 1 : all->nodes;
    all->nodes = l.to >= all->nodes ? l.to + 1 : all->nodes;
    return e;
}

static gw_err file_read(const char *path, file_links *all) {
    char *text, where[256];
    size_t len, lines = 1;
    GW_TRY(gw_file_read(path, MOST_BYTES, &text, &len));
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    gw_err e = gw_alloc(&all->x, 2 * lines, sizeof *all->x);
    char *rest = text;
    for (int nth = 1; rest && e == GW_OK; nth++) {
        char *line = strsep(&rest, "\n");
        line[strcspn(line, "#")] = 0;
        snprintf(where, sizeof where, "file: %.200s: line %d", path, nth);
        e = file_line(where, line, all);
    }
    free(text);
    return e;
}

/* Links by the node that they leave. */
static gw_err file_sort(gw_network *n, const file_links *all) {
    network_graph *g = &n->graph;
    size_t links = (size_t)all->n;
    g->nodes = all->nodes > n->hosts ? all->nodes : n->hosts;
    GW_TRY(gw_alloc(&g->first, (size_t)g->nodes + 2, sizeof *g->first));
    GW_TRY(gw_alloc(&g->to, links, sizeof *g->to));
    GW_TRY(gw_alloc(&g->latency_s, links, sizeof *g->latency_s));
    GW_TRY(gw_alloc(&g->far, (size_t)n->hosts * (size_t)g->nodes, sizeof *g->far));
    GW_TRY(network_make_links(n, all->n, 0));
    for (int i = 0; i < all->n; i++)
        g->first[all->x[i].from + 2]++;
    for (int i = 2; i <= g->nodes + 1; i++)
        g->first[i] += g->first[i - 1];
    for (int i = 0; i < all->n; i++) {
        int at = g->first[all->x[i].from + 1]++;
        g->to[at] = all->x[i].to;
        g->latency_s[at] = all->x[i].latency_s;
        n->bytes_per_s[at] = all->x[i].bytes_per_s;
    }
    return GW_OK;
}

/* How far each node is from host `to`; the farthest host. Links go both ways. */
static int file_measure(const gw_network *n, int to, int *queue) {
    const network_graph *g = &n->graph;
    int *far = g->far + (size_t)to * (size_t)g->nodes, most = 0, queued = 1;
    for (int i = 0; i < g->nodes; i++)
        far[i] = -1;
    far[to] = 0;
    queue[0] = to;
    for (int head = 0; head < queued; head++)
        for (int l = g->first[queue[head]]; l < g->first[queue[head] + 1]; l++)
            if (far[g->to[l]] < 0) {
                far[g->to[l]] = far[queue[head]] + 1;
                queue[queued++] = g->to[l];
            }
    for (int h = 0; h < n->hosts; h++)
        if (far[h] < 0)
            return -1 - h;
        else
            most = far[h] > most ? far[h] : most;
    return most;
}

static gw_err file_ways(gw_network *n, const char *path) {
    int *queue, far = 0;
    GW_TRY(gw_alloc(&queue, (size_t)n->graph.nodes, sizeof *queue));
    for (int to = 0; to < n->hosts && far >= 0 && far <= GW_WAY_LINKS; to++)
        far = file_measure(n, to, queue);
    free(queue);
    if (far < 0)
        return gw_fail(GW_ERR_INPUT, "file: %s: no links lead from host %d to host 0 of %d hosts",
                       path, -1 - far, n->hosts);
    return far <= GW_WAY_LINKS
               ? GW_OK
               : gw_fail(GW_ERR_INPUT, "file: %s: two hosts are more than %d links apart", path,
                         GW_WAY_LINKS);
}

static gw_err file_open(gw_network *n) {
    const char *path = gw_args_text(n->args, "path");
    file_links all = {0};
    if (!path)
        return gw_fail(GW_ERR_USAGE, "file: path=FILE is missing: a text of links");
    gw_err e = file_read(path, &all);
    if (e == GW_OK && all.n == 0)
        e = gw_fail(GW_ERR_INPUT, "file: %s: no link stands in it", path);
    GW_THEN(e, file_sort(n, &all));
    GW_THEN(e, file_ways(n, path));
    free(all.x);
    return e;
}

static void file_way(const gw_network *n, int from, int to, gw_route *way) {
    const network_graph *g = &n->graph;
    const int *far = g->far + (size_t)to * (size_t)g->nodes;
    for (int at = from; at != to;) {
        int nearer = 0, l = g->first[at];
        for (int i = l; i < g->first[at + 1]; i++)
            nearer += far[g->to[i]] < far[at];
        for (int skip = to % nearer; skip > 0 || far[g->to[l]] >= far[at]; l++)
            skip -= far[g->to[l]] < far[at];
        way->link[way->links++] = l;
        way->latency_s += g->latency_s[l];
        at = g->to[l];
    }
}

static const gw_opt file_opts[] = {
    {"path", GW_OPT_FILE, NULL, 0, 0, NULL, "FILE", "lines A B RATE [LATENCY]: nodes, hosts first"},
    {0}};

static const network_ops file = {
    {ABI, "file", "links as a text lists them", file_opts}, file_open, file_way};

/* ---- all of them ---- */

static const gw_entry *const entries[] = {&star.head,      &fattree.head, &torus.head,
                                          &dragonfly.head, &file.head,    NULL};

const gw_registry gw_networks = {.kind = "network", .abi = ABI, .entries = entries};

gw_err gw_network_open(gw_network **out, const gw_spec *spec, int hosts, double bytes_per_s) {
    const gw_spec plain = GW_SPEC_NAMED("star");
    const gw_entry *found;
    gw_network *n = NULL;
    spec = spec ? spec : &plain;
    *out = NULL;
    GW_TRY(gw_registry_find(&gw_networks, spec->name, &found));
    GW_TRY(gw_alloc(&n, 1, sizeof *n));
    *n = (gw_network){.ops = (const network_ops *)found,
                      .hosts = hosts,
                      .period = hosts,
                      .host_bytes_per_s = bytes_per_s,
                      .times = 1};
    gw_err e = gw_args_of(&n->args, found->opts, found->name, spec);
    GW_THEN(e, n->ops->open(n));
    GW_OPENED(e, out, n, gw_network_close);
}

void gw_network_close(gw_network *n) {
    if (!n)
        return;
    free(n->graph.first);
    free(n->graph.to);
    free(n->graph.latency_s);
    free(n->graph.far);
    gw_args_free(n->args);
    free(n->bytes_per_s);
    free(n);
}

int gw_network_links(const gw_network *n) {
    return n->links;
}

void gw_network_scale(gw_network *n, double times) {
    n->times = times;
}

double gw_network_bytes_per_s(const gw_network *n, int link) {
    return n->times * n->bytes_per_s[link];
}

void gw_network_way(const gw_network *n, int from, int to, gw_route *way) {
    way->links = 0;
    way->latency_s = 0;
    n->ops->way(n, from, to, way);
}

int gw_network_period(const gw_network *n) {
    return n->period;
}

int gw_network_image(const gw_network *n, int link) {
    int of = link < 2 * n->hosts ? link % n->hosts : (link - 2 * n->hosts) % n->size[0];
    return link - (link < 2 * n->hosts ? of - of % n->period : of);
}
