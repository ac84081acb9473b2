/* Ceilings of a run: one rank per host measures and all know them; links; the cache serves the next
 * run; all ranks report a bad file. */
#include "roofline/ceilings_file.h"
#include "roofline/gauge.h"

#include "check.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const gw_model_spec spec = {.inputs = 32, .classes = 4, .n_hidden = 1, .hidden = {24}};
static const gw_spec qsgd = {.text = "qsgd", .name = "qsgd"};

static const gw_shard *part_of(int parts, int part) {
    static gw_shard shard;
    gw_share share = gw_share_whole(&spec);
    share.tensor = parts;
    share.part = part;
    CHECK_OK(gw_shard_of(&shard, &spec, &share));
    return &shard;
}

static gw_gauge_setup setup(const char *from) {
    return (gw_gauge_setup){.comm = MPI_COMM_WORLD,
                            .from = from,
                            .threads = 1,
                            .oversubscribed = true, /* whatever the cores: not all at once */
                            .twins = {.load = {part_of(1, 0), 8 + me},
                                      .threads = 1,
                                      .codec = &qsgd,
                                      .feedback = true,
                                      .joined = 1}};
}

static void check_same_everywhere(const gw_gauge *g) {
    double mine[3] = {g->c.fma.one, g->c.n_times, g->batch};
    CHECK(same_on_all(mine, sizeof mine), "ranks of a host have different ceilings");
}

static void check_measured(const char *cache) {
    static gw_gauge g;
    gw_gauge_setup s = setup("auto");
    CHECK_OK(gw_gauge_open(&g, &s));
    CHECK(g.source == GW_GAUGE_MEASURED && g.added > 0, "source %d, added %d", g.source, g.added);
    CHECK(g.batch == 8 + ranks - 1, "the host's largest batch is %d, not %d", 8 + ranks - 1,
          g.batch);
    CHECK(g.c.all_threads == ranks, "%d threads on %d ranks", g.c.all_threads, ranks);
    CHECK(g.c.fma.one > 0 && (ranks == 1 || isnan(g.c.fma.all)), "more threads than CPUs");
    for (gw_coding k = GW_CODING_ENCODE; k <= GW_CODING_SET; k++)
        CHECK(gw_twin_coded(&g.c, &s.twins, k) > 0, "no twin of coding %d", k);
    check_same_everywhere(&g);
    CHECK(g.links == (ranks > 1), "%d links among %d ranks of a host", g.links, ranks);
    if (ranks > 1)
        CHECK(g.link[0].from == 0 && g.link[0].to == 1 && g.link[0].same_host &&
                  g.link[0].alpha_s > 0,
              "link %d-%d", g.link[0].from, g.link[0].to);
    CHECK_OK(gw_gauge_close(&g, &s));
    CHECK(g.before > 0 || isnan(g.before), "%g flop/s", g.before);
    CHECK(g.drift > -1 || isnan(g.drift), "drift %g", g.drift);
    CHECK(access(cache, F_OK) == 0, "%s is not there", cache);
}

static void check_cached(void) {
    static gw_gauge g;
    gw_gauge_setup s = setup("auto");
    CHECK_OK(gw_gauge_open(&g, &s));
    CHECK(g.source == GW_GAUGE_CACHED && g.added == 0, "source %d, added %d: %s", g.source, g.added,
          g.note);
    check_same_everywhere(&g);
    s.twins.load.batch += 100; /* other products: measured, and kept beside the others */
    CHECK_OK(gw_gauge_open(&g, &s));
    CHECK(g.source == GW_GAUGE_CACHED && g.added == 5, "source %d, added %d", g.source, g.added);
}

/* The ranks of a host hold different parts of a model: each finds the products of its own. */
static void check_parts(void) {
    static gw_gauge g;
    gw_gauge_setup s = setup("auto");
    gw_product all[GW_PRODUCTS];
    int parts = ranks < 4 ? ranks : 4;
    s.twins.load.shard = part_of(parts, me % parts);
    CHECK_OK(gw_gauge_open(&g, &s));
    int n = gw_twin_products(s.twins.load.shard, g.batch, all);
    for (int i = 0; i < n; i++)
        CHECK(gw_twin_product(&g.c, &all[i]) > 0, "product %d of rank %d was not timed", i, me);
    for (int l = 0; l < 2; l++)
        CHECK(gw_twin_pointwise(&g.c, &s.twins, l, GW_PART_FORWARD_POINTWISE) > 0, "layer %d", l);
    check_same_everywhere(&g);
}

static void check_file(const char *cache) {
    static gw_gauge g;
    gw_gauge_setup s = setup(cache);
    CHECK_OK(gw_gauge_open(&g, &s));
    CHECK(g.source == GW_GAUGE_FILE, "source %d", g.source);
    s = setup("/tmp/gw-no-such-file.json");
    CHECK(gw_gauge_open(&g, &s) == GW_ERR_INPUT, "a file that is not there is accepted");
    CHECK(strstr(gw_err_text(), "gw-no-such-file"), "no name in: %s", gw_err_text());
}

static void check_damaged(const char *cache) {
    static gw_gauge g;
    gw_gauge_setup s = setup("auto");
    if (me == 0) {
        CHECK(truncate(cache, 100) == 0, "cannot cut %s", cache);
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_OK(gw_gauge_open(&g, &s));
    CHECK(g.source == GW_GAUGE_MEASURED && strstr(g.note, "line"), "note: %s", g.note);
    CHECK_OK(gw_gauge_open(&g, &s));
    CHECK(g.source == GW_GAUGE_CACHED, "the cache was not mended: %s", g.note);
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/gw-gauge-XXXXXX", command[64];
    static gw_ceilings want;
    char cache[GW_CEILINGS_PATH];
    check_start(argc, argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (me == 0)
        CHECK(mkdtemp(folder), "no folder");
    CHECK_MPI(MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, MPI_COMM_WORLD));
    setenv("XDG_CACHE_HOME", folder, 1);
    gw_gauge_setup s = setup("auto");
    CHECK_OK(gw_gauge_identify(&want, &s, MPI_COMM_WORLD));
    gw_ceilings_cache(&want, cache);
    check_measured(cache);
    check_cached();
    check_parts();
    check_file(cache);
    check_damaged(cache);
    if (me == 0) {
        snprintf(command, sizeof command, "rm -r %s", folder);
        CHECK(system(command) == 0, "cannot remove %s", folder);
    }
    MPI_Finalize();
    return 0;
}
