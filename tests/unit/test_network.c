/* Networks: how many links ways have, how long a message takes on them, and what is refused. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "../simulated.h"
#include "folder.h"

/* Of all ways between different hosts: how many links, none of them twice. */
static void measure(const gw_network *n, int hosts, int *least, int *most, double *mean) {
    gw_route way;
    long sum = 0;
    *least = GW_WAY_LINKS;
    *most = 0;
    for (int a = 0; a < hosts; a++)
        for (int b = 0; b < hosts; b++) {
            if (a == b)
                continue;
            gw_network_way(n, a, b, &way);
            assert_true(way.links > 0 && way.links <= GW_WAY_LINKS);
            for (int i = 0; i < way.links; i++) {
                assert_true(way.link[i] >= 0 && way.link[i] < gw_network_links(n));
                for (int k = 0; k < i; k++)
                    assert_int_not_equal(way.link[i], way.link[k]);
            }
            *least = way.links < *least ? way.links : *least;
            *most = way.links > *most ? way.links : *most;
            sum += way.links;
        }
    *mean = (double)sum / hosts / (hosts - 1);
}

static void test_lengths(void **state) {
    static const struct {
        const char *text;
        int hosts, links, least, most;
        double mean; /* links of a way, beside its two ends' */
    } all[] = {
        {"star", 9, 18, 2, 2, 0},
        {"fattree:racks=4", 12, 32, 2, 4, 2 * 9.0 / 11},
        {"torus:dims=6", 6, 24, 3, 5, 9.0 / 5},
        {"torus:dims=4x3x2", 24, 192, 3, 6, 24 * (1 + 2.0 / 3 + 0.5) / 23},
        {"dragonfly:groups=3,routers=2", 12, 45, 2, 5, -1},
        {"dragonfly:groups=1,routers=4", 8, 33, 2, 3, 6.0 / 7},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const gw_network *n = network_of(all[i].text, all[i].hosts);
        int least, most;
        double mean;
        measure(n, all[i].hosts, &least, &most, &mean);
        assert_int_equal(gw_network_links(n), all[i].links);
        assert_int_equal(least, all[i].least);
        assert_int_equal(most, all[i].most);
        if (all[i].mean >= 0)
            assert_true(fabs(mean - 2 - all[i].mean) < 1e-9);
    }
}

/* Every link of a torus is shared by as many ways as its mirror image: no direction is left out. */
static void test_torus_uses_all(void **state) {
    const gw_network *n = network_of("torus:dims=3x3", 9);
    int uses[54] = {0};
    gw_route way;
    for (int a = 0; a < 9; a++)
        for (int b = 0; b < 9; b++) {
            if (a == b)
                continue;
            gw_network_way(n, a, b, &way);
            for (int i = 2; i < way.links; i++)
                uses[way.link[i]]++;
        }
    for (int l = 18; l < 54; l++)
        assert_int_equal(uses[l], 3);
}

/* A message alone takes its latency and each hop's, and the narrowest link's time. */
static gw_err one_message(void *ctx, gw_fabric *f) {
    int far = *(int *)ctx;
    char data = 0;
    size_t len;
    gw_posts *p;
    gw_err e = f->ops->room(1, &p);
    if (f->rank == 0)
        GW_THEN(e, f->ops->isend(f, p, 0, &data, 1000000, far, 0));
    if (f->rank == far)
        GW_THEN(e, f->ops->irecv(f, p, 0, &data, 1000000, 0, 0, &len));
    if (f->rank == 0 || f->rank == far)
        GW_THEN(e, f->ops->wait(f, p, 0, 1));
    if (f->rank == far)
        *(int *)ctx = (int)(f->ops->now_ns(f) / 1000);
    free(p);
    f->ops->close(f);
    return e;
}

static void assert_takes(const char *network, int hosts, int to, double us) {
    gw_sim_setup w = world_of(hosts, 1, network, link_plain);
    int far = to;
    if (gw_sim_run(&w, one_message, &far) != GW_OK)
        fail_msg("%s: %s", network, gw_err_text());
    if (far != (int)us)
        fail_msg("%s: rank %d has it after %d us, and not %g", network, to, far, us);
}

static void test_one_message(void **state) {
    char spec[96];
    assert_takes("star", 8, 3, 1020);
    assert_takes("fattree:racks=2,uplink=1gbit,hop=5us", 8, 3, 1020);
    assert_takes("fattree:racks=2,uplink=1gbit,hop=5us", 8, 4, 8030);
    assert_takes("torus:dims=4x2,rate=2gbit,hop=5us", 8, 6, 4035); /* two on, one across */
    assert_takes("dragonfly:groups=2,routers=2,within=4gbit,between=2gbit,hop=5us", 8, 4, 4025);
    assert_takes("dragonfly:groups=2,routers=2,within=4gbit,between=2gbit,hop=5us", 8, 2, 2025);
    const char *path = put_text("links", "# two switches\n0 4 8gbit\n1 4 8gbit\n\n2 5 8gbit 1us\n"
                                         "3 5 8gbit\n4 5 2gbit 7us # between them\n");
    snprintf(spec, sizeof spec, "file:path=%s", path);
    assert_takes(spec, 4, 1, 1020);
    assert_takes(spec, 4, 2, 4028);
}

static void assert_refused(const char *text, int hosts, const char *says) {
    const gw_spec *spec = NULL;
    gw_network *n = NULL;
    assert_int_equal(keep_spec(&spec, text, GW_SPEC_ONE), GW_OK);
    assert_int_not_equal(gw_network_open(&n, spec, hosts, RATE), GW_OK);
    assert_null(n);
    assert_message(says);
}

static void test_refusals(void **state) {
    static const struct {
        const char *links, *says;
    } files[] = {{"", "no link stands in it"},
                 {"0 1 10gbit\n0 2\n", "line 2: '0 2': a link is two different nodes"},
                 {"0 0 10gbit\n", "line 1: '0 0 10gbit'"},
                 {"0 -1 10gbit\n", "two different nodes"},
                 {"0 1 10\n", "a rate must be a number above 0"},
                 {"0 1 10gbit soon\n", "latency=soon"},
                 {"0 1 10gbit 1us 2\n", "a link is two"},
                 {"0 9999999999 10gbit\n", "a link is two"},
                 {"0 1 10gbit\n", "no links lead from host 2 to host 0"}};
    char spec[96];
    assert_refused("mesh", 4, "mesh");
    assert_refused("fattree:racks=3", 4, "4 hosts cannot be cut into equal racks");
    assert_refused("fattree:racks=2,uplink=fast", 4, "fattree: uplink: fast: a rate must be");
    for (int i = 0; i < 5; i++) {
        const char *const dims[] = {"", ":dims=2x", ":dims=2x3", ":dims=2xx2", ":dims=2x2x1x1"};
        snprintf(spec, sizeof spec, "torus%s", dims[i]);
        assert_refused(spec, 4, "whose product is the number of hosts (4)");
    }
    assert_refused("torus:dims=512", 512, "more than 128 links");
    assert_refused("dragonfly:groups=3", 4, "cannot be divided equally");
    assert_refused("file", 4, "path=FILE is missing");
    assert_refused("file:path=/nowhere/links", 4, "/nowhere/links");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(spec, sizeof spec, "file:path=%s", put_text("links", files[i].links));
        assert_refused(spec, 4, files[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_torus_uses_all),
        cmocka_unit_test(test_one_message), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
