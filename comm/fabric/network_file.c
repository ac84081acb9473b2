/* file: links as lines of a text, "A B RATE [LATENCY]", each a link of that rate from A to B and
 * one back. A node is a number; those below the number of hosts are the hosts. A message takes a
 * shortest way; where several neighbours lie on one, the destination's number chooses (E. Zahavi,
 * "Fat-tree routing and node ordering providing contention free traffic for MPI global
 * collectives", JPDC 2012). */
#include "comm/fabric/network_parts.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 1 << 20, MOST_BYTES = 1 << 26 };

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
    gw_network_graph *g = &n->graph;
    size_t links = (size_t)all->n;
    g->nodes = all->nodes > n->hosts ? all->nodes : n->hosts;
    GW_TRY(gw_alloc(&g->first, (size_t)g->nodes + 2, sizeof *g->first));
    GW_TRY(gw_alloc(&g->to, links, sizeof *g->to));
    GW_TRY(gw_alloc(&g->latency_s, links, sizeof *g->latency_s));
    GW_TRY(gw_alloc(&g->far, (size_t)n->hosts * (size_t)g->nodes, sizeof *g->far));
    GW_TRY(gw_network_make_links(n, all->n, 0));
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
    const gw_network_graph *g = &n->graph;
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
    const gw_network_graph *g = &n->graph;
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

void gw_network_close_file(gw_network *n) {
    free(n->graph.first);
    free(n->graph.to);
    free(n->graph.latency_s);
    free(n->graph.far);
}

static const gw_opt opts[] = {
    {"path", GW_OPT_FILE, NULL, 0, 0, NULL, "FILE", "lines A B RATE [LATENCY]: nodes, hosts first"},
    {0}};

const gw_network_ops gw_network_file = {
    {1, "file", "links as a text lists them", opts}, file_open, file_way};
