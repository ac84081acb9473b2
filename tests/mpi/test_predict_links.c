/* Which ranks share a host, on emulated ones, and that their link has figures. No figure is looked
 * at that depends on how fast this machine is. */
#include "predict/link.h"

#include "mpi/wait.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_link(const gw_sim_link *l, const char *name, bool copies) {
    CHECK(l->bytes_per_s > 0 && l->latency_s >= 0 && l->overhead_s >= 0 && l->byte_s >= 0,
          "%s: %g bytes/s, %g s, %g s a message, %g s a byte", name, l->bytes_per_s, l->latency_s,
          l->overhead_s, l->byte_s);
    CHECK(!copies || l->byte_s > 0, "%s: bytes take no core", name);
}

int main(int argc, char **argv) {
    /* MPICH: odd and even ranks are two nodes, from 2 ranks on */
    setenv("MPIR_CVAR_ODD_EVEN_CLIQUES", "1", 1);
    check_start(argc, argv);
    bool crowded = ranks >= sysconf(_SC_NPROCESSORS_ONLN);
    gw_sim_setup w = {0};
    gw_err e = gw_predict_links(&w, 0, crowded, MPI_COMM_WORLD);
    if (ranks > 2) { /* neighbours lie apart */
        CHECK(e == GW_ERR_UNSUPPORTED && strstr(gw_err_text(), "host by host"), "%d: %s", e,
              gw_err_text());
    } else {
        CHECK_OK(e);
        CHECK(w.ranks == ranks && w.per_host == 1 && w.network, "%d ranks, %d a host", w.ranks,
              w.per_host);
        if (ranks == 2)
            check_link(&w.link, "link", false);
    }
    gw_network_close(w.network);
    MPI_Finalize();
    return 0;
}
