/* Which ranks share a host, and how the testbed describes its emulated hosts. */
#include "machine/host.h"

#include "check.h"

static void test_host_node(void) {
    gw_host_node node;
    CHECK(gw_host_node_of(&node, 3, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    CHECK(node.nodes == 1 && node.ranks == ranks && node.threads == 3 * ranks, "%d hosts %d ranks",
          node.nodes, node.ranks);
    CHECK(node.cpus >= 1, "%d", node.cpus);
    CHECK(gw_host_oversubscribed(&node) || node.cpus >= 3 * ranks, "%d CPUs", node.cpus);
    CHECK(gw_host_node_of(&node, 100000, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    CHECK(gw_host_oversubscribed(&node), "100000 threads fit nowhere");
}

/* Emulated hosts share one machine's cores; what the testbed states must make sense. */
static void test_emulated_hosts(void) {
    static const struct {
        const char *hosts, *rate;
        bool fine;
    } cases[] = {{"4", "1000000000", true},     {"4096", "1", true}, {"4", NULL, false},
                 {NULL, "1000000000", false},   {"", "1", false},    {"4", "1e9", false},
                 {"4097", "1000000000", false}, {"4", "0", false},   {" 4", "1", false},
                 {"4", "1000000000001", false}, {"4 ", "1", false},  {"-4", "1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsetenv("GRADWIRE_TESTBED");
        unsetenv("GRADWIRE_LINK_RATE");
        if (cases[i].hosts)
            setenv("GRADWIRE_TESTBED", cases[i].hosts, 1);
        if (cases[i].rate)
            setenv("GRADWIRE_LINK_RATE", cases[i].rate, 1);
        gw_host_link link;
        gw_err e = gw_host_link_read(&link);
        CHECK((e == GW_OK) == cases[i].fine && link.emulated == cases[i].fine, "case %zu", i);
        gw_host_node node;
        /* If one rank's variable is malformed, all ranks fail. */
        if (me == ranks - 1 && !cases[i].fine && ranks > 1)
            unsetenv("GRADWIRE_TESTBED"), unsetenv("GRADWIRE_LINK_RATE");
        CHECK(gw_host_node_of(&node, 1, MPI_COMM_WORLD) == (cases[i].fine ? GW_OK : GW_ERR_USAGE),
              "case %zu", i);
        if (cases[i].fine)
            CHECK(node.sharers == ranks && node.threads == ranks, "%d sharers", node.sharers);
    }
    unsetenv("GRADWIRE_TESTBED");
    unsetenv("GRADWIRE_LINK_RATE");
    gw_host_link none;
    CHECK(gw_host_link_read(&none) == GW_OK && !none.emulated && none.hosts == 0, "none");
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    test_host_node();
    test_emulated_hosts();
    MPI_Finalize();
    return 0;
}
